package rma

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/owned"
	"github.com/seed33544411/rma/internal/testutil"
)

// many is more peers than are polled in every step, by far.
const many = 24

// calm steps until peers that only wait are polled seldom (package hub).
func calm(e *Engine) {
	for range 2048 {
		e.Progress()
	}
}

// With the tag rmadebug a message channel panics when somebody else than the owner calls it.
func TestChannelAssertsItsOwner(t *testing.T) {
	t.Parallel()
	es := simulate(t, 2, "sim")
	recv := es[1].Peer(0).Recv(nil)
	require.NoError(t, es[0].Peer(1).Send(nil).Wait(t.Context()))
	_, err := recv.Wait(t.Context())
	require.NoError(t, err)
	var ch *message.Channel
	es[0].prog.Do(func() {
		ch = es[0].peers[1].msg.Channel()
		ch.Relax(time.Now())
	})
	if owned.On {
		require.Panics(t, func() { ch.Relax(time.Now()) })
	}
}

// Silent peers are polled seldom, whatever their number, and their messages arrive
// nevertheless, also while other peers send without pause.
func TestSilentPeersAreHeard(t *testing.T) {
	t.Parallel()
	const n = many
	es := simulate(t, n+1, "sim")
	e := es[0]
	var recvs [n + 1]RecvRequest
	var bufs [n + 1][8]byte
	post := func(r int) { recvs[r] = e.Peer(r).Recv(bufs[r][:]) }
	// Channels are made at the first message.
	together(t, es, func(ctx context.Context, me *Engine) error {
		if me != e {
			return me.Peer(0).Send([]byte{1}).Wait(ctx)
		}
		for r := 1; r <= n; r++ {
			if _, err := e.Peer(r).Recv(bufs[r][:]).Wait(ctx); err != nil {
				return err
			}
			post(r)
		}
		return nil
	})
	calm(e)
	for _, r := range []int{n, 1, n / 2} {
		require.NoError(t, es[r].Peer(0).Send([]byte{byte(r)}).Wait(t.Context()))
		_, err := recvs[r].Wait(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, r, bufs[r][0])
		post(r)
	}
	// One pair exchanges all the time; the messages of the others come in between.
	ctx := t.Context()
	heard := 0
	for round := 0; heard < n-1; round++ {
		require.Less(t, round, 100*n, "%d of %d are heard", heard, n-1)
		require.NoError(t, es[1].Peer(0).Send([]byte{1}).Wait(ctx))
		_, err := recvs[1].Wait(ctx)
		require.NoError(t, err)
		post(1)
		for _, x := range es {
			x.Progress() // the simulated network moves data only when its ends poll
		}
		if r := 2 + round; r <= n {
			require.NoError(t, es[r].Peer(0).Send([]byte{byte(r)}).Wait(ctx))
		}
		for r := 2; r <= n; r++ {
			if recvs[r].op != nil && recvs[r].waitable() && recvs[r].op.Done() {
				_, err := recvs[r].Wait(ctx)
				require.NoError(t, err)
				heard++
			}
		}
	}
}

// The cost of a poll for messages with many silent peers, each with a receive posted.
func BenchmarkSilentPeers(b *testing.B) {
	for _, fabric := range []string{"shm", "tcp"} {
		for _, n := range []int{1, 8, 64} {
			b.Run(fmt.Sprint(fabric, "/", n), func(b *testing.B) {
				es := open(b, n+1, fabric)
				var bufs [65][8]byte
				together(b, es, func(ctx context.Context, me *Engine) error {
					if me.Rank() != 0 {
						return me.Peer(0).Send([]byte{1}).Wait(ctx)
					}
					for r := 1; r <= n; r++ {
						if _, err := me.Peer(r).Recv(bufs[r][:]).Wait(ctx); err != nil {
							return err
						}
						me.Peer(r).Recv(bufs[r][:])
					}
					return nil
				})
				calm(es[0])
				b.ReportAllocs()
				for b.Loop() {
					es[0].Progress()
				}
			})
		}
	}
}

// A conversation opens one channel per connection, however often and from whichever side it
// is begun.
func TestChannelIsOpenedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		for range 3 {
			(*messageHost)(es[0].Peer(1)).Open()
		}
		ctx := testutil.Context(t, testutil.Limit)
		buf := make([]byte, 8)
		for range 3 {
			recv := es[1].Peer(0).Recv(buf)
			require.NoError(t, es[0].Peer(1).Send([]byte("once")).Wait(ctx))
			n, err := recv.Wait(ctx)
			require.NoError(t, err)
			require.Equal(t, "once", string(buf[:n]))
		}
		require.NoError(t, es[0].Peer(1).Stats().Err)
	})
}

// Opening a channel fails with the reason why the connection was lost, also if that was replaced
// before opening began.
func TestChannelOfALostConnection(t *testing.T) {
	es := open(t, 2, "shm")
	mems, keys := share(t, es, 4096)
	works(t, es, mems, keys)
	p := es[0].Peer(1)
	n := p.conn.Now()
	errs := make(chan error, 30)
	n.Go(func() {
		<-n.Life().Done()
		for range cap(errs) {
			_, err := p.openChannel(n, p.eng.bringup.Path(p.rank).Params)
			errs <- err
		}
		close(errs)
	})
	sunder(t, es)
	reconnect(t, es[0])
	for err := range errs {
		require.ErrorIs(t, err, ErrRemoteAccess)
	}
}

// A rank that gets no memory for its end of a channel notifies the other: on both sides
// waiting and later operations fail at once for that reason; Reset tries again, and the
// failure leaves no state.
func TestShortageOfAChannel(t *testing.T) {
	short := &shortage{}
	devices := [...]string{device(t, "simshort", short.link), "sim"}
	lacks := func(err error) {
		require.ErrorIs(t, err, ErrNoConnection)
		require.ErrorIs(t, err, ErrResources)
		require.NotErrorIs(t, err, ErrPeerGone)
	}
	const rings = 4 // two on either side
	var kept []int64
	for at := 1; at <= rings+1; at++ {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			testutil.NoLeaks(t)
			es := openWith(t, 2, "", func(c *Config) {
				c.Device = devices[c.Job.Rank]
				c.Logger = slog.New(slog.DiscardHandler)
			})
			mems, keys := share(t, es, 64)
			ctx := testutil.Context(t, testutil.Limit)
			put := func(r int) error {
				return es[r].Peer(1-r).Put(keys[1-r].At(0), mems[r].Slice(8, 8)).Wait(ctx)
			}
			require.NoError(t, put(0))
			require.NoError(t, put(1))
			exchange := func() (lost int) {
				var sends [2]Request
				var recvs [2]RecvRequest
				for i := range es {
					r := (i + at) % 2
					p := es[r].Peer(1 - r)
					sends[r], recvs[r] = p.Send([]byte("x")), p.Recv(make([]byte, 8))
				}
				for r := range es {
					if _, err := recvs[r].Wait(ctx); err != nil {
						lacks(err)
						lost++
					}
					if err := sends[r].Wait(ctx); err != nil {
						lacks(err)
					}
				}
				return lost
			}
			short.at.Store(short.calls.Load() + int64(at))
			if at <= rings {
				require.Positive(t, exchange(), "one of the two may have sent before it heard of the refusal")
				for r, e := range es {
					p := e.Peer(1 - r)
					testutil.Eventually(t, testutil.Limit, func() bool { return p.Stats().Err != nil }, "the end of the connection")
					lacks(put(r))
					lacks(p.Send([]byte("x")).Wait(ctx))
				}
				require.NoError(t, es[at%2].Peer(1-at%2).Reset(ctx))
				require.NoError(t, put(at%2))
			}
			require.Zero(t, exchange())
			kept = append(kept, offheap.Total())
		})
		if t.Failed() {
			return
		}
	}
	for _, n := range kept {
		require.Equal(t, kept[rings], n)
	}
}

// A peer that writes invalid data into this rank's ring loses the connection: all messages
// in flight fail with that cause, also those that only the peer could complete, and Reset
// makes a new connection.
func TestPeerThatBreaksTheProtocolOfMessages(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, link string) {
		es := open(t, 2, link)
		mems, keys := share(t, es, 4096)
		works(t, es, mems, keys)
		ctx := testutil.Context(t, testutil.Limit)
		victim, liar := es[0].Peer(1), es[1].Peer(0)
		announced := victim.SendTag(1, make([]byte, 8<<20)) // is never fetched
		recv := victim.RecvTag(1, make([]byte, 8))

		setup, err := liar.conn.Now().Published(ctx, keyChannel)
		require.NoError(t, err)
		ring, _, err := eager.ParseSetup(setup[1:]) // behind its version
		require.NoError(t, err)
		junk, err := es[1].Alloc(1 << 16)
		require.NoError(t, err)
		copy(junk.Bytes(), bytes.Repeat([]byte{0xff}, len(junk.Bytes())))
		piece, err := junk.Slice(0, len(junk.Bytes())).sge(es[1], liar.link)
		require.NoError(t, err)
		for at := ring.Region.Len; at > uint64(piece.Len); {
			at -= uint64(piece.Len)
			o := fabric.WR{Op: fabric.OpWrite, Local: []fabric.SGE{piece}, RemoteAddr: ring.Region.Addr + at, RKey: ring.Region.RKey}
			es[1].prog.Do(func() { _, err = liar.ep.Post([]fabric.WR{o}) })
			require.NoError(t, err)
		}

		_, err = recv.Wait(ctx)
		require.ErrorIs(t, err, ErrPeerMisbehaves)
		require.ErrorIs(t, announced.Wait(ctx), ErrPeerMisbehaves)
		require.ErrorIs(t, victim.Put(keys[1].At(0), mems[0].Slice(8, 8)).Wait(ctx), ErrPeerMisbehaves)
		reconnect(t, es[0])
		works(t, es, mems, keys)
		require.NoError(t, junk.Close())
	})
}
