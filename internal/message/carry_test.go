package message

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// A large message that was announced before its receive is posted arrives although the
// receiver makes no progress after that: the sender writes it.
func TestReceiverNeedNotFetch(t *testing.T) {
	t.Parallel()
	if realLinks["shm"] == nil {
		t.Skip("shm needs Linux")
	}
	const size = 1 << 20
	for name, registered := range map[string]bool{"registered": true, "pinned": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{Policy: policies["scatter"]}
			a, b := pair(t, realLinks["shm"], 2*size, o, o)
			src, dst := a.reg.Bytes()[:size], b.reg.Bytes()[:size]
			if !registered {
				src, dst = testutil.Scratch(t, size), testutil.Scratch(t, size)
			}
			testutil.Fill(src, 3, 0)
			var sent, received note
			out := &Out{Data: src, Tag: 4, Done: &sent}
			in := &In{Buf: dst, Tag: 4, Done: &received}
			if registered {
				out.LKey, out.RKey, out.Registered = a.reg.LKey(), a.reg.Key().RKey, true
				in.LKey, in.RKey, in.Registered, in.Remote = b.reg.LKey(), b.reg.Key().RKey, true, true
			}
			a.ch.Send(out)
			testutil.Eventually(t, testutil.Limit, func() bool {
				require.NoError(t, a.turn())
				require.NoError(t, b.turn())
				return b.ch.unexpected.n > 0
			}, "the announcement")
			b.ch.Recv(in)
			testutil.Eventually(t, testutil.Limit, func() bool {
				require.NoError(t, a.turn())
				return sent.n > 0
			}, "the sender's end")
			require.NoError(t, sent.err)
			require.Zero(t, received.n)
			require.NoError(t, testutil.Verify(dst, 3, 0))
			testutil.Eventually(t, testutil.Limit, func() bool {
				require.NoError(t, b.turn())
				return received.n > 0
			}, "the message")
			require.Equal(t, note{n: 1, tag: 4, size: size}, received)
			require.Zero(t, b.ch.rendezvous.Stats().Reads)
		})
	}
}

// A large receive is advertised in the call that posts it, except where either end carries a
// transfer alone: hub.Conversation steps once if Waits says so.
func TestLargeReceiveWaits(t *testing.T) {
	t.Parallel()
	for link, open := range realLinks {
		t.Run(link, func(t *testing.T) {
			t.Parallel()
			_, b := pair(t, open, 0, Options{}, Options{})
			var small, large, shared note
			b.ch.Recv(&In{Buf: make([]byte, 8), Tag: 1, Done: &small})
			require.False(t, b.ch.Waits())
			b.ch.Recv(&In{Buf: testutil.Scratch(t, 255<<10), Tag: 2, Done: &large})
			may := b.ch.advertised.waiting
			require.Equal(t, may > 0 && link != "shm", b.ch.Waits()) // there an announcement suffices
			require.NoError(t, b.turn())
			require.EqualValues(t, may, b.ch.Stats().Adverts)
			require.False(t, b.ch.Waits())
			b.ch.Recv(&In{Buf: testutil.Scratch(t, 1<<20), Tag: 3, Done: &shared})
			require.True(t, b.ch.Waits())
			require.NoError(t, b.turn())
			require.EqualValues(t, may+1, b.ch.Stats().Adverts)
			require.False(t, b.ch.Waits())
		})
	}
}
