package bringup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
)

func TestConfiguredSpinPolicy(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want cpu.Patience
	}{
		{Config{}, cpu.Crowded},
		{Config{Spin: 100}, cpu.Patience{Looks: 64, Pauses: 36, Yields: cpu.Crowded.Yields}},
		{Config{Spin: -1, Yields: 7}, cpu.Patience{Yields: 7}},
		{Config{Yields: -1}, cpu.Patience{Looks: cpu.Crowded.Looks}},
	} {
		require.Equal(t, c.want, c.cfg.spin(cpu.Crowded))
	}
}
