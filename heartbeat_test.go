package rma

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

// stall keeps the engine from making progress, like a stopped process, until resume is
// called.
func stall(t testing.TB, e *Engine) (resume func()) {
	held, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		e.prog.Do(func() {
			close(held)
			<-release
		})
	}()
	<-held
	resume = func() {
		select {
		case <-release:
		default:
			close(release)
		}
		<-ended
	}
	t.Cleanup(resume)
	return resume
}

// hanging opens a job over every link, whose ranks detect a hung peer after d, on a slow
// machine later.
func hanging(t *testing.T, n int, d time.Duration, f func(t *testing.T, es []*Engine)) {
	t.Parallel()
	wait := func(c *Config) { c.HangTimeout = testutil.Patience(d) }
	t.Run("sim", func(t *testing.T) {
		t.Parallel()
		f(t, simulateWith(t, n, "sim", wait))
	})
	onEach(t, func(t *testing.T, fabric string) { f(t, openWith(t, n, fabric, wait)) })
}

// until repeats f, which may succeed without the peer's help, until it fails.
func until(ctx context.Context, f func() error) error {
	for ctx.Err() == nil {
		if err := f(); err != nil {
			return err
		}
		time.Sleep(time.Millisecond) // sleep: a program that uses the peer now and then
	}
	return ctx.Err()
}

// operations returns all kinds of operations with a peer; each runs until it fails.
func operations(e *Engine, p *Peer, mem *Region, key Key) map[string]func(ctx context.Context) error {
	wait := func(begin func() Request) func(context.Context) error {
		return func(ctx context.Context) error {
			return until(ctx, func() error { return begin().Wait(ctx) })
		}
	}
	large := make([]byte, 4<<20)
	return map[string]func(ctx context.Context) error{
		"put":            wait(func() Request { return p.Put(key.At(0), mem.Slice(0, 8)) }),
		"large put":      wait(func() Request { return p.Put(key.At(0), mem.Slice(0, 1<<20)) }),
		"put of bytes":   wait(func() Request { return p.PutBytes(key.At(0), large[:1<<20]) }),
		"get":            wait(func() Request { return p.Get(mem.Slice(64, 8), key.At(0)) }),
		"fetch-add":      wait(func() Request { return p.FetchAdd(key.At(0), 1).Request }),
		"emulated":       wait(func() Request { return p.FetchXor(key.At(0), 1).Request }),
		"accumulate":     wait(func() Request { return Accumulate(p, key.At(0), Sum, []uint64{1, 2}) }),
		"put and signal": wait(func() Request { return p.PutSignal(key.At(0), mem.Slice(0, 8), key.At(8), SignalAdd, 1) }),
		"flush": func(ctx context.Context) error {
			return until(ctx, func() error {
				p.Get(mem.Slice(64, 8), key.At(0)).Forget()
				return p.Flush().Wait(ctx)
			})
		},
		"wait for a signal": func(ctx context.Context) error {
			_, err := p.WaitSignal(ctx, mem.Slice(128, 8), EQ, 77)
			return err
		},
		"send":       wait(func() Request { return p.Send([]byte("hello")) }),
		"large send": wait(func() Request { return p.Send(large) }),
		"batch": wait(func() Request {
			b := p.Batch()
			for range 20 {
				b.Add(1, large[:4096])
			}
			return b.Send()
		}),
		"receive": func(ctx context.Context) error {
			_, err := p.Recv(make([]byte, 64)).Wait(ctx)
			return err
		},
		"receive from any": func(ctx context.Context) error {
			_, err := e.RecvTag(9, make([]byte, 64)).Wait(ctx)
			return err
		},
		"probe": func(ctx context.Context) error {
			_, err := p.Probe(11).Wait(ctx)
			return err
		},
	}
}

// acquaint uses every way between two ranks once, so that connection and channels are there.
func acquaint(t testing.TB, es []*Engine, mems []*Region, keys []Key) {
	together(t, es, func(ctx context.Context, e *Engine) error { return greet(ctx, e, mems[e.Rank()], keys[1-e.Rank()]) })
}

// greet is one rank's part of acquaint.
func greet(ctx context.Context, e *Engine, mem *Region, key Key) error {
	p := e.Peer(1 - e.Rank())
	send := p.Send([]byte("hello"))
	if _, err := p.Recv(make([]byte, 64)).Wait(ctx); err != nil {
		return err
	}
	return errors.Join(send.Wait(ctx), Accumulate(p, key.At(0), Sum, []uint64{1}).Wait(ctx), p.Get(mem.Slice(0, 8), key.At(0)).Wait(ctx))
}

// All operations with a peer that makes no progress, in flight and later ones, end with the
// same error on every link.
func TestPeerThatHangs(t *testing.T) {
	hanging(t, 2, time.Second, func(t *testing.T, es []*Engine) {
		hang := es[0].cfg.HangTimeout
		mems, keys := share(t, es, 1<<20)
		acquaint(t, es, mems, keys)
		e, p := es[0], es[0].Peer(1)
		stall(t, es[1])
		begin := time.Now()
		ctx := testutil.Context(t, testutil.Limit)
		var g errgroup.Group
		ops := operations(e, p, mems[0], keys[1])
		for name, op := range ops {
			g.Go(func() error {
				if err := op(ctx); !errors.Is(err, ErrPeerHung) || errors.Is(err, ErrPeerGone) {
					t.Errorf("%s: %v", name, err)
				}
				return nil
			})
		}
		require.NoError(t, g.Wait())
		took := time.Since(begin)
		t.Logf("after %v, with HangTimeout %v", took, hang)
		require.Greater(t, took, hang*(hangBeats-1)/hangBeats-hang/hangChecks)
		for name, op := range ops { // later operations fail at once
			err := op(ctx)
			require.ErrorIs(t, err, ErrPeerHung, name)
			var pe *PeerError
			require.ErrorAs(t, err, &pe, name)
		}
		require.ErrorIs(t, p.Stats().Err, ErrPeerHung)
	})
}

// A barrier does not wait for a rank that hangs.
func TestBarrierWithARankThatHangs(t *testing.T) {
	hanging(t, 2, time.Second, func(t *testing.T, es []*Engine) {
		for _, e := range es {
			e.barrier.insist = true
		}
		for range seldom + 2 {
			together(t, es, func(ctx context.Context, e *Engine) error { return e.Barrier(ctx) })
		}
		stall(t, es[1])
		require.ErrorIs(t, es[0].Barrier(testutil.Context(t, testutil.Limit)), ErrPeerHung)
	})
}

// A rank that waits in a barrier checks one of the late ranks, not all, and detects the
// hung one when the others have come.
func TestLateRanksAreNotOverrun(t *testing.T) {
	t.Parallel()
	const n, early = 12, 4
	es := openAll(t, n, rendezvous(t, n, "tcp"), func(c *Config) { c.HangTimeout = testutil.Patience(2 * time.Second) })
	ctx := testutil.Context(t, testutil.Limit)
	called := func() (k int) {
		for _, e := range es[:early] {
			for _, p := range es[early:] {
				if e.Peer(p.Rank()).conn.Called() {
					k++
				}
			}
		}
		return k
	}
	var g errgroup.Group
	for _, e := range es[:early] {
		g.Go(func() error { return e.Barrier(ctx) })
	}
	testutil.Eventually(t, testutil.Limit, func() bool { return called() >= early }, "a look at who is late")
	before := called()
	for _, e := range es[early : n-1] {
		g.Go(func() error { return e.Barrier(ctx) })
	}
	stall(t, es[n-1])
	require.Error(t, g.Wait())
	require.Equal(t, early, before)
	hung := 0
	for _, e := range es[:n-1] {
		if errors.Is(e.Peer(n-1).Stats().Err, ErrPeerHung) {
			hung++
		}
	}
	require.NotZero(t, hung)
	for rank, want := range map[int]int{0: 2, 2: 2, 3: 7, 7: 7, 8: 2, 9: 7} {
		require.Equal(t, want, lateFor(rank, []int{2, 7}), "rank %d", rank)
	}
}

// A peer that hangs before there is a connection does not answer the request.
func TestPeerThatHangsBeforeItIsConnected(t *testing.T) {
	t.Parallel()
	config := rendezvous(t, 2, "tcp")
	es := openAll(t, 2, config, func(c *Config) { c.HangTimeout = time.Second })
	mems, keys := share(t, es, 4096)
	es[1].mu.Lock() // blocks the goroutine that handles values of peers
	defer es[1].mu.Unlock()
	ctx := testutil.Context(t, testutil.Limit)
	put, send := es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 8)), es[0].Peer(1).Send([]byte("x"))
	require.ErrorIs(t, put.Wait(ctx), ErrPeerHung)
	require.ErrorIs(t, send.Wait(ctx), ErrPeerHung)
}

// The process of the job's server gets one report of a hung peer, with or without a
// connection to it.
func TestHangIsTold(t *testing.T) {
	t.Parallel()
	for _, connected := range []bool{true, false} {
		reports := make(chan [2]int, 8)
		_, config := rendezvousServer(t, wireup.ServerConfig{Size: 2, Hung: func(from, rank int, why string) {
			require.Contains(t, why, "no progress for "+testutil.Patience(3*time.Second).String())
			reports <- [2]int{from, rank}
		}}, "tcp")
		es := openAll(t, 2, config, func(c *Config) { c.HangTimeout = testutil.Patience(3 * time.Second) }) // else a rank that gets no processor for 1 s is told of
		mems, keys := share(t, es, 4096)
		ctx := testutil.Context(t, testutil.Limit)
		if connected {
			acquaint(t, es, mems, keys)
			stall(t, es[1])
			require.ErrorIs(t, es[0].Peer(1).Get(mems[0].Slice(0, 8), keys[1].At(0)).Wait(ctx), ErrPeerHung)
		} else {
			es[1].mu.Lock()
			err := es[0].Peer(1).Get(mems[0].Slice(0, 8), keys[1].At(0)).Wait(ctx)
			es[1].mu.Unlock()
			require.ErrorIs(t, err, ErrPeerHung)
		}
		testutil.Within(t, testutil.Limit, "the report", func() { require.Equal(t, [2]int{0, 1}, <-reports) })
		require.Empty(t, reports)
	}
}

// A peer that resumes before HangTimeout causes no error, and Watch reports it.
func TestPeerThatHangsForAWhile(t *testing.T) {
	hanging(t, 2, 6*time.Second, func(t *testing.T, es []*Engine) {
		mems, keys := share(t, es, 4096)
		acquaint(t, es, mems, keys)
		ctx := testutil.Context(t, testutil.Limit)
		resume := stall(t, es[1])
		recv := es[0].Peer(1).Recv(make([]byte, 8))
		get := es[0].Peer(1).Get(mems[0].Slice(0, 8), keys[1].At(0))
		var states []PeerState
		for ev := range es[0].Watch(ctx) {
			require.Equal(t, 1, ev.Rank)
			if states = append(states, ev.State); ev.State == PeerSilent {
				require.Error(t, ev.Err)
				resume()
			}
			if len(states) == 3 {
				break
			}
		}
		require.Equal(t, []PeerState{PeerUp, PeerSilent, PeerUp}, states)
		require.NoError(t, get.Wait(ctx))
		require.NoError(t, es[1].Peer(0).Send([]byte("alive")).Wait(ctx))
		n, err := recv.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, 5, n)
	})
}

// A peer whose program does not call the engine makes progress nevertheless, and so does
// one that has nothing to do for several HangTimeouts.
func TestPeerThatIsIdleDoesNotHang(t *testing.T) {
	hanging(t, 2, 2*time.Second, func(t *testing.T, es []*Engine) {
		mems, keys := share(t, es, 4096)
		acquaint(t, es, mems, keys)
		short, cancel := context.WithTimeout(t.Context(), 3*es[0].cfg.HangTimeout) // deadline: it has to end
		defer cancel()
		_, err := es[0].Peer(1).WaitSignal(short, mems[0].Slice(64, 8), EQ, 7)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, es[0].Peer(1).Get(mems[0].Slice(0, 8), keys[1].At(0)).Wait(testutil.Context(t, testutil.Limit)))
	})
}

// A side with HangTimeout switched off neither detects hung peers nor is detected.
func TestHangTimeoutOff(t *testing.T) {
	t.Parallel()
	config := rendezvous(t, 2, "shm")
	hang := testutil.Patience(time.Second)
	es := openAll(t, 2, func(r int) *Config {
		c := config(r)
		c.HangTimeout = hang // until rank 1 has said that it shows nothing, it has to answer
		if r == 1 {
			c.HangTimeout = -1
		}
		return c
	}, func(*Config) {})
	mems, keys := share(t, es, 4096)
	acquaint(t, es, mems, keys)
	resume := stall(t, es[1])
	short, cancel := context.WithTimeout(t.Context(), 3*hang) // deadline: it has to end
	defer cancel()
	_, err := es[0].Peer(1).Recv(make([]byte, 8)).Wait(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	resume()
	require.Zero(t, es[1].proto.heart.every)
	require.Empty(t, es[1].proto.heart.regions)
	require.NoError(t, es[0].Peer(1).Get(mems[0].Slice(0, 8), keys[1].At(0)).Wait(testutil.Context(t, testutil.Limit)))
}
