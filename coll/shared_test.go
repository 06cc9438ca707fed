package coll

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/testutil"
)

const byShared = "barrier=shared,bcast=shared,reduce=shared,allreduce=shared,reducescatter=shared,gather=shared,scatter=shared,allgather=shared,alltoall=shared"

// sharing returns the teams of all ranks, which use shared memory.
func sharing(t testing.TB, es []*rma.Engine) []*Team {
	t.Helper()
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, es)
	each(t, ts, func(_ int, team *Team) error { return settled(ctx, team, byShared) })
	require.True(t, ts[0].t.told.Load().boards.shared)
	return ts
}

// Operations by shared memory of one round and of many, of ranks that start and wait for them in
// all ways, beside those by flags and by messages, have the results of a serial reference.
func TestShared(t *testing.T) {
	for _, p := range []int{2, 3, 5, 8} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			t.Parallel()
			ts := sharing(t, job(t, p, "shm"))
			mixOperations(t, ts, byShared)
			require.Greater(t, ts[0].t.board.area.count, uint64(100), "they were performed by shared memory")
		})
	}
}

// mixOperations performs all operations by forced algorithms, between others.
func mixOperations(t *testing.T, ts []*Team, forced string) {
	ctx, p := testutil.Context(t, testutil.Limit), len(ts)
	each(t, ts, func(r int, team *Team) error {
		same, own := rand.New(rand.NewPCG(3, uint64(p))), rand.New(rand.NewPCG(4, uint64(r)))
		var reqs []*Request
		var checks []func() error
		for i := range 120 {
			seed, root := same.Uint64(), same.IntN(p)
			n := 1 + same.IntN([]int{60, 60, 600, 600, 6000, 40000 / p}[same.IntN(6)])
			if i%40 == 7 { // all are ready: the algorithm of the next ones is another
				for _, q := range reqs {
					if err := q.Wait(ctx); err != nil {
						return err
					}
				}
				if err := errors.Join(Barrier(ctx, team), team.Force([]string{forced, forced + ",barrier=flags,bcast=flags,allreduce=doubling"}[i/40%2])); err != nil {
					return err
				}
			}
			one, blocks := input(seed, r, n), input(seed, r, n*p)
			got, all := make([]int64, n), make([]int64, n*p)
			var gathered, exchanged []int64
			for from := range p {
				gathered = append(gathered, input(seed, from, n)...)
				exchanged = append(exchanged, input(seed, from, n*p)[r*n:(r+1)*n]...)
			}
			sum := want(seed, 0, p, n, input, add)
			result, expect := got, sum
			var q *Request
			switch same.IntN(9) {
			case 0:
				q, expect = StartBarrier(team), got
			case 1:
				q, result, expect = StartBcast(team, root, one), one, input(seed, root, n)
			case 2:
				if q, result = StartReduce(team, root, nil, one, Sum), one; r != root {
					expect = input(seed, r, n)
				}
			case 3:
				q, result = StartAllreduce(team, nil, one, Sum), one
			case 4:
				q, result, expect = StartAllgather(team, one, all), all, gathered
			case 5:
				q, result, expect = StartAlltoall(team, nil, blocks), blocks, exchanged
			case 6:
				q = StartReduceScatter(team, blocks, got, Sum)
				expect = want(seed, 0, p, n*p, input, add)[r*n : (r+1)*n]
			case 7:
				if q, result, expect = StartGather(team, root, one, nil), nil, nil; r == root {
					q, result, expect = StartGather(team, root, one, all), all, gathered
				}
			default:
				if q, expect = StartScatter(team, root, nil, got), input(seed, root, n*p)[r*n:(r+1)*n]; r == root {
					q = StartScatter(team, root, blocks, got)
				}
			}
			check := func() error { return equals(fmt.Sprintf("operation %d", i), expect, result) }
			if own.IntN(3) > 0 {
				reqs, checks = append(reqs, q), append(checks, check)
				continue
			}
			if err := errors.Join(q.wait(ctx), check()); err != nil {
				return err
			}
		}
		for i, q := range reqs {
			if err := q.Wait(ctx); err != nil {
				return err
			}
			if i < len(checks) {
				if err := checks[i](); err != nil {
					return err
				}
			}
		}
		op, err := PrepareAllgather(team, []int64{int64(r)}, make([]int64, p))
		if err != nil {
			return err
		}
		for range 50 { // blocking calls, which look for what is told themselves, and persistent ones
			sum := []int64{int64(r)}
			if err := errors.Join(Allreduce(ctx, team, nil, sum, Sum), op.Start().Wait(ctx), equals("sum", []int64{int64(p * (p - 1) / 2)}, sum)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Several teams, whose ranks are in another order, use shared memory at once.
func TestSharedTeams(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	es := job(t, 4, "shm")
	ts := sharing(t, es)
	each(t, ts, func(r int, team *Team) error {
		var teams []*Team
		for _, key := range []int{r, -r} {
			sub, err := team.Split(ctx, 0, key)
			if err != nil {
				return err
			}
			if err := sub.Force(byShared); err != nil {
				return err
			}
			teams = append(teams, sub)
		}
		for i := range 100 {
			n := 1 + i*i
			var reqs []*Request
			var sums [][]int64
			for _, sub := range teams {
				sum := input(uint64(i), sub.Rank(), n)
				sums = append(sums, sum)
				reqs = append(reqs, StartAllreduce(sub, nil, sum, Sum))
			}
			for k, q := range reqs {
				if err := errors.Join(q.Wait(ctx), equals("sum", want(uint64(i), 0, 4, n, input, add), sums[k])); err != nil {
					return err
				}
			}
		}
		for _, sub := range teams {
			if n := sub.t.board.area.count; n != 100 {
				return fmt.Errorf("%d operations by shared memory", n)
			}
		}
		return errors.Join(teams[0].Close(), teams[1].Close(), teams[1].Close()) // again: the areas are released once
	})
	for _, team := range ts {
		testutil.Eventually(t, testutil.Limit, func() bool { return team.t.s.areas.Load() == int64(areaOf(4)) }, "the areas of the teams were released")
	}
}

// Calls that differ fail on all ranks: in the number of elements, and in the root, where all
// have completed the operation before it is found.
func TestSharedMismatch(t *testing.T) {
	for name, call := range map[string]func(t *Team) *Request{
		"count": func(t *Team) *Request {
			n := 10 + t.Rank()/2
			return StartAllgather(t, make([]int64, n), make([]int64, n*t.Size()))
		},
		"operation": func(t *Team) *Request {
			if t.Rank() == 1 {
				return StartAlltoall(t, nil, make([]int64, 30))
			}
			return StartAllgather(t, make([]int64, 10), make([]int64, 30))
		},
		"root": func(t *Team) *Request { return StartBcast(t, min(t.Rank(), 1), make([]int64, 100)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testutil.Context(t, testutil.Limit)
			each(t, sharing(t, job(t, 3, "shm")), func(_ int, team *Team) error {
				err := call(team).Wait(ctx)
				if err == nil {
					err = Barrier(ctx, team)
				}
				if m := (*MismatchError)(nil); !errors.As(err, &m) {
					return fmt.Errorf("%v", err)
				}
				return nil
			})
		})
	}
}

// Lines that no honest rank writes revoke the team: of an operation of the future, of another
// call, of a call that is none.
func TestSharedLies(t *testing.T) {
	for name, lie := range map[string]func(line []byte, flag uint64){
		"number": func(line []byte, flag uint64) {
			onesided.Store64(line[tellSize-8:], (flag+boardOps)<<tellBits|1)
		},
		"call": func(line []byte, flag uint64) {
			call{kind: kindReduce, op: opMax, alg: algShared}.put(line)
			onesided.Store64(line[tellSize-8:], flag<<tellBits|tellEnd)
		},
		"no call": func(line []byte, flag uint64) {
			line[0] = 0xff
			onesided.Store64(line[tellSize-8:], flag<<tellBits|tellEnd)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testutil.Context(t, testutil.Limit)
			ts := sharing(t, job(t, 2, "shm"))
			b := ts[0].t.board
			next := b.over.Load() + 1
			at := b.area.lineOf(1, next)
			lie(b.came[at:at+tellSize], next)
			require.ErrorIs(t, Barrier(ctx, ts[0]), ErrRevoked)
		})
	}
}

// Operations by shared memory end when one is given up, and when a rank is gone: both those that
// wait and those behind. A rank that has told all that the others need may leave.
func TestSharedEnd(t *testing.T) {
	large := make([]int64, 1<<17)
	endBoards(t, sharing, func(team *Team) (first, second *Request) {
		return StartAllreduce(team, nil, large, Sum), StartBcast(team, 0, large)
	})
	t.Run("complete", func(t *testing.T) {
		ctx := testutil.Context(t, testutil.Limit)
		es := job(t, 2, "shm")
		ts := sharing(t, es)
		data := input(1, 1, 1000)
		require.NoError(t, Bcast(ctx, ts[1], 1, data))
		require.NoError(t, es[1].Close())
		got := make([]int64, 1000)
		require.NoError(t, Bcast(ctx, ts[0], 1, got))
		require.Equal(t, data, got)
	})
}

// The root of broadcasts is at most two operations ahead of the others, whose halves of its area
// they have not read.
func TestSharedRootWaits(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := sharing(t, job(t, 2, "shm"))
	var reqs []*Request
	for i := range 4 {
		reqs = append(reqs, StartBcast(ts[0], 0, input(uint64(i), 0, 100)))
	}
	require.NoError(t, reqs[0].Wait(ctx))
	require.False(t, reqs[3].Done())
	for i := range reqs {
		got := make([]int64, 100)
		require.NoError(t, Bcast(ctx, ts[1], 0, got))
		require.Equal(t, input(uint64(i), 0, 100), got)
		require.NoError(t, reqs[i].Wait(ctx))
	}
}

// A rank that ends while the root waits until its memory is free again is needed, as one that has
// ended before: the calls fail on the ranks that live.
func TestSharedRootOutlivesARank(t *testing.T) {
	for _, when := range []string{"before", "meanwhile"} {
		t.Run(when, func(t *testing.T) {
			ctx := testutil.Context(t, testutil.Limit)
			es := job(t, 2, "shm")
			ts := sharing(t, es)
			var reqs []*Request
			start := func() {
				for range 4 {
					reqs = append(reqs, StartBcast(ts[0], 0, make([]int64, 100)))
				}
			}
			if when == "meanwhile" {
				start()
				require.NoError(t, reqs[0].Wait(ctx))
				require.False(t, reqs[3].Done())
			}
			require.NoError(t, es[1].Close())
			if when == "before" {
				testutil.Eventually(t, testutil.Limit, func() (gone bool) {
					testutil.Holding(&ts[0].t.mu, func() { gone = ts[0].t.gone != nil })
					return gone
				}, "the end of the rank to be known")
				start()
			}
			require.ErrorIs(t, reqs[3].Wait(ctx), rma.ErrPeerGone)
		})
	}
}

// A callback that the engine calls may close its team.
func TestCloseInACallback(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	es := job(t, 2, "shm")
	ts := sharing(t, es)
	each(t, ts, func(r int, world *Team) error {
		team, err := New(ctx, es[r], []int{0, 1}, "closed")
		if err = errors.Join(err, settled(ctx, team, byFlags)); err != nil {
			return err
		}
		if r == 1 {
			if _, err := es[1].Peer(0).RecvTag(1, nil).Wait(ctx); err != nil { // the other rank has started
				return err
			}
			return errors.Join(Barrier(ctx, team), Barrier(ctx, world), team.Close())
		}
		closed := make(chan error, 1)
		StartBarrier(team).Then(func(err error) { closed <- errors.Join(err, team.Close()) })
		if err := es[0].Peer(1).SendTag(1, nil).Wait(ctx); err != nil {
			return err
		}
		return errors.Join(<-closed, Barrier(ctx, world))
	})
}

// Teams whose areas would exceed the budget of one rank, or whose ranks cannot map the memory,
// use other algorithms.
func TestSharedNotPossible(t *testing.T) {
	for name, open := range map[string]func() []*rma.Engine{
		"budget": func() []*rma.Engine { return job(t, 3, "shm") },
		"simulated": func() []*rma.Engine {
			return jobtest.Open(t, 3, "", func(c *rma.Config) { c.Device = "sim" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testutil.Context(t, testutil.Limit)
			ts := worlds(t, open())
			if name == "budget" {
				ts[1].t.s.areas.Store(areaBudget)
			}
			each(t, ts, func(r int, team *Team) error {
				sum := input(5, r, 1000)
				return errors.Join(team.Force(byShared), Barrier(ctx, team), Allreduce(ctx, team, nil, sum, Sum),
					equals("sum", want(5, 0, 3, 1000, input, add), sum))
			})
			f := ts[0].t.told.Load()
			require.Equal(t, name == "budget", f.boards.flags, "boards are used without areas, and not if they are not mapped")
			require.False(t, f.boards.shared)
		})
	}
}

// The memory of a team that is closed is unmapped on all ranks.
func TestSharedReleased(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	es := job(t, 2, "shm")
	ts := sharing(t, es)
	var before int64
	for i := range 11 {
		if i == 1 { // messages of the first team may have been the first that need memory
			before = offheap.InUse(offheap.Regions)
		}
		each(t, ts, func(r int, _ *Team) error {
			team, err := New(ctx, es[r], []int{0, 1}, fmt.Sprint("team ", i))
			if err != nil {
				return err
			}
			return errors.Join(Allgather(ctx, team, make([]int64, 5000), make([]int64, 10000)), team.Close())
		})
	}
	testutil.Eventually(t, testutil.Limit, func() bool {
		each(t, ts, func(_ int, team *Team) error { return Barrier(ctx, team) }) // drives the engines
		return offheap.InUse(offheap.Regions) <= before
	}, "the memory to be unmapped")
}
