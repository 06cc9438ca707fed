package coll

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
)

// persistent is a persistent operation on one rank, with the results of its starts.
type persistent struct {
	name string
	op   *Persistent
	in   []int64 // its input
	fill func(seed uint64) []int64
	out  []int64 // nil: no result on this rank
	want func(seed uint64) []int64
}

// prepareAll prepares every operation, with n elements.
func prepareAll(t *Team, root, n int) (all []persistent, _ error) {
	me, p := t.Rank(), t.Size()
	var failed error
	lens := make([]int, p)
	for r := range lens {
		lens[r] = n + r%2
	}
	total := n*p + p/2
	join := func(seed uint64, n int, lens []int) (out []int64) { // of all ranks
		for r := range p {
			if lens != nil {
				n = lens[r]
			}
			out = append(out, input(seed, r, n)...)
		}
		return out
	}
	at := 0
	for r := range me {
		at += lens[r]
	}
	one := func(name string, in, out []int64, f func(in, out []int64) (*Persistent, error), want func(seed uint64) []int64) {
		op, err := f(in, out)
		failed = errors.Join(failed, err)
		all = append(all, persistent{name, op, in, func(seed uint64) []int64 { return input(seed, me, len(in)) }, out, want})
	}
	buf := func(n int) []int64 { return make([]int64, n) }
	atRoot := func(b []int64) []int64 {
		if me == root {
			return b
		}
		return nil
	}
	one("barrier", nil, nil, func(_, _ []int64) (*Persistent, error) { return PrepareBarrier(t) }, nil)
	shared := buf(n)
	one("bcast", shared, shared, func(b, _ []int64) (*Persistent, error) { return PrepareBcast(t, root, b) },
		func(s uint64) []int64 { return input(s, root, n) })
	sum := func(s uint64) []int64 { return want(s, 0, p, n, input, add) }
	one("reduce", buf(n), atRoot(buf(n)), func(in, out []int64) (*Persistent, error) { return PrepareReduce(t, root, in, out, Sum) }, sum)
	one("allreduce", buf(n), buf(n), func(in, out []int64) (*Persistent, error) { return PrepareAllreduce(t, in, out, Sum) }, sum)
	one("reduce-scatter", buf(n*p), buf(n), func(in, out []int64) (*Persistent, error) { return PrepareReduceScatter(t, in, out, Sum) },
		func(s uint64) []int64 { return want(s, 0, p, n*p, input, add)[me*n : (me+1)*n] })
	one("reduce-scatter with lengths", buf(total), buf(lens[me]),
		func(in, out []int64) (*Persistent, error) { return PrepareReduceScatterv(t, cut(in, lens), out, Sum) },
		func(s uint64) []int64 { return want(s, 0, p, total, input, add)[at : at+lens[me]] })
	one("gather", buf(n), atRoot(buf(n*p)), func(in, out []int64) (*Persistent, error) { return PrepareGather(t, root, in, out) },
		func(s uint64) []int64 { return join(s, n, nil) })
	one("gather with lengths", buf(lens[me]), atRoot(buf(total)), func(in, out []int64) (*Persistent, error) {
		if me != root {
			return PrepareGatherv(t, root, in, nil)
		}
		return PrepareGatherv(t, root, in, cut(out, lens))
	}, func(s uint64) []int64 { return join(s, 0, lens) })
	one("scatter", buf(n*p), buf(n), func(in, out []int64) (*Persistent, error) { return PrepareScatter(t, root, in, out) },
		func(s uint64) []int64 { return input(s, root, n*p)[me*n : (me+1)*n] })
	one("scatter with lengths", buf(total), buf(lens[me]),
		func(in, out []int64) (*Persistent, error) { return PrepareScatterv(t, root, cut(in, lens), out) },
		func(s uint64) []int64 { return input(s, root, total)[at : at+lens[me]] })
	one("allgather", buf(n), buf(n*p), func(in, out []int64) (*Persistent, error) { return PrepareAllgather(t, in, out) },
		func(s uint64) []int64 { return join(s, n, nil) })
	one("allgather with lengths", buf(lens[me]), buf(total),
		func(in, out []int64) (*Persistent, error) { return PrepareAllgatherv(t, in, cut(out, lens)) },
		func(s uint64) []int64 { return join(s, 0, lens) })
	exchanged := func(s uint64) (out []int64) {
		for r := range p {
			out = append(out, input(s, r, n*p)[me*n:(me+1)*n]...)
		}
		return out
	}
	one("alltoall", buf(n*p), buf(n*p), func(in, out []int64) (*Persistent, error) { return PrepareAlltoall(t, in, out) }, exchanged)
	one("alltoall with lengths", buf(n*p), buf(n*p), func(in, out []int64) (*Persistent, error) {
		even := slices.Repeat([]int{n}, p)
		return PrepareAlltoallv(t, cut(in, even), cut(out, even))
	}, exchanged)
	one("scan", buf(n), buf(n), func(in, out []int64) (*Persistent, error) { return PrepareScan(t, in, out, Sum) },
		func(s uint64) []int64 { return want(s, 0, me+1, n, input, add) })
	if me == 0 {
		sum = nil // the first rank has no result
	} else {
		sum = func(s uint64) []int64 { return want(s, 0, me, n, input, add) }
	}
	one("exscan", buf(n), buf(n), func(in, out []int64) (*Persistent, error) { return PrepareExscan(t, in, out, Sum) }, sum)
	return all, failed
}

// startAll starts every persistent operation of a rank several times, and compares.
func startAll(ctx context.Context, team *Team, root, n int) error {
	all, err := prepareAll(team, root, n)
	if err != nil {
		return err
	}
	for round := range 4 {
		seed := uint64(round)
		for _, x := range all {
			copy(x.in, x.fill(seed))
			x.op.Start() // the ones before are in flight
		}
		for _, x := range all {
			if err := x.op.o.prepared.request.Wait(ctx); err != nil {
				return fmt.Errorf("%s: %w", x.name, err)
			}
			if x.out != nil && x.want != nil {
				if err := equals(x.name, x.want(seed), x.out); err != nil {
					return fmt.Errorf("start %d: %w", round, err)
				}
			}
		}
	}
	for range 2 * maxLoose {
		if err := all[1].op.Start().Wait(ctx); err != nil {
			return err
		}
	}
	for _, x := range all {
		if err := x.op.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Each start of a persistent operation has the result of its memory at that time, by all
// algorithms, through the starts that end with a barrier.
func TestPersistent(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		most := 5
		if testutil.Slow() > 1 {
			most = 3
		}
		for _, p := range []int{1, 2, most} {
			ts := worlds(t, job(t, p, fabric))
			ctx := testutil.Context(t, testutil.Limit)
			for _, n := range []int{1, 700} {
				each(t, ts, func(_ int, team *Team) error { return startAll(ctx, team, p-1, n) })
			}
		}
	})
}

// An operation that is prepared with the memory of a call that is over does not take that for one of
// its own.
func TestPrepareAfterCall(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	each(t, worlds(t, job(t, 2, "shm")), func(r int, team *Team) error {
		for i := range 40 {
			if err := StartBarrier(team).Wait(ctx); err != nil {
				return err
			}
			if i < 4 { // the barrier is known by then
				continue
			}
			barrier, err := PrepareBarrier(team)
			if err != nil {
				return err
			}
			q := barrier.Start()
			if err := errors.Join(q.Wait(ctx), barrier.Close()); err != nil || !q.Done() {
				return fmt.Errorf("barrier %d: done: %v: %w", i, q.Done(), err)
			}
		}
		return nil
	})
}

// A rank may call another form than others.
func TestPersistentWithOthers(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	each(t, worlds(t, job(t, 3, "shm")), func(r int, team *Team) error {
		in, out := input(1, r, 5), make([]int64, 5)
		op, err := PrepareAllreduce(team, in, out, Sum)
		if err != nil {
			return err
		}
		for i := range 10 {
			clear(out)
			switch (i + r) % 3 {
			case 0:
				err = op.Start().Wait(ctx)
			case 1:
				err = StartAllreduce(team, in, out, Sum).Wait(ctx)
			default:
				err = Allreduce(ctx, team, in, out, Sum)
			}
			if err == nil {
				err = equals("allreduce", want(1, 0, 3, 5, input, add), out)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// A persistent operation follows the algorithm that is forced.
func TestPersistentForced(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	each(t, worlds(t, job(t, 3, "shm")), func(r int, team *Team) error {
		in, out := input(1, r, 5), make([]int64, 5)
		op, err := PrepareAllreduce(team, in, out, Sum)
		if err != nil {
			return err
		}
		for _, alg := range []string{"ring", "doubling", "halving", "ring"} {
			if err := team.Force("allreduce=" + alg); err != nil {
				return err
			}
			if err := op.Start().Wait(ctx); err != nil {
				return err
			}
			if op.o.alg.String() != alg {
				return fmt.Errorf("by %v, want %s", op.o.alg, alg)
			}
			if err := equals(alg, want(1, 0, 3, 5, input, add), out); err != nil {
				return err
			}
		}
		return nil
	})
}

// A persistent operation is in flight once at a time, and not after Close.
func TestPersistentMisuse(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	_, err := PrepareBcast(ts[0], 2, []int64{1})
	require.ErrorIs(t, err, ErrInvalid)
	op, err := PrepareBarrier(ts[0])
	require.NoError(t, err)
	req := op.Start()
	require.ErrorIs(t, op.Start().Wait(ctx), ErrBusy)
	require.ErrorIs(t, op.Close(), ErrBusy)
	require.NoError(t, Barrier(ctx, ts[1]))
	require.NoError(t, req.Wait(ctx))
	require.NoError(t, op.Close())
	require.NoError(t, op.Close())
	err = op.Start().Wait(ctx)
	require.ErrorIs(t, err, rma.ErrClosed)
	require.ErrorContains(t, err, "the persistent operation is closed")
	each(t, ts, func(_ int, team *Team) error { return conform(ctx, team, 0, 3, 1) })
}

// requireNoAllocation requires that starts of persistent operations with n elements allocate nothing, whether
// their messages come before the start or after it: of those with some names.
func requireNoAllocation(t *testing.T, ts []*Team, n int, names ...string) {
	ctx := testutil.Context(t, testutil.Limit)
	ops := make([][]persistent, len(ts))
	each(t, ts, func(r int, team *Team) (err error) { ops[r], err = prepareAll(team, 0, n); return err })
	for i, x := range ops[0] {
		if len(names) > 0 && !slices.Contains(names, x.name) {
			continue
		}
		first := 0
		run := func() {
			for k := range ts {
				if err := ops[(first+k)%len(ts)][i].op.Start().refusal; err != nil {
					t.Error(err)
				}
			}
			for r := range ts {
				if err := ops[r][i].op.o.prepared.request.Wait(ctx); err != nil {
					t.Error(err)
				}
			}
			first++
		}
		for range 2 * maxLoose {
			run()
		}
		if !testutil.Race { // under which sync.Pool forgets
			require.Zero(t, testutil.AllocsPerRun(1000, run), "%s of %d", x.name, n) // what other goroutines allocate is little beside so many
		}
	}
}

func TestPersistentAllocatesNothing(t *testing.T) {
	ts := worlds(t, job(t, 2, "shm"))
	for _, n := range []int{1, 100} {
		requireNoAllocation(t, ts, n)
	}
}

// Goroutines that start one persistent operation at once start it once at a time.
func TestPersistentStartsAtOnce(t *testing.T) {
	const starters, starts = 4, 200
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	sum := []int64{0}
	op, err := PrepareAllreduce(ts[0], []int64{1}, sum, Sum)
	require.NoError(t, err)
	var g errgroup.Group
	for range starters {
		g.Go(func() error {
			for n := 0; n < starts; {
				switch q := op.Start(); {
				case q.refusal == nil:
					n++
				case !errors.Is(q.refusal, ErrBusy):
					return q.refusal
				}
				runtime.Gosched()
			}
			return nil
		})
	}
	for range starters * starts {
		got := []int64{2}
		require.NoError(t, Allreduce(ctx, ts[1], nil, got, Sum))
		require.Equal(t, int64(3), got[0])
	}
	require.NoError(t, g.Wait())
	require.NoError(t, op.o.prepared.request.Wait(ctx))
	require.Equal(t, int64(3), sum[0])
}
