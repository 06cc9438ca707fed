package wireup

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

func TestTell(t *testing.T) {
	t.Parallel()
	const n, each = 3, 100
	_, root := serve(t, "unix", n+1)
	js := make([]*Job, n)
	for r := range js {
		js[r] = join(t, root, r, n+1)
	}
	ctx := t.Context()
	// What comes before somebody listens is kept, within a bound.
	require.NoError(t, js[1].Tell(ctx, 0, "early", []byte{1}))
	require.NoError(t, js[2].Tell(ctx, 0, "early", nil))
	heard := make([]chan told, n)
	for r, j := range js {
		heard[r] = make(chan told, n*each+2)
		j.NotifyTold(func(from int, key string, val []byte) { heard[r] <- told{from, key, val} })
	}
	require.NoError(t, js[0].Tell(ctx, 0, "self", nil), "also to oneself")
	for range 2 {
		x := <-heard[0]
		require.Equal(t, "early", x.key)
		require.Len(t, x.val, 2-x.from)
	}
	require.Equal(t, "self", (<-heard[0]).key)

	var g errgroup.Group
	for from, j := range js {
		for to := range n {
			g.Go(func() error {
				for i := range each {
					if err := j.Tell(ctx, to, fmt.Sprint(i), []byte{byte(from), byte(to)}); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	require.NoError(t, g.Wait())
	for r := range js {
		next := make([]int, n)
		for range n * each {
			x := <-heard[r]
			require.Equal(t, fmt.Sprint(next[x.from]), x.key, "in order")
			require.Equal(t, []byte{byte(x.from), byte(r)}, x.val)
			next[x.from]++
		}
	}

	require.ErrorIs(t, js[0].Tell(ctx, 0, "k", make([]byte, MaxTell+1)), ErrTooLarge)
	require.ErrorIs(t, js[0].Tell(ctx, n+1, "k", nil), ErrRank)
	err := js[0].Tell(ctx, n, "k", nil)
	require.ErrorIs(t, err, ErrPeerGone)
	require.ErrorContains(t, err, "it has not joined")
	require.NoError(t, js[2].Close())
	require.ErrorIs(t, js[0].Tell(ctx, 2, "k", nil), ErrPeerGone)
}

// A rank that tells without end does not fill the memory of one that does not
// listen yet.
func TestEarlyTellsAreBounded(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "unix", 2)
	js := joinAll(t, root, 2)
	for range 100 {
		require.NoError(t, js[0].Tell(t.Context(), 1, "k", make([]byte, MaxTell)))
	}
	require.NoError(t, each(js, func(j *Job) error { return j.Barrier(t.Context(), "b") })) // told came before this
	n := 0
	js[1].NotifyTold(func(int, string, []byte) { n++ })
	require.Equal(t, 4, n)
}

// The server says nothing of its own to those who may not hear it.
func TestHostileTells(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "unix", 2)
	victim := join(t, root, 0, 2)
	victim.NotifyTold(func(int, string, []byte) {})
	c := admitted(t, root, 1, 2)
	m := message{typ: msgTell, id: 1, rank: 9, key: "k"}
	_, err := c.Write(m.append(nil))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(testutil.Limit)))
	reply, err := readFrame(c, maxToRank)
	require.NoError(t, err)
	require.Equal(t, codeRank, reply.code)
	m = message{typ: msgTold, rank: 0, key: "k"} // the server's frame, not a rank's
	_, err = c.Write(m.append(nil))
	require.NoError(t, err)
	ended(t, c)
	<-victim.Gone(1)
	require.NoError(t, victim.Err())
}
