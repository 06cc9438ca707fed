package migrating

import (
	"context"
	"fmt"

	"github.com/seed33544411/rma"
)

// advertise registers memory and gives out what a peer needs to reach it:
// ucp_mem_map, ucp_rkey_pack, and the address sent by hand.
func advertise(ctx context.Context, eng *rma.Engine, mem []byte, to int) (*rma.Region, error) {
	region, err := eng.Register(mem)
	if err != nil {
		return nil, err
	}
	key := region.Key()
	return region, eng.Peer(to).Send(key.Append(nil)).Wait(ctx)
}

// store writes into what a peer has advertised: ucp_ep_rkey_unpack, ucp_put_nbx,
// ucp_ep_flush_nbx, and ucp_worker_progress until all that is done.
func store(ctx context.Context, eng *rma.Engine, from int, data rma.Buffer) error {
	var wire [rma.KeySize]byte
	if _, err := eng.Peer(from).Recv(wire[:]).Wait(ctx); err != nil {
		return err
	}
	key, err := rma.ParseKey(wire[:])
	if err != nil {
		return fmt.Errorf("rank %d: %w", from, err)
	}
	return eng.Peer(from).Put(key.At(0), data).Wait(ctx) // remote completion
}
