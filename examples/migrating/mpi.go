package migrating

import (
	"context"

	"github.com/seed33544411/rma"
)

// halo writes this rank's edge into the neighbour's memory: MPI_Put between two
// MPI_Win_fence.
func halo(ctx context.Context, eng *rma.Engine, grid *rma.Region, keys []rma.Key, edge rma.Buffer, to int, off uint64) error {
	if err := eng.Peer(to).Put(keys[to].At(off), edge).Wait(ctx); err != nil { // it is there
		return err
	}
	return eng.Barrier(ctx) // everybody's is
}

// sendrecv exchanges a message with a rank: MPI_Irecv, MPI_Isend, MPI_Waitall.
func sendrecv(ctx context.Context, eng *rma.Engine, with int, tag uint32, out, in []byte) (int, error) {
	recv := eng.Peer(with).RecvTag(tag, in)
	send := eng.Peer(with).SendTag(tag, out)
	if err := send.Wait(ctx); err != nil {
		return 0, err
	}
	return recv.Wait(ctx)
}

// draw takes a number from a counter in the memory of rank 0:
// MPI_Fetch_and_op with MPI_SUM, within a passive-target epoch.
func draw(ctx context.Context, eng *rma.Engine, counter rma.Remote) (uint64, error) {
	return eng.Peer(0).FetchAdd(counter, 1).Wait(ctx)
}
