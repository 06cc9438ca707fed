package rma

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// A message of a peer goes to the first receive that matches its tag, whether that names
// the tag, some of its bits, or takes any, and is for the peer or for all.
func TestMaskedTags(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		ctx := testutil.Context(t, testutil.Limit)
		rng := rand.New(rand.NewPCG(7, 8))
		for round := range 12 {
			type posted struct {
				tags Tags
				r    RecvRequest
				buf  []byte
			}
			var recvs []posted
			var tags []uint32
			to, from := es[0], es[0].Peer(1)
			for range 30 {
				x := posted{Tags{rng.Uint32N(16), []uint32{0, 0, 1, 6, 15, ^uint32(0) >> 1}[rng.IntN(6)]}, RecvRequest{}, make([]byte, 100_000)}
				switch rng.IntN(3) {
				case 0:
					x.r = x.tags.RecvAny(to, x.buf)
				case 1:
					if x.tags.Ignore == 0 {
						x.r = from.RecvTag(x.tags.Tag, x.buf)
						break
					}
					fallthrough
				default:
					x.r = x.tags.Recv(from, x.buf)
				}
				recvs = append(recvs, x)
				tags = append(tags, x.tags.Tag^x.tags.Ignore&rng.Uint32N(16)) // at least this one may take it
			}
			want := make([]int, len(recvs)) // the message that each gets, from 1 on
			var sends []Request
			for i, tag := range tags {
				for j := range recvs {
					if x := &recvs[j]; want[j] == 0 && (tag^x.tags.Tag)&^x.tags.Ignore == 0 {
						want[j] = i + 1
						break
					}
				}
				msg := testutil.Payload([]int{8, 600, 9000, 70_000}[rng.IntN(4)], uint64(1000*round+i), 0)
				sends = append(sends, es[1].Peer(0).SendTag(tag, msg))
			}
			for j, x := range recvs {
				if want[j] == 0 {
					x.r.Cancel()
					_, err := x.r.Wait(ctx)
					require.ErrorIs(t, err, ErrCanceled)
					continue
				}
				m, err := x.r.WaitFrom(ctx)
				require.NoError(t, err)
				require.Equal(t, Envelope{From: 1, Tag: tags[want[j]-1], Len: m.Len}, m)
				require.NoError(t, testutil.Verify(x.buf[:m.Len], uint64(1000*round+want[j]-1), 0))
			}
			// Messages that none of them took are found by a probe, and by a receive of any
			// tag.
			for range drainable(tags, want) {
				m, err := Tags{Ignore: ^uint32(0) >> 1}.Probe(from).WaitFrom(ctx)
				require.NoError(t, err)
				again, err := Tags{Tag: m.Tag ^ 5, Ignore: 5}.ProbeAny(to).WaitFrom(ctx)
				require.NoError(t, err)
				require.Equal(t, m, again)
				got, err := to.Recv(make([]byte, m.Len)).WaitFrom(ctx)
				require.NoError(t, err)
				require.Equal(t, m, got)
			}
			require.NoError(t, WaitAll(ctx, sends...))
		}
	})
}

// drainable returns how many of the messages with these tags no receive got.
func drainable(tags []uint32, want []int) int {
	n := len(tags)
	for _, w := range want {
		if w > 0 {
			n--
		}
	}
	return n
}

// Receives can be waited for together with all other requests, by every function.
func TestReceivesAreRequests(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		mems, keys := share(t, es, 4096)
		together(t, es, func(ctx context.Context, e *Engine) error {
			p, me := e.Peer(1-e.Rank()), mems[e.Rank()]
			for _, n := range []int{8, 600, 50_000} {
				var bufs [3][]byte
				for i := range bufs {
					bufs[i] = make([]byte, n)
				}
				one, two, three := p.RecvTag(1, bufs[0]), e.RecvTag(2, bufs[1]), p.RecvTag(3, bufs[2])
				told := make(chan error, 1)
				three.Then(func(err error) { told <- err })
				reqs := []Request{
					p.Put(keys[p.Rank()].At(0), me.Slice(0, 8)), p.FetchAdd(keys[p.Rank()].At(8), 1).Request, one.Request, two.Request,
					p.SendTag(1, testutil.Payload(n, 1, 0)), p.SendTag(2, testutil.Payload(n, 2, 0)), p.SendTag(3, testutil.Payload(n, 3, 0)),
				}
				for range 3 { // some of them one by one
					i, err := WaitAny(ctx, reqs...)
					if err != nil {
						return err
					}
					if reqs[i] == one.Request {
						m, err := one.WaitFrom(ctx)
						if err != nil || m != (Envelope{From: p.Rank(), Tag: 1, Len: n}) {
							return err
						}
					} else if err := reqs[i].Wait(ctx); err != nil {
						return err
					}
					reqs[i] = Request{}
				}
				if err := WaitAll(ctx, reqs...); err != nil {
					return err
				}
				select {
				case err := <-told:
					if err != nil {
						return err
					}
				case <-ctx.Done():
					return ctx.Err()
				}
				for i, b := range bufs {
					if err := testutil.Verify(b, uint64(i+1), 0); err != nil {
						return err
					}
				}
				if _, err := two.Wait(ctx); err == nil {
					return ErrRequestUsed
				}
			}
			return nil
		})
	})
}
