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
		if keys[r], err = keyOf(t, r, "allgather keys", all[r*rma.KeySize:]); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// keyOf parses the key that b, which the rank of the team sent for op, begins with.
func keyOf(t *Team, rank int, op string, b []byte) (rma.Key, error) {
	k, err := rma.ParseKey(b[:rma.KeySize])
	if err != nil {
		return rma.Key{}, &rma.PeerError{Rank: t.JobRank(rank), Op: op, Err: err}
	}
	return k, nil
}
