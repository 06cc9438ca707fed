package shm

import (
	"bytes"
	"errors"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

var (
	closes   = flag.Int("closes", 300, "how many regions TestCloseUnderFire closes; 100000 take some minutes")
	fireSeed = flag.Uint64("fireseed", 1, "seed of TestCloseUnderFire")
)

// Regions of private memory close while a peer puts to them as fast as it can, at any
// moment, in pieces from a word to several system calls. Once Close has returned nil,
// nothing is written any more.
func TestCloseUnderFire(t *testing.T) {
	a, b := openPair(t, Options{})
	const most = 12 << 20
	mem, source := testutil.Scratch(t, most), testutil.Scratch(t, most)
	for i := range source {
		source[i] = 0xff
	}
	src, err := a.Register(source, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, src.Close()) }()
	rng := rand.New(rand.NewPCG(*fireSeed, 0))
	sizes := []int{8, 8 << 10, 8 << 10, 64 << 10, 64 << 10, 1 << 20, most}
	inUse, cut := 0, 0
	for i := range *closes {
		x, y := pairOn(t, a, b, fabric.EndpointOptions{})
		if !x.cma.works {
			t.Skip("process_vm_writev is not permitted here:", x.cma.why)
		}
		n := sizes[rng.IntN(len(sizes))]
		target := mem[:n]
		clear(target)
		r, err := b.Register(target, fabric.AccessRemoteWrite)
		require.NoError(t, err)
		fired := make(chan error, 1)
		go func() { // the owner of a
			wr := []fabric.WR{write(src, 0, n, r.Key(), 0)}
			var cs [8]fabric.Completion
			for {
				if k, err := x.Post(wr); k != 1 {
					fired <- err
					return
				}
				for _, c := range cs[:a.Poll(cs[:])] {
					if c.Status != fabric.StatusOK {
						fired <- c.Err()
						return
					}
				}
			}
		}()
		testutil.Eventually(t, testutil.Limit, func() bool { return testutil.Load64(target) != 0 }, "the first put")
		for range rng.IntN(2000) {
			testutil.Load64(target)
		}
		for err = r.Close(); errors.Is(err, fabric.ErrInUse); err = r.Close() {
			inUse++ // starved for useWait
		}
		require.NoError(t, err)
		if n > maxCall && target[n-1] == 0 {
			cut++
		}
		clear(target)
		require.ErrorIs(t, <-fired, fabric.ErrRemoteAccess)
		require.Equal(t, n, bytes.Count(target, []byte{0}), "written after close %d, of %d bytes", i, n)
		require.NoError(t, x.Close())
		require.NoError(t, y.Close())
		var cs [8]fabric.Completion
		for a.Poll(cs[:]) != 0 {
		}
	}
	t.Logf("%d closes, 0 writes behind them; %d times told in use, %d first puts cut off", *closes, inUse, cut)
}
