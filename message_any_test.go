package rma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

// Every rank, the receiver included, sends numbered messages of all sizes to rank
// 0, where several goroutines take them from any source: each comes exactly once,
// those of one sender in their order.
func TestAnySource(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 90*time.Second)
		es := open(t, 4, fabric)
		sizes := []int{8, 100, 5000, 70_000, 300_000}
		each := testutil.Times(80)
		var g errgroup.Group
		for r, e := range es {
			g.Go(func() error {
				for i := range each {
					msg := testutil.Payload(sizes[i%len(sizes)], uint64(r), uint64(i))
					binary.LittleEndian.PutUint64(msg, uint64(i))
					if err := e.Peer(0).SendTag(uint32(r), msg).Wait(ctx); err != nil {
						return fmt.Errorf("rank %d message %d: %w", r, i, err)
					}
				}
				return nil
			})
		}
		next := make([]uint64, len(es))
		buf := make([]byte, 300_000)
		for range each * len(es) {
			m, err := es[0].Recv(buf).WaitFrom(ctx)
			require.NoError(t, err)
			require.EqualValues(t, m.From, m.Tag)
			i := next[m.From]
			require.Equal(t, i, binary.LittleEndian.Uint64(buf))
			require.Equal(t, sizes[i%uint64(len(sizes))], m.Len)
			require.NoError(t, testutil.Verify(buf[8:m.Len], uint64(m.From), i+8))
			next[m.From]++
		}
		require.NoError(t, g.Wait())
		require.Equal(t, slices.Repeat([]uint64{uint64(each)}, len(es)), next)
	})
}

// Receives match in the order of the calls, whether for one peer or for any.
func TestAnySourceAndOneSource(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 3, fabric)
		for _, from := range []int{0, 1} { // oneself, another
			var bufs [6][1]byte
			r := []RecvRequest{
				es[0].RecvTag(7, bufs[0][:]),            // takes the first with tag 7
				es[0].Peer(from).RecvTag(7, bufs[1][:]), // the second
				es[0].Peer(2).RecvTag(7, bufs[2][:]),    // none of from's
				es[0].Recv(bufs[3][:]),                  // the one of another tag
				es[0].Peer(from).Recv(bufs[4][:]),       // the third with tag 7
				es[0].RecvTag(LibraryTags, bufs[5][:]),  // only a receive that names the tag
			}
			for i, tag := range []uint32{7, 7, LibraryTags, 1, 7} {
				require.NoError(t, es[from].Peer(0).SendTag(tag, []byte{byte(i)}).Wait(ctx))
			}
			for k, want := range map[int]byte{0: 0, 1: 1, 3: 3, 4: 4, 5: 2} {
				m, err := r[k].WaitFrom(ctx)
				require.NoError(t, err)
				require.Equal(t, want, bufs[k][0], "receive %d", k)
				require.Equal(t, from, m.From)
			}
			require.False(t, r[2].Done())
			require.NoError(t, es[2].Peer(0).SendTag(7, []byte{9}).Wait(ctx))
			m, err := r[2].WaitFrom(ctx)
			require.NoError(t, err)
			require.Equal(t, Envelope{From: 2, Tag: 7, Len: 1}, m)
		}
	})
}

// The message of a peer waits for at most one message of each other peer, however many
// these have sent.
func TestAnySourceIsFair(t *testing.T) {
	es := open(t, 4, "shm")
	ctx := testutil.Context(t, 60*time.Second)
	never := es[0].Probe(99)
	for from := 1; from < 4; from++ {
		for range 20 {
			require.NoError(t, es[from].Peer(0).Send([]byte{byte(from)}).Wait(ctx))
		}
	}
	testutil.Eventually(t, 20*time.Second, func() (all bool) {
		es[0].prog.Do(func() {
			all = true
			for _, p := range es[0].peers[1:] {
				all = all && p.msg.Channel() != nil && p.msg.Channel().Stats().Unexpected == 20
			}
		})
		return all
	}, "all are there")
	never.Cancel()
	last := 0
	for range 60 {
		m, err := es[0].Recv(make([]byte, 1)).WaitFrom(ctx)
		require.NoError(t, err)
		require.Equal(t, last%3+1, m.From)
		last = m.From
	}
}

// A receive from any peer ends when the last connection is lost, and works again after Reset.
func TestAnySourceAndLoss(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		if es[0].peers[1].one.Max() <= 1<<20 {
			return // it moves too little for a ring
		}
		ctx := testutil.Context(t, testutil.Limit)
		p, buf := es[1].Peer(0), make([]byte, 8)
		hello := func() {
			r := es[0].Recv(buf)
			require.NoError(t, p.Send([]byte("x")).Wait(ctx))
			_, err := r.Wait(ctx)
			require.NoError(t, err)
		}
		hello()
		mem, err := es[0].Alloc(64)
		require.NoError(t, err)
		key, r := mem.Key(), es[0].Recv(buf)
		require.NoError(t, mem.Close())
		require.ErrorIs(t, p.PutBytes(key.At(0), buf).Wait(ctx), ErrRemoteAccess)
		_, err = r.Wait(ctx)
		require.ErrorIs(t, err, ErrNoSender)
		want := "access+flushed"
		if es[0].links[es[0].peers[1].link].Name() == "ibv" { // rdma_rxe does not tell the target why
			want = "flushed"
		}
		require.Equal(t, want, sentinels(err))
		require.NoError(t, p.Reset(ctx))
		hello()
	})
}

// A receive from any peer waits as long as one other rank is alive.
func TestAnySourceAndDeath(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 3, fabric)
		buf := make([]byte, 8)
		first, second, third := es[0].Recv(buf), es[0].Recv(buf[1:]), es[0].Probe(3)
		require.NoError(t, es[1].Close())
		require.NoError(t, es[2].Peer(0).Send([]byte("x")).Wait(ctx))
		m, err := first.WaitFrom(ctx)
		require.NoError(t, err)
		require.Equal(t, 2, m.From)
		require.False(t, second.Done())
		require.NoError(t, es[2].Close())
		for _, r := range []RecvRequest{second, third, es[0].Recv(buf)} {
			_, err = r.WaitFrom(ctx)
			require.ErrorIs(t, err, ErrNoSender)
			require.ErrorIs(t, err, ErrPeerGone)
			var pe *PeerError
			require.ErrorAs(t, err, &pe)
			require.Equal(t, AnyRank, pe.Rank)
		}
		require.NoError(t, es[0].Close())
		_, err = es[0].Recv(buf).WaitFrom(ctx)
		require.ErrorIs(t, err, ErrClosed)
	})
}

// In a job of one rank, a receive from any peer waits for that rank's own messages, and
// ends with the engine.
func TestAnySourceAlone(t *testing.T) {
	ctx := testutil.Context(t, 60*time.Second)
	e := open(t, 1, "shm")[0]
	r := e.Recv(make([]byte, 3))
	require.NoError(t, e.Peer(0).Send([]byte("abc")).Wait(ctx))
	m, err := r.WaitFrom(ctx)
	require.NoError(t, err)
	require.Equal(t, Envelope{Len: 3}, m)
	r = e.Recv(nil)
	require.NoError(t, e.Close())
	_, err = r.WaitFrom(ctx)
	require.ErrorIs(t, err, ErrClosed)
}

// Messages that a peer had written to this side's ring before it ended reach waiting
// receives.
func TestLastWords(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			t.Parallel()
			ctx := testutil.Context(t, 60*time.Second)
			for range 10 {
				es := open(t, 2, fabric)
				hello := es[0].Recv(make([]byte, 1))
				require.NoError(t, es[1].Peer(0).Send([]byte("x")).Wait(ctx))
				_, err := hello.WaitFrom(ctx)
				require.NoError(t, err)
				buf := make([]byte, 5)
				r := es[0].Recv(buf)
				require.NoError(t, es[1].Peer(0).Send([]byte("adieu")).Wait(ctx))
				require.NoError(t, es[1].Close())
				_, err = r.WaitFrom(ctx)
				require.NoError(t, err)
				require.Equal(t, "adieu", string(buf))
				require.NoError(t, es[0].Close())
			}
		})
	}
}

// Messages without a receive stop their senders for lack of credit; when receives are
// posted, the messages arrive nevertheless, completely and in order.
func TestUnexpectedIsBounded(t *testing.T) {
	es := open(t, 6, "shm")
	ctx := testutil.Context(t, 90*time.Second)
	const n, size = 4000, 1000 // of each peer more than ring and copies hold
	var g errgroup.Group
	for from := 1; from < len(es); from++ {
		g.Go(func() error {
			msg := make([]byte, size)
			for i := range n {
				binary.LittleEndian.PutUint32(msg, uint32(i))
				if err := es[from].Peer(0).Send(msg).Wait(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for from := 1; from < len(es); from++ {
		_, err := es[0].Peer(from).Probe(0).WaitFrom(ctx)
		require.NoError(t, err)
	}
	held := func() (n int) {
		es[0].prog.Do(func() {
			for _, p := range es[0].peers {
				if p.msg.Channel() != nil {
					n = max(n, p.msg.Channel().Memory())
				}
			}
		})
		return n
	}
	limit := held() + 2<<20
	next := make([]uint32, len(es))
	buf := make([]byte, size)
	for range n * (len(es) - 1) {
		m, err := es[0].Recv(buf).WaitFrom(ctx)
		require.NoError(t, err)
		require.Equal(t, next[m.From], binary.LittleEndian.Uint32(buf))
		if next[m.From]++; next[m.From]%500 == 0 {
			require.Less(t, held(), limit)
		}
	}
	require.NoError(t, g.Wait())
}

func TestAnySourceDoesNotAllocate(t *testing.T) {
	if testutil.Race {
		t.Skip("the race detector makes sync.Pool forget")
	}
	es := open(t, 2, "shm")
	ctx := context.Background()
	out, in := make([]byte, 64), make([]byte, 64)
	sent := es[0].NewEvent()
	done := func(error) { sent.Set() }
	ping := func() {
		r := es[1].Recv(in)
		sent.Reset()
		es[0].Peer(1).SendFunc(1, out, done)
		if m, err := r.WaitFrom(ctx); err != nil || m.From != 0 {
			panic(err)
		}
		if err := sent.Wait(ctx); err != nil {
			panic(err)
		}
	}
	ping()
	runtime.GC()
	require.Zero(t, testutil.AllocsPerRun(500, ping))
}

func TestProbe(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 2, fabric)
		for _, from := range []int{0, 1} {
			for _, size := range []int{0, 10, 100_000, 1 << 20} {
				early, one := es[0].Probe(5), es[0].Peer(from).Probe(5)
				other := es[0].Probe(6)
				msg := testutil.Payload(size, 1, uint64(size))
				s := es[from].Peer(0).SendTag(5, msg)
				want := Envelope{From: from, Tag: 5, Len: size}
				for _, r := range []RecvRequest{early, one, es[0].Probe(5), es[0].Peer(from).Probe(5)} {
					m, err := r.WaitFrom(ctx)
					require.NoError(t, err)
					require.Equal(t, want, m)
				}
				require.False(t, other.Done())
				other.Cancel()
				_, err := other.WaitFrom(ctx)
				require.ErrorIs(t, err, ErrCanceled)
				buf := make([]byte, size)
				if size > 0 {
					_, err = es[0].RecvTag(5, buf[1:]).WaitFrom(ctx)
					var short *ShortBufferError
					require.ErrorAs(t, err, &short)
					require.Equal(t, ShortBufferError{Need: size, Have: size - 1}, *short)
					require.ErrorIs(t, err, ErrShortBuffer)
				}
				m, err := es[0].RecvTag(5, buf).WaitFrom(ctx)
				require.NoError(t, err)
				require.Equal(t, want, m)
				require.NoError(t, testutil.Verify(buf, 1, uint64(size)))
				require.NoError(t, s.Wait(ctx))
				again := es[0].Probe(5)
				require.False(t, again.Done())
				again.Cancel()
				_, err = again.WaitFrom(ctx)
				require.ErrorIs(t, err, ErrCanceled)
			}
		}
	})
}

// A receive is withdrawn or gets its message, and no message is lost, however the calls
// coincide.
func TestCancel(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, 60*time.Second)
		es := open(t, 2, fabric)
		queued := es[0].Peer(1).Recv(nil) // there is no channel yet
		queued.Cancel()
		_, err := queued.Wait(ctx)
		require.ErrorIs(t, err, ErrCanceled)
		const n = 300
		var g errgroup.Group
		g.Go(func() error {
			for i := range n {
				size := 8 + i%5*30_000
				msg := testutil.Payload(size, 3, uint64(i))
				binary.LittleEndian.PutUint64(msg, uint64(i))
				if err := es[1].Peer(0).Send(msg).Wait(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		got, withdrawn := 0, 0
		bufs := [2][]byte{make([]byte, 130_000), make([]byte, 130_000)}
		for k := 0; got < n; k++ {
			buf := bufs[k%2]
			var r RecvRequest
			if k%3 == 0 {
				r = es[0].Recv(buf)
			} else {
				r = es[0].Peer(1).Recv(buf)
			}
			if k%2 == 0 {
				short, cancel := context.WithTimeout(ctx, time.Duration(k%7)*100*time.Microsecond) // deadline: some end before the message comes
				_, err := r.Wait(short)
				cancel()
				if err == nil {
					require.EqualValues(t, got, binary.LittleEndian.Uint64(buf))
					got++
					continue
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
				r.Cancel()
				r.Cancel()
			}
			m, err := r.WaitFrom(ctx)
			if errors.Is(err, ErrCanceled) {
				withdrawn++
				continue
			}
			require.NoError(t, err)
			require.EqualValues(t, got, binary.LittleEndian.Uint64(buf))
			require.NoError(t, testutil.Verify(buf[8:m.Len], 3, uint64(got)+8))
			got++
			r.Cancel() // no receive left to withdraw
		}
		require.NoError(t, g.Wait())
		r := es[0].Peer(0).Recv(nil)
		r.Cancel()
		_, err = r.Wait(ctx)
		require.ErrorIs(t, err, ErrCanceled)
	})
}
