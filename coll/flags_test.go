package coll

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/testutil"
)

const byFlags = "barrier=flags,bcast=flags,reduce=flags,allreduce=flags,allgather=flags,alltoall=flags"

// Operations by flags, of ranks that start and wait for them in all ways, beside operations by
// messages and of other tags, have the results of a serial reference, over many uses of each
// line.
func TestFlags(t *testing.T) {
	for _, p := range []int{2, 3, 5, 8, 12} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			t.Parallel()
			ctx := testutil.Context(t, testutil.Limit)
			ts := worlds(t, job(t, p, "shm"))
			for _, team := range ts {
				require.NoError(t, team.Force(byFlags))
			}
			each(t, ts, func(r int, team *Team) error {
				same, own := rand.New(rand.NewPCG(7, uint64(p))), rand.New(rand.NewPCG(8, uint64(r)))
				var reqs []*Request
				var checks []func() error
				for i := range 400 {
					seed, n, root := same.Uint64(), 1+same.IntN(60), same.IntN(p)
					got := input(seed, r, n)
					expect := want(seed, 0, p, n, input, add)
					on := team
					var q *Request
					switch same.IntN(8) {
					case 0:
						q = StartBarrier(team)
						expect = input(seed, r, n)
					case 1:
						q = StartBcast(team, root, got)
						expect = input(seed, root, n)
					case 2:
						if q = StartReduce(team, root, nil, got, Sum); r != root {
							expect = input(seed, r, n)
						}
					case 3:
						on = team.Tag(1)
						fallthrough
					case 4:
						q = StartAllreduce(on, nil, got, Sum)
					case 5:
						n = 1 + n%10 // of the whole, each block is
						mine := input(seed, r, n)
						got, expect = make([]int64, p*n), nil
						for s := range p {
							expect = append(expect, input(seed, s, n)...)
						}
						q = StartAllgather(team, mine, got)
					case 6:
						n = 1 + n%10
						got, expect = nil, nil
						for s := range p {
							got = append(got, input(seed+uint64(s), r, n)...)
							expect = append(expect, input(seed+uint64(r), s, n)...)
						}
						q = StartAlltoall(team, nil, got)
					default: // by messages
						got, expect = input(seed, r, 100), want(seed, 0, p, 100, input, add)
						q = StartAllreduce(team, nil, got, Sum)
					}
					check := func() error { return equals(fmt.Sprintf("operation %d", i), expect, got) }
					if own.IntN(3) > 0 {
						reqs, checks = append(reqs, q), append(checks, check)
						continue
					}
					if err := errors.Join(q.wait(ctx), check()); err != nil {
						return err
					}
				}
				for i, q := range reqs {
					if err := errors.Join(q.Wait(ctx), checks[i]()); err != nil {
						return err
					}
				}
				for range 50 { // blocking calls, which look for flags themselves
					sum := []int64{int64(r)}
					if err := errors.Join(Barrier(ctx, team), Allreduce(ctx, team, nil, sum, Sum), equals("sum", []int64{int64(p * (p - 1) / 2)}, sum)); err != nil {
						return err
					}
				}
				return nil
			})
			require.Greater(t, ts[0].t.board.over.Load(), uint64(300), "they were performed by flags")
		})
	}
}

// A rank whose next call is by messages learns that another waits for its line, and so do
// ranks whose calls have no message to each other.
func TestFlagsMismatch(t *testing.T) {
	large := make([]int64, 3000)
	for name, call := range map[string]func(t *Team) *Request{
		"messages": func(t *Team) *Request {
			if t.Rank() == 1 {
				return StartBcast(t, 0, large) // which waits for rank 0
			}
			return StartBarrier(t)
		},
		"root": func(t *Team) *Request { return StartBcast(t, t.Rank(), []int64{1}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testutil.Context(t, testutil.Limit)
			ts := worlds(t, job(t, 2, "shm"))
			each(t, ts, func(_ int, team *Team) error { return settled(ctx, team, byFlags) })
			each(t, ts, func(_ int, team *Team) error {
				err := call(team).Wait(ctx)
				if err == nil {
					err = StartBarrier(team).Wait(ctx)
				}
				if m := (*MismatchError)(nil); !errors.As(err, &m) {
					return fmt.Errorf("%v", err)
				}
				return nil
			})
		})
	}
}

// Lines that no honest rank writes revoke the team: a number of the future, another call, a
// call that is none.
func TestFlagsLies(t *testing.T) {
	for name, lie := range map[string]func(line []byte, flag uint64){
		"number": func(line []byte, flag uint64) { onesided.Store64(line[lineFixed-8:], flag+boardOps) },
		"call": func(line []byte, flag uint64) {
			call{kind: kindReduce, op: opMax, alg: algFlags}.put(line[8:])
			onesided.Store64(line[lineFixed-8:], flag)
		},
		"no call": func(line []byte, flag uint64) {
			line[8] = 0xff
			onesided.Store64(line[lineFixed-8:], flag)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testutil.Context(t, testutil.Limit)
			ts := worlds(t, job(t, 2, "shm"))
			each(t, ts, func(_ int, team *Team) error { return settled(ctx, team, byFlags) })
			b := ts[0].t.board
			next := b.over.Load() + 1
			end := (int(next%boardOps)*b.lines + 1) * lineSize
			lie(b.came[end-lineFixed:end], next)
			require.ErrorIs(t, Barrier(ctx, ts[0]), ErrRevoked)
		})
	}
}

// Operations by flags end when one is given up, and when a rank is gone: both those that wait
// for a line and those behind.
func TestFlagsEnd(t *testing.T) {
	open := func(t testing.TB, es []*rma.Engine) []*Team {
		ctx := testutil.Context(t, testutil.Limit)
		ts := worlds(t, es)
		each(t, ts, func(_ int, team *Team) error { return settled(ctx, team, byFlags) })
		return ts
	}
	endBoards(t, open, func(team *Team) (first, second *Request) { return StartBarrier(team), StartBarrier(team) })
}

// endBoards has rank 1 give up the second of two operations that rank 0 starts, or leave: both
// end, and the board lets go of them.
func endBoards(t *testing.T, open func(testing.TB, []*rma.Engine) []*Team, start func(*Team) (first, second *Request)) {
	for name, end := range map[string]func(e *rma.Engine, q *Request) error{
		"cancel": func(_ *rma.Engine, q *Request) error { q.Cancel(); return nil },
		"leave":  func(e *rma.Engine, _ *Request) error { return e.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testutil.Context(t, testutil.Limit)
			es := job(t, 2, "shm")
			ts := open(t, es)
			first, second := start(ts[0])
			require.NoError(t, end(es[1], second))
			require.ErrorIs(t, first.Wait(ctx), ErrRevoked)
			require.ErrorIs(t, second.Wait(ctx), ErrRevoked)
			require.True(t, ts[0].t.board.dead.Load())
			require.Empty(t, ts[0].t.board.queue)
			require.Empty(t, ts[0].t.board.area.mappings)
		})
	}
}

// A line arrives long after the last look: the engine finds it, also if it has not noticed yet
// that what it looked for before has come.
func TestFlagsArriveLate(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	each(t, ts, func(r int, team *Team) error {
		op, err := PrepareBarrier(team)
		if err != nil {
			return err
		}
		for range 20 {
			if r == 1 {
				time.Sleep(3 * time.Millisecond) // sleep: the other rank stops spinning
			}
			if err := errors.Join(Barrier(ctx, team), op.Start().Wait(ctx)); err != nil {
				return err
			}
			if r == 1 {
				time.Sleep(3 * time.Millisecond) // sleep: the other rank stops spinning
			}
			if err := errors.Join(op.Start().Wait(ctx), op.Start().Wait(ctx)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Calls that ranks make at the same time are over within the call, whatever their form and the
// operation, with and without the barrier at the end of some; a call with other arguments goes
// the way of all others first.
func TestFlagsFast(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	each(t, ts, func(r int, team *Team) error {
		// What was measured on a busy machine may choose another algorithm.
		if err := team.Force("barrier=flags,allreduce=flags,bcast=flags"); err != nil {
			return err
		}
		fast := map[string]int{}
		sums := []int64{0, 0}
		op, err := PrepareAllreduce(team, nil, sums, Sum)
		if err != nil {
			return err
		}
		started := func(name string, q *Request) error {
			if q == &complete {
				fast[name]++
			}
			return q.Wait(ctx)
		}
		again := func() error {
			team.t.mu.Lock()
			op.o.launched = false
			team.t.mu.Unlock()
			q := op.Start()
			team.t.mu.Lock()
			if !op.o.launched {
				fast["persistent allreduce"]++
			}
			team.t.mu.Unlock()
			return q.Wait(ctx)
		}
		for i := range 1000 {
			one := []int64{int64(i + r)}
			call := func(name string, q *Request) error {
				if q == &complete {
					fast[name]++
				}
				return q.wait(ctx)
			}
			set := func() { sums[0], sums[1] = int64(i), int64(r) }
			sum := func() error { return equals("sum", []int64{int64(2 * i), 1}, sums) }
			err := call("barrier", StartBarrier(team.blocking))
			set()
			err = errors.Join(err, call("allreduce", StartAllreduce(team.blocking, nil, sums, Sum)), sum())
			set()
			err = errors.Join(err, started("started allreduce", StartAllreduce(team, nil, sums, Sum)), sum())
			set()
			err = errors.Join(err, again(), sum(), call("bcast", StartBcast(team.blocking, i%2, one)), equals("bcast", []int64{int64(i + i%2)}, one))
			if err != nil {
				return err
			}
		}
		for _, name := range []string{"barrier", "allreduce", "started allreduce", "persistent allreduce", "bcast"} {
			if r == 1 && fast[name] == 0 && runtime.NumCPU() > 1 {
				return fmt.Errorf("no %s was over within its call: %v", name, fast)
			}
		}
		return nil
	})
	require.Zero(t, len(ts[0].t.ops))
}

// Operations that callbacks start one in another, each at the end of the one before, end, whether
// they are over within their calls or not.
func TestFlagsFromCallbacks(t *testing.T) {
	const n = 2000
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	each(t, ts, func(_ int, team *Team) error {
		over := make(chan error, 1)
		sum := []int64{1}
		var next func(i int)
		next = func(i int) {
			StartAllreduce(team, nil, sum, Max).Then(func(err error) {
				if err != nil || i == n {
					over <- err
					return
				}
				next(i + 1)
			})
		}
		next(0)
		select {
		case err := <-over:
			return errors.Join(err, equals("greatest", []int64{1}, sum))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// A call that finds the board dead leaves no goroutine behind that seems to look for its flag, so that one
// which does is seen.
func TestFlagsDead(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	each(t, ts, func(_ int, team *Team) error { return settled(ctx, team, "barrier=flags") })
	b := ts[0].t.board
	b.dead.Store(true) // the team ends
	o, _ := unlaunched(t, ts[0], arguments{problem: problem{call: call{kind: kindBarrier}, rank: 0, team: 2}}, algFlags)
	flag := ts[0].t.launch(o, algFlags, true)
	require.NotZero(t, flag)
	b.spin(flag)
	looking := 0
	testutil.Holding(&b.mu, func() { looking = b.spinning })
	require.Zero(t, looking)
}
