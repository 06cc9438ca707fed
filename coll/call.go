package coll

import (
	"context"
	"fmt"
)

// invalid returns a request that was refused for its arguments.
func invalid(k kind, format string, args ...any) *Request {
	return refused(fmt.Errorf("coll: %v: %w: %s", k, ErrInvalid, fmt.Sprintf(format, args...)))
}

// begin starts an operation of elements T. send and recv are the memory of the call, whole or
// in blocks.
func begin[T any](t *Team, k kind, root, count int, send, recv *blocks[T], op Op[T]) *Request {
	o := t.unused()
	if err := setArguments(&o.arguments, k, t.Rank(), t.Size(), root, count, send, recv, op); err != nil {
		t.reuse(o)
		return refused(err)
	}
	return t.start(o)
}

// arguments are those of a call, without its type. They may be set again.
type arguments struct {
	problem
	bufs [][]byte // the buffers that the problem names; the first is for temporary memory
	fold folding
}

// clear sets all but the call, and what depends on the team alone, to the values for no memory. It
// keeps the lists' room.
func (a *arguments) clear(rank, team int) {
	a.rank, a.team, a.inOrder, a.meet = rank, team, false, false
	a.send, a.recv = a.send[:0], a.recv[:0]
	a.bufs, a.fold = append(a.bufs[:0], nil), nil
}

// setArguments sets a to a call.
func setArguments[T any](a *arguments, k kind, me, p, root, count int, send, recv *blocks[T], op Op[T]) error {
	e, err := elementOf[T]()
	if err != nil {
		return fmt.Errorf("coll: %v: %w", k, err)
	}
	if k.rooted() && (root < 0 || root >= p) {
		return invalid(k, "root %d, ranks of the team are 0 to %d", root, p-1).refusal
	}
	a.problem.call = call{kind: k, elem: e.kind, size: uint16(e.size), count: uint64(count)}
	a.clear(me, p)
	if k.rooted() {
		a.root = uint32(root)
	}
	if op != nil {
		o := op()
		if o.combine == nil && o.fold == nil {
			return invalid(k, "reduction without a function").refusal
		}
		a.op, a.inOrder, a.fold = o.code, o.inOrder, foldOf(&o, e.kind)
	}
	a.send, a.bufs = addBlocks(a.send, a.bufs, send)
	a.recv, a.bufs = addBlocks(a.recv, a.bufs, recv)
	for i := range recv.p { // the schedule copies nothing within memory that has one name
		switch r := recv.at(i); {
		case send.p == recv.p && same(send.at(i), r):
			a.send[i] = a.recv[i]
		case send.p == 1 && i == me && same(send.at(0), r):
			a.send[0] = a.recv[i]
		case recv.p == 1 && send.p > 1 && same(send.at(me), r):
			a.recv[0] = a.send[me]
		}
	}
	return nil
}

// addBlocks appends blocks to the buffers of a call, and their names to ms.
func addBlocks[T any](ms []mem, bufs [][]byte, bs *blocks[T]) ([]mem, [][]byte) {
	for i := range bs.p {
		b := bytesOf(bs.at(i))
		ms = append(ms, mem{int32(len(bufs)), 0, len(b)})
		bufs = append(bufs, b)
	}
	return ms, bufs
}

// blocks are p blocks of memory: those of a list, or of n elements one behind the other. They are passed by
// reference: a copy would wait for the stores of the fields.
type blocks[T any] struct {
	p, n int
	all  []T
	list [][]T
}

// at returns block i.
func (b *blocks[T]) at(i int) []T {
	if b.list != nil {
		return b.list[i]
	}
	return b.all[i*b.n : (i+1)*b.n : (i+1)*b.n]
}

// whole returns s as the only block.
func whole[T any](s []T) *blocks[T] { return &blocks[T]{p: 1, n: len(s), all: s} }

// equal divides s into p blocks of n elements.
func equal[T any](s []T, p, n int) *blocks[T] { return &blocks[T]{p: p, n: n, all: s} }

// listed returns the blocks of a list.
func listed[T any](list [][]T) *blocks[T] { return &blocks[T]{p: len(list), list: list} }

// StartBarrier starts a barrier: it is complete when all ranks have started it.
func StartBarrier(t *Team) *Request {
	o := t.unused()
	o.problem.call = call{kind: kindBarrier}
	o.clear(t.Rank(), t.Size())
	return t.start(o)
}

// Barrier returns when all ranks of the team have called it. It does not wait for one-sided
// operations.
func Barrier(ctx context.Context, t *Team) error { return StartBarrier(t.blocking).wait(ctx) }

// StartBcast starts Bcast.
func StartBcast[T any](t *Team, root int, buf []T) *Request {
	return begin(t, kindBcast, root, len(buf), &blocks[T]{}, whole(buf), nil)
}

// Bcast copies buf of the root to buf of all other ranks. buf has the same length on all
// ranks.
func Bcast[T any](ctx context.Context, t *Team, root int, buf []T) error {
	return StartBcast(t.blocking, root, buf).wait(ctx)
}

// StartReduce starts Reduce.
func StartReduce[T any](t *Team, root int, send, recv []T, op Op[T]) *Request {
	switch {
	case op == nil:
		return invalid(kindReduce, "no reduction")
	case t.Rank() != root:
		if send == nil {
			send = recv // in place at the root means that all pass one slice
		}
		recv = nil
	case send == nil:
		send = recv
	case len(send) != len(recv):
		return invalid(kindReduce, "%d elements to send, %d to receive", len(send), len(recv))
	}
	sends, recvs := whole(send), whole(recv)
	return begin(t, kindReduce, root, len(send), sends, recvs, op)
}

// Reduce combines the elements of send of all ranks: recv[i] of the root becomes the
// reduction of all send[i]. recv of other ranks is not used. A rank may pass its elements in
// recv, with send nil or the same slice.
func Reduce[T any](ctx context.Context, t *Team, root int, send, recv []T, op Op[T]) error {
	return StartReduce(t.blocking, root, send, recv, op).wait(ctx)
}

// StartAllreduce starts Allreduce.
func StartAllreduce[T any](t *Team, send, recv []T, op Op[T]) *Request {
	return reduction(t, kindAllreduce, send, recv, op)
}

// Allreduce combines the elements of send of all ranks: recv[i] of every rank becomes the
// reduction of all send[i], with the same bits on all ranks; some algorithms combine two operands in
// either order, so that which NaN results, and the last bits of a product of complex numbers or of a
// function that is commutative but for rounding, may differ: FuncInOrder has one order. A rank may pass its
// elements in recv, with send nil or the same slice.
func Allreduce[T any](ctx context.Context, t *Team, send, recv []T, op Op[T]) error {
	return StartAllreduce(t.blocking, send, recv, op).wait(ctx)
}

// reduction starts an operation that combines as many elements as it receives.
func reduction[T any](t *Team, k kind, send, recv []T, op Op[T]) *Request {
	switch {
	case op == nil:
		return invalid(k, "no reduction")
	case send == nil:
		send = recv
	case len(send) != len(recv):
		return invalid(k, "%d elements to send, %d to receive", len(send), len(recv))
	}
	return begin(t, k, 0, len(recv), whole(send), whole(recv), op)
}

// StartScan starts Scan.
func StartScan[T any](t *Team, send, recv []T, op Op[T]) *Request {
	return reduction(t, kindScan, send, recv, op)
}

// Scan is the inclusive prefix reduction: recv[i] becomes the reduction of send[i] of the
// ranks from 0 to this one, itself included. A rank may pass its elements in recv, with send
// nil or the same slice.
func Scan[T any](ctx context.Context, t *Team, send, recv []T, op Op[T]) error {
	return StartScan(t, send, recv, op).wait(ctx)
}

// StartExscan starts Exscan.
func StartExscan[T any](t *Team, send, recv []T, op Op[T]) *Request {
	return reduction(t, kindExscan, send, recv, op)
}

// Exscan is the exclusive prefix reduction: Scan without this rank's own elements. recv of
// rank 0 does not change.
func Exscan[T any](ctx context.Context, t *Team, send, recv []T, op Op[T]) error {
	return StartExscan(t, send, recv, op).wait(ctx)
}

// StartReduceScatter starts ReduceScatter.
func StartReduceScatter[T any](t *Team, send, recv []T, op Op[T]) *Request {
	if op == nil || len(send) != len(recv)*t.Size() {
		return invalid(kindReduceScatter, "%d elements to send, %d to receive, by %d ranks, or no reduction", len(send), len(recv), t.Size())
	}
	return begin(t, kindReduceScatter, 0, len(recv), equal(send, t.Size(), len(recv)), whole(recv), op)
}

// ReduceScatter combines the elements of send of all ranks, and copies block r of the result
// to recv of rank r. send is as long as recv of all ranks together.
func ReduceScatter[T any](ctx context.Context, t *Team, send, recv []T, op Op[T]) error {
	return StartReduceScatter(t.blocking, send, recv, op).wait(ctx)
}

// StartReduceScatterv starts ReduceScatterv.
func StartReduceScatterv[T any](t *Team, send [][]T, recv []T, op Op[T]) *Request {
	n := 0
	for _, s := range send {
		n += len(s)
	}
	if op == nil || len(send) != t.Size() || len(send[t.Rank()]) != len(recv) {
		return invalid(kindReduceScatterv, "blocks do not fit, or no reduction")
	}
	return begin(t, kindReduceScatterv, 0, n, listed(send), whole(recv), op)
}

// ReduceScatterv is ReduceScatter with blocks of different lengths: recv of rank r becomes
// the reduction of send[r] of all ranks. send[r] has the same length on all ranks, which is
// that of recv of rank r.
func ReduceScatterv[T any](ctx context.Context, t *Team, send [][]T, recv []T, op Op[T]) error {
	return StartReduceScatterv(t, send, recv, op).wait(ctx)
}

// StartGather starts Gather.
func StartGather[T any](t *Team, root int, send, recv []T) *Request {
	if t.Rank() != root {
		return begin(t, kindGather, root, len(send), whole(send), &blocks[T]{}, nil)
	}
	n := len(send)
	if send == nil {
		n = len(recv) / t.Size()
	}
	if len(recv) != n*t.Size() {
		return invalid(kindGather, "%d elements to receive, %d of each of %d ranks", len(recv), n, t.Size())
	}
	all := equal(recv, t.Size(), n)
	if send == nil {
		send = all.at(root)
	}
	return begin(t, kindGather, root, n, whole(send), all, nil)
}

// Gather copies send of rank r to block r of recv of the root. recv of other ranks is not
// used. The root may pass its own elements in their block of recv, with send nil.
func Gather[T any](ctx context.Context, t *Team, root int, send, recv []T) error {
	return StartGather(t.blocking, root, send, recv).wait(ctx)
}

// StartGatherv starts Gatherv.
func StartGatherv[T any](t *Team, root int, send []T, recv [][]T) *Request {
	if t.Rank() != root {
		return begin(t, kindGatherv, root, 0, whole(send), &blocks[T]{}, nil)
	}
	if len(recv) != t.Size() || send != nil && len(send) != len(recv[root]) {
		return invalid(kindGatherv, "%d blocks to receive from %d ranks, %d elements to send", len(recv), t.Size(), len(send))
	}
	if send == nil {
		send = recv[root]
	}
	return begin(t, kindGatherv, root, 0, whole(send), listed(recv), nil)
}

// Gatherv is Gather with blocks of different lengths: send of rank r is copied to recv[r] of
// the root, which has the same length.
func Gatherv[T any](ctx context.Context, t *Team, root int, send []T, recv [][]T) error {
	return StartGatherv(t, root, send, recv).wait(ctx)
}

// StartScatter starts Scatter.
func StartScatter[T any](t *Team, root int, send, recv []T) *Request {
	if t.Rank() != root {
		return begin(t, kindScatter, root, len(recv), &blocks[T]{}, whole(recv), nil)
	}
	n := len(recv)
	if recv == nil {
		n = len(send) / t.Size()
	}
	if len(send) != n*t.Size() {
		return invalid(kindScatter, "%d elements to send, %d to each of %d ranks", len(send), n, t.Size())
	}
	all := equal(send, t.Size(), n)
	if recv == nil {
		recv = all.at(root)
	}
	return begin(t, kindScatter, root, n, all, whole(recv), nil)
}

// Scatter copies block r of send of the root to recv of rank r. send of other ranks is not
// used. If recv of the root is nil, its own block remains in send.
func Scatter[T any](ctx context.Context, t *Team, root int, send, recv []T) error {
	return StartScatter(t.blocking, root, send, recv).wait(ctx)
}

// StartScatterv starts Scatterv.
func StartScatterv[T any](t *Team, root int, send [][]T, recv []T) *Request {
	if t.Rank() != root {
		return begin(t, kindScatterv, root, 0, &blocks[T]{}, whole(recv), nil)
	}
	if len(send) != t.Size() || recv != nil && len(recv) != len(send[root]) {
		return invalid(kindScatterv, "%d blocks to send to %d ranks, %d elements to receive", len(send), t.Size(), len(recv))
	}
	if recv == nil {
		recv = send[root]
	}
	return begin(t, kindScatterv, root, 0, listed(send), whole(recv), nil)
}

// Scatterv is Scatter with blocks of different lengths: send[r] of the root is copied to
// recv of rank r, which has the same length.
func Scatterv[T any](ctx context.Context, t *Team, root int, send [][]T, recv []T) error {
	return StartScatterv(t, root, send, recv).wait(ctx)
}

// StartAllgather starts Allgather.
func StartAllgather[T any](t *Team, send, recv []T) *Request {
	n := len(send)
	if send == nil {
		n = len(recv) / t.Size()
	}
	if len(recv) != n*t.Size() {
		return invalid(kindAllgather, "%d elements to receive, %d of each of %d ranks", len(recv), n, t.Size())
	}
	all := equal(recv, t.Size(), n)
	if send == nil {
		send = all.at(t.Rank())
	}
	return begin(t, kindAllgather, 0, n, whole(send), all, nil)
}

// Allgather copies send of each rank r to block r of recv of all ranks. A rank may pass its
// own elements in their block of recv, with send nil.
func Allgather[T any](ctx context.Context, t *Team, send, recv []T) error {
	return StartAllgather(t.blocking, send, recv).wait(ctx)
}

// StartAllgatherv starts Allgatherv.
func StartAllgatherv[T any](t *Team, send []T, recv [][]T) *Request {
	if len(recv) != t.Size() || send != nil && len(send) != len(recv[t.Rank()]) {
		return invalid(kindAllgatherv, "%d blocks to receive from %d ranks, %d elements to send", len(recv), t.Size(), len(send))
	}
	if send == nil {
		send = recv[t.Rank()]
	}
	return begin(t, kindAllgatherv, 0, 0, whole(send), listed(recv), nil)
}

// Allgatherv is Allgather with blocks of different lengths: send of each rank r is copied to
// recv[r] of all ranks, which has the same length.
func Allgatherv[T any](ctx context.Context, t *Team, send []T, recv [][]T) error {
	return StartAllgatherv(t, send, recv).wait(ctx)
}

// StartAlltoall starts Alltoall.
func StartAlltoall[T any](t *Team, send, recv []T) *Request {
	if send == nil {
		send = recv
	}
	n := len(recv) / t.Size()
	if len(send) != len(recv) || len(recv) != n*t.Size() {
		return invalid(kindAlltoall, "%d elements to send, %d to receive, by %d ranks", len(send), len(recv), t.Size())
	}
	return begin(t, kindAlltoall, 0, n, equal(send, t.Size(), n), equal(recv, t.Size(), n), nil)
}

// Alltoall copies block r of send of each rank s to block s of recv of rank r: it transposes
// the blocks between the ranks. A rank may pass its blocks in recv, with send nil or the same
// slice.
func Alltoall[T any](ctx context.Context, t *Team, send, recv []T) error {
	return StartAlltoall(t.blocking, send, recv).wait(ctx)
}

// StartAlltoallv starts Alltoallv.
func StartAlltoallv[T any](t *Team, send, recv [][]T) *Request {
	if len(send) != t.Size() || len(recv) != t.Size() || len(send[t.Rank()]) != len(recv[t.Rank()]) {
		return invalid(kindAlltoallv, "%d blocks to send, %d to receive, by %d ranks, or different lengths of the rank's own", len(send), len(recv), t.Size())
	}
	return begin(t, kindAlltoallv, 0, 0, listed(send), listed(recv), nil)
}

// Alltoallv is Alltoall with blocks of different lengths: send[r] of each rank s is copied
// to recv[s] of rank r, which has the same length. Blocks to send must not overlap blocks to
// receive.
func Alltoallv[T any](ctx context.Context, t *Team, send, recv [][]T) error {
	return StartAlltoallv(t, send, recv).wait(ctx)
}
