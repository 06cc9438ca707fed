package rma

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

// Handlers get every message once, those of a peer in order, in every mode, in the engine
// or on goroutines, including messages that arrived before the handler was registered.
func TestHandlers(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		for _, workers := range []int{0, 1, 3} {
			t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
				ctx := testutil.Context(t, 90*time.Second)
				es := open(t, 3, fabric)
				n := testutil.Times(120)
				sizes := []int{8, 9, 3000, 200_000, 64}
				var g errgroup.Group
				for r, e := range es {
					g.Go(func() error {
						for i := range n {
							msg := testutil.Payload(sizes[i%len(sizes)], uint64(r), uint64(i))
							if err := e.Peer(0).SendTag(0x100+uint32(i&15), msg).Wait(ctx); err != nil {
								return err
							}
						}
						return nil
					})
				}
				var mu sync.Mutex
				next := make([]int, len(es))
				var bad error
				all := es[0].NewEvent()
				h, err := es[0].HandleWith(HandlerOptions{Tag: 0x100, Ignore: 0xf, Workers: workers, Backlog: 3}, func(m Envelope, parts [][]byte) {
					b := slices.Concat(parts...)
					if workers > 0 {
						runtime.Gosched()
					}
					mu.Lock()
					defer mu.Unlock()
					i := next[m.From]
					err := testutil.Verify(b, uint64(m.From), uint64(i))
					if err == nil && (len(b) != sizes[i%len(sizes)] || len(b) != m.Len || m.Tag != 0x100+uint32(i&15)) {
						err = fmt.Errorf("%d bytes, %+v", len(b), m)
					}
					if err != nil && bad == nil {
						bad = fmt.Errorf("message %d of %d: %w", i, m.From, err)
					}
					if next[m.From]++; next[0]+next[1]+next[2] == 3*n {
						all.Set()
					}
				})
				require.NoError(t, err)
				require.NoError(t, all.Wait(ctx))
				require.NoError(t, g.Wait())
				testutil.Holding(&mu, func() {
					require.NoError(t, bad)
					require.Equal(t, []int{n, n, n}, next)
				})
				h.Close()
				h.Close()
				// Messages sent after Close of the handler go to other receives.
				s := es[1].Peer(0).SendTag(0x100, []byte("late"))
				got := make([]byte, 4)
				_, err = es[0].Recv(got).WaitFrom(ctx)
				require.NoError(t, err)
				require.Equal(t, "late", string(got))
				require.NoError(t, s.Wait(ctx))
			})
		}
	})
}

// A handler that lags stops its peer, whose messages wait there, and no other peer.
func TestHandlerBacklog(t *testing.T) {
	es := open(t, 3, "shm")
	ctx := testutil.Context(t, 60*time.Second)
	var calls atomic.Int64
	gate := make(chan struct{})
	h, err := es[0].Peer(1).Handle(1, func(Envelope, [][]byte) { t.Error("closed before anything came") })
	require.NoError(t, err)
	h.Close()
	h, err = es[0].HandleWith(HandlerOptions{Tag: 1, Workers: 1, Backlog: 4}, func(Envelope, [][]byte) {
		<-gate
		calls.Add(1)
	})
	require.NoError(t, err)
	var sent atomic.Int64
	const n = 4000
	msg := make([]byte, 1000)
	for range n {
		es[1].Peer(0).SendFunc(1, msg, func(err error) {
			if err == nil {
				sent.Add(1)
			}
		})
	}
	require.NoError(t, es[2].Peer(0).SendTag(2, []byte("x")).Wait(ctx))
	_, err = es[0].RecvTag(2, make([]byte, 1)).WaitFrom(ctx)
	require.NoError(t, err)
	require.Less(t, sent.Load(), int64(n)) // ring and copies aside hold less
	close(gate)
	testutil.Eventually(t, 30*time.Second, func() bool { return calls.Load() == n }, "all handled")
	testutil.Eventually(t, testutil.Limit, func() bool { return sent.Load() == n }, "all sent")
	h.Close()
}

func TestHandlerOptions(t *testing.T) {
	es := open(t, 2, "tcp")
	ctx := testutil.Context(t, 60*time.Second)
	nothing := func(Envelope, [][]byte) {}
	_, err := es[0].HandleWith(HandlerOptions{Workers: -1}, nothing)
	require.ErrorIs(t, err, ErrInvalid)
	// Without a function, the first message would end the process.
	_, err = es[0].Handle(4, nil)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = HandleMany(es[0], HandlerOptions{}, nil)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = es[0].Receive(4, 0, nil)
	require.ErrorIs(t, err, ErrInvalid)
	var got atomic.Int64
	_, err = es[0].HandleWith(HandlerOptions{Tag: 4, MaxSize: 1000}, func(m Envelope, _ [][]byte) { got.Add(int64(m.Len)) })
	require.NoError(t, err)
	// Announced messages that are too long fail at the sender; in the ring they
	// are dropped.
	require.Error(t, es[1].Peer(0).SendTag(4, make([]byte, 4<<20)).Wait(ctx))
	require.NoError(t, es[1].Peer(0).SendTag(4, make([]byte, 1001)).Wait(ctx))
	require.NoError(t, es[1].Peer(0).SendTag(4, make([]byte, 1000)).Wait(ctx))
	require.NoError(t, es[0].Peer(0).SendTag(4, make([]byte, 1001)).Wait(ctx))
	testutil.Eventually(t, 20*time.Second, func() bool { return got.Load() == 1000 }, "the one that fits")
	require.NoError(t, es[0].Close())
	_, err = es[0].Handle(4, nothing)
	require.ErrorIs(t, err, ErrClosed)
}

func TestHandlerDoesNotAllocate(t *testing.T) {
	if testutil.Race {
		t.Skip("the race detector makes sync.Pool forget")
	}
	es := open(t, 2, "shm")
	ctx := testutil.Context(t, 60*time.Second)
	ev := es[1].NewEvent()
	var sum int
	_, err := es[1].Handle(1, func(m Envelope, parts [][]byte) {
		sum += m.Len
		ev.Set()
	})
	require.NoError(t, err)
	msg := make([]byte, 100)
	ping := func() {
		ev.Reset()
		es[0].Peer(1).SendFunc(1, msg, nil)
		if err := ev.Wait(ctx); err != nil {
			panic(err)
		}
	}
	ping()
	runtime.GC()
	require.Zero(t, testutil.AllocsPerRun(300, ping))
}

// gatherer is a Receiver that records its calls.
type gatherer struct {
	mu     sync.Mutex
	later  bool
	began  []Envelope
	bodies [][]byte
	gone   map[int]error
}

func (g *gatherer) Arriving(m Envelope, inPlace bool) Landing {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.later {
		return Landing{Later: true}
	}
	g.began = append(g.began, m)
	g.bodies = append(g.bodies, nil)
	l := Landing{Token: len(g.began) - 1}
	if !inPlace {
		l.Buf = make([]byte, m.Len)
	}
	return l
}

func (g *gatherer) Arrived(_ Envelope, token any, parts [][]byte, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bodies[token.(int)] = slices.Concat(parts...)
}

func (g *gatherer) Gone(rank int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone[rank] = err
}

// A Receiver gets messages in order; messages that it leaves are offered again, and Gone
// follows a peer's last message.
func TestReceiver(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 3, fabric)
		g := &gatherer{gone: map[int]error{}, later: true}
		r, err := es[0].Receive(LibraryTags+77, 0xff, g)
		require.NoError(t, err)
		const n = 30
		var sends []Request
		for i := range n {
			msg := bytes.Repeat([]byte{byte(i)}, 4+i%3*100_000)
			binary.LittleEndian.PutUint32(msg, uint32(i))
			sends = append(sends, es[1].Peer(0).SendTag(LibraryTags+uint32(i), msg))
		}
		require.NoError(t, es[2].Peer(0).Send([]byte("x")).Wait(ctx))
		_, err = es[0].Recv(make([]byte, 1)).WaitFrom(ctx)
		require.NoError(t, err)
		testutil.Holding(&g.mu, func() {
			require.Empty(t, g.began)
			g.later = false
		})
		r.Resume()
		for _, s := range sends {
			require.NoError(t, s.Wait(ctx))
		}
		testutil.Eventually(t, 20*time.Second, func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.bodies) == n && !slices.ContainsFunc(g.bodies, func(b []byte) bool { return b == nil })
		}, "all messages")
		testutil.Holding(&g.mu, func() {
			for i, m := range g.began {
				require.Equal(t, Envelope{From: 1, Tag: LibraryTags + uint32(i), Len: 4 + i%3*100_000}, m)
				require.EqualValues(t, i, binary.LittleEndian.Uint32(g.bodies[i]))
			}
			require.Empty(t, g.gone)
		})
		require.NoError(t, es[1].Close())
		testutil.Eventually(t, 20*time.Second, func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.gone[1] != nil
		}, "told that rank 1 is gone")
		late := &gatherer{gone: map[int]error{}}
		_, err = es[0].Receive(LibraryTags+77, 0xff, late)
		require.NoError(t, err)
		require.ErrorIs(t, late.gone[1], ErrPeerGone)
		require.Len(t, late.gone, 1)
		r.Close()
		require.NoError(t, es[0].Close())
		require.Len(t, late.gone, 3)
		require.ErrorIs(t, late.gone[2], ErrClosed)
		require.Len(t, g.gone, 1) // closed before
	})
}

// A Receiver of one peer gets no messages of others, and is told of no other end; receives
// behind it get them.
func TestReceiveFrom(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := open(t, 3, fabric)
		g := &gatherer{gone: map[int]error{}}
		_, err := ReceiveFrom(es[0].Peer(1), LibraryTags, 0, g)
		require.NoError(t, err)
		got := make([]byte, 5)
		recv := es[0].RecvTag(LibraryTags, got)
		require.NoError(t, es[1].Peer(0).SendTag(LibraryTags, []byte("to g")).Wait(ctx))
		require.NoError(t, es[2].Peer(0).SendTag(LibraryTags, []byte("other")).Wait(ctx))
		m, err := recv.WaitFrom(ctx)
		require.NoError(t, err)
		require.Equal(t, Envelope{From: 2, Tag: LibraryTags, Len: 5}, m)
		require.Equal(t, "other", string(got))
		testutil.Eventually(t, testutil.Limit, func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.bodies) == 1 && g.bodies[0] != nil
		}, "the message of rank 1")
		require.NoError(t, es[2].Close())
		require.NoError(t, es[1].Close())
		testutil.Eventually(t, testutil.Limit, func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.gone[1] != nil }, "told that rank 1 is gone")
		testutil.Holding(&g.mu, func() {
			require.Equal(t, []Envelope{{From: 1, Tag: LibraryTags, Len: 4}}, g.began)
			require.Len(t, g.gone, 1)
		})
	})
}

// Messages that a Receiver has left are its own: receives, probes and handlers posted later do
// not take them, nor do they keep these from other messages.
func TestLeftMessagesStayTheReceivers(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		for _, from := range []int{0, 1} { // oneself, another
			ctx := testutil.Context(t, testutil.Limit)
			es := open(t, 2, fabric)
			p := es[0].Peer(from)
			g := &gatherer{gone: map[int]error{}, later: true}
			r, err := es[0].Receive(5, 0, g)
			require.NoError(t, err)
			sizes := []int{1, 1 << 20, 3}
			var sends []Request
			for i, n := range sizes {
				sends = append(sends, es[from].Peer(0).SendTag(5, bytes.Repeat([]byte{byte(i)}, n)))
			}
			sends = append(sends, es[from].Peer(0).SendTag(6, []byte("x")), es[from].Peer(0).SendTag(6, []byte("y")))
			_, err = es[0].Probe(6).WaitFrom(ctx) // those before it are there
			require.NoError(t, err)

			second := &gatherer{gone: map[int]error{}}
			_, err = es[0].Receive(5, 0, second)
			require.NoError(t, err)
			none := []RecvRequest{es[0].Probe(5), p.Probe(5), es[0].RecvTag(5, nil), p.RecvTag(5, nil)}
			for k, recv := range []func([]byte) RecvRequest{p.Recv, es[0].Recv} {
				buf := make([]byte, 1)
				m, err := recv(buf).WaitFrom(ctx)
				require.NoError(t, err)
				require.Equal(t, Envelope{From: from, Tag: 6, Len: 1}, m)
				require.Equal(t, "xy"[k:k+1], string(buf))
			}
			idle := func() {
				testutil.Holding(&second.mu, func() { require.Empty(t, second.began) })
				for i, x := range none {
					require.False(t, x.Done(), "%d", i)
				}
			}
			idle()
			testutil.Holding(&g.mu, func() { g.later = false })
			r.Resume()
			require.NoError(t, WaitAll(ctx, sends...))
			testutil.Eventually(t, testutil.Limit, func() bool {
				g.mu.Lock()
				defer g.mu.Unlock()
				return len(g.bodies) == len(sizes) && !slices.ContainsFunc(g.bodies, func(b []byte) bool { return b == nil })
			}, "all messages")
			for i, n := range sizes {
				require.Equal(t, bytes.Repeat([]byte{byte(i)}, n), g.bodies[i])
			}
			idle()
			for _, x := range none {
				x.Cancel()
				_, err := x.WaitFrom(ctx)
				require.ErrorIs(t, err, ErrCanceled)
			}
		}
	})
}

// When a Receiver is closed, messages that it has left go to the receives behind it, in order:
// a probe, one that is too short, those of one peer and of any, another Receiver, which may leave
// them as well. Gone follows the last of them.
func TestLeftMessagesOfAClosedReceiver(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		for _, from := range []int{0, 1} { // oneself, another
			ctx := testutil.Context(t, testutil.Limit)
			es := open(t, 2, fabric)
			p := es[0].Peer(from)
			first := &gatherer{gone: map[int]error{}, later: true}
			r, err := es[0].Receive(4, 1, first)
			require.NoError(t, err)
			sizes := []int{10, 1 << 20, 30, 40, 50}
			bufs := [3][]byte{make([]byte, sizes[0]), make([]byte, sizes[1]), make([]byte, sizes[2])}
			probe, short := p.Probe(5), p.RecvTag(5, nil)
			recvs := []RecvRequest{p.RecvTag(5, bufs[0]), es[0].RecvTag(5, bufs[1])}
			second := &gatherer{gone: map[int]error{}, later: true}
			r2, err := es[0].Receive(5, 0, second)
			require.NoError(t, err)
			recvs = append(recvs, p.RecvTag(5, bufs[2]))
			third := &gatherer{gone: map[int]error{}, later: true}
			r3, err := es[0].Receive(5, 0, third)
			require.NoError(t, err)
			last := &gatherer{gone: map[int]error{}}
			_, err = es[0].Receive(5, 0, last)
			require.NoError(t, err)
			var sends []Request
			for i, n := range sizes {
				sends = append(sends, es[from].Peer(0).SendTag(5, bytes.Repeat([]byte{byte(i)}, n)), es[from].Peer(0).SendTag(6, nil))
				_, err = es[0].RecvTag(6, nil).WaitFrom(ctx) // the one before it is there, and no later one is announced with it
				require.NoError(t, err)
			}
			for i, x := range append(recvs, probe, short) {
				require.False(t, x.Done(), "%d", i)
			}

			r.Close()
			m, err := probe.WaitFrom(ctx)
			require.NoError(t, err)
			require.Equal(t, Envelope{From: from, Tag: 5, Len: sizes[0]}, m)
			_, err = short.Wait(ctx)
			require.ErrorIs(t, err, ErrShortBuffer)
			for i, x := range recvs[:2] {
				n, err := x.Wait(ctx)
				require.NoError(t, err)
				require.Equal(t, bytes.Repeat([]byte{byte(i)}, sizes[i]), bufs[i][:n])
			}
			require.NoError(t, WaitAll(ctx, sends...))
			require.False(t, recvs[2].Done())
			r2.Close()
			n, err := recvs[2].Wait(ctx)
			require.NoError(t, err)
			require.Equal(t, bytes.Repeat([]byte{2}, sizes[2]), bufs[2][:n])

			if from == 1 {
				require.NoError(t, es[1].Close())
				_, err = es[0].RecvTag(6, nil).Wait(ctx)
				require.ErrorIs(t, err, ErrNoSender)
			}
			testutil.Holding(&last.mu, func() {
				require.Empty(t, last.began)
				require.Empty(t, last.gone)
			})
			r3.Close()
			testutil.Holding(&last.mu, func() {
				require.Equal(t, [][]byte{bytes.Repeat([]byte{3}, sizes[3]), bytes.Repeat([]byte{4}, sizes[4])}, last.bodies)
				require.Len(t, last.gone, from)
			})
			for _, g := range []*gatherer{first, second, third} {
				require.Empty(t, g.began)
			}
		}
	})
}

// However much peers send at once, a handler holds no more than HandlerOptions.Memory.
func TestHandlerMemoryIsBounded(t *testing.T) {
	for _, workers := range []int{0, 1} {
		onEach(t, func(t *testing.T, fabric string) {
			es := openWith(t, 3, fabric, func(c *Config) { c.Mode = "scatter" })
			ctx := testutil.Context(t, testutil.Limit)
			const size, memory = 1 << 20, 4 << 20
			n := max(testutil.Times(40), 8)
			msg := make([]byte, size)
			var handler atomic.Pointer[Handler] // the race detector does not see that messages order it
			most, got, next := 0, 0, [3]int{}
			done := make(chan struct{})
			h, err := es[0].HandleWith(HandlerOptions{Tag: 5, Workers: workers, Memory: memory, MaxSize: size}, func(m Envelope, _ [][]byte) {
				next[m.From]++
				held := &handler.Load().held
				held.mu.Lock()
				most = max(most, held.bytes)
				held.mu.Unlock()
				if got++; got == 2*n {
					close(done)
				}
			})
			require.NoError(t, err)
			handler.Store(h)
			var reqs []Request
			for i := range 2 * n {
				reqs = append(reqs, es[1+i%2].Peer(0).SendTag(5, msg))
			}
			require.NoError(t, WaitAll(ctx, reqs...))
			<-done
			h.Close()
			require.Equal(t, [3]int{0, n, n}, next)
			require.LessOrEqual(t, most, memory)
			require.GreaterOrEqual(t, most, size)
		})
	}
}

// A HandleMany function gets every message once, those of a peer in order, however many
// messages a call has, and however many parts a message.
func TestHandleMany(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 3, fabric)
		for _, workers := range []int{0, 2} {
			t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
				ctx := testutil.Context(t, testutil.Limit)
				const n, chain = 8, 20
				sizes := []int{8, 0, 9, 255, 64, 8, 8, 8, 3000, 8, 70_000}
				var mu sync.Mutex
				next := make([]int, len(es))
				var bad error
				all := es[0].NewEvent()
				h, err := HandleMany(es[0], HandlerOptions{Tag: 0x100, Ignore: 1, Workers: workers}, func(ms *Messages) {
					mu.Lock()
					defer mu.Unlock()
					for left := ms.Len(); ; left-- {
						msg, ok := ms.Next()
						if !ok {
							if left != 0 && bad == nil {
								bad = fmt.Errorf("%d messages less than Len said", left)
							}
							break
						}
						i := next[ms.From]
						next[ms.From]++
						err := testutil.Verify(msg, uint64(ms.From), uint64(i))
						if err == nil && (len(msg) != sizes[i%len(sizes)] || ms.Tag != 0x100+uint32(i/40%2)) {
							err = fmt.Errorf("%d bytes, tag %x", len(msg), ms.Tag)
						}
						if err != nil && bad == nil {
							bad = fmt.Errorf("message %d of %d: %w", i, ms.From, err)
						}
					}
					if next[0]+next[1]+next[2] == 3*n*chain {
						all.Set()
					}
				})
				require.NoError(t, err)
				var g errgroup.Group
				for r, e := range es {
					g.Go(func() error {
						b := e.Peer(0).Batch()
						for c := range n {
							b.Reset()
							for i := c * chain; i < (c+1)*chain; i++ {
								b.Add(0x100+uint32(i/40%2), testutil.Payload(sizes[i%len(sizes)], uint64(r), uint64(i)))
							}
							if err := b.Send().Wait(ctx); err != nil {
								return fmt.Errorf("batch %d: %w", c, err)
							}
						}
						return nil
					})
				}
				require.NoError(t, g.Wait())
				require.NoError(t, all.Wait(ctx))
				testutil.Holding(&mu, func() {
					require.NoError(t, bad)
					require.Equal(t, []int{n * chain, n * chain, n * chain}, next)
				})
				h.Close()
			})
		}
	})
}

// Messages sent together arrive in fewer calls, without allocation, and are counted; those
// that the handler does not take are dropped.
func TestHandleManyAtOnce(t *testing.T) {
	es := open(t, 2, "shm")
	ctx := testutil.Context(t, testutil.Limit)
	const chain = 32
	calls, got := 0, 0
	var skip atomic.Bool // the race detector does not see that a message orders it
	ev := es[1].NewEvent()
	_, err := HandleMany(es[1], HandlerOptions{Tag: 1}, func(ms *Messages) {
		calls++
		got += ms.Len()
		for _, ok := ms.Next(); ok && !skip.Load(); _, ok = ms.Next() {
		}
		if got%chain == 0 {
			ev.Set()
		}
	})
	require.NoError(t, err)
	b, msg := es[0].Peer(1).Batch(), make([]byte, 8)
	round := func() {
		ev.Reset()
		b.Reset()
		for range chain {
			b.Add(1, msg)
		}
		r := b.Send()
		if err := ev.Wait(ctx); err != nil {
			panic(err)
		}
		if err := r.Wait(ctx); err != nil {
			panic(err)
		}
	}
	const rounds = 100
	for range rounds {
		round()
	}
	skip.Store(true)
	for range rounds {
		round()
	}
	require.Equal(t, 2*rounds*chain, got)
	require.Less(t, calls, got/4)
	s := es[1].Peer(0).Stats()
	require.EqualValues(t, got, s.Receives)
	require.EqualValues(t, got*len(msg), s.RecvBytes)
	if !testutil.Race { // under which sync.Pool forgets
		runtime.GC()
		require.Zero(t, testutil.AllocsPerRun(100, round))
	}
}

// The options of a handler are checked for one of many, too.
func TestHandleManyOptions(t *testing.T) {
	es := open(t, 1, "shm")
	_, err := HandleMany(es[0], HandlerOptions{Workers: -1}, nil)
	require.Error(t, err)
}

// panicking is a job of one rank, whose handler or callback panics in the call that sends it a message or adds to
// its word, and recovers.
var panicking = testutil.NewChild("panicking", func(args []string, _ *bufio.Reader, out io.Writer) error {
	e, err := Open(context.Background(), &Config{Job: &Job{Size: 1}, Sampling: "off"})
	if err != nil {
		return err
	}
	mem, err := e.Alloc(8)
	if err != nil {
		return err
	}
	if _, err := e.HandleWith(HandlerOptions{}, func(Envelope, [][]byte) { panic("from the handler") }); err != nil {
		return err
	}
	AwaitUntil(e, mem.Slice(0, 8), GE, uint64(1)).Then(func(error) { panic("from the callback") })
	if _, err := e.Peer(0).FetchAdd(mem.Key().At(0), 0).Wait(context.Background()); err != nil { // connects
		return err
	}
	defer func() {
		recover()
		_, _ = fmt.Fprintln(out, "recovered")
	}()
	if args[0] == "handler" {
		e.Peer(0).Send([]byte{1})
	} else {
		e.Peer(0).FetchAdd(mem.Key().At(0), 1)
	}
	select {} // another goroutine has called it
})

// A panic of a handler or a callback ends the process, also in a call that posts: where it could be recovered, all
// later calls would hang.
func TestPanicsEndTheProcess(t *testing.T) {
	for _, of := range []string{"handler", "callback"} {
		p := panicking.Start(t, of)
		line, err := p.Out.ReadString('\n')
		require.ErrorIs(t, err, io.EOF, of+" "+line)
	}
}
