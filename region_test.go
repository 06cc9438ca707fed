package rma

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/message/hub"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestAllocOfImpossibleSizes(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		e := open(t, 1, fabric)[0]
		_, err := e.Alloc(-1)
		require.ErrorIs(t, err, ErrInvalid)
		_, err = e.Alloc(8, PeersRead, 255)
		require.ErrorIs(t, err, ErrInvalid)
		_, err = e.Register(make([]byte, 8), 64)
		require.ErrorIs(t, err, ErrInvalid)
		for _, size := range []int{1 << 45, math.MaxInt} { // more than the host has, and more than a process can map
			_, err = e.Alloc(size)
			require.ErrorIs(t, err, ErrResources)
		}
	})
}

// A region cannot be closed while operations of this rank of any kind are in flight in it,
// but can afterwards. Nothing is written to released memory.
func TestRegionStaysWhileItIsUsed(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		_, keys := share(t, es, 1<<20)
		p, k := es[0].Peer(1), &keys[1]
		refused := 0
		for round := range 12 {
			mem := make([]byte, 1<<19)
			r, err := es[0].Register(mem)
			require.NoError(t, err)
			var reqs []Request
			for i := range 20 {
				switch b := r.Slice(i*4096, 4000); round % 4 {
				case 0:
					reqs = append(reqs, p.Get(b, k.At(0)))
				case 1:
					reqs = append(reqs, p.GetV([]Buffer{b}, []Span{k.Slice(0, 2000), k.Slice(4000, 2000)}))
				case 2: // which is copied to that memory at the end
					reqs = append(reqs, p.GetBytes(r.Bytes()[i*4096:][:4000], k.At(0)))
				default:
					reqs = append(reqs, p.GetStrided(b, k.At(0), Shape2D(100, 20, 40, 60)))
				}
			}
			if err := r.Close(); err != nil {
				refused++
				require.ErrorIs(t, err, ErrInUse)
				require.NoError(t, WaitAll(ctx, reqs...), "nothing was taken from under them")
				require.NoError(t, r.Close())
			} else {
				for _, x := range reqs {
					require.True(t, x.Done(), "closed while it is used")
				}
				require.NoError(t, WaitAll(ctx, reqs...), "they were complete")
			}
			require.NoError(t, r.Close())
			require.True(t, errors.Is(p.Get(r.Slice(0, 8), k.At(0)).Wait(ctx), ErrForeign))
		}
		if !es[0].links[0].Caps().Immediate {
			require.Positive(t, refused)
		}
	})
}

// A region may be closed by one goroutine while another one begins to use it: what has not started
// by then fails, and nothing else does. Closed memory is unmapped.
func TestClosedBeforeTheStart(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		e, p := es[0], es[0].Peer(1)
		mem, keys := share(t, es, 1<<20)
		k := keys[1]
		for name, begin := range map[string]func(r *Region) Request{
			"put":    func(r *Region) Request { return p.Put(k.At(0), r.Slice(0, 8)) },
			"get":    func(r *Region) Request { return p.Get(r.Slice(0, 1<<19), k.At(0)) },
			"signal": func(r *Region) Request { return p.PutSignal(k.At(0), r.Slice(0, 100), k.At(1024), SignalSet, 1) },
			"get pieces": func(r *Region) Request {
				return p.GetV([]Buffer{mem[0].Slice(0, 8), r.Slice(0, 8)}, []Span{k.Slice(0, 16)})
			},
			"strided":    func(r *Region) Request { return p.PutStrided(k.At(0), r.Slice(0, 1000), Shape2D(10, 20, 40, 60)) },
			"own get":    func(r *Region) Request { return e.Peer(0).Get(r.Slice(0, 8192), keys[0].At(0)) },
			"send":       func(r *Region) Request { return p.SendBuffer(1, r.Slice(0, 100)) },
			"large send": func(r *Region) Request { return p.SendBuffer(1, r.Slice(0, 1<<19)) },
			"receive":    func(r *Region) Request { return p.RecvBuffer(2, r.Slice(0, 100)).Request },
			"batch": func(r *Region) Request {
				b := p.Batch()
				b.Put(k.At(0), r.Slice(0, 100))
				b.Get(r.Slice(100, 100), k.At(0))
				b.AddBuffer(1, r.Slice(200, 100))
				return b.Send()
			},
			"batch of messages": func(r *Region) Request {
				b := p.Batch()
				b.AddBuffer(1, r.Slice(0, 100))
				b.AddBuffer(1, mem[0].Slice(0, 100))
				return b.Send()
			},
		} {
			t.Run(name, func(t *testing.T) {
				r, err := e.Alloc(1 << 19)
				require.NoError(t, err)
				begun := make(chan Request)
				var req Request
				e.prog.Do(func() { // as between the look for operations and the end of Close
					go func() { begun <- begin(r) }()
					req, err = <-begun, r.reg.Close()
				})
				require.NoError(t, err)
				require.ErrorIs(t, req.Wait(ctx), ErrForeign)
				require.NoError(t, p.Put(k.At(0), mem[0].Slice(0, 8)).Wait(ctx), "the connection is not lost")
				require.NoError(t, r.Close())
			})
		}
	})
}

// A receive is posted at once when the channel is open.
func TestClosedBeforeTheReceive(t *testing.T) {
	onNetworks(t, 2, []string{"sim"}, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		p, back := es[0].Peer(1), es[1].Peer(0)
		sent := back.Send(nil)
		_, err := p.Recv(nil).Wait(ctx)
		require.NoError(t, errors.Join(err, sent.Wait(ctx)))
		r, err := es[0].Alloc(64)
		require.NoError(t, err)
		o := p.msg.New(hub.Recv)
		o.In.Buf = r.Bytes()
		o.Needs(r.reg)
		require.NoError(t, r.Close())
		require.ErrorIs(t, p.message(o).Wait(ctx), ErrForeign)
	})
}

// A goroutine uses a region until another one has closed it.
func TestCloseBesideUses(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		_, keys := share(t, es, 1<<20)
		p, k := es[0].Peer(1), keys[1]
		for round := range 60 {
			r, err := es[0].Alloc(256 << 10)
			require.NoError(t, err)
			b := r.Slice(0, []int{8, 1024, 256 << 10}[round%3])
			ended := make(chan error)
			go func() {
				for {
					req := p.Put(k.At(0), b)
					if round%2 == 0 {
						req = p.Get(b, k.At(0))
					}
					if err := req.Wait(ctx); err != nil {
						ended <- err
						return
					}
				}
			}()
			testutil.Eventually(t, testutil.Limit, func() bool {
				err := r.Close()
				require.True(t, err == nil || errors.Is(err, ErrInUse), "%v", err)
				return err == nil
			}, "the region is in use")
			require.ErrorIs(t, <-ended, ErrForeign)
		}
	})
}

// Messages and puts leave memory pinned. Closing its region drops the pins, so that memory
// allocated later at the same address is not sent by the old registration.
func TestClosedRegionIsUnpinned(t *testing.T) {
	try := func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		const size = 1 << 18
		far, err := es[1].Alloc(size)
		require.NoError(t, err)
		key := far.Key()
		buf := make([]byte, size)
		for i := range uint64(6) {
			r, err := es[0].Alloc(size)
			require.NoError(t, err)
			testutil.Fill(r.Bytes(), i, 0)
			send := es[0].Peer(1).SendTag(7, r.Bytes())
			if i == 5 { // the last one
				require.Eventually(t, func() bool { return es[0].Stats().Pinned > 0 }, testutil.Limit, 100*time.Microsecond)
				require.ErrorIs(t, r.Close(), ErrInUse)
			}
			n, err := es[1].Peer(0).RecvTag(7, buf).Wait(ctx)
			require.NoError(t, err)
			require.NoError(t, send.Wait(ctx))
			require.NoError(t, testutil.Verify(buf[:n], i, 0), "message %d", i)
			require.NoError(t, es[0].Peer(1).PutBytes(key.At(0), r.Bytes()).Wait(ctx))
			require.NoError(t, testutil.Verify(far.Bytes(), i, 0), "put %d", i)
			require.Positive(t, es[0].Stats().Pinned)
			require.NoError(t, r.Close())
		}
		require.Zero(t, es[0].Stats().Pinned)
	}
	scatter := func(c *Config) { c.Mode = ModeScatter }
	t.Run("sim", func(t *testing.T) { t.Parallel(); try(t, simulateWith(t, 2, "sim", scatter)) })
	onEach(t, func(t *testing.T, fabric string) { try(t, openWith(t, 2, fabric, scatter)) })
}

// A region of Alloc cannot be closed while a part of it is registered separately: peers that
// have the part's key use it as before. Close of the engine closes both.
func TestPartOfARegion(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := open(t, 2, fabric)
		whole, err := es[1].Alloc(1 << 20)
		require.NoError(t, err)
		part, err := es[1].Register(whole.Bytes()[4096:8192])
		require.NoError(t, err)
		at, b := part.Key().At(0), []byte("in part")
		require.ErrorIs(t, whole.Close(), ErrInUse)
		require.True(t, whole.Belongs(es[1]))
		require.NoError(t, es[0].Peer(1).PutBytes(at, b).Wait(ctx))
		require.Equal(t, b, whole.Bytes()[4096:][:len(b)])
		got := make([]byte, len(b))
		require.NoError(t, es[0].Peer(1).GetBytes(got, at).Wait(ctx))
		require.Equal(t, b, got)
		require.NoError(t, part.Close())
		require.NoError(t, whole.Close())

		whole, err = es[1].Alloc(1 << 20)
		require.NoError(t, err)
		_, err = es[1].Register(whole.Bytes()[4096:8192])
		require.NoError(t, err)
		require.NoError(t, es[1].Close())
		require.NoError(t, whole.Close())
	})
}

// Memory of messages to send, and of receives, that have not ended is in use, with or without a connection; memory beside
// it is not.
func TestMemoryOfMessagesIsInUse(t *testing.T) {
	const size, tag = 1 << 18, 7
	try := func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		to, from, own := es[0].Peer(1), es[1].Peer(0), es[0].Peer(0)
		received := func(p *Peer, r Request) func() error {
			return func() error {
				_, err := p.RecvTag(tag, make([]byte, size)).Wait(ctx)
				return errors.Join(err, r.Wait(ctx))
			}
		}
		canceled := func(r RecvRequest) func() error {
			return func() error {
				r.Cancel()
				if _, err := r.Wait(ctx); !errors.Is(err, ErrCanceled) {
					return fmt.Errorf("canceled: %w", err)
				}
				return nil
			}
		}
		one := func(mem []byte) *RecvBatch { b := &RecvBatch{}; b.Add(tag, mem); return b }
		for name, begin := range map[string]func(mem []byte) (end func() error){
			"send":                   func(mem []byte) func() error { return received(from, SendSync(to, tag, mem)) },
			"send to this rank":      func(mem []byte) func() error { return received(own, SendSync(own, tag, mem)) },
			"batch":                  func(mem []byte) func() error { b := to.Batch(); b.Add(tag, mem); return received(from, b.Send()) },
			"receive":                func(mem []byte) func() error { return canceled(to.RecvTag(tag, mem)) },
			"receive from this rank": func(mem []byte) func() error { return canceled(own.RecvTag(tag, mem)) },
			"receive from any rank":  func(mem []byte) func() error { return canceled(es[0].RecvTag(tag, mem)) },
			"receives":               func(mem []byte) func() error { return canceled(RecvRequest{one(mem).Recv(to)}) },
			"receives from any rank": func(mem []byte) func() error { return canceled(RecvRequest{one(mem).RecvAny(es[0])}) },
		} {
			r, err := es[0].Alloc(3 * size)
			require.NoError(t, err)
			beside, err := es[0].Alloc(size)
			require.NoError(t, err)
			end := begin(r.Bytes()[size : 2*size])
			closed := r.Close()
			require.True(t, closed != nil || name == "batch", name) // its message may be copied to the ring
			require.NoError(t, beside.Close(), name)
			require.NoError(t, end(), name)
			if closed != nil {
				require.ErrorIs(t, closed, ErrInUse, name)
				require.NoError(t, r.Close(), name)
			}
		}
	}
	t.Run("sim", func(t *testing.T) { t.Parallel(); try(t, simulate(t, 2, "sim")) })
	onEach(t, func(t *testing.T, fabric string) { try(t, open(t, 2, fabric)) })
}
