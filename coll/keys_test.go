package coll

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
)

// Two teams of a job exchange keys at the same time; each rank writes to the next of its team
// with them. A key that is none is refused with the rank that it came from.
func TestAllgatherKeys(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			es := job(t, 4, fabric)
			ts := worlds(t, es)
			mems := make([]*rma.Region, len(es))
			each(t, ts, func(r int, world *Team) (err error) {
				team, err := world.Split(ctx, r%2, -r) // ranks 2, 0 and 3, 1
				if err != nil {
					return err
				}
				if mems[r], err = es[r].Alloc(8 * (r + 1)); err != nil {
					return err
				}
				keys, err := AllgatherKeys(ctx, team, mems[r])
				if err != nil {
					return err
				}
				for i, k := range keys {
					require.Equal(t, 8*(team.JobRank(i)+1), k.Len())
				}
				to := (team.Rank() + 1) % team.Size()
				if err := es[r].Peer(team.JobRank(to)).PutBytes(keys[to].At(0), []byte{byte(r)}).Wait(ctx); err != nil {
					return err
				}
				return Barrier(ctx, team)
			})
			for r, m := range mems {
				require.EqualValues(t, (r+2)%4, m.Bytes()[0])
			}
			_, err := AllgatherKeys(ctx, ts[0], nil)
			require.ErrorIs(t, err, ErrInvalid)

			var errs [4]error
			each(t, ts, func(r int, world *Team) error {
				if r == 3 { // bytes that are no key
					return Allgather(ctx, world, make([]byte, rma.KeySize), make([]byte, 4*rma.KeySize))
				}
				_, errs[r] = AllgatherKeys(ctx, world, mems[r])
				return nil
			})
			for _, err := range errs[:3] {
				var peer *rma.PeerError
				require.ErrorAs(t, err, &peer)
				require.Equal(t, 3, peer.Rank)
				require.ErrorIs(t, err, rma.ErrBadKey)
			}
		})
	}
}
