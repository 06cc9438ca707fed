//go:build linux

package tcp

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

func (h *host) post(wrs ...fabric.WR) {
	h.tb.Helper()
	n, err := h.ep.Post(wrs)
	require.NoError(h.tb, err)
	require.Equal(h.tb, len(wrs), n)
}

// Both sides have as many lanes as the side that wants fewer.
func TestLanesAgreed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, want int }{{0, 0, 1}, {3, 5, 3}, {5, 3, 3}, {-1, 2, 0}, {2, -1, 0}, {-1, -1, 0}, {maxLanes, maxLanes, maxLanes}} {
		a := newHost(t, Config{Lanes: c.a}, fabric.EndpointOptions{}, 64)
		b := newHost(t, Config{Lanes: c.b}, fabric.EndpointOptions{}, 64)
		join(t, a, b)
		require.Len(t, a.ep.lanes.all, c.want)
		require.Len(t, b.ep.lanes.all, c.want)
		for i := range a.ep.lanes.all { // and each is one connection
			x, err := unix.Getsockname(a.ep.lanes.all[i].fd)
			require.NoError(t, err)
			y, err := unix.Getpeername(b.ep.lanes.all[i].fd)
			require.NoError(t, err)
			require.Equal(t, x, y)
		}
	}
	require.Equal(t, longLanes, (&Config{}).lanes(ClassLong))
}

// Small writes do not wait for the answer to a large read of the peer, not even
// one that is in the kernel already.
func TestSmallWritesOvertakeLargeAnswers(t *testing.T) {
	t.Parallel()
	const size = 16 << 20
	a, b := pair(t, Config{}, size+8)
	testutil.Fill(b.reg.Bytes()[8:], 1, 0)
	read := b.write(8, size, b.reg.Key(), fabric.FlagSignaled)
	read.Op, read.RemoteAddr = fabric.OpRead, b.reg.Addr()+8
	read.Local = a.sge(8, size)
	read.RKey = b.reg.Key().RKey
	a.post(read)
	until(t, "a full lane", func() bool { return len(b.ep.lanes.all) == 1 && b.ep.lanes.all[0].blocked }, b)
	testutil.Store64(b.reg.Bytes(), 7)
	b.post(b.write(0, 8, a.reg.Key(), 0))
	// A visit receives laneVisit bytes of the answer at most, but all that is small.
	for n := 1; testutil.Load64(a.reg.Bytes()) != 7; n++ {
		require.Less(t, n, size/laneVisit)
		a.poll()
	}
	require.Empty(t, a.got)
	until(t, "the answer", func() bool { return len(a.got) == 1 }, a, b)
	require.Equal(t, fabric.StatusOK, a.got[0].Status)
	require.NoError(t, testutil.Verify(a.reg.Bytes()[8:], 1, 0))
}

// Requests behind a large write wait for its payload, whatever lane it comes by;
// acknowledgements and answers of the other direction do not.
func TestRequestsWaitForLargeWrites(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	for _, lanes := range []int{1, 3} {
		a, b := pair(t, Config{Lanes: lanes}, size+64)
		testutil.Fill(a.reg.Bytes()[64:], 2, 0)
		testutil.Store64(a.reg.Bytes(), 1)
		a.post(a.write(64, size, b.reg.Key(), 0), a.write(0, 8, b.reg.Key(), fabric.FlagSignaled))
		b.post(b.write(32, 8, a.reg.Key(), fabric.FlagSignaled))
		held := false
		until(t, "the word behind", func() bool {
			held = held || b.ep.in.held
			return testutil.Load64(b.reg.Bytes()) == 1
		}, a, b)
		require.True(t, held)
		require.NoError(t, testutil.Verify(b.reg.Bytes()[64:size+64], 2, 0))
		until(t, "completions", func() bool { return len(a.got) == 1 && len(b.got) == 1 }, a, b)
		require.Zero(t, b.ep.lanes.expected)
		require.Equal(t, a.ep.lanes.head, a.ep.lanes.tail)
	}
}

// A lane that dies takes the endpoint down, at both ends, for a reason that says
// which; every request ends, and those that succeed have arrived.
func TestLaneDies(t *testing.T) {
	t.Parallel()
	const size, count = 4 << 20, 4
	for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead} {
		a, b := pair(t, Config{Lanes: 3}, size*count)
		b.poll()
		for i := range count {
			w := a.write(i*size, size, b.reg.Key(), fabric.FlagSignaled)
			w.Op, w.ID = op, uint64(i)
			a.post(w)
		}
		until(t, "payload", func() bool {
			return a.ep.lanes.expected != 0 || b.ep.lanes.expected != 0
		}, a, b)
		require.NoError(t, unix.Shutdown(b.ep.lanes.all[1].fd, unix.SHUT_RDWR))
		ends := func(h *host) bool { return h.ep.state.Load() == epDown && h.l.ready.empty() }
		until(t, "down", func() bool { return ends(a) && ends(b) }, a, b)
		var le *LaneError
		named := errors.As(a.ep.Err(), &le) || errors.As(b.ep.Err(), &le)
		require.True(t, named, "%v, %v", a.ep.Err(), b.ep.Err())
		require.Equal(t, 2, le.Lane)
		require.ErrorIs(t, le, fabric.ErrPeerGone)
		require.ErrorIs(t, a.ep.Err(), fabric.ErrPeerGone)
		require.ErrorIs(t, b.ep.Err(), fabric.ErrPeerGone)
		require.Len(t, a.got, count+1)
		failed := false
		for i, c := range a.got[:count] {
			require.Equal(t, uint64(i), c.ID)
			failed = failed || c.Status != fabric.StatusOK
		}
		require.True(t, failed)
		require.Equal(t, fabric.OpDown, a.got[count].Op)
	}
}

// The data of large requests is received where it belongs: nothing of it goes
// through a buffer on a lane, and on the first connection only what came together
// with its header.
func TestLargePayloadIsNotCopied(t *testing.T) {
	t.Parallel()
	const size, count = 1 << 20, 16
	for _, lanes := range []int{-1, 1, 2} {
		a, b := pair(t, Config{Lanes: lanes}, size)
		for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead} {
			a.got = nil
			w := a.write(0, size, b.reg.Key(), fabric.FlagSignaled)
			w.Op = op
			for range count {
				a.post(w)
			}
			until(t, "completions", func() bool { return len(a.got) == count }, a, b)
		}
		copied := a.ep.in.copied + b.ep.in.copied
		if lanes > 0 {
			require.Zero(t, copied)
		} else {
			require.LessOrEqual(t, copied, uint64(2*count*rxSize))
		}
	}
}

// A large write that is alone is given to the socket in the call that posts it, in as many
// sends as the socket takes; behind another, a call makes one send.
func TestLargeWriteAloneIsSentAtOnce(t *testing.T) {
	t.Parallel()
	const size = 2 * minChunk
	a, b := pair(t, Config{}, 2*size)
	a.ep.lanes.tune.tries = tuneTries // with the smallest sends
	chunk := uint32(a.ep.lanes.tune.size(a.ep.lanes.mss))
	require.Less(t, chunk, uint32(size))
	testutil.Fill(a.reg.Bytes(), 1, 0)
	left := func() (n uint32) {
		for i := a.ep.lanes.head; i != a.ep.lanes.tail; i++ {
			n += a.ep.lanes.transfer(i).unsent
		}
		return n
	}
	a.post(a.write(0, size, b.reg.Key(), fabric.FlagSignaled))
	first := left()
	require.Less(t, first, size-chunk)
	a.post(a.write(size, size, b.reg.Key(), fabric.FlagSignaled))
	require.GreaterOrEqual(t, left(), first+size-chunk-headerSize)
	until(t, "both writes", func() bool { return len(a.got) == 2 }, a, b)
	require.NoError(t, testutil.Verify(b.reg.Bytes(), 1, 0))
}
