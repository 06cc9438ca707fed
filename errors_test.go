package rma

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// named lists the sentinels that the tests of errors distinguish.
var named = map[string]error{
	"gone": ErrPeerGone, "access": ErrRemoteAccess, "flushed": ErrFlushed, "unconnected": ErrNoConnection,
	"reset": ErrReset, "closed": ErrClosed, "wrong peer": ErrWrongPeer,
}

// sentinels returns the names of those that err wraps.
func sentinels(err error) string {
	if err == nil {
		return "nil"
	}
	var got []string
	for name, s := range named {
		if errors.Is(err, s) {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	return strings.Join(got, "+")
}

// everything returns the errors of one operation of each kind with a peer whose connection
// is lost; the first waits until this side has detected the loss.
func everything(ctx context.Context, e *Engine, peer int, mem *Region, key Key) map[string]error {
	p := e.Peer(peer)
	_, await := p.WaitSignal(ctx, mem.Slice(0, 8), EQ, 1<<40)
	b := p.Batch()
	b.Add(1, []byte("x"))
	_, atomic := p.FetchAdd(key.At(0), 1).Wait(ctx)
	_, loop := p.Swap(key.At(0), 1).Wait(ctx)
	_, receive := p.Recv(make([]byte, 8)).Wait(ctx)
	_, tagged := p.RecvTag(3, make([]byte, 8)).Wait(ctx)
	return map[string]error{
		"put": p.Put(key.At(0), mem.Slice(0, 8)).Wait(ctx), "get": p.Get(mem.Slice(0, 8), key.At(0)).Wait(ctx),
		"long put": p.Put(key.At(0), mem.Slice(0, 4096)).Wait(ctx), "long get": p.Get(mem.Slice(0, 4096), key.At(0)).Wait(ctx),
		"vector":     p.PutV([]Span{key.Slice(0, 8), key.Slice(16, 8)}, []Buffer{mem.Slice(0, 16)}).Wait(ctx),
		"bytes":      p.PutBytes(key.At(0), make([]byte, 100)).Wait(ctx),
		"accumulate": Accumulate(p, key.At(0), Sum, []uint64{1}).Wait(ctx),
		"signal":     p.Signal(key.At(0), SignalAdd, 1).Wait(ctx), "put-signal": p.PutSignal(key.At(8), mem.Slice(0, 64), key.At(0), SignalAdd, 1).Wait(ctx),
		"send": p.Send([]byte("x")).Wait(ctx), "long send": p.Send(make([]byte, 300_000)).Wait(ctx), "batch": b.Send().Wait(ctx),
		"atomic": atomic, "loop": loop, "await": await, "receive": receive, "tagged receive": tagged, "flush": p.Flush().Wait(ctx),
	}
}

// begin posts messages that find no partner. The result waits for their errors.
func begin(ctx context.Context, p *Peer, messages bool) func() map[string]error {
	if !messages {
		return func() map[string]error { return nil }
	}
	announced, receive := SendSync(p, LibraryTags, make([]byte, 200_000)), p.RecvTag(LibraryTags+1, make([]byte, 8))
	return func() map[string]error {
		_, err := receive.Wait(ctx)
		return map[string]error{"announced": announced.Wait(ctx), "posted receive": err}
	}
}

// alike requires that all of them failed with those sentinels, in a *PeerError of the rank
// whose text repeats nothing.
func alike(t *testing.T, want string, rank int, errs map[string]error) {
	t.Helper()
	for what, err := range errs {
		require.Equal(t, want, sentinels(err), "%s: %v", what, err)
		if want == "closed" {
			continue
		}
		var pe *PeerError
		require.ErrorAs(t, err, &pe, what)
		require.Equal(t, rank, pe.Rank, what)
		for _, s := range named {
			require.LessOrEqual(t, strings.Count(err.Error(), s.Error()), 1, "%s: %v", what, err)
		}
	}
}

// The same event has the same errors, whatever the link and the operation.
func TestErrorsAreAlike(t *testing.T) {
	type event struct {
		name string
		// do causes the event on two connected ranks, which have exchanged messages if
		// message channel open.
		do            func(t *testing.T, ctx context.Context, es []*Engine, mems []*Region, keys []Key)
		first, second string // errors of the two ranks from then on; "" if not checked
	}
	stale := func(t *testing.T, ctx context.Context, es []*Engine, mems []*Region, use func(*Peer, Key) error) {
		mem, err := es[1].Alloc(4096)
		require.NoError(t, err)
		key := mem.Key()
		require.NoError(t, mem.Close())
		err = use(es[0].Peer(1), key)
		require.Equal(t, "access", sentinels(err), "%v", err)
	}
	events := []event{
		{"a stale key in a put", func(t *testing.T, ctx context.Context, es []*Engine, mems []*Region, _ []Key) {
			stale(t, ctx, es, mems, func(p *Peer, k Key) error { return p.Put(k.At(0), mems[0].Slice(0, 8)).Wait(ctx) })
		}, "access+flushed", "access+flushed"},
		{"a stale key in a get", func(t *testing.T, ctx context.Context, es []*Engine, mems []*Region, _ []Key) {
			stale(t, ctx, es, mems, func(p *Peer, k Key) error { return p.Get(mems[0].Slice(0, 4096), k.At(0)).Wait(ctx) })
		}, "access+flushed", "access+flushed"},
		{"a stale key in an atomic", func(t *testing.T, ctx context.Context, es []*Engine, mems []*Region, _ []Key) {
			stale(t, ctx, es, mems, func(p *Peer, k Key) error { _, err := p.FetchAdd(k.At(0), 1).Wait(ctx); return err })
		}, "access+flushed", "access+flushed"},
		{"a stale key in a group", func(t *testing.T, ctx context.Context, es []*Engine, mems []*Region, keys []Key) {
			es[0].prog.Do(func() {
				es[0].cfg.Pieces = PiecesGroup
				(*oneSidedHost)(es[0].Peer(1)).plan()
			})
			put := func(p *Peer, k Key) error {
				return p.PutV([]Span{k.Slice(0, 8), k.Slice(64, 8)}, []Buffer{mems[0].Slice(0, 16)}).Wait(ctx)
			}
			testutil.Eventually(t, testutil.Limit, func() bool { // the first go without slots
				require.NoError(t, put(es[0].Peer(1), keys[1]))
				return es[0].Peer(1).Link() == "shm" || es[1].Stats().Served > 0 // shm stores them itself
			}, "groups")
			stale(t, ctx, es, mems, put)
		}, "access+flushed", "access+flushed"},
		{"a region closed under fire", func(t *testing.T, ctx context.Context, es []*Engine, mems []*Region, _ []Key) {
			mem, err := es[1].Alloc(1 << 16)
			require.NoError(t, err)
			key := mem.Key()
			closed := make(chan error)
			go func() {
				err := ErrInUse
				for errors.Is(err, ErrInUse) {
					err = mem.Close()
				}
				closed <- err
			}()
			for err == nil {
				err = es[0].Peer(1).Put(key.At(0), mems[0].Slice(0, 4096)).Wait(ctx)
			}
			require.Equal(t, "access", sentinels(err), "%v", err)
			require.NoError(t, <-closed)
		}, "access+flushed", "access+flushed"},
		{"the peer closes its engine", func(t *testing.T, ctx context.Context, es []*Engine, _ []*Region, _ []Key) {
			require.NoError(t, es[1].Close())
			<-es[0].job.Gone(1)
		}, "gone", "closed"},
	}
	for _, messages := range []bool{false, true} {
		for _, ev := range events {
			t.Run(fmt.Sprintf("%s messages %v", ev.name, messages), func(t *testing.T) {
				onAll(t, 2, func(t *testing.T, es []*Engine) {
					ctx := testutil.Context(t, testutil.Limit)
					mems, keys := share(t, es, 8192)
					messages := messages && es[0].peers[1].one.Max() > 1<<20 // else it moves too little for a ring
					together(t, es, func(ctx context.Context, e *Engine) error {
						you := 1 - e.Rank()
						err := e.Peer(you).Put(keys[you].At(0), mems[e.Rank()].Slice(0, 8)).Wait(ctx)
						if messages && err == nil {
							req := e.Peer(you).Send([]byte("hello"))
							_, err = e.Peer(you).Recv(make([]byte, 8)).Wait(ctx)
							err = errors.Join(err, req.Wait(ctx))
						}
						return err
					})
					var waiting [2]func() map[string]error
					for r, e := range es {
						waiting[r] = begin(ctx, e.Peer(1-r), messages)
					}
					ev.do(t, ctx, es, mems, keys)
					alike(t, ev.first, 1, everything(ctx, es[0], 1, mems[0], keys[1]))
					alike(t, ev.second, 0, everything(ctx, es[1], 0, mems[1], keys[0]))
					alike(t, ev.first, 1, waiting[0]())
					alike(t, ev.second, 0, waiting[1]())
				})
			})
		}
	}
}

// The key of another rank's memory is refused here, without further effect.
func TestWrongPeersKey(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 4096)
		err := es[0].Peer(1).Put(keys[2].At(0), mems[0].Slice(0, 8)).Wait(ctx)
		require.Equal(t, "wrong peer", sentinels(err))
		require.NoError(t, es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 8)).Wait(ctx))
	})
}

// victim is a rank that communicates like the others until it is killed.
var victim = testutil.NewChild("victim", func(args []string, in *bufio.Reader, out io.Writer) error {
	e, err := openChild(args[0], args[1])
	if err != nil {
		return err
	}
	ctx := context.Background()
	mem, err := e.Alloc(1 << 20)
	if err != nil {
		return err
	}
	keys, err := AllGatherKeys(ctx, e, mem)
	if err != nil {
		return err
	}
	p := e.Peer(0)
	if _, err := p.RecvTag(2, make([]byte, 8)).Wait(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	large := make([]byte, 200_000)
	for i := range uint32(1 << 30) {
		reqs := []Request{p.SendTag(1, large[:i%7]), p.SendTag(1, large[:100+i%100_000]), p.Put(keys[0].At(0), mem.Slice(0, 1<<16))}
		if _, err := p.RecvTag(1, large).Wait(ctx); err != nil {
			return err
		}
		if err := WaitAll(ctx, reqs...); err != nil {
			return err
		}
	}
	return nil
})

// Operations in flight with a rank that is killed, and later ones, fail with the error that
// the rank is gone.
func TestErrorsOfTheKilled(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		for round := range 4 {
			t.Run(fmt.Sprint(fabric, "/", round), func(t *testing.T) {
				t.Parallel()
				e, child := openParent(t, fabric, victim)
				ctx := testutil.Context(t, testutil.Limit)
				mem, err := e.Alloc(1 << 20)
				require.NoError(t, err)
				keys, err := AllGatherKeys(ctx, e, mem)
				require.NoError(t, err)
				p, k := e.Peer(1), keys[1]
				require.NoError(t, p.SendTag(2, nil).Wait(ctx))
				line, err := child.Out.ReadString('\n')
				require.NoError(t, err, line)
				type end struct {
					what string
					err  error
				}
				ends := make(chan end)
				begun := 0
				local := func() Buffer { // of each its own
					begun++
					return mem.Slice(begun<<14, 1<<14)
				}
				loop := func(what string, f func() error) {
					go func() {
						var err error
						for err == nil {
							err = f()
						}
						ends <- end{what, err}
					}()
				}
				a, b, c, d := local(), local(), local(), local()
				large := make([]byte, 200_000)
				bufs := [][]byte{make([]byte, 200_000), make([]byte, 200_000)}
				ops := map[string]func() error{
					"put":        func() error { return p.Put(k.At(0), a).Wait(ctx) },
					"get":        func() error { return p.Get(b, k.At(0)).Wait(ctx) },
					"put-signal": func() error { return p.PutSignal(k.At(64), c, k.At(8), SignalAdd, 1).Wait(ctx) },
					"bytes":      func() error { return p.PutBytes(k.At(0), large).Wait(ctx) },
					"atomic":     func() error { _, err := p.FetchAdd(k.At(0), 1).Wait(ctx); return err },
					"loop":       func() error { _, err := p.FetchXor(k.At(0), 1).Wait(ctx); return err },
					"accumulate": func() error { return Accumulate(p, k.At(0), Sum, make([]uint64, 3000)).Wait(ctx) },
					"await":      func() error { _, err := p.WaitSignal(ctx, d.region.Slice(0, 8), EQ, 1<<40); return err },
					"send":       func() error { return p.SendTag(1, large[:50]).Wait(ctx) },
					"long send":  func() error { return p.SendTag(1, large).Wait(ctx) },
					"batch": func() error {
						b := p.Batch()
						for i := range 10 {
							b.Add(1, large[:100*i])
						}
						return b.Send().Wait(ctx)
					},
					"receive":     func() error { _, err := p.RecvTag(1, bufs[0]).Wait(ctx); return err },
					"receive any": func() error { _, err := p.Recv(bufs[1]).Wait(ctx); return err },
					"flush":       func() error { return p.Flush().Wait(ctx) },
					"barrier":     func() error { return e.Barrier(ctx) },
					"window":      func() error { _, err := e.Window(ctx, 64); return err },
				}
				for what, f := range ops {
					loop(what, f)
				}
				// They have begun: the victim has taken and sent more.
				for p.Stats().Receives < uint64(10+40*round) && ctx.Err() == nil {
					require.NoError(t, p.Put(k.At(0), mem.Slice(0, 8)).Wait(ctx))
				}
				child.Kill()
				for range ops {
					end := <-ends
					require.ErrorIs(t, end.err, ErrPeerGone, end.what)
					var pe *PeerError
					require.ErrorAs(t, end.err, &pe, end.what)
					require.Equal(t, 1, pe.Rank, end.what)
				}
				alike(t, "gone", 1, everything(ctx, e, 1, mem, k))
			})
		}
	}
}
