package rma

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

// Every pair of ranks, including a rank with itself, sends both ways at once, sizes from
// nothing to many blocks, far more than a ring holds.
func TestMessages(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 90*time.Second)
		es := open(t, 3, fabric)
		sizes := []int{0, 1, 8, 100, 4000, 4096, 20_000, 100_000, 1 << 20}
		rounds := testutil.Times(60)
		var g errgroup.Group
		for from, e := range es {
			for to := range es {
				g.Go(func() error { // sender
					for i := range rounds {
						n := sizes[i%len(sizes)]
						msg := testutil.Payload(n, uint64(from*100+to), uint64(i))
						if err := e.Peer(to).Send(msg).Wait(ctx); err != nil {
							return fmt.Errorf("%d to %d, message %d: %w", from, to, i, err)
						}
						clear(msg) // it may be reused
					}
					return nil
				})
				g.Go(func() error { // receiver of the other direction
					buf := make([]byte, 1<<20)
					for i := range rounds {
						n, err := e.Peer(to).Recv(buf).Wait(ctx)
						if err == nil && n != sizes[i%len(sizes)] {
							err = fmt.Errorf("%d bytes", n)
						}
						if err == nil {
							err = testutil.Verify(buf[:n], uint64(to*100+from), uint64(i))
						}
						if err != nil {
							return fmt.Errorf("%d from %d, message %d: %w", from, to, i, err)
						}
					}
					return nil
				})
			}
		}
		require.NoError(t, g.Wait())
		s := es[1].Stats()
		require.EqualValues(t, 3*rounds, s.Sends)
		require.EqualValues(t, 3*rounds, s.Receives)
		require.Equal(t, s.SentBytes, s.RecvBytes)
		require.Zero(t, s.Failed+uint64(s.Queued))
	})
}

// Requests may be posted ahead; they match in order. One-sided operations on the same
// connection do not interfere.
func TestMessagesAhead(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 2, fabric)
		mems, keys := share(t, es, 4096)
		const n = 300
		var recvs []RecvRequest
		bufs := make([][8]byte, n)
		for i := range bufs {
			recvs = append(recvs, es[1].Peer(0).Recv(bufs[i][:]))
		}
		var sends []Request
		msgs := make([][8]byte, n)
		for i := range msgs {
			binary.NativeEndian.PutUint64(msgs[i][:], uint64(i))
			sends = append(sends, es[0].Peer(1).Send(msgs[i][:]))
			sends = append(sends, es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 64)))
		}
		for i, r := range recvs {
			got, err := r.Wait(ctx)
			require.NoError(t, err)
			require.Equal(t, 8, got)
			require.EqualValues(t, i, binary.NativeEndian.Uint64(bufs[i][:]))
		}
		for _, s := range sends {
			require.NoError(t, s.Wait(ctx))
		}
	})
}

func TestMessageErrors(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 2, fabric)
		for _, to := range []int{0, 1} {
			var g errgroup.Group
			g.Go(func() error { return es[0].Peer(to).Send([]byte("twelve bytes")).Wait(ctx) })
			_, err := es[to].Peer(0).Recv(make([]byte, 5)).Wait(ctx)
			require.ErrorIs(t, err, ErrShortBuffer)
			buf := make([]byte, 12)
			n, err := es[to].Peer(0).Recv(buf).Wait(ctx)
			require.NoError(t, err)
			require.Equal(t, "twelve bytes", string(buf[:n]))
			require.NoError(t, g.Wait())
		}
		_, err := es[0].Peer(1).RecvBuffer(0, Buffer{}).Wait(ctx)
		require.ErrorIs(t, err, ErrForeign)
		var pe *PeerError
		require.ErrorAs(t, err, &pe)
		require.Equal(t, "receive", pe.Op)
		// Without a message, a wait ends with its context.
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond) // deadline: it has to end
		defer cancel()
		r := es[0].Peer(1).Recv(make([]byte, 1))
		_, err = r.Wait(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, es[1].Close())
		_, err = r.Wait(ctx)
		require.ErrorIs(t, err, ErrPeerGone)
		require.ErrorIs(t, es[0].Peer(1).Send(nil).Wait(ctx), ErrPeerGone)
		require.NoError(t, es[0].Close())
		require.ErrorIs(t, es[0].Peer(1).Send(nil).Wait(ctx), ErrClosed)
		require.ErrorIs(t, es[0].FlushAll(ctx), ErrClosed)
	})
}

// A peer that never calls Send or Recv for this rank keeps a sender waiting, but only until
// it ends; the engine's Close ends the wait, too.
func TestNobodyListens(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 3, fabric)
		left := es[0].Peer(1).Send([]byte("x"))
		mine := es[0].Peer(2).Send([]byte("x"))
		require.NoError(t, es[1].Close())
		require.ErrorIs(t, left.Wait(ctx), ErrPeerGone)
		require.NoError(t, es[0].Close())
		require.ErrorIs(t, mine.Wait(ctx), ErrClosed)
	})
}

func TestMessagesDoNotAllocate(t *testing.T) {
	if testutil.Race {
		t.Skip("the race detector makes sync.Pool forget")
	}
	alone(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		ctx := context.Background()
		out, in := make([]byte, 64), make([]byte, 64)
		ping := func() {
			r := es[1].Peer(0).Recv(in)
			if es[0].Peer(1).Send(out).Wait(ctx) != nil {
				panic("send failed")
			}
			if _, err := r.Wait(ctx); err != nil {
				panic(err)
			}
		}
		ping()
		runtime.GC()
		require.Zero(t, testutil.AllocsPerRun(500, ping), fabric)
	})
}
