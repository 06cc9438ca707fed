package rma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/testutil"
)

// sunder takes the connection of two ranks down, by an access with a stale key.
func sunder(t testing.TB, es []*Engine) {
	last := len(es) - 1
	mem, err := es[last].Alloc(4096)
	require.NoError(t, err)
	mine, err := es[0].Alloc(64)
	require.NoError(t, err)
	stale := mem.Key()
	require.NoError(t, mem.Close())
	require.ErrorIs(t, es[0].Peer(last).Put(stale.At(0), mine.Slice(0, 8)).Wait(testutil.Context(t, testutil.Limit)), ErrRemoteAccess)
	require.NoError(t, mine.Close())
}

// reconnect resets the connection of e with the other rank, when e has detected its loss.
func reconnect(t testing.TB, e *Engine) {
	p := e.Peer(1 - e.Rank())
	testutil.Eventually(t, testutil.Limit, func() bool { return p.Stats().Err != nil }, "the end of the connection on this side")
	require.NoError(t, p.Reset(testutil.Context(t, testutil.Limit)))
}

// works checks all kinds of operations between the ranks.
func works(t testing.TB, es []*Engine, mems []*Region, keys []Key) {
	t.Helper()
	acquaint(t, es, mems, keys)
	together(t, es, func(ctx context.Context, e *Engine) error {
		p, mem := e.Peer(1-e.Rank()), mems[e.Rank()]
		_, err := p.FetchAdd(keys[p.Rank()].At(512), 1).Wait(ctx)
		return errors.Join(err, p.Put(keys[p.Rank()].At(1024), mem.Slice(1024, 1024)).Wait(ctx), e.Barrier(ctx))
	})
}

// Reset by either side replaces a connection that a stale key has taken down: operations,
// messages and keys work as before, and operations that waited meanwhile have failed.
func TestReset(t *testing.T) {
	hanging(t, 2, time.Minute, func(t *testing.T, es []*Engine) {
		mems, keys := share(t, es, 4096)
		ctx := testutil.Context(t, testutil.Limit)
		works(t, es, mems, keys)
		require.NoError(t, es[0].Peer(1).Reset(ctx)) // of one that works
		require.Zero(t, es[0].Peer(1).conn.Now().Number)
		for _, who := range []int{0, 1, 0} {
			recv := es[1].Peer(0).Recv(make([]byte, 8))
			before := es[0].Peer(1).conn.Now().Number
			sunder(t, es)
			reconnect(t, es[who])
			_, err := recv.Wait(ctx)
			require.Error(t, err)
			require.Equal(t, before+1, es[0].Peer(1).conn.Now().Number)
			works(t, es, mems, keys)
			for _, what := range []string{"talk", "accumulate"} { // the server keeps no values of the old connection
				for _, e := range es {
					require.NoError(t, e.job.Put(ctx, fmt.Sprintf("%s/%d/%d", what, 1-e.Rank(), before), nil))
				}
			}
			require.NoError(t, es[0].Peer(1).Stats().Err)
			require.NoError(t, es[1].Peer(0).Stats().Err)
		}
	})
}

// Both sides call Reset at once, several times each.
func TestResetFromBothSides(t *testing.T) {
	hanging(t, 2, time.Minute, func(t *testing.T, es []*Engine) {
		mems, keys := share(t, es, 4096)
		for range testutil.Times(10) {
			works(t, es, mems, keys)
			sunder(t, es)
			twice := append(append([]*Engine{}, es...), es...)
			together(t, twice, func(ctx context.Context, e *Engine) error { return e.Peer(1 - e.Rank()).Reset(ctx) })
		}
		works(t, es, mems, keys)
	})
}

// Watch reports a Reset by the other side.
func TestResetIsTold(t *testing.T) {
	hanging(t, 2, time.Minute, func(t *testing.T, es []*Engine) {
		mems, keys := share(t, es, 4096)
		works(t, es, mems, keys)
		ctx, cancel := context.WithCancel(testutil.Context(t, testutil.Limit))
		defer cancel()
		events := make(chan PeerState, 100)
		go func() {
			defer close(events)
			for ev := range es[1].Watch(ctx) {
				events <- ev.State
			}
		}()
		require.Equal(t, PeerUp, <-events)
		sunder(t, es)
		require.NoError(t, es[0].Peer(1).Reset(ctx))
		for s := range events {
			if s == PeerUp {
				cancel()
			}
		}
		works(t, es, mems, keys)
	})
}

// A rank's connection with itself can be reset, too.
func TestResetOfOneself(t *testing.T) {
	hanging(t, 1, time.Minute, func(t *testing.T, es []*Engine) {
		ctx, e := testutil.Context(t, testutil.Limit), es[0]
		mem, err := e.Alloc(4096)
		require.NoError(t, err)
		key := mem.Key()
		sunder(t, []*Engine{e})
		require.NoError(t, e.Peer(0).Reset(ctx))
		require.NoError(t, e.Peer(0).Put(key.At(0), mem.Slice(64, 8)).Wait(ctx))
	})
}

// Reset of a rank that is gone fails.
func TestResetOfADeadRank(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		mems, keys := share(t, es, 4096)
		works(t, es, mems, keys)
		ctx := testutil.Context(t, testutil.Limit)
		require.NoError(t, es[1].Close())
		first(ctx, es[0], PeerGone)
		err := es[0].Peer(1).Reset(ctx)
		require.ErrorIs(t, err, ErrPeerGone)
		var pe *PeerError
		require.ErrorAs(t, err, &pe)
		require.Equal(t, "reset", pe.Op)
	})
}

// A hung rank does not answer; Reset succeeds when it resumes.
func TestResetOfARankThatHangs(t *testing.T) {
	hanging(t, 2, 3*time.Second, func(t *testing.T, es []*Engine) {
		mems, keys := share(t, es, 4096)
		works(t, es, mems, keys)
		ctx := testutil.Context(t, testutil.Limit)
		resume := stall(t, es[1])
		_, err := es[0].Peer(1).Recv(make([]byte, 8)).Wait(ctx)
		require.ErrorIs(t, err, ErrPeerHung)
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond) // deadline: it has to end
		defer cancel()
		require.ErrorIs(t, es[0].Peer(1).Reset(short), context.DeadlineExceeded)
		require.ErrorIs(t, es[0].Peer(1).Reset(ctx), ErrPeerHung)
		forgiving := func(e *Engine) { e.prog.Do(func() { e.cfg.HangTimeout = time.Minute }) }
		forgiving(es[0]) // the following may take longer on a busy machine
		resume()
		forgiving(es[1])
		require.NoError(t, es[0].Peer(1).Reset(ctx))
		works(t, es, mems, keys)
	})
}

// A receive that waits for a channel that is not open yet ends with the error of the
// connection.
func TestResetEndsWhatWaitsForAChannel(t *testing.T) {
	hanging(t, 2, time.Minute, func(t *testing.T, es []*Engine) {
		mems, keys := share(t, es, 4096)
		ctx := testutil.Context(t, testutil.Limit)
		for range 3 {
			recv := es[0].Peer(1).Recv(make([]byte, 8))
			require.NoError(t, es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(8, 8)).Wait(ctx))
			sunder(t, es)
			reconnect(t, es[0])
			_, err := recv.Wait(ctx)
			require.ErrorIs(t, err, ErrRemoteAccess)
		}
		works(t, es, mems, keys)
	})
}

// A hundred connections leave nothing behind.
func TestResetLeavesNothing(t *testing.T) {
	alone(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		mems, keys := share(t, es, 4096)
		var fds, goroutines []int
		var bytes []int64
		for i := range max(testutil.Times(80), 20) {
			works(t, es, mems, keys)
			if i%10 == 9 {
				fds = append(fds, openFDs(t))
				goroutines = append(goroutines, runtime.NumGoroutine())
				bytes = append(bytes, offheap.Total())
			}
			sunder(t, es)
			reconnect(t, es[i%2])
		}
		t.Log("descriptors", fds, "goroutines", goroutines, "bytes", bytes)
		last := len(fds) - 1
		testutil.Eventually(t, testutil.Limit, func() bool { // what makes a connection may still be ending
			return openFDs(t) <= fds[0]+4 && runtime.NumGoroutine() <= goroutines[0]+4
		}, "descriptors and goroutines are freed")
		require.LessOrEqual(t, bytes[last], bytes[0]+bytes[0]/4)
	})
}

func openFDs(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

// A barrier that broke because two ranks were cut off from each other is complete for all
// when they are connected again, and so are those that follow.
func TestBarrierAfterReset(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		onEach(t, func(t *testing.T, fabric string) {
			es := open(t, n, fabric)
			for _, e := range es {
				e.barrier.insist = true
			}
			const all = 20
			done := make([]int, n)
			upTo := func(many int) func(context.Context, *Engine) error {
				return func(ctx context.Context, e *Engine) error {
					for done[e.Rank()] < many {
						if err := e.Barrier(ctx); err != nil {
							return err
						}
						done[e.Rank()]++
					}
					return nil
				}
			}
			together(t, es, upTo(seldom+3))
			sunder(t, es[:2])
			together(t, es, func(ctx context.Context, e *Engine) error {
				err := upTo(all)(ctx, e)
				require.Error(t, err)
				require.NotErrorIs(t, err, ErrPeerGone)
				return ctx.Err()
			})
			for _, e := range es[:2] {
				var pe *PeerError
				require.ErrorAs(t, e.Barrier(testutil.Context(t, testutil.Limit)), &pe, "as long as it is cut off")
			}
			reconnect(t, es[0])
			require.NoError(t, es[1].Peer(0).Reset(testutil.Context(t, testutil.Limit)))
			together(t, es, upTo(all))
		})
	}
}

// A barrier in which one rank waited when the connection was lost, and which the other one enters, and completes, after
// Peer.Reset: the first rank has heard that it failed, and completes it with its next call, when the other one is in a
// barrier again. That one breaks, and both continue.
func TestBarrierInProgressAcrossReset(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := insist(open(t, 2, fabric))
		ctx := testutil.Context(t, testutil.Limit)
		for range seldom + 3 {
			together(t, es, func(ctx context.Context, e *Engine) error { return e.Barrier(ctx) })
		}
		waits := make(chan error, 1)
		go func() { waits <- es[1].Barrier(ctx) }()
		words := es[0].barrier.words
		_, err := es[0].Peer(1).WaitSignal(ctx, words.Slice(0, 8), GE, es[0].barrier.seq+1)
		require.NoError(t, err, "it is there")
		sunder(t, es)
		var pe *PeerError
		require.ErrorAs(t, <-waits, &pe)
		reconnect(t, es[0])
		require.NoError(t, es[1].Peer(0).Reset(ctx))
		require.NoError(t, es[0].Barrier(ctx), "all have entered it")
		go func() { waits <- es[1].Barrier(ctx) }()
		err = es[0].Barrier(ctx)
		require.ErrorAs(t, err, &pe)
		require.NotErrorIs(t, err, ErrPeerGone)
		second := make(chan error, 1)
		go func() { second <- errors.Join(<-waits, es[1].Barrier(ctx)) }()
		require.NoError(t, es[0].Barrier(ctx))
		require.NoError(t, <-second)
		together(t, es, func(ctx context.Context, e *Engine) error { return e.Barrier(ctx) })
	})
}

// A collective call does not wait for a hung rank, with or without a connection to it.
func TestCallOfAllWithARankThatHangs(t *testing.T) {
	hanging(t, 3, time.Second, func(t *testing.T, es []*Engine) {
		es[1].mu.Lock() // blocks the goroutine that handles values of peers
		defer es[1].mu.Unlock()
		together(t, []*Engine{es[0], es[2]}, func(ctx context.Context, e *Engine) error {
			_, err := e.Window(ctx, 4096)
			if !errors.Is(err, ErrPeerHung) && !errors.Is(err, ErrGivenUp) {
				return fmt.Errorf("window: %w", err)
			}
			if err := e.Barrier(ctx); !errors.Is(err, ErrPeerHung) {
				return fmt.Errorf("barrier: %w", err)
			}
			return nil
		})
	})
}

// A peer sends a value through the job while its connection is being replaced: the
// goroutine that reads from the job and the one that queries it do not wait for each other.
func TestResetWhileThePeerTells(t *testing.T) {
	es := openWith(t, 2, "shm", func(c *Config) { c.Logger = slog.New(slog.DiscardHandler) })
	ctx := testutil.Context(t, testutil.Limit)
	var g errgroup.Group
	told := make(chan error, 1)
	for range 4 {
		g.Go(func() error {
			for range testutil.Times(2000) {
				if err := es[1].job.Send(ctx, 0, "noise", nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	go func() { told <- g.Wait() }()
	for {
		require.NoError(t, es[0].Peer(1).Reset(ctx))
		select {
		case err := <-told:
			require.NoError(t, err)
			return
		default:
		}
	}
}

// slowToSay is an exchange whose late ranks are unknown at first.
type slowToSay struct {
	asked atomic.Int64
	late  []int
}

func (x *slowToSay) Missing() []int {
	if x.asked.Add(1) <= 2 {
		return nil
	}
	return x.late
}

// A hung rank ends the call that waits for it, also if its hang was reported before it was
// known to be late.
func TestHangIsKnownBeforeTheRankIsLate(t *testing.T) {
	hanging(t, 2, time.Second, func(t *testing.T, es []*Engine) {
		es[1].mu.Lock() // blocks the goroutine that handles values of peers
		defer es[1].mu.Unlock()
		ctx := testutil.Context(t, testutil.Limit)
		require.ErrorIs(t, es[0].Peer(1).Send([]byte("x")).Wait(ctx), ErrPeerHung)
		x := &slowToSay{late: []int{1}}
		_, err := attending(ctx, es[0], "barrier", x, func(ctx context.Context) ([][]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		var pe *PeerError
		require.ErrorAs(t, err, &pe)
		require.ErrorIs(t, err, ErrPeerHung)
		require.Equal(t, 1, pe.Rank)
	})
}

// Reset also waits for a connection by which the peer replaces one that was not made yet.
func TestResetWaitsForTheNewestConnection(t *testing.T) {
	t.Parallel()
	es := openWith(t, 2, "shm", func(*Config) {})
	ctx := testutil.Context(t, testutil.Limit)
	mems, keys := share(t, es, 4096)
	works(t, es, mems, keys)
	sunder(t, es)
	var err error
	testutil.Holding(&es[1].mu, func() { // blocks handling of values of peers: the connection is begun, and not made
		conn := es[0].Peer(1).conn
		old := conn.Now()
		reset := make(chan error, 1)
		go func() { reset <- es[0].Peer(1).Reset(ctx) }()
		testutil.Eventually(t, testutil.Limit, func() bool { return conn.Now() != old && conn.Called() }, "begun")
		newest := bringup.Request{Number: conn.Now().Number + 1, Link: 15} // without an address
		require.True(t, conn.Told(bringup.KeyRequest, newest.Append(nil)))
		err = <-reset
	})
	require.ErrorIs(t, err, ErrNoConnection)
	require.NotContains(t, err.Error(), "being replaced", "that is no reason: it has been")
	reconnect(t, es[0])
}

// All operations on a connection that the peer replaces fail with ErrFlushed and ErrReset, whether it
// is made or not, those in flight as those that follow.
func TestOperationsOnAConnectionThatThePeerReplaces(t *testing.T) {
	for _, made := range []bool{false, true} {
		t.Run(fmt.Sprint("made ", made), func(t *testing.T) {
			hanging(t, 2, time.Minute, func(t *testing.T, es []*Engine) {
				ctx := testutil.Context(t, testutil.Limit)
				mems, keys := share(t, es, 8192)
				p := es[0].Peer(1)
				if made {
					acquaint(t, es, mems, keys)
				}
				es[1].mu.Lock() // blocks handling of values of peers: nothing connects any longer
				defer es[1].mu.Unlock()
				conn, release := p.conn.Now(), make(chan struct{})
				defer close(release)
				conn.Go(func() { <-release }) // it is not forgotten
				flight := []Request{p.Recv(make([]byte, 8)).Request, p.RecvBuffer(1, mems[0].Slice(0, 8)).Request, SendSync(p, 7, []byte("x"))}
				if !made {
					flight = append(flight, p.Put(keys[1].At(0), mems[0].Slice(0, 8)), p.FetchAdd(keys[1].At(0), 1).Request,
						p.GetBytes(make([]byte, 100), keys[1].At(0)), p.Flush())
					testutil.Eventually(t, testutil.Limit, p.conn.Called, "begun")
				}
				next := bringup.Request{Number: conn.Number + 1, Link: 15} // without an address
				require.True(t, p.conn.Told(bringup.KeyRequest, next.Append(nil)))
				errs := map[string]error{}
				for i := range flight {
					errs[fmt.Sprint("in flight ", i)] = flight[i].Wait(ctx)
				}
				alike(t, "flushed+reset", 1, errs)
				alike(t, "flushed+reset", 1, everything(ctx, es[0], 1, mems[0], keys[1]))
				require.Equal(t, "flushed+reset", sentinels(p.Stats().Err))
			})
		})
	}
}

// The first receives with a rank, posted while a connection without messages is being replaced, fail as those posted
// before do.
func TestFirstReceiveDuringReset(t *testing.T) {
	hanging(t, 2, time.Minute, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 4096)
		p := es[0].Peer(1)
		require.NoError(t, p.Put(keys[1].At(0), mems[0].Slice(0, 8)).Wait(ctx))
		conn, release := p.conn.Now(), make(chan struct{})
		conn.Go(func() { <-release })
		next := bringup.Request{Number: conn.Number + 1, Link: 15} // without an address
		require.True(t, p.conn.Told(bringup.KeyRequest, next.Append(nil)))
		testutil.Eventually(t, testutil.Limit, func() bool { return p.Stats().Err != nil }, "the end of the connection")
		first, second := p.Recv(make([]byte, 8)), p.RecvTag(3, make([]byte, 8))
		close(release) // until now it was not forgotten
		alike(t, "flushed+reset", 1, map[string]error{"first": first.Request.Wait(ctx), "second": second.Request.Wait(ctx)})
	})
}
