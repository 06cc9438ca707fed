// Package migrating has the code of docs/migrating.md: equivalents in rma of patterns of
// MPI, UCX and gRPC programs. Its test runs all of them in jobs of two ranks.
package migrating

import (
	"context"

	"github.com/seed33544411/rma"
)

// open makes memory that all reach: MPI_Win_allocate.
func open(ctx context.Context, eng *rma.Engine) (*rma.Window, error) {
	win, err := eng.Window(ctx, 1<<20) // by all ranks together
	if err != nil {
		return nil, err
	}
	clear(win.Bytes())
	return win, eng.Barrier(ctx) // nobody writes before all have cleared theirs
}

// halo writes the first n bytes of this rank's memory into the neighbour's:
// MPI_Put between two MPI_Win_fence.
func halo(ctx context.Context, eng *rma.Engine, win *rma.Window, to, n, off int) error {
	if err := eng.Peer(to).Put(win.At(to, off), win.Slice(0, n)).Wait(ctx); err != nil { // it is there
		return err
	}
	return eng.Barrier(ctx) // everybody's is
}

// sendrecv exchanges a message with a rank: MPI_Irecv, MPI_Isend, MPI_Waitall. If ctx ends,
// out and in may stay in use; call, in grpc.go, gives its receive up.
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

// column writes a column of this rank's matrix of float64 into one of the
// neighbour's, and tells it so: MPI_Put with MPI_Type_vector, and a notification.
// Each step has a number, from 1.
func column(ctx context.Context, eng *rma.Engine, mine rma.Buffer, theirs, flag rma.Remote, to, rows, columns int, step uint64) error {
	shape := rma.Shape2D(rows, 8, 8*columns, 8*columns)
	if err := eng.Peer(to).PutStrided(theirs, mine, shape).Wait(ctx); err != nil {
		return err
	}
	return eng.Peer(to).Signal(flag, rma.SignalSet, step).Wait(ctx)
}

// await waits for the column of a step from the neighbour with rank from, or for its death.
func await(ctx context.Context, eng *rma.Engine, from int, flag rma.Buffer, step uint64) error {
	_, err := eng.Peer(from).WaitSignal(ctx, flag, rma.GE, step)
	return err
}

// total adds every rank's values to those in the memory of rank 0: MPI_Accumulate
// with MPI_SUM, or MPI_Reduce.
func total(ctx context.Context, eng *rma.Engine, sums rma.Remote, mine []float64) error {
	if err := rma.Accumulate(eng.Peer(0), sums, rma.Sum, mine).Wait(ctx); err != nil {
		return err
	}
	return eng.Barrier(ctx)
}
