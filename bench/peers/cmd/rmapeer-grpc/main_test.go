package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"

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
	playtest.DeadClient(t, "tcp")
}

func TestCalls(t *testing.T) {
	t.Parallel()
	for _, test := range play.Tests {
		r := playtest.Play(t, "--net", "unix", "--test", test, "--size", "1000", "--iters", "300", "--unary", "--batch", "16")
		require.Contains(t, r.How, "unary calls, 16")
		require.Equal(t, test == "lat", r.P50US > 0)
		require.Equal(t, test != "lat", r.Mmsgs > 0)
	}
}

// A codec is given what the other side sent.
func TestCodecRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	into := make([]byte, 4)
	require.NoError(t, raw{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer("ab"), mem.SliceBuffer("c")}, &into))
	require.Equal(t, "abc", string(into))
	require.ErrorIs(t, raw{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer("abcde")}, &into), errMessage)
	require.ErrorIs(t, raw{}.Unmarshal(nil, "text"), errMessage)
	_, err := raw{}.Marshal(7)
	require.ErrorIs(t, err, errMessage)
}
