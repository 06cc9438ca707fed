package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/bench/peers/play/playtest"
)

func TestMain(m *testing.M) { playtest.Main(m, transport{}) }

func TestPlays(t *testing.T) {
	t.Parallel()
	playtest.All(t, transport{})
}

func TestServerOutlivesNoClient(t *testing.T) {
	t.Parallel()
	playtest.DeadClient(t, "tcp")
}

// Messages of a batch go together, and all of them.
func TestBatches(t *testing.T) {
	t.Parallel()
	for _, n := range []string{"32", "4096"} {
		r := playtest.Play(t, "--net", "unix", "--test", "rate", "--iters", "1000", "--batch", n)
		require.Contains(t, r.How, n)
		require.Positive(t, r.Mmsgs)
	}
}
