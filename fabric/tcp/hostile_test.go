//go:build linux

package tcp

import (
	"encoding/binary"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// stage is an endpoint whose peer is the test itself, at the other end of a
// socket pair.
type stage struct {
	*host
	peer *os.File
	mem  *testutil.Guarded // what the region in host.reg names: a page between two
	reg  fabric.Region
}

// newStage joins an endpoint of l with a raw socket. peerReads is what the peer
// announced.
func newStage(tb testing.TB, l *link, peerReads uint32) *stage {
	return newStageOf(tb, l, peerReads, testutil.Limit)
}

func newStageOf(tb testing.TB, l *link, peerReads uint32, peerTimeout time.Duration) *stage {
	ep, err := l.NewEndpoint(fabric.EndpointOptions{ID: 7, Depth: 8, PeerTimeout: peerTimeout})
	require.NoError(tb, err)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(tb, err)
	s := &stage{host: &host{tb: tb, l: l, ep: ep.(*endpoint)}, peer: os.NewFile(uintptr(fds[1]), "peer")}
	s.ep.mu.Lock()
	s.ep.sock = socket{fd: fds[0], sys: &l.shared}
	s.ep.publish(peerReads, 0)
	s.ep.mu.Unlock()
	tb.Cleanup(func() {
		_ = s.peer.Close()
		require.NoError(tb, s.ep.Close())
		s.poll()
	})
	return s
}

func openLink(tb testing.TB) *link {
	l, err := Open(nil)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, l.Close()) })
	return l.(*link)
}

// target registers one page between two that are not.
func (s *stage) target(access fabric.Access) {
	s.mem = testutil.Guard(testutil.Scratch(s.tb, 3*4096), 4096, 4096)
	reg, err := s.l.Register(s.mem.Buf, access)
	require.NoError(s.tb, err)
	s.tb.Cleanup(func() { require.NoError(s.tb, reg.Close()) })
	s.reg = reg
}

func (s *stage) say(b []byte) {
	s.tb.Helper()
	require.NoError(s.tb, s.peer.SetDeadline(time.Now().Add(testutil.Limit)))
	_, err := s.peer.Write(b)
	require.NoError(s.tb, err)
}

// hear polls until the endpoint has sent a frame and returns it.
func (s *stage) hear() (h header, payload []byte) {
	s.tb.Helper()
	defer func() { require.NoError(s.tb, s.peer.SetReadDeadline(time.Time{})) }() // of looking for more
	buf := make([]byte, 0, headerSize)
	read := func(n int) []byte {
		until(s.tb, "a frame", func() bool {
			require.NoError(s.tb, s.peer.SetReadDeadline(time.Now().Add(time.Millisecond))) // deadline: read what is there
			k, err := s.peer.Read(buf[len(buf):n])
			buf = buf[:len(buf)+k]
			if err != nil && !os.IsTimeout(err) {
				s.tb.Fatal(err)
			}
			return len(buf) == n
		}, s.host)
		return buf
	}
	require.NoError(s.tb, h.parse(read(headerSize)))
	if n := h.size() - headerSize; n > 0 {
		buf = make([]byte, 0, n)
		payload = read(int(n))
	}
	return h, payload
}

// wantDown polls until the endpoint has gone down with st.
func (s *stage) wantDown(st fabric.Status) {
	s.tb.Helper()
	until(s.tb, "down", func() bool { return s.ep.state.Load() == epDown }, s.host)
	s.poll()
	last := s.got[len(s.got)-1]
	require.Equal(s.tb, fabric.Completion{EP: 7, Op: fabric.OpDown, Status: st}, last)
	require.ErrorIs(s.tb, s.ep.Err(), st.Err())
}

func TestPeerSpeaksTheProtocol(t *testing.T) {
	s := newStage(t, openLink(t), 4)
	s.target(fabric.AccessAll)
	k := s.reg.Key()

	w := header{op: opWrite, flags: wireAck | wireNotify, imm: 5, n: 11, rkey: k.RKey, addr: k.Addr + 3}
	msg := append(w.append(nil), "hello world"...)
	for i := range msg { // a byte at a time
		s.say(msg[i : i+1])
		s.poll()
	}
	require.Equal(t, "hello world", string(s.mem.Buf[3:14]))
	require.Equal(t, []fabric.Completion{{EP: 7, Op: fabric.OpNotify, Imm: 5, Bytes: 11}}, s.got)
	h, _ := s.hear()
	require.Equal(t, header{op: opAck, ack: 1}, h)

	s.say((&header{op: opRead, seq: 1, n: 5, rkey: k.RKey, addr: k.Addr + 9}).append(nil))
	h, b := s.hear()
	require.Equal(t, header{op: opReadReply, ack: 2, seq: 1, n: 5}, h)
	require.Equal(t, "world", string(b))

	operands := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 40), 2)
	s.say(append((&header{op: opFetchAdd, seq: 2, n: operandsSize, rkey: k.RKey, addr: k.Addr + 64}).append(nil), operands...))
	h, b = s.hear()
	require.Equal(t, header{op: opAtomicReply, ack: 3, seq: 2, n: resultSize}, h)
	old := binary.LittleEndian.Uint64(b)
	require.Equal(t, old+40, testutil.Load64(s.mem.Buf[64:]))

	s.say((&header{op: opAck, flags: wireAck}).append(nil))
	h, _ = s.hear()
	require.Equal(t, header{op: opAck, ack: 3}, h)
	require.NoError(t, s.mem.Check())
}

func TestMalformedFramesEndTheEndpoint(t *testing.T) {
	l := openLink(t)
	for name, msg := range map[string]header{
		"unknown":          {op: 99},
		"flags":            {op: opWrite, flags: 0x80},
		"sequence":         {op: opWrite, seq: 1},
		"ack of nothing":   {op: opAck, ack: 1},
		"reply":            {op: opReadReply, n: 8},
		"atomic reply":     {op: opAtomicReply, n: resultSize},
		"refusal":          {op: opNak, status: fabric.StatusRemoteAccess},
		"too long":         {op: opWrite, n: maxMessage + 1},
		"read without any": {op: opRead, n: 0, seq: 0}, // allowed none: see below
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, l, 0)
			s.say(msg.append(nil))
			s.wantDown(fabric.StatusRemoteInvalid)
		})
	}
}

// A peer that asks and never listens is cut off at what it announced.
func TestReadsBeyondTheAnnouncedAreRefused(t *testing.T) {
	s := newStage(t, openLink(t), 4)
	big, err := s.l.Alloc(4<<20, fabric.AccessAll)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, big.Close()) })
	ask := func(seq uint32) {
		s.say((&header{op: opRead, seq: seq, n: 4 << 20, rkey: big.Key().RKey, addr: big.Addr()}).append(nil))
		for range 20 {
			s.poll()
		}
	}
	// What is announced is granted, and what fits into the segments besides.
	for seq := range uint32(4) {
		ask(seq)
		require.Equal(t, epUp, s.ep.state.Load(), "read %d", seq)
	}
	for seq := uint32(4); s.ep.state.Load() == epUp; seq++ {
		require.Less(t, seq, uint32(4+maxSegs))
		ask(seq)
	}
	s.wantDown(fabric.StatusRemoteInvalid)
}

// A refused request is answered, its payload ignored, and both sides end in order.
func TestRefusal(t *testing.T) {
	s := newStage(t, openLink(t), 4)
	s.target(fabric.AccessRemoteWrite)
	k := s.reg.Key()
	testutil.Fill(s.mem.Buf, 1, 0)
	good := header{op: opWrite, n: 8, rkey: k.RKey, addr: k.Addr}
	bad := header{op: opWrite, seq: 1, n: 100 << 10, rkey: k.RKey, addr: k.Addr + 4000}
	msg := append(good.append(nil), "12345678"...)
	msg = append(bad.append(msg), make([]byte, bad.n)...)
	msg = append((&header{op: opWrite, seq: 2, n: 8, rkey: k.RKey, addr: k.Addr + 8}).append(msg), "abcdefgh"...)
	done := make(chan error, 1)
	go func() { _, err := s.peer.Write(msg); done <- err }()
	h, _ := s.hear()
	require.Equal(t, header{op: opNak, status: fabric.StatusRemoteAccess, ack: 1, seq: 1}, h)
	s.wantDown(fabric.StatusRemoteAccess)
	// It goes on emptying the socket, so that the refusal is not destroyed.
	until(t, "payload taken", func() bool {
		select {
		case err := <-done:
			require.NoError(t, err)
			return true
		default:
			return false
		}
	}, s.host)
	require.Equal(t, "12345678", string(s.mem.Buf[:8]))
	require.NoError(t, testutil.Verify(s.mem.Buf[8:], 1, 8))
	require.NoError(t, s.mem.Check())
	_, err := io.ReadAll(s.peer)
	require.NoError(t, err)
	require.NoError(t, s.peer.Close())
	until(t, "socket closed", func() bool { return !s.ep.sock.open() }, s.host)
}

// The longest write there is has a length that an int of 32 bits does not hold. What
// comes of it is counted, and taken for nothing else.
func TestLongestWriteIsCounted(t *testing.T) {
	s := newStage(t, openLink(t), 4)
	const part = 3 * rxSize / 2
	s.say(append((&header{op: opWrite, n: maxMessage, rkey: 1, addr: 1}).append(nil), make([]byte, part)...))
	s.poll()
	require.True(t, s.ep.resp.refused)
	require.Equal(t, rxSkip, s.ep.in.st)
	require.Equal(t, uint64(maxMessage-part), uint64(s.ep.in.left))
	require.Equal(t, s.ep.in.w, s.ep.in.r, "all of it is consumed")
	s.wantDown(fabric.StatusRemoteAccess)
}

// A peer that was refused and does not hang up loses its socket all the same.
func TestRefusalDoesNotWaitForEver(t *testing.T) {
	s := newStageOf(t, openLink(t), 4, 300*time.Millisecond)
	s.say((&header{op: opWrite, n: 0x7fffffff, rkey: 1, addr: 1}).append(nil))
	s.wantDown(fabric.StatusRemoteAccess)
	until(t, "socket closed", func() bool { return !s.ep.sock.open() }, s.host)
}

// Close of a region ends a write that is streaming into it.
func TestRegionClosedUnderAWrite(t *testing.T) {
	l := openLink(t)
	for _, part := range []int{0, 10, 100 << 10} {
		s := newStage(t, l, 4)
		const size = 1 << 20
		mem := testutil.Scratch(t, size)
		reg, err := s.l.Register(mem, fabric.AccessAll)
		require.NoError(t, err)
		rest := make([]byte, size)
		for i := range rest {
			rest[i] = 0xee
		}
		h := header{op: opWrite, n: size, rkey: reg.Key().RKey, addr: reg.Addr()}
		s.say(h.append(nil))
		s.say(rest[:part])
		for range 50 {
			s.poll()
		}
		require.EqualValues(t, part, size-s.ep.in.left)
		require.NoError(t, reg.Close())
		clear(mem)
		go func() { _, _ = s.peer.Write(rest[part:]) }()
		got, _ := s.hear()
		require.Equal(t, header{op: opNak, status: fabric.StatusRemoteAccess}, got)
		s.wantDown(fabric.StatusRemoteAccess)
		require.Equal(t, make([]byte, size), mem)
	}
}

// The same while the owner polls in another goroutine: once Close has
// returned, the memory does not change any more.
func TestRegionCloseWaitsForAccesses(t *testing.T) {
	l := openLink(t)
	const size = 1 << 20
	for range 20 {
		s := newStage(t, l, 4)
		mem := testutil.Scratch(t, size)
		reg, err := l.Register(mem, fabric.AccessAll)
		require.NoError(t, err)
		writing, stop, polled := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() { // the peer
			payload := make([]byte, size)
			for seq := uint32(0); ; seq++ {
				for i := range payload {
					payload[i] = byte(seq + 1)
				}
				h := header{op: opWrite, seq: seq, n: size, rkey: reg.Key().RKey, addr: reg.Addr()}
				if _, err := s.peer.Write(append(h.append(nil), payload...)); err != nil {
					return
				}
				if seq == 1 {
					close(writing)
				}
			}
		}()
		go func() { // the owner
			defer close(polled)
			for {
				select {
				case <-stop:
					return
				default:
					s.poll()
				}
			}
		}()
		<-writing
		require.NoError(t, reg.Close())
		was := append([]byte(nil), mem...)
		testutil.Eventually(t, testutil.Limit, func() bool { return s.ep.Err() != nil }, "down")
		require.Equal(t, was, mem)
		close(stop)
		<-polled
		require.ErrorIs(t, s.ep.Err(), fabric.ErrRemoteAccess)
		require.NoError(t, s.peer.Close())
	}
}

// A read that was accepted and whose region then goes is refused; one that is
// half answered ends the connection.
func TestRegionClosedUnderARead(t *testing.T) {
	l := openLink(t)
	for _, n := range []uint32{100, 1 << 20} {
		s := newStage(t, l, 4)
		reg, err := l.Alloc(8<<20, fabric.AccessAll)
		require.NoError(t, err)
		k := reg.Key()
		// The first fills the socket, the second waits behind it.
		s.say((&header{op: opRead, n: 8 << 20, rkey: k.RKey, addr: k.Addr}).append(nil))
		s.say((&header{op: opRead, seq: 1, n: n, rkey: k.RKey, addr: k.Addr}).append(nil))
		for range 50 {
			s.poll()
		}
		require.Equal(t, uint32(2), s.ep.out.acks.executed)
		require.NoError(t, reg.Close())
		s.wantDown(fabric.StatusPeerGone)
	}
	s := newStage(t, l, 4)
	reg, err := l.Alloc(4096, fabric.AccessAll)
	require.NoError(t, err)
	s.poll()
	s.ep.resp.replies.push(reply{kind: replyRead, n: 4096, rkey: reg.LKey(), val: reg.Addr()})
	s.ep.resp.replies.push(reply{kind: replyRead, seq: 1, n: 10, rkey: reg.LKey(), val: reg.Addr()})
	s.ep.out.acks.executed = 2
	require.NoError(t, reg.Close())
	h, _ := s.hear()
	require.Equal(t, header{op: opNak, status: fabric.StatusRemoteAccess, ack: 2}, h)
	s.wantDown(fabric.StatusRemoteAccess)
}

// Undelivered notifications stop the endpoint's receiving, not its memory.
func TestNotificationsAreBounded(t *testing.T) {
	s := newStage(t, openLink(t), 4)
	var msg []byte
	const n = 3*maxNotes + 5
	for i := range uint32(n) {
		msg = (&header{op: opWrite, flags: wireNotify, seq: i, imm: i}).append(msg)
	}
	go func() { _, _ = s.peer.Write(msg) }()
	var one [1]fabric.Completion
	seen := uint32(0)
	until(t, "all notifications", func() bool {
		require.LessOrEqual(t, s.ep.comps.notes, maxNotes)
		for range 3 {
			s.ep.progress() // more comes in than goes out
		}
		if k := s.l.Poll(one[:]); k == 1 {
			require.Equal(t, seen, one[0].Imm)
			seen++
		}
		return seen == n
	})
}

// frames a hostile peer might send; key 1 and address 0 stand for the region's.
func hostileSeeds() [][]byte {
	var all, one []byte
	payload := make([]byte, 5000)
	for _, h := range []header{
		{op: opWrite, flags: wireAck, n: 100, rkey: 1, addr: 8},
		{op: opWrite, flags: wireAck | wireNotify, seq: 1, imm: 3, n: 4096, rkey: 1},
		{op: opRead, seq: 2, n: 4096, rkey: 1},
		{op: opFetchAdd, seq: 3, n: operandsSize, rkey: 1, addr: 16},
		{op: opCompareSwap, seq: 4, n: operandsSize, rkey: 1, addr: 24},
		{op: opAck, ack: 1},
		{op: opReadReply, ack: 3, seq: 1, n: 3000},
		{op: opAtomicReply, ack: 3, seq: 2, n: resultSize},
		{op: opWrite, seq: 5, n: 5000, rkey: 1},
		{op: opNak, ack: 1, seq: 1, status: fabric.StatusRemoteAccess},
	} {
		one = h.append(nil)
		one = append(one, payload[:h.size()-headerSize]...)
		all = append(all, one...)
	}
	return [][]byte{all, one, all[:headerSize+50], (&header{op: opWrite, n: 4097, rkey: 1}).append(nil), {}}
}

// FuzzReceiver feeds an endpoint arbitrary bytes: it never panics, writes
// nothing outside the region that admits it and the pieces of its own requests,
// and completes every request of its own exactly once.
func FuzzReceiver(f *testing.F) {
	for _, b := range hostileSeeds() {
		f.Add(b, uint16(0))
		f.Add(b, uint16(7))
	}
	f.Fuzz(func(t *testing.T, b []byte, chunk uint16) {
		if len(b) > 32<<10 {
			return
		}
		l := openLink(t)
		s := newStage(t, l, 3)
		s.target(fabric.AccessAll)
		lm := testutil.Guard(testutil.Scratch(t, 3*4096), 4096, 4096)
		lr, err := l.Register(lm.Buf, fabric.AccessLocalWrite)
		require.NoError(t, err)
		defer lr.Close()
		sge := func(off, n uint64) []fabric.SGE {
			return []fabric.SGE{{Addr: lr.Addr() + off, Len: uint32(n / 2), LKey: lr.LKey()}, {Addr: lr.Addr() + off + n/2, Len: uint32(n - n/2), LKey: lr.LKey()}}
		}
		n, err := s.ep.Post([]fabric.WR{
			{ID: 1, Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Local: sge(0, 2000)},
			{ID: 2, Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: sge(500, 3000)},
			{ID: 3, Op: fabric.OpFetchAdd, Flags: fabric.FlagSignaled, Local: sge(4080, 16)[1:]},
		})
		require.NoError(t, err)
		require.Equal(t, 3, n)

		b = append([]byte(nil), b...)
		for at := 0; at+headerSize <= len(b); {
			var h header
			if h.parse(b[at:]) != nil {
				break
			}
			if h.rkey == 1 {
				h.rkey, h.addr = s.reg.Key().RKey, h.addr+s.reg.Addr()
				h.put(b[at:])
			}
			if h.size() > uint64(len(b)-at) {
				break
			}
			at += int(h.size())
		}
		step := int(chunk)
		if step == 0 {
			step = len(b)
		}
		discard := make([]byte, 64<<10)
		for len(b) > 0 && s.ep.state.Load() == epUp {
			k := min(step, len(b))
			s.say(b[:k])
			b = b[k:]
			s.poll()
			require.NoError(t, s.peer.SetReadDeadline(time.Now().Add(-1)))
			_, _ = s.peer.Read(discard)
		}
		require.NoError(t, s.peer.Close())
		until(t, "down", func() bool { return s.ep.state.Load() == epDown && !s.ep.sock.open() }, s.host)
		for s.l.ready.head != nil {
			s.poll()
		}
		seen := map[uint64]int{}
		downs := 0
		for _, c := range s.got {
			switch c.Op {
			case fabric.OpNotify:
			case fabric.OpDown:
				downs++
			default:
				seen[c.ID]++
			}
		}
		require.Equal(t, map[uint64]int{1: 1, 2: 1, 3: 1}, seen)
		require.Equal(t, 1, downs)
		require.NoError(t, s.mem.Check())
		require.NoError(t, lm.Check())
	})
}
