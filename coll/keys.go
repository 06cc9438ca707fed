package coll

import (
	"context"
	"fmt"

	"github.com/seed33544411/rma"
)

// AllgatherKeys exchanges the keys of one region of each rank of the team, and returns them by
// rank of the team. A rank without memory to share passes a region of Alloc(0). It is an
// operation of the team, an Allgather of rma.KeySize bytes.
//
//	keys, err := coll.AllgatherKeys(ctx, team, mem)
//	req := eng.Peer(team.JobRank(to)).Put(keys[to].At(4096), mem.Slice(0, 64))
func AllgatherKeys(ctx context.Context, t *Team, mem *rma.Region) ([]rma.Key, error) {
	if mem == nil {
		return nil, fmt.Errorf("coll: allgather keys: no region: %w", ErrInvalid)
	}
	all := make([]byte, t.Size()*rma.KeySize)
	if err := Allgather(ctx, t, mem.Key().Append(nil), all); err != nil {
		return nil, err
	}
	keys := make([]rma.Key, t.Size())
	for r := range keys {
		var err error
		if keys[r], err = rma.ParseKey(all[r*rma.KeySize:][:rma.KeySize]); err != nil {
			return nil, &rma.PeerError{Rank: t.JobRank(r), Op: "allgather keys", Err: err}
		}
	}
	return keys, nil
}
