package rma

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/testutil"
)

// A batch of all sizes, in all modes, arrives completely and in order, by tag, from memory
// of any kind into memory of any kind; also from a rank to itself.
func TestBatch(t *testing.T) {
	sizes := []int{0, 8, 64, 64, 64, 300, 5000, 1 << 20, 70_000, 70_000, 1}
	onEach(t, func(t *testing.T, fabric string) {
		for _, mode := range []string{"auto", "eager", "gather", "scatter"} {
			t.Run(mode, func(t *testing.T) {
				ctx := testutil.Context(t, 60*time.Second)
				es := openWith(t, 2, fabric, func(c *Config) { c.Mode = Mode(mode) })
				total := 0
				for _, n := range sizes {
					total += n
				}
				src, err := es[0].Alloc(total)
				require.NoError(t, err)
				for _, to := range []int{1, 0} {
					dst, err := es[to].Alloc(total)
					require.NoError(t, err)
					b := es[0].Peer(to).Batch()
					for round := range 3 {
						b.Reset()
						at := 0
						for i, n := range sizes {
							mem := src.Bytes()[at:][:n]
							testutil.Fill(mem, uint64(i), uint64(round))
							if i%2 == round%2 {
								b.AddBuffer(uint32(i), src.Slice(at, n))
							} else {
								b.Add(uint32(i), append([]byte{}, mem...))
							}
							at += n
						}
						require.Equal(t, len(sizes), b.Len())
						sent := b.Send()
						at = 0
						for i, n := range sizes {
							buf := make([]byte, n)
							var r RecvRequest
							switch i % 4 {
							case 0:
								r = es[to].Peer(0).Recv(buf)
							case 1:
								r = es[to].Peer(0).RecvTag(uint32(i), buf)
							case 2:
								r = es[to].Peer(0).RecvBuffer(uint32(i), dst.Slice(at, n))
								buf = dst.Bytes()[at:][:n]
							case 3:
								into := make([]byte, n)
								r = es[to].Peer(0).RecvFunc(uint32(i), buf, func(_ uint32, parts [][]byte) {
									at := 0
									for _, p := range parts {
										at += copy(into[at:], p)
									}
								})
								buf = into
							}
							tag, got, err := r.WaitTag(ctx)
							require.NoError(t, err)
							require.Equal(t, n, got)
							require.EqualValues(t, i, tag)
							require.NoError(t, testutil.Verify(buf, uint64(i), uint64(round)), fmt.Sprint(i))
							at += n
						}
						require.NoError(t, sent.Wait(ctx))
					}
					if to == 1 {
						why, err := b.Explain()
						require.NoError(t, err)
						require.Contains(t, why, "gather")
					}
					empty := es[0].Peer(to).Batch().Send()
					require.NoError(t, empty.Wait(ctx))
				}
				require.EqualValues(t, 8, es[0].Stats().Batches)
			})
		}
	})
}

// A message that cannot be sent fails the batch, and so does a peer that leaves.
func TestBatchErrors(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 2, fabric)
		mem, err := es[0].Alloc(100)
		require.NoError(t, err)
		b := es[0].Peer(1).Batch()
		_, err = b.Explain()
		require.ErrorIs(t, err, ErrNoMessages)
		b.AddBuffer(0, mem.Slice(50, 51))
		require.ErrorIs(t, b.Send().Wait(ctx), ErrBounds)
		b.Reset()
		for range 10 {
			b.Add(0, make([]byte, 1<<20)) // without a receive
		}
		r := b.Send()
		require.NoError(t, es[1].Close())
		require.ErrorIs(t, r.Wait(ctx), ErrPeerGone)
		_, _, _, err = (&Config{Mode: "fast"}).effective()
		require.ErrorContains(t, err, "auto, eager, gather or scatter")
	})
}

// Callbacks for the message layer are not exported to applications.
func TestEndsOfMessagesAreNotExported(t *testing.T) {
	require.NotImplements(t, (*message.Completer)(nil), new(Batch))
	require.NotImplements(t, (*message.Source)(nil), new(Receiving))
}

// Puts, gets and messages of a batch end with one request: the gets return the data of the
// puts, and a message arrives after both.
func TestBatchOfPutsAndGets(t *testing.T) {
	onNetworks(t, 2, []string{"sim"}, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 1<<16)
		p, src, dst := es[0].Peer(1), mems[0].Bytes(), mems[1].Bytes()
		b := p.Batch()
		for round := 1; round <= 30; round++ {
			puts, gets, msgs := round%3*20, round%2*20, (round+1)/2%2*3
			testutil.Fill(src[:1<<15], uint64(round), 0)
			clear(src[1<<15:])
			clear(dst)
			b.Reset()
			for i := range puts {
				b.Put(keys[1].At(i*100), mems[0].Slice((puts-i)*64, 64))
			}
			for i := range gets {
				b.Get(mems[0].Slice(1<<15+i*64, 64), keys[1].At(i*100))
			}
			var recvs []RecvRequest
			buf := make([]byte, 8)
			for range msgs {
				b.Add(7, src[:8])
				recvs = append(recvs, es[1].Peer(0).RecvTag(7, buf))
			}
			sent := b.Send()
			for _, r := range recvs {
				_, err := r.Wait(ctx)
				require.NoError(t, err)
				for i := range puts {
					require.Equal(t, src[(puts-i)*64:][:64], dst[i*100:][:64], "put %d before a message", i)
				}
			}
			require.NoError(t, sent.Wait(ctx))
			for i := range puts {
				require.Equal(t, src[(puts-i)*64:][:64], dst[i*100:][:64], "put %d", i)
			}
			for i := range gets {
				require.Equal(t, dst[i*100:][:64], src[1<<15+i*64:][:64], "get %d", i)
			}
		}
		require.Zero(t, es[0].Stats().InFlight+es[0].Stats().Queued)
	})
}

func TestBatchRefusals(t *testing.T) {
	es := simulate(t, 2, "sim")
	mems, keys := share(t, es, 4096)
	p, ctx := es[0].Peer(1), testutil.Context(t, testutil.Limit)
	m, k := mems[0], &keys[1]
	for name, c := range map[string]struct {
		add  func(b *Batch)
		want error
	}{
		"puts overlap":  {func(b *Batch) { b.Put(k.At(0), m.Slice(0, 9)); b.Put(k.At(8), m.Slice(9, 9)) }, ErrOverlap},
		"gets overlap":  {func(b *Batch) { b.Get(m.Slice(0, 9), k.At(0)); b.Get(m.Slice(8, 9), k.At(9)) }, ErrOverlap},
		"local bounds":  {func(b *Batch) { b.Put(k.At(0), m.Slice(4090, 9)) }, ErrBounds},
		"remote bounds": {func(b *Batch) { b.Get(m.Slice(0, 9), k.At(4090)) }, ErrBounds},
		"wrong rank":    {func(b *Batch) { b.Put(keys[0].At(0), m.Slice(0, 9)) }, ErrWrongPeer},
		"no key":        {func(b *Batch) { b.Get(m.Slice(0, 9), Remote{}) }, ErrBadKey},
	} {
		b := p.Batch()
		b.Add(1, []byte("never sent"))
		c.add(b)
		err := b.Send().Wait(ctx)
		require.ErrorIs(t, err, c.want, name)
		var pe *PeerError
		require.ErrorAs(t, err, &pe, name)
		b.Reset()
		b.Put(k.At(0), m.Slice(0, 8))
		require.NoError(t, b.Send().Wait(ctx), name)
	}
	go es[1].Close()
	for {
		b := p.Batch()
		b.Put(k.At(0), m.Slice(0, 8))
		b.Get(m.Slice(8, 8), k.At(64))
		b.Add(1, []byte("lost"))
		if b.Send().Wait(ctx) != nil {
			break
		}
	}
	testutil.Eventually(t, testutil.Limit, func() bool { return es[0].Stats().InFlight+es[0].Stats().Queued == 0 }, "all to end")
}

// A batch whose buffer's region has been closed since it was added, before the first Send or
// a later one, transfers nothing, and does not harm the connection.
func TestBatchOfAClosedRegion(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := open(t, 2, fabric)
		mems, keys := share(t, es, 4096)
		p, k := es[0].Peer(1), keys[1]
		for name, add := range map[string]func(b *Batch, buf Buffer){
			"message": func(b *Batch, buf Buffer) { b.AddBuffer(3, buf) },
			"put":     func(b *Batch, buf Buffer) { b.Put(k.At(0), buf) },
			"get":     func(b *Batch, buf Buffer) { b.Get(buf, k.At(0)) },
		} {
			for sends := range 2 {
				mem, err := es[0].Alloc(4096)
				require.NoError(t, err)
				b := p.Batch()
				b.Put(k.At(64), mems[0].Slice(0, 8))
				b.Add(3, []byte("first"))
				add(b, mem.Slice(0, 8))
				b.AddBuffer(3, mems[0].Slice(0, 8))
				for range sends {
					var all RecvBatch
					for range b.Len() {
						all.Add(3, make([]byte, 8))
					}
					got := all.Recv(es[1].Peer(0))
					require.NoError(t, b.Send().Wait(ctx), name)
					require.NoError(t, got.Wait(ctx), name)
				}
				require.NoError(t, mem.Close())
				mems[0].Bytes()[0]++
				was := mems[1].Bytes()[64]
				require.ErrorIs(t, b.Send().Wait(ctx), ErrForeign, name)
				b.Reset()
				b.Add(3, []byte("next"))
				got := es[1].Peer(0).RecvTag(3, make([]byte, 8))
				require.NoError(t, b.Send().Wait(ctx), name)
				n, err := got.Wait(ctx)
				require.NoError(t, err, name)
				require.Equal(t, len("next"), n, name)
				require.Equal(t, was, mems[1].Bytes()[64], name)
			}
		}
		mem, err := es[0].Alloc(8)
		require.NoError(t, err)
		b := p.Batch()
		b.AddBuffer(3, mem.Slice(0, 8))
		require.NoError(t, es[0].Close())
		require.ErrorIs(t, b.Send().Wait(ctx), ErrClosed)
	})
}

func TestExplainPutsAndGets(t *testing.T) {
	es := openWith(t, 2, "tcp", func(c *Config) { c.Pieces = PiecesGroup })
	mems, keys := share(t, es, 4096)
	b := es[0].Peer(1).Batch()
	for i := range 10 {
		b.Put(keys[1].At(64*i), mems[0].Slice(64*i, 8))
		b.Get(mems[0].Slice(2048+64*i, 16), keys[1].At(64*i))
	}
	text, err := b.Explain()
	require.NoError(t, err)
	require.Contains(t, text, "put of 10 pieces, 80 bytes: group")
	require.Contains(t, text, "get of 10 pieces, 160 bytes: group")
	for _, what := range []string{"chain", "send", "soft", "total"} {
		require.Contains(t, text, what)
	}
	b.Add(1, nil)
	_, err = b.Explain()
	require.ErrorIs(t, err, ErrNoMessages)
}

// An empty batch is complete at once, also before the first exchange with the peer; it
// makes no connection.
func TestEmptyBatchWaitsForNobody(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		ctx := testutil.Context(t, testutil.Limit)
		for _, e := range es {
			for r := range es {
				b := e.Peer(r).Batch()
				for range 2 {
					require.NoError(t, b.Send().Wait(ctx))
					b.Add(0, nil)
					b.Reset()
				}
			}
		}
		require.False(t, es[0].Peer(1).conn.Called())
		b := es[0].Peer(1).Batch()
		b.Add(0, nil) // a message of no bytes is one
		sent := b.Send()
		n, err := es[1].Peer(0).Recv(nil).Wait(ctx)
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, sent.Wait(ctx))
		b.Reset()
		require.NoError(t, b.Send().Wait(ctx))
	})
}

// A list that is in flight cannot be posted again: its operations are in lists of the engine.
func TestListsInFlightAreRefused(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := open(t, 2, fabric)
		mem, keys := share(t, es, 4096)
		for name, post := range map[string]func(b *RecvBatch) Request{
			"one": func(b *RecvBatch) Request { return b.Recv(es[0].Peer(1)) },
			"any": func(b *RecvBatch) Request { return b.RecvAny(es[0]) },
		} {
			var in RecvBatch
			in.Add(1, make([]byte, 8))
			first := post(&in)
			require.ErrorIs(t, post(&in).Wait(ctx), ErrInUse, name)
			in.Cancel()
			require.ErrorIs(t, first.Wait(ctx), ErrCanceled, name)
			again := post(&in)
			require.NoError(t, es[1].Peer(0).SendTag(1, []byte("x")).Wait(ctx))
			require.NoError(t, again.Wait(ctx), name)
		}
		for name, with := range map[string]func(b *Batch){
			"messages": func(*Batch) {},
			"and puts": func(b *Batch) { b.Put(keys[1].At(0), mem[0].Slice(0, 8)) },
		} {
			b := es[0].Peer(1).Batch()
			with(b)
			b.Add(2, make([]byte, 8<<20)) // waits for its receive
			first := b.Send()
			require.ErrorIs(t, b.Send().Wait(ctx), ErrInUse, name)
			for range 2 {
				r := es[1].Peer(0).RecvTag(2, make([]byte, 8<<20))
				require.NoError(t, first.Wait(ctx), name)
				_, err := r.Wait(ctx)
				require.NoError(t, err, name)
				first = b.Send()
			}
			_, err := es[1].Peer(0).RecvTag(2, make([]byte, 8<<20)).Wait(ctx)
			require.NoError(t, err)
			require.NoError(t, first.Wait(ctx))
		}
	})
}

// What is added to a list in flight is not part of it, and the list cannot be posted until
// it is reset: its operations in flight are what was posted.
func TestNothingIsAddedInFlight(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := open(t, 2, fabric)
		mem, keys := share(t, es, 4096)
		p, back := es[0].Peer(1), es[1].Peer(0)
		for name, post := range map[string]func(b *RecvBatch) Request{
			"one": func(b *RecvBatch) Request { return b.Recv(p) },
			"any": func(b *RecvBatch) Request { return b.RecvAny(es[0]) },
		} {
			var in RecvBatch
			in.Add(1, make([]byte, 8))
			first := post(&in)
			in.Add(1, make([]byte, 8))
			require.Equal(t, 1, in.Len(), name)
			require.NoError(t, back.SendTag(1, []byte("x")).Wait(ctx))
			require.NoError(t, first.Wait(ctx), name)
			require.ErrorIs(t, post(&in).Wait(ctx), ErrInUse, name)
			in.Reset()
			require.NoError(t, post(&in).Wait(ctx), name)
		}
		for name, add := range map[string]func(b *Batch){
			"message":        func(b *Batch) { b.Add(2, []byte("x")) },
			"urgent message": func(b *Batch) { b.AddUrgent(2, []byte("x")) },
			"buffer":         func(b *Batch) { b.AddBuffer(2, mem[0].Slice(0, 8)) },
			"put":            func(b *Batch) { b.Put(keys[1].At(0), mem[0].Slice(0, 8)) },
			"get":            func(b *Batch) { b.Get(mem[0].Slice(0, 8), keys[1].At(0)) },
		} {
			b := p.Batch()
			b.Add(2, make([]byte, 8<<20)) // waits for its receive
			first := b.Send()
			add(b)
			require.Equal(t, 1, b.Len(), name)
			_, err := back.RecvTag(2, make([]byte, 8<<20)).Wait(ctx)
			require.NoError(t, err)
			require.NoError(t, first.Wait(ctx), name)
			require.ErrorIs(t, b.Send().Wait(ctx), ErrInUse, name)
			b.Reset()
			require.NoError(t, b.Send().Wait(ctx), name)
		}
	})
}

// A list whose request has been given up cannot be posted again, until its callback is called.
func TestListsGivenUpInFlightAreRefused(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := open(t, 2, fabric)
		mem, keys := share(t, es, 4096)
		p, back := es[0].Peer(1), es[1].Peer(0)
		messages, puts := p.Batch(), p.Batch()
		puts.Put(keys[1].At(0), mem[0].Slice(0, 8))
		for _, b := range []*Batch{messages, puts} {
			b.Add(2, make([]byte, 8<<20)) // waits for its receive
		}
		var one, all RecvBatch
		one.Add(1, make([]byte, 8))
		all.Add(1, make([]byte, 8))
		take := func() Request { return back.RecvTag(2, make([]byte, 8<<20)).Request }
		give := func() Request { return back.SendTag(1, []byte("x")) }
		for name, c := range map[string]struct{ post, end func() Request }{
			"messages":          {messages.Send, take},
			"messages and puts": {puts.Send, take},
			"receives":          {func() Request { return one.Recv(p) }, give},
			"receives from any": {func() Request { return all.RecvAny(es[0]) }, give},
		} {
			ended := make(chan error, 1)
			for range 2 {
				c.post().Then(func(err error) { ended <- err })
				refused := c.post()
				require.True(t, refused.Done(), name)
				require.ErrorIs(t, refused.Wait(ctx), ErrInUse, name)
				require.NoError(t, c.end().Wait(ctx), name)
				select {
				case err := <-ended:
					require.NoError(t, err, name)
				case <-ctx.Done():
					t.Fatal(name)
				}
			}
		}
	})
}

// A flush waits for the puts and gets of a batch, but not for its messages.
func TestFlushAndABatch(t *testing.T) {
	onNetworks(t, 2, []string{"sim"}, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 4096)
		p := es[0].Peer(1)
		b := p.Batch()
		for range 3 {
			b.Put(keys[1].At(b.Len()*64), mems[0].Slice(b.Len()*64, 64))
			b.Get(mems[0].Slice(2048+b.Len()*64, 64), keys[1].At(b.Len()*64))
			b.Add(2, make([]byte, 8<<20)) // waits for its receive
		}
		testutil.Fill(mems[0].Bytes()[:192], 1, 0)
		sent := b.Send()
		require.NoError(t, p.Flush().Wait(ctx))
		require.NoError(t, testutil.Verify(mems[1].Bytes()[:192], 1, 0))
		require.NoError(t, testutil.Verify(mems[0].Bytes()[2048:][:192], 1, 0))
		require.False(t, sent.Done())
		for range 3 {
			_, err := es[1].Peer(0).RecvTag(2, make([]byte, 8<<20)).Wait(ctx)
			require.NoError(t, err)
		}
		require.NoError(t, sent.Wait(ctx))
	})
}

// A batch that is sent again repeats its messages, as its puts and gets, with what their
// memory then holds, in every mode; also from a rank to itself.
func TestBatchIsSentAgain(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		for _, mode := range []string{"auto", "eager", "gather", "scatter"} {
			ctx := testutil.Context(t, testutil.Limit)
			es := openWith(t, 2, fabric, func(c *Config) { c.Mode = Mode(mode) })
			mem, keys := share(t, es, 1<<17)
			src := mem[0].Bytes()
			for name, sizes := range map[string][]int{
				"one":   {8},
				"small": {1, 2, 3, 4, 8, 8, 8},
				"mixed": {3, 300, 0, 70_000, 5000},
			} {
				for to := range es {
					b := es[0].Peer(to).Batch()
					var recvs RecvBatch
					var bufs [][]byte
					at := 0
					for i, n := range sizes {
						bufs = append(bufs, make([]byte, n))
						if recvs.Add(uint32(i), bufs[i]); i%2 == 0 {
							b.Add(uint32(i), src[at:][:n])
						} else {
							b.AddBuffer(uint32(i), mem[0].Slice(at, n))
						}
						at += n
					}
					for round := range 4 {
						if round == 2 { // the second half with a put
							b.Put(keys[to].At(at+8), mem[0].Slice(at, 8))
						}
						testutil.Fill(src[:at+8], uint64(round), 0)
						got := recvs.Recv(es[to].Peer(0))
						require.NoError(t, b.Send().Wait(ctx))
						require.NoError(t, got.Wait(ctx))
						require.Equal(t, len(sizes), b.Len())
						at := 0
						for i, n := range sizes {
							m, err := recvs.Got(i)
							require.NoError(t, err)
							require.Equal(t, n, m.Len, "%s, %s to %d: round %d, message %d", mode, name, to, round, i)
							require.Equal(t, src[at:][:n], bufs[i], "%s, %s to %d: round %d, message %d", mode, name, to, round, i)
							at += n
						}
						if round >= 2 {
							require.Equal(t, src[at:][:8], mem[to].Bytes()[at+8:][:8])
						}
					}
				}
			}
		}
	})
}

// An urgent message among many small ones goes alone through the ring, in its turn.
func TestUrgentMessagesGoAlone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := open(t, 2, fabric)
		const n, urgent = 32, 9
		to, from := es[0].Peer(1), es[1].Peer(0)
		var all RecvBatch
		exchange := func(b *Batch) (alone uint64) {
			all.Reset()
			bufs := make([][]byte, b.Len())
			for i := range bufs {
				bufs[i] = make([]byte, 8)
				all.Add(5, bufs[i])
			}
			got := all.Recv(from)
			was := to.Stats().Messages
			require.NoError(t, b.Send().Wait(ctx))
			require.NoError(t, got.Wait(ctx))
			for i := range b.Len() {
				require.EqualValues(t, i, bufs[i][0])
			}
			return to.Stats().Messages.Eager - was.Eager
		}
		b := to.Batch()
		b.Add(5, []byte{0})
		exchange(b)
		for range 3 {
			b.Reset()
			for i := range n {
				if msg := []byte{byte(i), 1, 2, 3, 4, 5, 6, 7}; i == urgent {
					b.AddUrgent(5, msg)
				} else {
					b.Add(5, msg)
				}
			}
			text, err := b.Explain()
			require.NoError(t, err)
			require.Contains(t, text, "1 of them eager because urgent")
			require.Positive(t, exchange(b))
		}
		b.Reset()
		for i := range n {
			b.Add(5, []byte{byte(i), 1, 2, 3, 4, 5, 6, 7})
		}
		text, err := b.Explain()
		require.NoError(t, err)
		require.NotContains(t, text, "urgent", "the batch was reused")
		exchange(b)
	})
}
