//go:build linux && (amd64 || arm64)

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/bench/peers/play"
	"github.com/seed33544411/rma/bench/peers/play/playtest"
)

func TestMain(m *testing.M) { playtest.Main(m, transport{}) }

func TestPlays(t *testing.T) {
	t.Parallel()
	playtest.All(t, transport{})
}

func TestServerOutlivesNoClient(t *testing.T) {
	t.Parallel()
	playtest.DeadClient(t, "unix")
}

// A window fits into the memory, with room for what comes back, and into the queue.
func TestWindowFits(t *testing.T) {
	t.Parallel()
	for size := 1; size <= play.MaxSize; size = size*3 + 1 {
		w := newWindow(size)
		require.GreaterOrEqual(t, w.slice, size)
		require.Equal(t, w.messages, w.step*steps)
		require.Positive(t, w.step)
		require.Less(t, w.messages, queueCap)
		require.Greater(t, w.memory/(w.slice+sliceHeader), w.messages)
	}
}

// More than a window, so that acknowledgements matter.
func TestStreamsBeyondTheWindow(t *testing.T) {
	t.Parallel()
	r := playtest.Play(t, "--test", "rate", "--iters", "50000")
	require.Positive(t, r.Mmsgs)
	r = playtest.Play(t, "--test", "bw", "--size", "1000001", "--iters", "50")
	require.Positive(t, r.MBs)
}
