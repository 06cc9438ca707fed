package message

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// sharedMessage is a message of a for an advertised receive of b, in memory that a maps or not, which
// both ends are about to copy.
func sharedMessage(t *testing.T, size int, private bool) (a, b *side, in *In, sent, got *note) {
	a, b = pair(t, realLinks["shm"], size, Options{}, Options{})
	testutil.Fill(a.reg.Bytes()[:size], 3, 0)
	sent, got = new(note), new(note)
	in = &In{Buf: b.reg.Bytes()[:size], LKey: b.reg.LKey(), RKey: b.reg.Key().RKey, Registered: true, Remote: true, Tag: 3, Done: got}
	if private {
		in = &In{Buf: testutil.Scratch(t, size), Tag: 3, Done: got}
	}
	b.ch.Recv(in)
	testutil.Eventually(t, testutil.Limit, func() bool {
		require.NoError(t, b.turn())
		require.NoError(t, a.turn())
		return len(a.ch.dests.open) == 1
	}, "the advert")
	a.ch.Send(&Out{Data: a.reg.Bytes()[:size], LKey: a.reg.LKey(), RKey: a.reg.Key().RKey, Registered: true, Tag: 3, Done: sent})
	testutil.Eventually(t, testutil.Limit, func() bool {
		require.NoError(t, a.turn())
		return a.ch.rendezvous.Stats().Writing == 1
	}, "the message")
	require.Less(t, a.ch.rendezvous.Stats().Slices, uint64(2), "the call copies at most one slice")
	return a, b, in, sent, got
}

// A receive that is withdrawn while both ends copy its message gets the message, and ends when nobody
// writes there any longer, whichever end goes on.
func TestCancelOfASharedMessage(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	for name, first := range map[string]func(t *testing.T, a, b *side){
		"receiver first": func(t *testing.T, _, b *side) { turns(t, 50, b) },
		"sender first":   func(t *testing.T, a, _ *side) { turns(t, 50, a) },
		"in turn":        func(t *testing.T, a, b *side) { turns(t, 3, a, b) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, in, sent, got := sharedMessage(t, size, false)
			require.NoError(t, b.turn())
			b.ch.Cancel(in)
			require.Zero(t, got.n)
			first(t, a, b)
			if got.n > 0 {
				require.NoError(t, testutil.Verify(b.reg.Bytes()[:size], 3, 0), "ended before its message was there")
			}
			testutil.Eventually(t, testutil.Limit, func() bool {
				require.NoError(t, a.turn())
				require.NoError(t, b.turn())
				return sent.n > 0 && got.n > 0
			}, "the end")
			require.NoError(t, sent.err)
			require.Equal(t, note{n: 1, tag: 3, size: size}, *got)
			require.NoError(t, testutil.Verify(b.reg.Bytes()[:size], 3, 0))
			s := a.ch.rendezvous.Stats().Slices + b.ch.rendezvous.Stats().Slices
			require.EqualValues(t, size>>17, s)
		})
	}
}

// A sender that has claimed a slice and does not copy and count it is overdue.
func TestSharedMessageIsOverdue(t *testing.T) {
	t.Parallel()
	const size, limit = 1 << 20, time.Second
	a, b, _, _, got := sharedMessage(t, size, true)
	for a.ch.rendezvous.Stats().Slices == 0 {
		require.NoError(t, a.turn()) // the last one posts a request, and does not see its end
	}
	require.False(t, b.ch.Overdue(time.Hour, limit), "this side has slices to copy")
	testutil.Eventually(t, testutil.Limit, func() bool {
		require.NoError(t, b.turn())
		return b.ch.rendezvous.Stats().Slices == size>>17-1
	}, "the other slices")
	require.NoError(t, b.turn())
	require.Zero(t, got.n)
	require.False(t, b.ch.Overdue(limit, limit), "the copy may take as long")
	require.True(t, b.ch.Overdue(size*time.Second/answerRate+1, limit))
	testutil.Eventually(t, testutil.Limit, func() bool {
		require.NoError(t, a.turn())
		require.NoError(t, b.turn())
		return got.n > 0
	}, "the message")
	require.NoError(t, got.err)
	require.False(t, b.ch.Overdue(time.Hour, limit))
}
