package rma

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// Of messages that are announced together, those that the receiver refuses fail with
// ErrUnwanted, and the others succeed.
func TestOnlyWhatIsRefusedFails(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := openWith(t, 2, fabric, func(c *Config) { c.Mode = "scatter" })
		ctx := testutil.Context(t, testutil.Limit)
		const small, large, n = 3000, 9000, 40
		got := 0
		h, err := es[0].HandleWith(HandlerOptions{Tag: 5, MaxSize: small}, func(m Envelope, _ [][]byte) { got++ })
		require.NoError(t, err)
		for range 20 {
			var reqs [n]Request
			for i := range reqs {
				size := small
				if i%3 == 1 {
					size = large
				}
				reqs[i] = es[1].Peer(0).SendTag(5, make([]byte, size))
			}
			for i := range reqs {
				if err := reqs[i].Wait(ctx); i%3 == 1 {
					require.ErrorIs(t, err, ErrUnwanted)
				} else {
					require.NoError(t, err)
				}
			}
		}
		h.Close()
		require.Equal(t, 20*(n-n/3), got)
		require.Positive(t, es[1].Stats().Messages.Fetched)
	})
}

// A message of a rank to itself is complete as soon as one to another: when it has been
// copied, as long as not too many wait; then when it is received.
func TestSendToOneself(t *testing.T) {
	e := open(t, 1, "shm")[0]
	ctx := testutil.Context(t, testutil.Limit)
	p := e.Peer(0)
	msg := []byte{0}
	for i := range 100 {
		msg[0] = byte(i)
		require.NoError(t, p.Send(msg).Wait(ctx))
	}
	buf := make([]byte, 1<<20)
	for i := range 100 {
		n, err := p.Recv(buf).Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.EqualValues(t, i, buf[0])
	}
	for range 3 { // receives free memory for further copies
		var reqs [6]Request
		for i := range reqs {
			reqs[i] = p.Send(make([]byte, 300<<10))
		}
		require.NoError(t, WaitAll(ctx, reqs[:3]...))
		require.False(t, reqs[3].Done())
		for range reqs {
			_, err := p.Recv(buf).Wait(ctx)
			require.NoError(t, err)
		}
		require.NoError(t, WaitAll(ctx, reqs[3:]...))
	}
}

// Receives get their messages whatever the order in which they ask for them, although
// many are announced before the first that is asked for.
func TestReceivesInReverse(t *testing.T) {
	for _, c := range []struct {
		mode string
		size int
	}{{"scatter", 5000}, {"eager", 5000}, {"auto", 5000}, {"scatter", 100_000}, {"auto", 100_000}, {"gather", 5000}} {
		t.Run(fmt.Sprint(c.mode, c.size), func(t *testing.T) {
			onEach(t, func(t *testing.T, fabric string) {
				es := openWith(t, 2, fabric, func(o *Config) { o.Mode = Mode(c.mode) })
				ctx := testutil.Context(t, testutil.Limit)
				n := testutil.Times(200) // of 5000 bytes: 1 MiB in all, which this side holds in every mode
				sends := make([]Request, n)
				for i := range sends {
					sends[i] = es[0].Peer(1).SendTag(uint32(i), testutil.Payload(c.size, 1, uint64(i)))
				}
				buf := make([]byte, c.size)
				for i := n - 1; i >= 0; i-- {
					_, err := es[1].Peer(0).RecvTag(uint32(i), buf).Wait(ctx)
					require.NoError(t, err)
					require.NoError(t, testutil.Verify(buf, 1, uint64(i)))
				}
				require.NoError(t, WaitAll(ctx, sends...))
			})
		})
	}
}

// More messages than memory can be registered for are fetched one after the other, and
// not refused.
func TestReceivesWithoutRegistrations(t *testing.T) {
	es := openWith(t, 2, "shm", func(o *Config) { o.Mode = ModeScatter })
	ctx := testutil.Context(t, testutil.Limit)
	var all []*Region
	for {
		r, err := es[1].Register(make([]byte, 64))
		if err != nil {
			require.ErrorIs(t, err, ErrResources)
			break
		}
		all = append(all, r)
	}
	const left, n, size = 8, 300, 5000
	for _, r := range all[len(all)-left:] {
		require.NoError(t, r.Close())
	}
	var reqs []Request
	var bufs [n][]byte
	for i := range bufs {
		bufs[i] = make([]byte, size)
		reqs = append(reqs, es[0].Peer(1).SendTag(uint32(i), testutil.Payload(size, 1, uint64(i))))
	}
	var recvs [n]RecvRequest
	for i := n - 1; i >= 0; i-- {
		recvs[i] = es[1].Peer(0).RecvTag(uint32(i), bufs[i])
	}
	for i := range recvs {
		_, err := recvs[i].Wait(ctx)
		require.NoError(t, err, "message %d", i)
		require.NoError(t, testutil.Verify(bufs[i], 1, uint64(i)))
	}
	require.NoError(t, WaitAll(ctx, reqs...))
	for _, r := range all[:len(all)-left] {
		require.NoError(t, r.Close())
	}
}
