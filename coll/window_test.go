package coll

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
)

// halves splits the job into ranks 2, 0 and 3, 1.
func halves(t *testing.T, es []*rma.Engine) []*Team {
	ctx := testutil.Context(t, testutil.Limit)
	halves := make([]*Team, len(es))
	each(t, worlds(t, es), func(r int, world *Team) (err error) {
		halves[r], err = world.Split(ctx, r%2, -r)
		return err
	})
	return halves
}

// Two teams of a job make windows at the same time, of different sizes on different ranks, and
// write to the next rank of the team: by bytes, as elements of an array, and with memory that they
// had registered before.
func TestWindow(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 4, fabric)
		each(t, halves(t, es), func(r int, team *Team) error {
			to := (team.Rank() + 1) % team.Size()
			next := team.JobRank(to)
			w, err := NewWindow(ctx, team, 16*r)
			if err != nil {
				return err
			}
			require.Equal(t, 2, w.Size())
			require.Equal(t, next, w.Peer(to).Rank())
			require.Equal(t, 16*next, w.Len(to))
			require.Len(t, w.Bytes(), 16*r)
			if next > 0 {
				if err := w.Peer(to).PutBytes(w.At(to, 8), []byte{1 + byte(r)}).Wait(ctx); err != nil {
					return err
				}
			} else {
				require.ErrorIs(t, w.Peer(to).PutBytes(w.At(to, 0), []byte{1}).Wait(ctx), rma.ErrBounds)
			}

			mem, err := es[r].Alloc(24)
			if err != nil {
				return err
			}
			of, err := NewWindowOf(ctx, team.Tag(7), mem)
			if err != nil {
				return err
			}
			a, err := rma.ArrayOf[int64](of.Window)
			if err != nil {
				return err
			}
			if err := a.Put(to, 2, []int64{100 + int64(r)}).Wait(ctx); err != nil {
				return err
			}
			if err := Barrier(ctx, team); err != nil {
				return err
			}
			from := byte(team.JobRank((team.Rank() + 1) % 2))
			require.Equal(t, []int64{0, 0, 100 + int64(from)}, a.Own())
			if r > 0 {
				require.Equal(t, 1+from, w.Bytes()[8])
			}
			one := make([]int64, 1)
			if err := a.Get(one, to, 2).Wait(ctx); err != nil {
				return err
			}
			require.EqualValues(t, 100+r, one[0])

			if err := of.Free(ctx); err != nil {
				return err
			}
			require.True(t, mem.Belongs(es[r]), "the caller's")
			if err := w.Free(ctx); err != nil {
				return err
			}
			require.False(t, w.Region().Belongs(es[r]))
			require.NoError(t, w.Free(ctx), "again")
			return mem.Close()
		})
	})
}

// If one rank has no memory, none gets a window, each learns which one it was, and the team goes on.
func TestWindowFailsForAll(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := job(t, 4, fabric)
		ts := halves(t, es)
		live := 0 // regions after the first of the cases, with those of the team itself
		for name, newWindow := range map[string]func(r int, team *Team) (*Window, error){
			"alloc": func(r int, team *Team) (*Window, error) {
				return NewWindow(ctx, team, 8-9*(r/3))
			},
			"region": func(r int, team *Team) (*Window, error) {
				if r == 3 {
					return NewWindowOf(ctx, team, nil)
				}
				mem, err := es[r].Alloc(8)
				if err != nil {
					return nil, err
				}
				defer func() { require.NoError(t, mem.Close()) }()
				return NewWindowOf(ctx, team, mem)
			},
		} {
			each(t, ts, func(r int, team *Team) error {
				w, err := newWindow(r, team)
				if r%2 == 0 {
					require.NoError(t, err)
					return w.Free(ctx)
				}
				var peer *rma.PeerError
				require.ErrorAs(t, err, &peer, name)
				require.Equal(t, 3, peer.Rank)
				if r == 3 && name == "region" {
					require.ErrorIs(t, err, rma.ErrForeign)
				}
				return Barrier(ctx, team)
			})
			if live == 0 {
				live = es[1].Stats().Regions
			}
			require.Equal(t, live, es[1].Stats().Regions)
		}
	})
}

// A part that is no key is refused, with the rank that it came from.
func TestWindowOfNoKey(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	es := job(t, 4, "shm")
	each(t, halves(t, es), func(r int, team *Team) error {
		if r == 2 {
			bad := make([]byte, partSize)
			bad[0] = 1
			return Allgather(ctx, team, bad, make([]byte, 2*partSize))
		}
		w, err := NewWindow(ctx, team, 8)
		if r == 0 {
			var peer *rma.PeerError
			require.ErrorAs(t, err, &peer)
			require.Equal(t, 2, peer.Rank)
			require.ErrorIs(t, err, rma.ErrBadKey)
			return nil
		}
		require.NoError(t, err)
		return w.Free(ctx)
	})
}

// Windows that ranks free in different orders stay.
func TestFreeOutOfStep(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := job(t, 2, fabric)
		each(t, worlds(t, es), func(r int, team *Team) error {
			ws := make([]*Window, 2)
			for i := range ws {
				var err error
				if ws[i], err = NewWindow(ctx, team, 8); err != nil {
					return err
				}
			}
			require.ErrorIs(t, ws[r].Free(ctx), rma.ErrOutOfStep)
			require.True(t, ws[r].Region().Belongs(es[r]))
			for _, w := range ws {
				if err := w.Free(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// A rank that gives Free up revokes the team. All ranks release their memory, and the others learn
// that it was given up, unless they had that rank's part already.
func TestFreeGivenUp(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := job(t, 4, fabric)
		given := make(chan struct{})
		each(t, halves(t, es), func(r int, team *Team) error {
			w, err := NewWindow(ctx, team, 8)
			if err != nil || r%2 > 0 {
				return err
			}
			if r == 2 {
				over, end := context.WithCancel(ctx)
				end()
				require.ErrorIs(t, w.Free(over), context.Canceled)
				close(given)
			} else {
				<-given
				if err := w.Free(ctx); err != nil {
					require.ErrorIs(t, err, ErrRevoked)
					require.ErrorIs(t, err, rma.ErrGivenUp)
				}
			}
			require.False(t, w.Region().Belongs(es[r]))
			return nil
		})
	})
}
