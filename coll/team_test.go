package coll

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/testutil"
)

// Teams of some ranks, in another order, and the parts of a team work at the same time.
func TestTeams(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 5, fabric)
		ctx := testutil.Context(t, testutil.Limit)
		each(t, worlds(t, es), func(r int, world *Team) error {
			var g errgroup.Group
			if r != 2 {
				g.Go(func() error {
					team, err := New(ctx, es[r], []int{4, 0, 3, 1}, "four")
					if err != nil {
						return err
					}
					if team.JobRank(team.Rank()) != r || team.RankOf(2) != -1 {
						return fmt.Errorf("rank %d is %d of the team", r, team.Rank())
					}
					if err := conform(ctx, team, 1, 5, 1); err != nil {
						return err
					}
					return team.Close()
				})
			}
			g.Go(func() error {
				half, err := world.Split(ctx, r%2, -r)
				if err != nil {
					return err
				}
				if half.Rank() != half.Size()-1-r/2 {
					return fmt.Errorf("rank %d is %d of %d", r, half.Rank(), half.Size())
				}
				if err := conform(ctx, half, 0, 9, 2); err != nil {
					return err
				}
				return half.Close()
			})
			g.Go(func() error { return conform(ctx, world.Tag(7), 2, 3, 3) })
			return g.Wait()
		})
		each(t, worlds(t, es), func(r int, world *Team) error {
			sub, err := world.Split(ctx, r-1, 0)
			if (sub == nil) != (r == 0) {
				return fmt.Errorf("rank %d: team %v", r, sub)
			}
			return err
		})
	})
}

// Many operations are in flight, of several tags in different orders on different ranks,
// small and large ones.
func TestManyAtOnce(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		const ranks, tags, rounds = 4, 5, 6
		ctx := testutil.Context(t, testutil.Limit)
		each(t, worlds(t, job(t, ranks, fabric)), func(r int, world *Team) error {
			var reqs []*Request
			var check []func() error
			g := rand.New(rand.NewPCG(1, uint64(r)))
			for round := range rounds {
				for _, tag := range g.Perm(tags) {
					n := []int{1, 100, 3000}[(tag+round)%3]
					seed := uint64(100*tag + round)
					team := world.Tag(uint32(tag))
					sum := make([]int64, n)
					all := make([]int64, n*ranks)
					reqs = append(reqs,
						StartAllreduce(team, input(seed, r, n), sum, Sum),
						StartAlltoall(team, input(seed, r, n*ranks), all),
						StartBarrier(team))
					check = append(check, func() error {
						if err := equals("allreduce", want(seed, 0, ranks, n, input, add), sum); err != nil {
							return err
						}
						var w []int64
						for from := range ranks {
							w = append(w, input(seed, from, n*ranks)[r*n:(r+1)*n]...)
						}
						return equals("alltoall", w, all)
					})
				}
			}
			for _, i := range g.Perm(len(reqs)) {
				if err := reqs[i].Wait(ctx); err != nil {
					return err
				}
			}
			for _, f := range check {
				if err := f(); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// Ranks that start nothing else than operations nobody waits in are held back by those that
// lag behind, before their messages fill the memory there.
func TestBcastDoesNotRunAhead(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	buf := make([]byte, 1000)
	each(t, ts, func(_ int, t *Team) error { // the choice needs all ranks
		return errors.Join(t.Force("bcast=binomial"), Barrier(ctx, t))
	})
	var reqs []*Request
	for range 3 * maxLoose {
		reqs = append(reqs, StartBcast(ts[0], 0, buf))
	}
	require.NoError(t, reqs[maxLoose-2].Wait(ctx))
	require.False(t, reqs[maxLoose-1].Done(), "the barrier holds the root back")
	got := make([]byte, 1000)
	for range 3 * maxLoose {
		require.NoError(t, Bcast(ctx, ts[1], 0, got))
	}
	for _, r := range reqs {
		require.NoError(t, r.Wait(ctx))
	}
}

// Different calls on different ranks end with an error that names both, on all ranks.
func TestMismatch(t *testing.T) {
	one, two := []int64{1}, []int64{1, 2}
	large := make([]int64, 3000)
	for name, call := range map[string]func(t *Team) *Request{
		"operation": func(t *Team) *Request {
			if t.Rank() == 1 {
				return StartBarrier(t)
			}
			return StartAllreduce(t, nil, slices.Clone(one), Sum)
		},
		"count": func(t *Team) *Request {
			if t.Rank() == 1 {
				return StartAllreduce(t, nil, slices.Clone(two), Sum)
			}
			return StartAllreduce(t, nil, slices.Clone(one), Sum)
		},
		"large count": func(t *Team) *Request {
			if t.Rank() == 1 {
				return StartAllreduce(t, nil, slices.Clone(large[1:]), Sum)
			}
			return StartAllreduce(t, nil, slices.Clone(large), Sum)
		},
		"type": func(t *Team) *Request {
			if t.Rank() == 1 {
				return StartAllgather(t, []uint64{1}, make([]uint64, 3))
			}
			return StartAllgather(t, []int64{1}, make([]int64, 3))
		},
		"reduction": func(t *Team) *Request {
			if t.Rank() == 1 {
				return StartAllreduce(t, nil, slices.Clone(one), Max)
			}
			return StartAllreduce(t, nil, slices.Clone(one), Sum)
		},
		"root": func(t *Team) *Request { return StartBcast(t, t.Rank()%2, slices.Clone(one)) },
		"lengths": func(t *Team) *Request {
			send, recv := [][]int64{one, one, one}, [][]int64{{0}, {0}, {0}}
			if t.Rank() == 1 {
				send[2] = two
			}
			return StartAlltoallv(t, send, recv)
		},
		"order": func(t *Team) *Request {
			if t.Rank() == 1 {
				StartBarrier(t)
				return StartAllgather(t, one, make([]int64, 3))
			}
			StartAllgather(t, one, make([]int64, 3))
			return StartBarrier(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testutil.Context(t, testutil.Limit)
			each(t, worlds(t, job(t, 3, "shm")), func(r int, team *Team) error {
				err := call(team).Wait(ctx)
				if err == nil { // this rank has heard of nothing yet
					err = StartBarrier(team).Wait(ctx)
				}
				for err == nil && name == "root" { // by flags, one rank finds it when all have met, and tells the others
					err = StartBarrier(team).Wait(ctx)
				}
				var m *MismatchError
				if !errors.As(err, &m) || !errors.Is(err, ErrRevoked) || !slices.Contains(m.Ranks[:], 1) && name != "root" || m.Ranks[0] == m.Ranks[1] {
					return fmt.Errorf("%v", err)
				}
				if next := Barrier(ctx, team); !errors.As(next, &m) {
					return fmt.Errorf("the team is not revoked: %v", next)
				}
				return nil
			})
		})
	}
}

// A rank that is lost in the middle of an operation ends it on all ranks; those that live go
// on without it.
func TestRankIsLost(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		for _, n := range []int{1, 5000} {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				es := job(t, 4, fabric)
				ctx := testutil.Context(t, testutil.Limit)
				ts := worlds(t, es)
				each(t, ts, func(r int, team *Team) error { return Barrier(ctx, team) })
				each(t, ts, func(r int, team *Team) error {
					if r == 2 { // starts nothing more
						return es[2].Close()
					}
					reqs := []*Request{StartAllreduce(team, nil, input(1, r, n), Sum), StartAlltoall(team.Tag(1), nil, input(1, r, 4*n))}
					for _, req := range reqs {
						err := req.Wait(ctx)
						var pe *rma.PeerError
						if !errors.As(err, &pe) || pe.Rank != 2 || !errors.Is(err, rma.ErrPeerGone) || !errors.Is(err, ErrRevoked) {
							return fmt.Errorf("%v", err)
						}
					}
					rest, err := team.Shrink(ctx)
					if err != nil {
						return err
					}
					if rest.Size() != 3 {
						return fmt.Errorf("%d ranks are left", rest.Size())
					}
					return conform(ctx, rest, 1, 5, 1)
				})
			})
		}
	})
}

// Teams of one name are shrunk at the same time.
func TestShrinkTwo(t *testing.T) {
	es := job(t, 4, "shm")
	ctx := testutil.Context(t, testutil.Limit)
	each(t, worlds(t, es), func(r int, world *Team) error {
		var both [2]*Team
		for i := range both {
			var err error
			if both[i], err = world.Split(ctx, 0, r); err != nil {
				return err
			}
		}
		if err := Barrier(ctx, world); err != nil {
			return err
		}
		if r == 2 {
			return es[2].Close()
		}
		var g errgroup.Group
		for i, team := range both {
			g.Go(func() error {
				if err := Barrier(ctx, team); !errors.Is(err, ErrRevoked) {
					return fmt.Errorf("without rank 2: %v", err)
				}
				rest, err := team.Shrink(ctx)
				if err != nil {
					return err
				}
				return conform(ctx, rest, i, 5, 1)
			})
		}
		return g.Wait()
	})
}

// The numbers of teams do not end, and no two teams have one.
func TestTeamNumbers(t *testing.T) {
	es := job(t, 2, "shm")
	ctx := testutil.Context(t, testutil.Limit)
	each(t, worlds(t, es), func(r int, world *Team) error {
		s := world.t.s
		first, err := world.Split(ctx, 0, r)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.next = lowBits - uint32(r)
		s.mu.Unlock()
		kept := []*Team{first}
		for i := range 4 {
			sub, err := kept[i].Split(ctx, 0, r)
			if err != nil {
				return err
			}
			kept = append(kept, sub)
		}
		two, err := New(ctx, es[r], []int{0, 1}, "two")
		if err != nil {
			return err
		}
		for _, team := range append(kept, two, world) {
			if err := conform(ctx, team, 1, 3, 1); err != nil {
				return err
			}
		}
		for _, i := range []int{2, 0, 4, 1, 3} { // in another order than they were made
			if err := kept[i].Close(); err != nil {
				return err
			}
		}
		return conform(ctx, two, 0, 3, 1)
	})
}

// A rank that leaves when its part is complete fails no operation of the others, as long as
// they need no message of it.
func TestRankLeaves(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		for _, n := range []int{1, 3000} {
			es := job(t, 4, fabric)
			ctx := testutil.Context(t, testutil.Limit)
			var complete sync.WaitGroup
			complete.Add(4)
			each(t, worlds(t, es), func(r int, team *Team) error {
				got := input(1, r, n)
				err := Bcast(ctx, team, 0, got)
				complete.Done()
				if err != nil {
					return err
				}
				if r == 0 {
					return es[0].Close()
				}
				if err := equals("bcast", input(1, 0, n), got); err != nil {
					return err
				}
				complete.Wait() // the barrier revokes the team
				var pe *rma.PeerError
				if err := Barrier(ctx, team); !errors.As(err, &pe) || pe.Rank != 0 || !errors.Is(err, rma.ErrPeerGone) {
					return fmt.Errorf("barrier with a rank that has left: %v", err)
				}
				return nil
			})
		}
	})
}

// An operation that is given up on one rank ends on all.
func TestCancel(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 3, fabric)
		ctx := testutil.Context(t, testutil.Limit)
		each(t, worlds(t, es), func(r int, team *Team) error {
			var err error
			if r == 1 { // has no part in the operation, and gives up the next one
				given, end := context.WithCancel(ctx)
				end()
				err = Barrier(given, team)
				var m *MismatchError // another rank may have found that the calls differ, and ended this one, before it waits
				if !errors.Is(err, context.Canceled) && !errors.As(err, &m) {
					return err
				}
			} else {
				err = Allreduce(ctx, team, nil, input(1, r, 3000*r+1), Sum)
			}
			var pe *rma.PeerError
			var m *MismatchError
			if !errors.Is(err, ErrRevoked) || !errors.As(err, &m) && (!errors.As(err, &pe) || pe.Rank != 1 || !errors.Is(err, rma.ErrGivenUp)) {
				return err
			}
			next, err := team.Shrink(ctx)
			if err != nil {
				return err
			}
			return conform(ctx, next, 2, 5, 1)
		})
	})
}

// Operations that the application leaves incomplete, up to Config.Outstanding, do not stop
// operations of teams.
func TestTeamBesideOutstanding(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := jobtest.Open(t, 2, fabric, func(c *rma.Config) { c.Outstanding = 16 })
		ctx := testutil.Context(t, testutil.Limit)
		ts := worlds(t, es)
		each(t, ts, func(_ int, team *Team) error { return Barrier(ctx, team) })
		end := jobtest.Busy(t, es[0], es[1])
		each(t, ts, func(r int, team *Team) error {
			if err := Barrier(ctx, team); err != nil {
				return err
			}
			return conform(ctx, team, 1, 5000, 1)
		})
		end()
	})
}

// wakes wakes a rank.
func wakes(b *board, rank int) {
	b.mu.Lock()
	b.wakes |= 1 << rank
	b.unlock()
}

// Nor do they keep a rank from being woken.
func TestWakesBesideOutstanding(t *testing.T) {
	es := jobtest.Open(t, 2, "shm", func(c *rma.Config) { c.Outstanding = 16 })
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, es)
	each(t, ts, func(_ int, team *Team) error { return settled(ctx, team, "") })
	end := jobtest.Busy(t, es[0], es[1])
	b := ts[0].t.board
	wake, err := ts[1].t.s.wake()
	require.NoError(t, err)
	for range 200 { // some of the signals are posted, instead of stored in the call
		onesided.Store64(wake.Bytes(), 0)
		wakes(b, 1)
		testutil.Eventually(t, testutil.Limit, func() bool { return onesided.Load64(wake.Bytes()) == 1 }, "the signal")
	}
	end()
}

// A Split that fails on a rank, because its context ends, fails on the others, too, also if that rank
// has sent its part before; or the teams of the others are revoked.
func TestSplitGivenUp(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	es := job(t, 3, "shm")
	for round := range 200 {
		name := fmt.Sprint("round ", round)
		given, end := context.WithCancel(ctx)
		teams, errs := make([]*Team, len(es)), make([]error, len(es))
		var g errgroup.Group
		for r := range es {
			g.Go(func() error {
				team, err := New(ctx, es[r], []int{0, 1, 2}, name)
				if err != nil { // rank 1 is as far as to have given up
					errs[r] = err
					return nil //nolint:nilerr // kept
				}
				c := ctx
				if r == 1 {
					c = given
					time.AfterFunc(time.Duration(round)*time.Microsecond, end)
				}
				teams[r], errs[r] = team.Split(c, 0, 0)
				if errs[r] != nil {
					return team.Close()
				}
				return nil
			})
		}
		require.NoError(t, g.Wait())
		end()
		failed := errors.Join(errs...)
		for r, team := range teams {
			if team != nil && failed != nil {
				testutil.Eventually(t, testutil.Limit, func() bool { return team.Err() != nil }, "the end of the team of rank %d: %v", r, failed)
			}
			if team != nil {
				require.NoError(t, team.Close())
			}
		}
	}
}

// A call of New that ends with its context on a rank does not end that of others, and is
// continued by the next one. Different ranks of one name are found.
func TestNewGivenUp(t *testing.T) {
	es := job(t, 3, "shm")
	ctx := testutil.Context(t, testutil.Limit)
	given, end := context.WithCancel(ctx)
	end()
	for r := range es {
		_, err := New(given, es[r], []int{0, 1, 2}, "team")
		require.ErrorIs(t, err, context.Canceled)
	}
	ts := make([]*Team, 3)
	var g errgroup.Group
	for r := range es {
		g.Go(func() (err error) { ts[r], err = New(ctx, es[r], []int{0, 1, 2}, "team"); return err })
	}
	require.NoError(t, g.Wait())
	each(t, ts, func(_ int, team *Team) error { return conform(ctx, team, 1, 2, 1) })
	each(t, ts, func(r int, _ *Team) error {
		ranks := []int{0, 1, 2}
		if r == 2 {
			ranks = []int{0, 2, 1}
		}
		_, err := New(ctx, es[r], ranks, "other")
		var m *MismatchError
		if !errors.As(err, &m) || m.Ranks != [2]int{0, 2} || m.Calls != [2]string{"New with other ranks", "New"} {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	// So is another order of them, whichever rank is the first.
	for round, order := range [][]int{{1, 2, 0}, {2, 1, 0}, {1, 0, 2}} {
		each(t, ts, func(r int, _ *Team) error {
			ranks := []int{0, 1, 2}
			if r == 1 {
				ranks = order
			}
			_, err := New(ctx, es[r], ranks, fmt.Sprint("order ", round))
			if !errors.Is(err, ErrMismatch) {
				return fmt.Errorf("%v: %v", order, err)
			}
			return nil
		})
	}
	for _, ranks := range [][]int{{0, 0, 1}, {1, 2}, {0, 3}, nil} {
		_, err := New(ctx, es[0], ranks, "bad")
		require.ErrorIs(t, err, ErrInvalid)
	}
}

// Arguments that are wrong by themselves are refused, and the operation may be called again.
func TestArguments(t *testing.T) {
	ts := worlds(t, job(t, 2, "shm"))
	ctx := testutil.Context(t, testutil.Limit)
	each(t, ts, func(_ int, team *Team) error {
		b := make([]int64, 3)
		for i, r := range []*Request{
			StartBcast(team, 2, b), StartBcast(team, -1, b), StartBcast(team, 0, []*int{nil}), StartBcast(team, 0, []struct{}{{}}),
			StartBcast(team, 0, []string{""}), StartAllreduce(team, b[:1], b, Sum), StartAllreduce[int64](team, nil, b, nil),
			StartAllgather(team, b, b), StartAlltoall(team, nil, b), StartReduceScatter(team, b, b, Sum),
			StartAlltoallv(team, nil, [][]int64{b, b}), StartAllgatherv(team, nil, [][]int64{b}), StartAllreduce(team, nil, b, Func[int64](nil)),
		} {
			if !r.Done() || !errors.Is(r.Wait(ctx), ErrInvalid) {
				return fmt.Errorf("call %d: %v", i, r.Wait(ctx))
			}
		}
		return conform(ctx, team, 0, 1, 1)
	})
}

// As many operations as may be in flight, of which the last one needs the figures of the
// team: the operation that distributes them is not counted.
func TestFullTeam(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	full := make(chan struct{})
	each(t, worlds(t, job(t, 2, "shm")), func(r int, team *Team) error {
		var first *Request
		if r == 0 { // the other rank starts nothing before all are in flight, and nothing else before the last one is complete
			for i := range maxInFlight - 1 {
				if q := StartBarrier(team.Tag(uint32(i))); i == 0 {
					first = q
				}
			}
			all := StartAllreduce(team.Tag(maxInFlight), nil, []int64{1}, Sum)
			err := Barrier(ctx, team.Tag(maxInFlight+1))
			close(full)
			if !errors.Is(err, ErrBusy) {
				return fmt.Errorf("one more: %v", err)
			}
			return errors.Join(all.Wait(ctx), first.Wait(ctx))
		}
		<-full
		got := []int64{1}
		if err := Allreduce(ctx, team.Tag(maxInFlight), nil, got, Sum); err != nil {
			return err
		}
		for i := range maxInFlight - 1 {
			if err := Barrier(ctx, team.Tag(uint32(i))); err != nil {
				return err
			}
		}
		return equals("allreduce", []int64{2}, got)
	})
}

// A first use while the engine closes leaves nothing behind.
func TestNoServiceWhileTheEngineCloses(t *testing.T) {
	eng := job(t, 1, "shm")[0]
	for range 2 {
		eng.BeforeClose(func() {
			_, err := World(eng)
			require.ErrorIs(t, err, rma.ErrClosed)
		})
	}
	require.NoError(t, eng.Close())
	services.Lock()
	defer services.Unlock()
	require.NotContains(t, services.of, eng)
}

// A blocking call whose context ends while its operation completes has completed.
func TestContextEndsAtCompletion(t *testing.T) {
	c := worlds(t, job(t, 1, "shm"))[0].t
	o, r := c.unused(), &Request{}
	require.NoError(t, o.renew(key{0, 1}, r, false))
	c.mu.Lock()
	c.err = ErrRevoked // the call does not end the operation
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	returned := make(chan error, 1)
	go func() { returned <- r.wait(ctx) }()
	testutil.Eventually(t, testutil.Limit, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.then) > 0
	}, "the wait has ended with the context")
	then, _ := r.end(false, nil)
	for _, f := range then {
		f(nil)
	}
	require.NoError(t, <-returned)
	require.NoError(t, r.waited(context.Canceled), "it completes when the wait has ended, before it is cancelled")
}
