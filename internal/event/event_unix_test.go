//go:build unix && !linux

package event

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]int{-time.Second: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Second: 1000} {
		require.Equal(t, want, millis(d))
	}
}
