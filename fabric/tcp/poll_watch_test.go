//go:build linux

package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/event"
	"github.com/seed33544411/rma/internal/testutil"
)

// put writes v to the first word of to, from h, and waits until it is there.
func (h *host) put(to *host, v uint64) {
	testutil.Store64(h.reg.Bytes(), v)
	n, err := h.ep.Post([]fabric.WR{h.write(0, 8, to.reg.Key(), fabric.FlagInline)})
	require.NoError(h.tb, err)
	require.Equal(h.tb, 1, n)
	until(h.tb, "a word", func() bool { return testutil.Load64(to.reg.Bytes()) == v }, h, to)
}

func TestBusySocketsLeaveThePollerAndComeBackToSleep(t *testing.T) {
	t.Parallel()
	a, b := pair(t, Config{}, 64)
	require.Equal(t, watchIn, func() watch { b.put(a, 1); return b.ep.sock.watched }(), "too early")
	for v := uint64(2); v < unwatchAfter+8; v++ {
		a.put(b, v)
		b.put(a, v)
	}
	require.Zero(t, a.ep.sock.watched)
	require.Zero(t, b.ep.sock.watched)

	ready := func() bool {
		ok, err := event.Wait(b.l.FD(), 0)
		require.NoError(t, err)
		return ok
	}
	// What came before Arm announces itself all the same.
	testutil.Store64(a.reg.Bytes(), 99)
	n, err := a.ep.Post([]fabric.WR{a.write(0, 8, b.reg.Key(), fabric.FlagInline)})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	ok, err := event.Wait(b.ep.sock.fd, testutil.Limit)
	require.NoError(t, err)
	require.True(t, ok)
	require.False(t, ready())
	sleep, err := b.l.Arm()
	require.NoError(t, err)
	require.True(t, !sleep || ready())
	b.l.Disarm()
	until(t, "a word", func() bool { return testutil.Load64(b.reg.Bytes()) == 99 }, b)

	// And so does what comes behind it.
	sleep, err = b.l.Arm()
	require.NoError(t, err)
	require.True(t, sleep)
	require.False(t, ready())
	testutil.Store64(a.reg.Bytes(), 100)
	n, err = a.ep.Post([]fabric.WR{a.write(0, 8, b.reg.Key(), fabric.FlagInline)})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	ok, err = event.Wait(b.l.FD(), testutil.Limit)
	require.NoError(t, err)
	require.True(t, ok)
	b.l.Disarm()
	require.Equal(t, watchIn, b.ep.sock.watched)
}

// A third connection makes Poll ask the poller, which must know all of them.
func TestBusySocketsComeBackWhenThereAreMany(t *testing.T) {
	t.Parallel()
	a, b := pair(t, Config{}, 64)
	a.l.direct, b.l.direct = 1, 1
	for v := uint64(1); v < unwatchAfter+8; v++ {
		a.put(b, v)
		b.put(a, v)
	}
	require.Zero(t, a.ep.sock.watched)
	c, err := a.l.NewEndpoint(fabric.EndpointOptions{ID: 3})
	require.NoError(t, err)
	d := newHost(t, Config{}, fabric.EndpointOptions{ID: 4}, 64)
	first := a.ep
	a.ep = c.(*endpoint)
	join(t, a, d)
	a.ep = first
	a.poll()
	require.Equal(t, watchIn, a.ep.sock.watched)
	known := func() error { // to the system
		return a.l.poller.set(first.sock.seat, first.sock.fd, watchIn, watchIn)
	}
	require.NoError(t, known())

	// One that is alone in being busy is read all the same, and leaves again.
	for v := uint64(1000); v < 1000+2*hotAfter; v++ {
		a.put(b, v)
		b.put(a, v)
	}
	require.Zero(t, a.ep.sock.watched)
	require.ErrorIs(t, known(), unix.ENOENT)

	// The other is not forgotten, and takes its place.
	a.ep = c.(*endpoint)
	d.put(a, 1)
	require.Equal(t, watchIn, first.sock.watched)
	require.NoError(t, known())
	a.ep = first
	b.put(a, 2)
}

// An endpoint that the system does not watch goes down, and nothing else.
func TestAdoptWithoutRoomInThePoller(t *testing.T) {
	a, _ := pair(t, Config{}, 64)
	poller := a.l.poller.fd
	a.l.poller.fd = a.l.waking.FD() // refuses all sockets
	a.poll()
	a.l.poller.fd = poller
	until(t, "the end", func() bool { return len(a.got) != 0 }, a)
	require.Equal(t, []fabric.Completion{{EP: 1, Op: fabric.OpDown, Status: fabric.StatusPeerGone}}, a.got)
	require.ErrorIs(t, a.ep.Err(), unix.EINVAL)

	c, err := a.l.NewEndpoint(fabric.EndpointOptions{ID: 3})
	require.NoError(t, err)
	a.ep = c.(*endpoint)
	d := newHost(t, Config{}, fabric.EndpointOptions{ID: 4}, 64)
	join(t, a, d)
	a.put(d, 1)
}

// A signalled write is acknowledged by the second visit of the target, in one frame: until
// then the target's application may answer, and carry the acknowledgement.
func TestAcknowledgedAtTheSecondVisit(t *testing.T) {
	a, b := pair(t, Config{}, 4096)
	key := b.reg.Key()
	for range 50 {
		n, err := a.ep.Post([]fabric.WR{a.write(0, 8, key, fabric.FlagSignaled|fabric.FlagInline)})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		heard := b.l.Served()
		until(t, "the write is executed", func() bool { return b.l.Served() != heard }, b)
		require.True(t, b.ep.out.acks.want, "no frame yet")
		b.poll()
		require.False(t, b.ep.out.acks.want, "acknowledged")
		until(t, "completion", func() bool { return len(a.got) == 1 }, a)
		require.Equal(t, heard+1, b.l.Served(), "one frame")
		a.got = nil
	}
}
