//go:build linux

package tcp

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// Sizes that endpoints multiply.
func TestSizes(t *testing.T) {
	testutil.Size(t, 64, unsafe.Sizeof(slot{}))
	testutil.Size(t, 32, unsafe.Sizeof(seg{}))
	testutil.Size(t, 24, unsafe.Sizeof(reply{}))
	require.Less(t, unsafe.Sizeof(endpoint{}), uintptr(4096))
}

// A list of many small writes leaves in one piece of the stream: one send.
func TestSmallWritesShareOneSend(t *testing.T) {
	a, b := pair(t, Config{}, 4096)
	a.poll()
	var wrs []fabric.WR
	for i := range 50 {
		w := a.write(8*i, 8, b.reg.Key(), 0)
		wrs = append(wrs, w)
	}
	a.ep.sock.blocked = true // keep Post from sending
	n, err := a.ep.Post(wrs)
	require.NoError(t, err)
	require.Equal(t, len(wrs), n)
	a.ep.sock.blocked = false
	a.ep.fill()
	require.Equal(t, uint32(1), a.ep.out.tail-a.ep.out.head)
	require.Equal(t, uint32(50*(headerSize+8)), a.ep.out.segs[a.ep.out.head%maxSegs].n)
	require.True(t, a.ep.out.send())
	require.True(t, a.ep.out.idle())
}

// The staging buffer wraps without losing or mixing up bytes of the stream,
// whatever part of it a send takes.
func TestStagingRing(t *testing.T) {
	x := &outgoing{stage: testutil.Scratch(t, stageSize)}
	var want []byte // staged and not sent
	sent := 0
	send := func(n int) {
		got := make([]byte, 0, n)
		for i := x.head; i != x.tail && len(got) < n; i++ {
			s := &x.segs[i%maxSegs]
			got = append(got, fabric.BytesAt(s.addr, int(s.n))...)
		}
		require.Equal(t, want[:n], got[:n])
		want = want[n:]
		x.advance(n)
		sent += n
	}
	for i := uint64(1); i < 5000; i++ {
		b := []byte(nil)
		if x.roomy() {
			b = x.room(uint32(32 + i*977%1100))
		}
		if b == nil {
			require.NotEmpty(t, want, "no room, and nothing to send")
			send(min(len(want), int(1+i*7919%20000)))
			continue
		}
		testutil.Fill(b, i, 0)
		want = append(want, b...)
		if i%701 == 0 {
			send(len(want))
			require.True(t, x.idle())
		}
	}
	require.Greater(t, sent, 10*stageSize)
}

// Acknowledgements: none for unsignalled writes, one for a batch, none at all
// when an answer goes that way anyhow.
func TestAcknowledgementsAreFew(t *testing.T) {
	a, b := pair(t, Config{}, 4096)
	a.poll()
	b.poll()
	key, back := b.reg.Key(), a.reg.Key()
	post := func(h *host, w fabric.WR) {
		n, err := h.ep.Post([]fabric.WR{w})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	for range 20 {
		post(a, a.write(0, 8, key, 0))
	}
	until(t, "arrival", func() bool { return b.ep.out.acks.executed == 20 }, b)
	for range 10 {
		b.poll()
	}
	require.False(t, b.ep.out.acks.want)
	a.poll()
	require.Zero(t, a.ep.req.acked)

	for range 10 {
		post(a, a.write(0, 8, key, fabric.FlagSignaled))
	}
	for b.ep.out.acks.executed < 30 {
		b.l.Poll(b.cs[:])
	}
	require.True(t, b.ep.out.acks.want, "held back for an answer")
	post(b, b.write(0, 8, back, 0))
	require.False(t, b.ep.out.acks.want, "went with the answer")
	until(t, "completions", func() bool { return len(a.got) == 10 }, a)
}

// Arm sends what is held back: nobody will poll for a while.
func TestArmSendsAcknowledgements(t *testing.T) {
	a, b := pair(t, Config{}, 4096)
	b.poll()
	n, err := a.ep.Post([]fabric.WR{a.write(0, 8, b.reg.Key(), fabric.FlagSignaled)})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	for b.ep.out.acks.executed == 0 {
		b.l.Poll(b.cs[:])
	}
	_, err = b.l.Arm()
	require.NoError(t, err)
	until(t, "completion", func() bool { return len(a.got) == 1 }, a)
	b.l.Disarm()
}

// With many endpoints, sockets that are full when Post is called, or that were
// when there were still few, go on by themselves.
func TestManyFullSockets(t *testing.T) {
	for name, lanes := range map[string]int{"one connection": -1, "lanes": 2} {
		t.Run(name, func(t *testing.T) { manyFullSockets(t, lanes) })
	}
}

func manyFullSockets(t *testing.T, lanes int) {
	const size = 4 << 20
	a, b := pair(t, Config{Lanes: lanes}, size)
	testutil.Fill(a.reg.Bytes(), 1, 0)
	want := 0
	send := func(ep fabric.Endpoint) {
		for range 3 {
			n, err := ep.Post([]fabric.WR{a.write(0, size, b.reg.Key(), fabric.FlagSignaled)})
			require.NoError(t, err)
			want += n
		}
	}
	send(a.ep)
	a.poll()
	full := a.ep.sock.blocked
	for i := range a.ep.lanes.all {
		full = full || a.ep.lanes.all[i].blocked
	}
	require.True(t, full)
	var eps []fabric.Endpoint
	for range 4 {
		x, err := a.l.NewEndpoint(fabric.EndpointOptions{})
		require.NoError(t, err)
		y, err := b.l.NewEndpoint(fabric.EndpointOptions{})
		require.NoError(t, err)
		join(t, &host{ep: x.(*endpoint)}, &host{ep: y.(*endpoint)})
		eps = append(eps, x)
	}
	a.poll()
	require.Greater(t, len(a.l.active), directMax)
	for _, ep := range eps {
		send(ep)
	}
	require.Equal(t, 15, want)
	until(t, "all completions", func() bool { return len(a.got) == want }, a, b)
	for _, c := range a.got {
		require.Equal(t, fabric.StatusOK, c.Status)
	}
	require.NoError(t, testutil.Verify(b.reg.Bytes(), 1, 0))
}

// The other process is killed: the oldest request fails, the rest are flushed,
// the endpoint says down, and later posts are refused.
func TestPeerKilled(t *testing.T) {
	h, p, key := spawn(t, modeIdle, fabric.EndpointOptions{ID: 3})
	wrs := []fabric.WR{
		h.write(0, 4<<20, key, fabric.FlagSignaled), // more than the sockets hold
		h.write(0, 8, key, fabric.FlagSignaled),
		h.write(0, 8, key, 0),
	}
	for i := range wrs {
		wrs[i].ID = uint64(i + 1)
	}
	n, err := h.ep.Post(wrs)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	for range 100 {
		h.poll()
	}
	require.Empty(t, h.got)
	p.Kill()
	until(t, "down", func() bool { return len(h.got) == 4 }, h)
	require.Equal(t, []fabric.Completion{
		{ID: 1, EP: 3, Op: fabric.OpWrite, Status: fabric.StatusPeerGone},
		{ID: 2, EP: 3, Op: fabric.OpWrite, Status: fabric.StatusFlushed},
		{ID: 3, EP: 3, Op: fabric.OpWrite, Status: fabric.StatusFlushed},
		{EP: 3, Op: fabric.OpDown, Status: fabric.StatusPeerGone},
	}, h.got)
	require.ErrorIs(t, h.ep.Err(), fabric.ErrPeerGone)
	_, err = h.ep.Post(wrs)
	require.ErrorIs(t, err, fabric.ErrDown)
}

// A peer that is killed while nobody polls wakes who sleeps on FD.
func TestPeerKilledWakesTheSleeper(t *testing.T) {
	h, p, _ := spawn(t, modeSink, fabric.EndpointOptions{ID: 3})
	h.poll()
	ok, err := h.l.Arm()
	require.NoError(t, err)
	require.True(t, ok)
	p.Kill()
	fds := []unix.PollFd{{Fd: int32(h.l.FD()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(testutil.Limit.Milliseconds()))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	h.l.Disarm()
	until(t, "down", func() bool { return len(h.got) == 1 }, h)
	require.Equal(t, fabric.OpDown, h.got[0].Op)
}
