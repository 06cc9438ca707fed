package rma

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

func TestMain(m *testing.M) {
	wireup.CancelTime = testutil.Limit // what a call ends in does not depend on the machine
	// Most parallel tests wait for time-outs. On a slow machine they need its processors, too.
	// Flags of the command line are read later.
	if testutil.Slow() == 1 {
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
	}
	testutil.Main(m)
}

// onEach and alone run a test over every link.
var onEach, alone = testutil.EachLink, testutil.EachLinkAlone

// rendezvous serves a job of n ranks and returns rank r's configuration.
func rendezvous(t testing.TB, n int, fabric string) func(r int) *Config {
	_, config := rendezvousServer(t, wireup.ServerConfig{Size: n}, fabric)
	return config
}

// rendezvousServer is like rendezvous, and also returns the server.
func rendezvousServer(t testing.TB, c wireup.ServerConfig, fabric string) (*wireup.Server, func(r int) *Config) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	c.Token = []byte("t")
	srv, err := wireup.Serve(context.Background(), ln, c)
	require.NoError(t, err)
	t.Cleanup(func() { srv.Close() })
	return srv, func(r int) *Config {
		return &Config{
			Job:    &Job{Rank: r, Size: c.Size, Root: "unix:" + ln.Addr().String(), Token: []byte("t")},
			Fabric: Fabric(fabric), SetupTimeout: testutil.Limit, PeerTimeout: testutil.Patience(time.Second),
		}
	}
}

// open opens the engines of a whole job in this process.
func open(t testing.TB, n int, fabric string) []*Engine {
	t.Helper()
	return openWith(t, n, fabric, func(*Config) {})
}

func openWith(t testing.TB, n int, fabric string, change func(*Config)) []*Engine {
	t.Helper()
	return openAll(t, n, rendezvous(t, n, fabric), change)
}

func openAll(t testing.TB, n int, config func(r int) *Config, change func(*Config)) []*Engine {
	t.Helper()
	es := make([]*Engine, n)
	var g errgroup.Group
	for r := range es {
		g.Go(func() (err error) {
			c := config(r)
			c.Sampling = "off" // TestCalibration tests sampling
			change(c)
			es[r], err = Open(context.Background(), c)
			return err
		})
	}
	err := g.Wait()
	t.Cleanup(func() {
		for _, e := range es {
			if e != nil {
				require.NoError(t, e.Close())
			}
		}
	})
	require.NoError(t, err)
	return es
}

// share makes each engine allocate size bytes and exchange the keys.
func share(t testing.TB, es []*Engine, size int) ([]*Region, []Key) {
	t.Helper()
	mems := make([]*Region, len(es))
	keys := make([][]Key, len(es))
	var g errgroup.Group
	for r, e := range es {
		g.Go(func() (err error) {
			if mems[r], err = e.Alloc(size); err != nil {
				return err
			}
			keys[r], err = AllGatherKeys(testutil.Context(t, 30*time.Second), e, mems[r])
			return err
		})
	}
	require.NoError(t, g.Wait())
	return mems, keys[0]
}

func TestPutGetAtomics(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 3, fabric)
		const size = 1 << 20
		mems, keys := share(t, es, size)
		for from, e := range es {
			for to := range es {
				p := e.Peer(to)
				require.Equal(t, fabric, p.Link())
				require.Equal(t, to, p.Rank())
				base := from * 100_000
				for i, n := range []int{0, 1, 7, 64, 4097, 70_001} {
					seed := uint64(from*100 + to*10 + i)
					src, dst := mems[from].Bytes()[500_000:], mems[to].Bytes()[base:]
					testutil.Fill(src[:n], seed, 0)
					clear(dst[:n+32])
					require.NoError(t, p.Put(keys[to].At(base+16), mems[from].Slice(500_000, n)).Wait(ctx))
					require.NoError(t, testutil.Verify(dst[16:16+n], seed, 0))
					require.Equal(t, make([]byte, 16), dst[:16])
					require.Equal(t, make([]byte, 16), dst[16+n:32+n])
					clear(src[:n+32])
					require.NoError(t, p.Get(mems[from].Slice(500_008, n), keys[to].At(base+16)).Wait(ctx))
					require.NoError(t, testutil.Verify(src[8:8+n], seed, 0))
					require.Equal(t, make([]byte, 8), src[:8])
					require.Equal(t, make([]byte, 24), src[8+n:32+n])
				}
				word := mems[to].Bytes()[size-64:]
				binary.NativeEndian.PutUint64(word, 41)
				at := keys[to].At(size - 64)
				v, err := p.FetchAdd(at, 1).Wait(ctx)
				require.NoError(t, err)
				require.EqualValues(t, 41, v)
				v, err = p.CompareSwap(at, 41, 7).Wait(ctx)
				require.NoError(t, err)
				require.EqualValues(t, 42, v)
				v, err = p.CompareSwap(at, 42, 7).Wait(ctx)
				require.NoError(t, err)
				require.EqualValues(t, 42, v)
				require.EqualValues(t, 7, binary.NativeEndian.Uint64(word))
			}
		}
		s := es[1].Stats()
		require.EqualValues(t, 18, s.Puts)
		require.EqualValues(t, 18, s.Gets)
		require.EqualValues(t, 9, s.Atomics)
		require.EqualValues(t, 3*(1+7+64+4097+70_001), s.PutBytes)
		require.Zero(t, s.Failed+uint64(s.InFlight+s.Queued))
	})
}

func TestAlone(t *testing.T) {
	ctx := testutil.Context(t, 30*time.Second)
	e, err := Open(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, 0, e.Rank())
	require.Equal(t, 1, e.Size())
	mem, err := e.Alloc(4096)
	require.NoError(t, err)
	keys, err := AllGatherKeys(ctx, e, mem)
	require.NoError(t, err)
	testutil.Fill(mem.Bytes()[:100], 1, 0)
	require.NoError(t, e.Peer(0).Put(keys[0].At(1000), mem.Slice(0, 100)).Wait(ctx))
	require.NoError(t, testutil.Verify(mem.Bytes()[1000:1100], 1, 0))
	require.NoError(t, e.Barrier(ctx))
	require.NoError(t, mem.Close())
	require.NoError(t, mem.Close())
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	var pe *PeerError
	require.ErrorAs(t, e.Peer(0).FetchAdd(keys[0].At(0), 1).Request.op.Err, &pe)
	require.ErrorIs(t, pe, ErrClosed)
	_, err = e.Alloc(10)
	require.Error(t, err)
}

func TestRegisteredMemory(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 2, fabric)
		mine := testutil.Payload(10_000, 3, 0)
		r, err := es[0].Register(mine)
		require.NoError(t, err)
		mems, keys := share(t, es, 1<<16)
		require.NoError(t, es[0].Peer(1).Put(keys[1].At(5), r.Slice(1, 9000)).Wait(ctx))
		require.NoError(t, testutil.Verify(mems[1].Bytes()[5:9005], 3, 1))
		k := r.Key()
		require.NoError(t, es[1].Peer(0).Get(mems[1].Slice(20_000, 9000), k.At(1000)).Wait(ctx))
		require.NoError(t, testutil.Verify(mems[1].Bytes()[20_000:29_000], 3, 1000))
		require.NoError(t, r.Close())
		_, err = es[0].Register(nil)
		require.ErrorIs(t, err, ErrBounds)
	})
}

func TestMisuseIsRefusedHere(t *testing.T) {
	ctx := testutil.Context(t, 60*time.Second)
	es := open(t, 2, "shm")
	mems, keys := share(t, es, 4096)
	p := es[0].Peer(1)
	for name, c := range map[string]struct {
		r    Request
		want error
	}{
		"local beyond":    {p.Put(keys[1].At(0), mems[0].Slice(4090, 10)), ErrBounds},
		"local negative":  {p.Put(keys[1].At(0), mems[0].Slice(-1, 10)), ErrBounds},
		"negative length": {p.Get(mems[0].Slice(0, -1), keys[1].At(0)), ErrBounds},
		"remote beyond":   {p.Put(keys[1].At(4090), mems[0].Slice(0, 10)), ErrBounds},
		"remote negative": {p.Put(keys[1].At(-1), mems[0].Slice(0, 10)), ErrBounds},
		"remote wraps":    {p.Put(keys[1].At(math.MaxInt), mems[0].Slice(0, 10)), ErrBounds},
		"foreign buffer":  {p.Put(keys[1].At(0), mems[1].Slice(0, 10)), ErrForeign},
		"no buffer":       {p.Put(keys[1].At(0), Buffer{}), ErrForeign},
		"no key":          {p.Put(Remote{}, mems[0].Slice(0, 10)), ErrBadKey},
		"empty key":       {p.Put(Key{}.At(0), mems[0].Slice(0, 10)), ErrBadKey},
		"unaligned":       {p.FetchAdd(keys[1].At(4), 1).Request, ErrAlign},
	} {
		err := c.r.Wait(ctx)
		require.ErrorIs(t, err, c.want, name)
		var pe *PeerError
		require.ErrorAs(t, err, &pe, name)
		require.Equal(t, 1, pe.Rank)
	}
	for text, r := range map[string]Request{
		"outside the region: 10 bytes at offset 4090 of 4096":                     p.Put(keys[1].At(4090), mems[0].Slice(0, 10)),
		"outside the region: 20 bytes at offset 4080 of 4096":                     p.Put(keys[1].At(0), mems[0].Slice(4080, 20)),
		"invalid argument: no bitwise or of float64 elements in this operation":   Accumulate(p, keys[1].At(0), BitOr, []float64{1}),
		"outside the region: 8 bytes at offset 4096 of 4096":                      p.FetchAdd(keys[1].At(4096), 1).Request,
		"outside the region: -8 bytes at offset 8 of 4096":                        p.PutV([]Span{keys[1].Slice(8, -8)}, nil),
		"invalid argument: no signal operation 2: want SignalSet or SignalAdd":    p.Signal(keys[1].At(0), 2, 1),
		"invalid argument: no exclusive min of uint64 elements in this operation": Fetch(p, keys[1].At(0), Min|Exclusive, uint64(1)).Request,
	} {
		require.ErrorContains(t, r.Wait(ctx), text)
	}
	require.ErrorIs(t, Request{}.Wait(ctx), ErrRequestUsed)
	r := p.Put(keys[1].At(0), mems[0].Slice(0, 10))
	require.NoError(t, r.Wait(ctx))
	require.ErrorIs(t, r.Wait(ctx), ErrRequestUsed)
	require.True(t, r.Done())
}

// A key that the target has revoked is refused there: its memory is unchanged, later
// operations are flushed, and other peers are not affected.
func TestStaleKey(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 3, fabric)
		mems, keys := share(t, es, 4096)
		extra, err := es[1].Alloc(4096)
		require.NoError(t, err)
		stale := extra.Key()
		require.NoError(t, extra.Close())
		p := es[0].Peer(1)
		err = p.Put(stale.At(0), mems[0].Slice(0, 64)).Wait(ctx)
		var pe *PeerError
		require.ErrorAs(t, err, &pe)
		require.Equal(t, "put", pe.Op)
		require.ErrorIs(t, err, ErrRemoteAccess)
		err = p.Put(keys[1].At(0), mems[0].Slice(0, 64)).Wait(ctx)
		require.ErrorIs(t, err, ErrFlushed)
		require.NoError(t, es[0].Peer(2).Put(keys[2].At(0), mems[0].Slice(0, 64)).Wait(ctx))
		require.NoError(t, es[2].Peer(1).Put(keys[1].At(0), mems[2].Slice(0, 64)).Wait(ctx))
	})
}

// Goroutines of every rank add to one counter and write to all, with more
// operations than queues hold.
func TestConcurrentUse(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 90*time.Second)
		es := open(t, 3, fabric)
		mems, keys := share(t, es, 1<<20)
		const workers, each = 6, 100
		var g errgroup.Group
		for from, e := range es {
			for w := range workers {
				g.Go(func() error {
					var adds []AtomicRequest
					var puts []Request
					lane := (from*workers + w + 1) * 1024
					testutil.Fill(mems[from].Bytes()[lane:lane+1024], uint64(lane), 0)
					for i := range each {
						adds = append(adds, e.Peer(0).FetchAdd(keys[0].At(0), 1))
						to := i % len(es)
						if to != from {
							puts = append(puts, e.Peer(to).Put(keys[to].At(lane), mems[from].Slice(lane, 1024)))
						}
					}
					for _, a := range adds {
						if _, err := a.Wait(ctx); err != nil {
							return err
						}
					}
					for _, p := range puts {
						if err := p.Wait(ctx); err != nil {
							return err
						}
					}
					return nil
				})
			}
		}
		require.NoError(t, g.Wait())
		require.EqualValues(t, 3*workers*each, binary.NativeEndian.Uint64(mems[0].Bytes()))
		for _, m := range mems {
			for lane := 1; lane <= 3*workers; lane++ {
				require.NoError(t, testutil.Verify(m.Bytes()[lane*1024:(lane+1)*1024], uint64(lane*1024), 0))
			}
		}
	})
}

// A small queue takes hundreds of operations, in order.
func TestSmallQueue(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		config := rendezvous(t, 1, fabric)(0)
		config.Depth = 2
		e, err := Open(ctx, config)
		require.NoError(t, err)
		defer e.Close()
		mem, err := e.Alloc(1 << 16)
		require.NoError(t, err)
		k := mem.Key()
		var rs []Request
		for i := range 500 {
			binary.NativeEndian.PutUint64(mem.Bytes()[8+8*i:], uint64(i))
			rs = append(rs, e.Peer(0).Put(k.At(0), mem.Slice(8+8*i, 8)))
		}
		for i := len(rs) - 1; i >= 0; i-- {
			require.NoError(t, rs[i].Wait(ctx))
		}
		require.EqualValues(t, 499, binary.NativeEndian.Uint64(mem.Bytes()))
	})
}

func TestContextEndsAWaitNotTheOperation(t *testing.T) {
	es := open(t, 2, "tcp")
	mems, keys := share(t, es, 4096)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	r := es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 8))
	if err := r.Wait(done); err != nil { // it may be complete already
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, r.Wait(testutil.Context(t, 30*time.Second)))
	}
}

// All operations complete while the target's application only computes.
func TestTargetOnlyComputes(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 2, fabric)
		mems, keys := share(t, es, 1<<16)
		var stop atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			for x := uint64(1); !stop.Load(); { // no call of the engine in here
				for range 1000 {
					x = x*6364136223846793005 + 1
				}
			}
		})
		p := es[0].Peer(1)
		for i := range 100 {
			n := 1 + i*113
			testutil.Fill(mems[0].Bytes()[:n], uint64(i), 0)
			require.NoError(t, p.Put(keys[1].At(8), mems[0].Slice(0, n)).Wait(ctx))
			require.NoError(t, p.Get(mems[0].Slice(20_000, n), keys[1].At(8)).Wait(ctx))
			require.NoError(t, testutil.Verify(mems[0].Bytes()[20_000:20_000+n], uint64(i), 0))
			v, err := p.FetchAdd(keys[1].At(0), 1).Wait(ctx)
			require.NoError(t, err)
			require.EqualValues(t, i, v)
		}
		stop.Store(true)
		wg.Wait()
	})
}

func TestCloseFailsWhatIsUnderWay(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		mems, keys := share(t, es, 4096)
		var g errgroup.Group
		var n atomic.Int64
		for range 4 {
			g.Go(func() error {
				for {
					if err := es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 64)).Wait(context.Background()); err != nil {
						return err
					}
					n.Add(1)
				}
			})
		}
		testutil.Eventually(t, 30*time.Second, func() bool { return n.Load() > 100 }, "puts")
		require.NoError(t, es[0].Close())
		require.ErrorIs(t, g.Wait(), ErrClosed)
	})
}

func TestPeerThatLeaves(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 3, fabric)
		mems, keys := share(t, es, 4096)
		require.NoError(t, es[2].Close())
		p := es[0].Peer(2)
		var err error
		testutil.Eventually(t, 30*time.Second, func() bool {
			err = p.Put(keys[2].At(0), mems[0].Slice(0, 64)).Wait(ctx)
			return err != nil
		}, "an error")
		require.ErrorIs(t, err, ErrPeerGone)
		var pe *PeerError
		require.True(t, errors.As(err, &pe))
		require.NoError(t, es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 64)).Wait(ctx))
	})
}

func TestSmallPathDoesNotAllocate(t *testing.T) {
	if testutil.Race {
		t.Skip("the race detector makes sync.Pool forget")
	}
	alone(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		mems, keys := share(t, es, 1<<16)
		p, ctx := es[0].Peer(1), context.Background()
		m, k := mems[0], &keys[1]
		must := func(err error) {
			if err != nil {
				panic(err)
			}
		}
		local := []Buffer{m.Slice(0, 100), m.Slice(200, 28)}
		remote := []Span{k.Slice(300, 28), k.Slice(500, 100)}
		var turn uint64
		for name, f := range map[string]func(){
			"put": func() { must(p.Put(k.At(0), m.Slice(0, 64)).Wait(ctx)) },
			"get": func() { must(p.Get(m.Slice(0, 64), k.At(0)).Wait(ctx)) },
			"fetch-add": func() {
				_, err := p.FetchAdd(k.At(64), 1).Wait(ctx)
				must(err)
			},
			"swap": func() {
				turn++
				_, err := p.Swap(k.At(72), turn).Wait(ctx)
				must(err)
			},
			"fetch-add of 4 bytes": func() {
				_, err := p.FetchAdd32(k.At(80), 1).Wait(ctx)
				must(err)
				_, err = p.FetchAdd32(k.At(84), 1).Wait(ctx)
				must(err)
			},
			"vector":  func() { must(p.PutV(remote, local).Wait(ctx)) },
			"strided": func() { must(p.PutStrided(k.At(0), m.Slice(0, 4096), Shape2D(40, 8, 16, 24)).Wait(ctx)) },
			"signal": func() {
				turn++
				must(p.PutSignal(k.At(0), m.Slice(0, 64), k.At(128), SignalSet, turn).Wait(ctx))
				_, err := es[1].WaitSignal(ctx, mems[1].Slice(128, 8), EQ, turn)
				must(err)
			},
			"wait all, forget, fence, flush": func() {
				p.Put(k.At(0), m.Slice(0, 64)).Forget()
				p.Fence()
				must(WaitAll(ctx, p.Put(k.At(0), m.Slice(0, 64)), p.Flush()))
			},
			"wait any": func() {
				a, b := p.Put(k.At(0), m.Slice(0, 64)), p.Put(k.At(0), m.Slice(0, 64))
				_, err := WaitAny(ctx, a, b)
				must(err)
				must(WaitAll(ctx, a, b))
			},
		} {
			f()
			runtime.GC()
			require.Zero(t, testutil.AllocsPerRun(300/testutil.Slow(), f), "%s over %s", name, fabric)
		}
	})
}

// Sixteen ranks meet again and again, on however few processors.
func TestManyRanks(t *testing.T) {
	es := open(t, max(testutil.Times(16), 4), "")
	require.Equal(t, "shm", es[3].Peer(2).Link())
	_, keys := share(t, es, 4096)
	ctx := testutil.Context(t, 60*time.Second)
	var g errgroup.Group
	for _, e := range es {
		g.Go(func() error {
			for range 10 {
				if err := e.Barrier(ctx); err != nil {
					return err
				}
			}
			for to := range es {
				if _, err := e.Peer(to).FetchAdd(keys[to].At(0), 1).Wait(ctx); err != nil {
					return fmt.Errorf("rank %d to %d: %w", e.Rank(), to, err)
				}
			}
			return e.Barrier(ctx)
		})
	}
	require.NoError(t, g.Wait())
}

func TestOpenFails(t *testing.T) {
	for _, c := range []*Config{
		{Fabric: "pigeon"},
		{Depth: -1},
		{PeerTimeout: -1},
		{Job: &Job{Rank: 3, Size: 2}},
		{Job: &Job{Size: 2, Root: "unix:" + t.TempDir() + "/none"}, SetupTimeout: 50 * time.Millisecond},
	} {
		_, err := Open(context.Background(), c)
		require.Error(t, err, "%+v", c)
	}
	for _, job := range []*Job{{Size: 2}, {Rank: 1, Size: 2, Serve: true}} {
		_, err := Open(context.Background(), &Config{Job: job})
		require.ErrorContains(t, err, "Job.Root is empty: set it")
		require.ErrorContains(t, err, "rmarun -n 2")
	}
	// The error of ranks with different links names the links of each.
	forced := rendezvous(t, 2, "tcp")
	errs := make([]error, 2)
	var g errgroup.Group
	for r, name := range []string{"shm", "tcp"} {
		g.Go(func() error {
			c := forced(r)
			c.Fabric = Fabric(name)
			_, errs[r] = Open(context.Background(), c)
			return nil
		})
	}
	require.NoError(t, g.Wait())
	for r, name := range []string{"shm", "tcp"} {
		require.ErrorIs(t, errs[r], ErrNoConnection)
		require.ErrorContains(t, errs[r], "ranks 0 and 1: links: ")
		require.ErrorContains(t, errs[r], name+" wanted on one host; the first has [shm], the second [tcp] (RMA_FABRIC has to be the same on all ranks)")
	}
	// A job that other users can reach is refused without a secret.
	for _, token := range [][]byte{nil, []byte("short")} {
		_, err := Open(context.Background(), &Config{Job: &Job{Size: 2, Root: "127.0.0.1:0", Token: token, Serve: true}})
		require.ErrorIs(t, err, ErrNoToken)
	}
	// A rank that aborts the job reports that to ranks in Open.
	config := rendezvous(t, 2, "shm")
	c, gave := config(0), make(chan error)
	go func() {
		_, err := Open(context.Background(), config(1))
		gave <- err
	}()
	job, err := wireup.Join(t.Context(), wireup.Config{Size: 2, Root: c.Job.Root, Token: c.Job.Token})
	require.NoError(t, err)
	job.Abort("no disk")
	err = <-gave
	require.ErrorIs(t, err, ErrAborted)
	require.ErrorContains(t, err, "rank 0: no disk")
	require.NoError(t, job.Close())
	// One rank of two only: the time-out names the other.
	c = rendezvous(t, 2, "")(0)
	c.SetupTimeout = 100 * time.Millisecond
	_, err = Open(context.Background(), c)
	require.ErrorIs(t, err, wireup.ErrTimeout)
	require.ErrorIs(t, err, ErrGivenUp)
	require.ErrorContains(t, err, "rank 1 of 2 has not joined")
}

// All ranks of a job share the processors of this host, so all of them spin for as
// long as fits their number, and messages between more ranks than processors arrive.
func TestSpinPolicyOfAJob(t *testing.T) {
	t.Parallel()
	cpus := cpu.Allowed().Len()
	for _, size := range []int{2, min(2*cpus+1, 9)} {
		es := simulate(t, size, "sim")
		for _, e := range es {
			require.Equal(t, cpu.For(float64(size)/float64(cpus), cpus), e.prog.SpinPolicy())
		}
		together(t, es, func(ctx context.Context, e *Engine) error {
			right, left := e.Peer((e.Rank()+1)%size), e.Peer((e.Rank()+size-1)%size)
			var b [8]byte
			for range 20 {
				r := left.Recv(b[:])
				if err := right.Send(b[:]).Wait(ctx); err != nil {
					return err
				}
				if _, err := r.Wait(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// busy reports whether operations with a peer are in flight or wait.
func busy(p *Peer) (yes bool) {
	p.eng.prog.Do(func() { yes = p.one.Busy() })
	return yes
}
