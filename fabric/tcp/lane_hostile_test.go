//go:build linux

package tcp

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// giveLanes puts the test at the other end of n lanes as well.
func (s *stage) giveLanes(n int) []*os.File {
	var ours []socket
	var theirs []*os.File
	for range n {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		require.NoError(s.tb, err)
		f := os.NewFile(uintptr(fds[1]), "lane")
		s.tb.Cleanup(func() { _ = f.Close() })
		ours, theirs = append(ours, socket{fd: fds[0], sys: &s.l.shared}), append(theirs, f)
	}
	s.ep.mu.Lock()
	s.ep.lanes.init(ours, 1, 0)
	s.ep.mu.Unlock()
	return theirs
}

func tell(tb testing.TB, f *os.File, b []byte) {
	tb.Helper()
	require.NoError(tb, f.SetDeadline(time.Now().Add(testutil.Limit)))
	_, err := f.Write(b)
	require.NoError(tb, err)
}

// What comes by a lane is placed only as far as it was announced.
func TestHostileLanes(t *testing.T) {
	t.Parallel()
	bulk := func(h header, n int) []byte {
		h.op = opBulk
		return append(h.append(nil), make([]byte, n)...)
	}
	for name, c := range map[string]struct {
		lane [2][]byte
		want fabric.Status
	}{
		"not of lanes":        {lane: [2][]byte{(&header{op: opAck}).append(nil)}, want: fabric.StatusRemoteInvalid},
		"malformed":           {lane: [2][]byte{make([]byte, headerSize)}, want: fabric.StatusRemoteInvalid},
		"of the past":         {lane: [2][]byte{bulk(header{seq: ^uint32(0), n: 8}, 8)}, want: fabric.StatusRemoteInvalid},
		"of a far future":     {lane: [2][]byte{bulk(header{seq: maxDepth + 2, n: 8}, 8)}, want: fabric.StatusRemoteInvalid},
		"too long":            {lane: [2][]byte{bulk(header{n: 101}, 101)}, want: fabric.StatusRemoteInvalid},
		"too far":             {lane: [2][]byte{bulk(header{n: 51, addr: 50}, 51)}, want: fabric.StatusRemoteInvalid},
		"way too far":         {lane: [2][]byte{bulk(header{n: 8, addr: maxMessage - 1}, 8)}, want: fabric.StatusRemoteInvalid},
		"twice":               {lane: [2][]byte{bulk(header{n: 60}, 10), bulk(header{n: 60, addr: 40}, 60)}, want: fabric.StatusRemoteInvalid},
		"answers nothing":     {lane: [2][]byte{bulk(header{flags: wireReply, n: 8}, 8)}, want: fabric.StatusRemoteInvalid},
		"hangs up one":        {want: fabric.StatusPeerGone},
		"of the next request": {lane: [2][]byte{bulk(header{seq: 1, n: 8}, 8)}, want: fabric.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, openLink(t), 4)
			s.target(fabric.AccessAll)
			lanes := s.giveLanes(2)
			k := s.reg.Key()
			s.say((&header{op: opWrite, flags: wireLanes, n: 100, rkey: k.RKey, addr: k.Addr}).append(nil))
			until(t, "announcement", func() bool { return s.ep.resp.laned.on }, s.host)
			for i, b := range c.lane {
				if b != nil {
					tell(t, lanes[i], b)
				}
				for range 4 {
					s.poll()
				}
			}
			if c.want == fabric.StatusPeerGone {
				require.NoError(t, lanes[1].Close())
			}
			if c.want != fabric.StatusOK {
				s.wantDown(c.want)
				require.NoError(t, s.mem.Check())
				return
			}
			// A frame that is early waits; the lane behind it as well.
			require.True(t, s.ep.lanes.all[0].stalled)
			tell(t, lanes[1], bulk(header{n: 100}, 100))
			until(t, "the write", func() bool { return s.ep.out.acks.executed == 1 }, s.host)
			s.say((&header{op: opWrite, seq: 1, flags: wireLanes, n: 8, rkey: k.RKey, addr: k.Addr}).append(nil))
			until(t, "the next", func() bool { return s.ep.out.acks.executed == 2 }, s.host)
			require.False(t, s.ep.lanes.all[0].stalled)
			require.NoError(t, s.mem.Check())
		})
	}
}

// Payload for lanes that do not exist, and for memory that was not given.
func TestHostileAnnouncements(t *testing.T) {
	t.Parallel()
	s := newStage(t, openLink(t), 4)
	s.target(fabric.AccessAll)
	k := s.reg.Key()
	s.say((&header{op: opWrite, flags: wireLanes, n: 100, rkey: k.RKey, addr: k.Addr}).append(nil))
	s.wantDown(fabric.StatusRemoteInvalid)

	s = newStage(t, openLink(t), 4)
	s.target(fabric.AccessAll)
	s.giveLanes(1)
	s.say((&header{op: opWrite, flags: wireLanes, n: 5000, rkey: s.reg.Key().RKey, addr: s.reg.Key().Addr}).append(nil))
	h, _ := s.hear()
	require.Equal(t, opNak, h.op)
	require.Equal(t, fabric.StatusRemoteAccess, h.status)

	s = newStage(t, openLink(t), 4)
	s.giveLanes(1)
	s.say((&header{op: opBulk, n: 8}).append(nil))
	s.wantDown(fabric.StatusRemoteInvalid)
}

// The region of a large write is closed while its payload comes: the write is
// refused, and nothing touches the memory any more.
func TestRegionClosedUnderLargeWrite(t *testing.T) {
	t.Parallel()
	s := newStage(t, openLink(t), 4)
	lanes := s.giveLanes(1)
	mem := testutil.Scratch(t, 4096)
	reg, err := s.l.Register(mem, fabric.AccessAll)
	require.NoError(t, err)
	s.say((&header{op: opWrite, flags: wireLanes, n: 4096, rkey: reg.Key().RKey, addr: reg.Addr()}).append(nil))
	tell(t, lanes[0], append((&header{op: opBulk, n: 4096}).append(nil), 1, 2, 3, 4))
	until(t, "its first bytes", func() bool { return s.ep.resp.laned.left == 4092 }, s.host)
	require.NoError(t, reg.Close())
	tell(t, lanes[0], []byte{5, 6, 7, 8})
	h, _ := s.hear()
	require.Equal(t, opNak, h.op)
	require.Equal(t, []byte{1, 2, 3, 4, 0, 0, 0, 0}, mem[:8])
	require.NoError(t, s.peer.Close())
	s.wantDown(fabric.StatusRemoteAccess)
}

// A write whose payload two lanes are bringing is refused once.
func TestLargeWriteIsRefusedOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, openLink(t), 4)
	s.target(fabric.AccessAll)
	lanes := s.giveLanes(2)
	k := s.reg.Key()
	n, err := s.ep.Post([]fabric.WR{{Op: fabric.OpRead, Local: []fabric.SGE{{Addr: k.Addr, Len: 100, LKey: k.RKey}}, RemoteAddr: 8, RKey: 8}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	h, _ := s.hear()
	require.Equal(t, opRead, h.op)
	s.say((&header{op: opReadReply, flags: wireLanes, ack: 1, n: 100}).append(nil)) // more is expected than the write

	mem := testutil.Scratch(t, 4096)
	reg, err := s.l.Register(mem, fabric.AccessAll)
	require.NoError(t, err)
	s.say((&header{op: opWrite, flags: wireLanes, ack: 1, n: 4096, rkey: reg.Key().RKey, addr: reg.Addr()}).append(nil))
	for i, at := range []uint64{0, 2048} {
		tell(t, lanes[i], append((&header{op: opBulk, n: 2048, addr: at}).append(nil), 1, 2, 3, 4))
	}
	until(t, "first bytes of both", func() bool { return s.ep.resp.laned.left == 4096-8 }, s.host)
	require.NoError(t, reg.Close())
	for _, ln := range lanes {
		tell(t, ln, []byte{5, 6, 7, 8})
	}
	h, _ = s.hear()
	require.Equal(t, opNak, h.op)
	until(t, "down", func() bool { return s.ep.state.Load() == epDown }, s.host)
	rest, err := io.ReadAll(s.peer) // ends: this side says no more
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Equal(t, []byte{1, 2, 3, 4, 0, 0, 0, 0}, mem[:8])
	require.Equal(t, []byte{1, 2, 3, 4, 0, 0, 0, 0}, mem[2048:2056])
}

// FuzzLanes feeds the first connection and a lane arbitrary bytes: nothing outside
// the region and the pieces of this side's read is written, and every request
// ends once.
func FuzzLanes(f *testing.F) {
	w := header{op: opWrite, flags: wireLanes | wireAck, n: 100, rkey: 1}
	r := header{op: opReadReply, flags: wireLanes, n: 3000}
	first := r.append(w.append(nil))
	reply := append((&header{op: opBulk, flags: wireReply, n: 3000}).append(nil), make([]byte, 3000)...)
	good := append((&header{op: opBulk, n: 60}).append(nil), make([]byte, 60)...)
	good = append(append(good, (&header{op: opBulk, n: 40, addr: 60}).append(nil)...), make([]byte, 40)...)
	f.Add(first, append(append([]byte(nil), reply...), good...))
	f.Add(first, append(append([]byte(nil), good...), reply...))
	f.Add(first, good[:headerSize+70])
	f.Add(w.append(nil), (&header{op: opBulk, n: 101}).append(nil))
	f.Add(r.append(nil), (&header{op: opBulk, flags: wireReply, seq: 1, n: 1}).append(nil))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		if len(first)+len(second) > 32<<10 {
			return
		}
		l := openLink(t)
		s := newStage(t, l, 3)
		s.target(fabric.AccessAll)
		lanes := s.giveLanes(1)
		lm := testutil.Guard(testutil.Scratch(t, 3*4096), 4096, 4096)
		lr, err := l.Register(lm.Buf, fabric.AccessLocalWrite)
		require.NoError(t, err)
		defer lr.Close()
		s.post(fabric.WR{ID: 1, Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: []fabric.SGE{
			{Addr: lr.Addr(), Len: 1000, LKey: lr.LKey()}, {Addr: lr.Addr() + 2096, Len: 2000, LKey: lr.LKey()}}})
		first = append([]byte(nil), first...)
		for at := 0; at+headerSize <= len(first); {
			var h header
			if h.parse(first[at:]) != nil {
				break
			}
			if h.rkey == 1 {
				h.rkey, h.addr = s.reg.Key().RKey, h.addr+s.reg.Addr()
				h.put(first[at:])
			}
			if h.size() > uint64(len(first)-at) {
				break
			}
			at += int(h.size())
		}
		for i, b := range [][]byte{first, second} {
			to := []*os.File{s.peer, lanes[0]}[i]
			for len(b) > 0 && s.ep.state.Load() == epUp {
				k := min(500, len(b))
				tell(t, to, b[:k])
				b = b[k:]
				s.poll()
			}
		}
		s.poll()
		require.NoError(t, lanes[0].Close())
		require.NoError(t, s.peer.Close())
		until(t, "down", func() bool { return s.ep.state.Load() == epDown && !s.ep.sock.open() }, s.host)
		for s.l.ready.head != nil {
			s.poll()
		}
		ends := 0
		for _, c := range s.got {
			if c.Op == fabric.OpRead {
				ends++
			}
		}
		require.Equal(t, 1, ends)
		require.NoError(t, s.mem.Check())
		require.NoError(t, lm.Check())
	})
}
