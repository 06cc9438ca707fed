//go:build linux

package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/fabrictest"
)

func openTwo(cfg Config) func(tb testing.TB) (fabric.Link, fabric.Link) {
	return func(tb testing.TB) (fabric.Link, fabric.Link) {
		a, err := Open(&cfg)
		require.NoError(tb, err)
		b, err := Open(&cfg)
		require.NoError(tb, err)
		return a, b
	}
}

// The suite runs with the kernel's buffers, and with a small send
// buffer, so that every frame is sent and received in parts.
func TestConformance(t *testing.T) {
	for name, cfg := range map[string]Config{
		"plain": {},
		"tiny":  {SendBuffer: 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			fabrictest.Run(t, fabrictest.Factory{Open: openTwo(cfg), IdleDown: true})
		})
	}
}
