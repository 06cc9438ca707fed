package coll

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
)

// Blocking calls that are alike use one operation and one schedule; the number of schedules
// that are kept is bounded.
func TestReuse(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	kept := func() (plans, free int) {
		c := ts[0].t
		c.mu.Lock()
		defer c.mu.Unlock()
		c.plans.mu.Lock()
		defer c.plans.mu.Unlock()
		return len(c.plans.kept), len(c.free)
	}
	call := func(n int) {
		each(t, ts, func(r int, team *Team) error {
			got := make([]int64, n)
			if err := Allreduce(ctx, team, input(1, r, n), got, Sum); err != nil {
				return err
			}
			if err := equals("allreduce", want(1, 0, 2, n, input, add), got); err != nil {
				return err
			}
			if err := Allreduce(ctx, team, nil, got, Sum); err != nil { // of the same size, in place
				return err
			}
			w := want(1, 0, 2, n, input, add)
			add(w, w)
			return equals("allreduce in place", w, got)
		})
	}
	call(3)
	plans, free := kept()
	for range 10 {
		call(3)
	}
	now, nowFree := kept()
	require.Equal(t, plans, now)
	require.Equal(t, free, nowFree)
	for n := range 2 * maxPlans {
		call(n)
	}
	now, nowFree = kept()
	require.Equal(t, maxPlans, now)
	require.LessOrEqual(t, nowFree, maxFree)
}

// A request keeps the result of its operation when that is in another use.
func TestRequestOutlivesUse(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	first := StartBarrier(ts[0])
	require.NoError(t, Barrier(ctx, ts[1]))
	require.NoError(t, first.Wait(ctx))
	var o *operation
	testutil.Eventually(t, testutil.Limit, func() bool { // who ends it may still have it
		c := ts[0].t
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := len(c.free); n > 0 {
			o = c.free[n-1]
		}
		return o != nil
	}, "the operation is free")
	second := StartBarrier(ts[0])
	require.Same(t, o, second.o)
	require.True(t, first.Done())
	require.False(t, second.Done())
	require.NoError(t, first.Wait(ctx))
	first.Cancel() // of no effect
	called := false
	first.Then(func(err error) { called = err == nil })
	require.True(t, called)
	require.NoError(t, Barrier(ctx, ts[1]))
	require.NoError(t, second.Wait(ctx))

	third := StartBarrier(ts[0])
	third.Cancel()
	require.ErrorIs(t, third.Wait(ctx), rma.ErrGivenUp)
	require.NoError(t, second.Wait(ctx))
}

// Requests that are waited for too shortly, waited for by a goroutine that comes late, or not
// at all, let their operations go when those are over, once.
func TestReuseAfterEveryKindOfWait(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	over, cancel := context.WithCancel(ctx)
	cancel()
	each(t, ts, func(r int, team *Team) error {
		var reqs []*Request
		for i := range 300 {
			q := StartAllreduce(team, []int64{int64(i)}, make([]int64, 1), Sum)
			switch i % 4 {
			case 1:
				if err := q.Wait(over); err != nil && !errors.Is(err, context.Canceled) {
					return err
				}
			case 2:
				if err := q.Wait(ctx); err != nil {
					return err
				}
			case 3:
				reqs = append(reqs, q)
			}
		}
		for _, q := range reqs {
			if err := q.Wait(ctx); err != nil {
				return err
			}
		}
		return Barrier(ctx, team)
	})
	c := ts[0].t
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[*operation]bool{}
	temp := 0
	for _, o := range c.free {
		require.False(t, seen[o])
		seen[o] = true
		require.Nil(t, o.request)
		temp += cap(o.temp)
	}
	require.NotEmpty(t, seen)
	require.LessOrEqual(t, len(c.free), maxFree)
	require.Equal(t, temp, c.freeTemp)
}

// Calls that are alike allocate nothing in the blocking form, and the request only in the
// form that returns it.
func TestCallsAllocateNothing(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	for _, n := range []int{1, 100} {
		var bufs [2][4][]float64
		for r := range bufs {
			bufs[r] = [4][]float64{make([]float64, n), make([]float64, n), make([]float64, 2*n), make([]float64, 2*n)}
		}
		for name, start := range starts(n) {
			var reqs [2]*Request
			begin := func() {
				for r, m := range bufs {
					reqs[r] = start(ts[r], m[0], m[1], m[2], m[3])
				}
			}
			blocking := func() {
				begin()
				for _, q := range reqs {
					require.NoError(t, q.wait(ctx))
				}
			}
			started := func() {
				begin()
				for _, q := range reqs {
					require.NoError(t, q.Wait(ctx))
				}
			}
			for range 2 * maxLoose {
				blocking()
			}
			if !testutil.Race { // under which sync.Pool forgets
				require.Zero(t, testutil.AllocsPerRun(1000, blocking), "%s of %d", name, n)
			}
			for range 2 * maxFree { // requests are given away
				started()
			}
			if !testutil.Race {
				require.LessOrEqual(t, testutil.AllocsPerRun(1000, started), 2.0, "%s of %d", name, n)
			}
		}
	}
}

// Temporary memory is kept from call to call, also if operations without any are between them.
func TestTemporaryMemoryIsKept(t *testing.T) {
	const n, calls = 64 << 10, 50
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	for _, alg := range []string{"binomial", "single", "scatter"} {
		loop := func() {
			each(t, ts, func(_ int, team *Team) error {
				if err := team.Force("reduce=" + alg); err != nil {
					return err
				}
				send, recv := make([]float64, n), make([]float64, n)
				for range calls {
					if err := errors.Join(Reduce(ctx, team, 0, send, recv, Sum), Barrier(ctx, team)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		loop()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		loop()
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(calls*n*8/4), alg) // with the buffers of both ranks, of 4 · 8n
	}
}

// A full team refuses operations, whatever they were before, but not those of which other ranks
// have flags.
func TestFullTeamEndsWhatHasBegun(t *testing.T) {
	c := worlds(t, job(t, 2, "shm"))[0].t
	o := c.unused()
	o.arguments = arguments{problem: problem{call: call{kind: kindBarrier}, team: 2}, bufs: make([][]byte, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range uint32(maxInFlight) {
		c.ops[key{1, i}] = nil
	}
	o.flag = 1 // of its last use, if it is persistent
	_, refused := c.enterLocked(o, key{2, 0}, false)
	r, err := c.enterLocked(o, key{0, 0}, true)
	clear(c.ops)
	require.ErrorIs(t, refused, ErrBusy)
	require.NoError(t, err)
	require.NotNil(t, r)
}

// A blocking call whose context ends returns although a rank does not take what was sent to it. If that is the memory of
// the call, the error says so, until the rank has taken it. A persistent operation can be closed before.
func TestSendsNobodyTakes(t *testing.T) {
	for name, large := range map[string]bool{"copied": false, "from the memory of the call": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			es := job(t, 2, "shm")
			ctx := testutil.Context(t, testutil.Limit)
			team, err := World(es[1]) // rank 0 does not call coll yet
			require.NoError(t, err)
			require.NoError(t, team.Force("gatherv=linear")) // the choice would need rank 0
			send := make([]byte, 8)
			if large {
				send = make([]byte, 1<<20)
			}
			op, err := PrepareGatherv(team, 0, send, nil)
			require.NoError(t, err)
			req := op.Start()
			given, end := context.WithCancel(ctx)
			returned := make(chan error, 1)
			go func() { returned <- Gatherv(given, team.Tag(1), 0, send, nil) }()
			end()
			var errs []error
			testutil.Eventually(t, testutil.Limit, func() bool {
				select {
				case err := <-returned:
					errs = append(errs, err)
				default:
				}
				return len(errs) > 0
			}, "the end of the call")
			errs = append(errs, req.Wait(ctx))
			require.NoError(t, op.Close())
			var all []*InUseError
			for _, err := range errs {
				require.ErrorIs(t, err, rma.ErrGivenUp)
				var inUse *InUseError
				require.Equal(t, large, errors.As(err, &inUse), "%v", err)
				if large {
					require.ErrorIs(t, err, rma.ErrInUse)
					require.Equal(t, 0, inUse.Rank)
					require.ErrorIs(t, inUse.Wait(given), context.Canceled)
					all = append(all, inUse)
				}
			}
			_, err = World(es[0])
			require.NoError(t, err)
			for _, inUse := range all {
				require.NoError(t, inUse.Wait(ctx))
			}
		})
	}
}

// A message of an earlier use of an operation is not one of the present use.
func TestArriveLate(t *testing.T) {
	ts := worlds(t, job(t, 2, "shm"))
	o := ts[0].t.unused()
	o.arguments = arguments{problem: problem{call: call{kind: kindBarrier}, team: 2}, bufs: make([][]byte, 1)}
	require.NoError(t, o.renew(key{0, 1}, &Request{}, false))
	require.True(t, o.set(ts[0].t.plans.schedule(&o.problem, algDissemination)))
	h := header{seq: 1, call: o.call}
	require.ErrorIs(t, o.renew(key{0, 2}, &Request{}, false), ErrBusy)
	o.ended = true
	require.NoError(t, o.renew(key{0, 2}, &Request{}, false))
	require.True(t, o.set(ts[0].t.plans.schedule(&o.problem, algDissemination)))
	require.False(t, o.arrive(1, &h))
	h.seq = 2
	require.True(t, o.arrive(1, &h))
	require.True(t, o.state[o.plan.find(1, 0)].begun)
	o.abort(ErrRevoked)
}

// A message for a persistent operation that is over, and closed, finds no memory there: it is
// one of an operation of the past.
func TestArriveAfterClose(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	op, err := PrepareBarrier(ts[0])
	require.NoError(t, err)
	req := op.Start()
	h := header{tag: op.o.key.tag, seq: op.o.key.seq, call: op.o.call}
	require.NoError(t, Barrier(ctx, ts[1]))
	require.NoError(t, req.Wait(ctx))
	require.False(t, op.o.arrive(1, &h), "over")
	require.NoError(t, ts[0].Err())
	require.NoError(t, op.Close())
	require.False(t, op.o.arrive(1, &h), "closed")
}

// Calls that differ only in that they are in place, or in the lengths of their blocks, do not
// displace each other's schedules. The memory of schedules is bounded.
func TestPlansAreKept(t *testing.T) {
	require.GreaterOrEqual(t, uintptr(stepBytes), reflect.TypeFor[step]().Size())
	c := worlds(t, job(t, 1, "shm"))[0].t
	in, out := []mem{{1, 0, 800}}, []mem{{2, 0, 800}}
	pr := problem{call: call{kind: kindAllreduce, op: opSum, size: 8, count: 100}, team: 4, send: in, recv: out}
	inPlace := pr
	inPlace.send = out
	a, b := c.plans.schedule(&pr, algRing), c.plans.schedule(&inPlace, algRing)
	require.NotSame(t, a, b)
	require.Same(t, a, c.plans.schedule(&pr, algRing))
	require.Same(t, b, c.plans.schedule(&inPlace, algRing))
	require.Len(t, c.plans.kept, 2)

	for i := range 20 { // the schedules of a large team
		blocks := slices.Repeat([]mem{{1, 0, 8 + i}}, 4000)
		large := problem{call: call{kind: kindAlltoallv, size: 1}, team: len(blocks), send: blocks, recv: slices.Repeat([]mem{{2, 0, 8 + i}}, 4000)}
		c.plans.schedule(&large, algLinear)
		require.LessOrEqual(t, c.plans.bytes, maxPlanBytes)
	}
	n := 0
	for _, p := range c.plans.kept {
		n += p.bytes()
	}
	require.Equal(t, n, c.plans.bytes)
	require.Less(t, len(c.plans.kept), 20)
	require.Greater(t, n, maxPlanBytes/2)
}
