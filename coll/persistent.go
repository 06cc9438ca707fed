package coll

import "fmt"

// Persistent is an operation whose arguments are fixed: it is planned once, and started any
// number of times. Functions that begin with Prepare return it. After the first starts, a
// start does not allocate, and is over within Start where the same blocking call would be soon.
// Its methods may be called from any goroutine.
type Persistent struct {
	o *operation
	t *Team
}

// prepare returns the persistent form of an operation that a preparing team has returned.
func prepare(t *Team, r *Request) (*Persistent, error) {
	if r.refusal != nil {
		return nil, r.refusal
	}
	return &Persistent{r.o, t}, nil
}

// preparing returns the team whose operations are planned only.
func (t *Team) preparing() *Team { return &Team{t: t.t, ch: t.ch, prepares: true} }

// Start starts the operation with what its memory holds now, as the form of its function
// that begins with Start does: it has the same place in the order of the team's operations,
// and other ranks may call any form. The request is the same at each start; use it until the
// next one. If the operation is in flight, or closed, the request has failed with ErrBusy or
// rma.ErrClosed.
func (p *Persistent) Start() *Request { return p.t.start(p.o) }

// Close releases the operation's memory: it cannot be started again. An operation in flight
// is not closed; the error wraps ErrBusy then.
func (p *Persistent) Close() error {
	o := p.o
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		return fmt.Errorf("coll: close: %v: %w: it is in flight", o.kind, ErrBusy)
	}
	o.closed = true
	clear(o.bufs)
	if o.posted == 0 { // else callbacks of a use that failed still look at the state
		o.temp, o.stage, o.state, o.fold = nil, nil, nil, nil
	}
	return nil
}

// PrepareBarrier returns a persistent Barrier.
func PrepareBarrier(t *Team) (*Persistent, error) {
	return prepare(t, StartBarrier(t.preparing()))
}

// PrepareBcast returns a persistent Bcast.
func PrepareBcast[T any](t *Team, root int, buf []T) (*Persistent, error) {
	return prepare(t, StartBcast(t.preparing(), root, buf))
}

// PrepareReduce returns a persistent Reduce.
func PrepareReduce[T any](t *Team, root int, send, recv []T, op Op[T]) (*Persistent, error) {
	return prepare(t, StartReduce(t.preparing(), root, send, recv, op))
}

// PrepareAllreduce returns a persistent Allreduce.
func PrepareAllreduce[T any](t *Team, send, recv []T, op Op[T]) (*Persistent, error) {
	return prepare(t, StartAllreduce(t.preparing(), send, recv, op))
}

// PrepareReduceScatter returns a persistent ReduceScatter.
func PrepareReduceScatter[T any](t *Team, send, recv []T, op Op[T]) (*Persistent, error) {
	return prepare(t, StartReduceScatter(t.preparing(), send, recv, op))
}

// PrepareReduceScatterv returns a persistent ReduceScatterv.
func PrepareReduceScatterv[T any](t *Team, send [][]T, recv []T, op Op[T]) (*Persistent, error) {
	return prepare(t, StartReduceScatterv(t.preparing(), send, recv, op))
}

// PrepareGather returns a persistent Gather.
func PrepareGather[T any](t *Team, root int, send, recv []T) (*Persistent, error) {
	return prepare(t, StartGather(t.preparing(), root, send, recv))
}

// PrepareGatherv returns a persistent Gatherv.
func PrepareGatherv[T any](t *Team, root int, send []T, recv [][]T) (*Persistent, error) {
	return prepare(t, StartGatherv(t.preparing(), root, send, recv))
}

// PrepareScatter returns a persistent Scatter.
func PrepareScatter[T any](t *Team, root int, send, recv []T) (*Persistent, error) {
	return prepare(t, StartScatter(t.preparing(), root, send, recv))
}

// PrepareScatterv returns a persistent Scatterv.
func PrepareScatterv[T any](t *Team, root int, send [][]T, recv []T) (*Persistent, error) {
	return prepare(t, StartScatterv(t.preparing(), root, send, recv))
}

// PrepareAllgather returns a persistent Allgather.
func PrepareAllgather[T any](t *Team, send, recv []T) (*Persistent, error) {
	return prepare(t, StartAllgather(t.preparing(), send, recv))
}

// PrepareAllgatherv returns a persistent Allgatherv.
func PrepareAllgatherv[T any](t *Team, send []T, recv [][]T) (*Persistent, error) {
	return prepare(t, StartAllgatherv(t.preparing(), send, recv))
}

// PrepareAlltoall returns a persistent Alltoall.
func PrepareAlltoall[T any](t *Team, send, recv []T) (*Persistent, error) {
	return prepare(t, StartAlltoall(t.preparing(), send, recv))
}

// PrepareAlltoallv returns a persistent Alltoallv.
func PrepareAlltoallv[T any](t *Team, send, recv [][]T) (*Persistent, error) {
	return prepare(t, StartAlltoallv(t.preparing(), send, recv))
}

// PrepareScan returns a persistent Scan.
func PrepareScan[T any](t *Team, send, recv []T, op Op[T]) (*Persistent, error) {
	return prepare(t, StartScan(t.preparing(), send, recv, op))
}

// PrepareExscan returns a persistent Exscan.
func PrepareExscan[T any](t *Team, send, recv []T, op Op[T]) (*Persistent, error) {
	return prepare(t, StartExscan(t.preparing(), send, recv, op))
}
