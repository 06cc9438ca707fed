package coll

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// Rank 2 gathers at itself, the others at rank 0, and nobody sends rank 2 a message: only
// what the ranks tell each other shows the difference, whoever is late.
func TestCheck(t *testing.T) {
	t.Setenv(envCheck, "1")
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		for late := range 3 {
			ts := worlds(t, job(t, 3, fabric))
			ctx := testutil.Context(t, testutil.Limit)
			for range 3 { // alike
				each(t, ts, func(r int, team *Team) error {
					got := make([]int64, 3)
					if err := Allgather(ctx, team, []int64{int64(r)}, got); err != nil || !slices.Equal(got, []int64{0, 1, 2}) {
						return fmt.Errorf("%v: %w", got, err)
					}
					return Barrier(ctx, team.Tag(7))
				})
			}
			begun := make(chan struct{}, 2)
			each(t, ts, func(r int, team *Team) error {
				if r == late {
					<-begun
					<-begun
				}
				root, mine := r/2*2, make([]int64, 3000)
				req := StartGather(team, root, mine, make([]int64, 3*len(mine)))
				if r != late {
					begun <- struct{}{}
				}
				err := req.Wait(ctx)
				if err == nil { // rank 1 may have sent its part
					err = StartBarrier(team).Wait(ctx)
				}
				var m *MismatchError
				if !errors.As(err, &m) || !errors.Is(err, ErrRevoked) || !slices.Contains(m.Ranks[:], 2) {
					return fmt.Errorf("late %d: %w", late, err)
				}
				return nil
			})
		}
	})
}

// A rank that tells of more calls than there can be is refused, and one that is not the
// neighbour is not listened to.
func TestCheckIsBounded(t *testing.T) {
	t.Setenv(envCheck, "1")
	ts := worlds(t, job(t, 3, "shm"))
	c := ts[0].t
	h := header{slot: inquirySlot, call: call{kind: kindBarrier}}
	tell := func(from, n int) {
		for i := range n {
			h.seq = uint32(i)
			c.inquired(from, &h)
		}
	}
	tell(1, 3*maxInFlight)
	require.Empty(t, c.ahead)
	tell(2, 2*maxInFlight)
	require.Len(t, c.ahead, 2*maxInFlight)
	require.NoError(t, ts[0].Err())
	tell(2, 2*maxInFlight+1)
	require.ErrorIs(t, ts[0].Err(), ErrProtocol)
	require.Empty(t, c.ahead)
}
