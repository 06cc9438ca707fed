package shm

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/testutil"
)

// Going to sleep finds what a peer has broken: the end of the endpoint is there to be
// polled, and nothing else would wake its owner.
func TestArmFindsACorruptHead(t *testing.T) {
	t.Parallel()
	x, y := pair(t, Options{}, fabric.EndpointOptions{ID: 1, Depth: 4 * minSlots})
	wr := write(alloc(t, x.link, 8), 0, 8, alloc(t, y.link, 8).Key(), 0)
	wr.Flags = fabric.FlagNotify
	for n := 1; n == 1; {
		n, _ = x.Post([]fabric.WR{wr})
	}
	y.own.hdr.head.Store(1 << 40)
	quiet, err := x.link.Arm()
	require.NoError(t, err)
	require.False(t, quiet)
	require.Equal(t, fabric.Completion{EP: 1, Op: fabric.OpDown, Status: fabric.StatusRemoteInvalid}, await(t, x.link))
}

// A peer that writes nonsense takes down its endpoint and no other. In the
// tests the hostile side is y, which misuses its mappings.
func TestHostilePeer(t *testing.T) {
	type scene struct {
		tb   testing.TB
		x, y *endpoint
		la   fabric.Region // of x
		lb   fabric.Region // of y
	}
	raw := func(s *scene, w frameWords) {
		f := &s.y.out.slots[s.y.out.tail%uint64(len(s.y.out.slots))]
		f.w = w
		s.y.out.tail++
		f.seq.Store(s.y.out.tail)
	}
	send := func(s *scene, b []byte, fds ...int) { require.NoError(t, sendFDs(s.y.sock.fd, b, fds...)) }
	memfd := func(size int, sealed bool) int {
		fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		require.NoError(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		require.NoError(t, unix.Ftruncate(fd, int64(size)))
		if sealed {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
			require.NoError(t, err)
		}
		return fd
	}
	fill := func(s *scene) { // x's ring, until Post looks at the head
		wr := write(s.la, 0, 8, s.lb.Key(), 0)
		wr.Flags = fabric.FlagNotify
		for range len(s.x.out.slots) + 1 {
			if n, _ := s.x.Post([]fabric.WR{wr}); n == 0 {
				return
			}
		}
	}
	request := func(s *scene) { // a request of x that y never answers properly
		post(t, s.x, write(s.la, 0, 8, register(s.tb, s.y.link, 64).Key(), 0))
	}
	withdraw := func(s *scene) { // the region that x writes to
		e := &s.y.link.table[s.lb.Key().RKey%tableSlots]
		e.key.Store(0)
		e.gen.Add(2)
	}
	for name, attack := range map[string]func(s *scene){
		"sequence ahead":   func(s *scene) { s.y.out.slots[0].seq.Store(77) },
		"sequence wild":    func(s *scene) { s.y.out.slots[0].seq.Store(^uint64(0) - 5) },
		"unknown frame":    func(s *scene) { raw(s, frameWords{99}) },
		"slot too large":   func(s *scene) { raw(s, (&message{kind: frameWrite, slot: maxReqs, bytes: 8}).words()) },
		"length too large": func(s *scene) { raw(s, (&message{kind: frameRead, bytes: 1 << 31}).words()) },
		"odd atomic":       func(s *scene) { raw(s, (&message{kind: frameFetchAdd, bytes: 8, addr: 5}).words()) },
		"head ahead":       func(s *scene) { s.y.own.hdr.head.Store(1 << 40); fill(s) },
		"head backwards":   func(s *scene) { fill(s); s.y.own.hdr.head.Store(10); fill(s); s.y.own.hdr.head.Store(5); fill(s) },
		"reply of unknown status": func(s *scene) {
			request(s)
			s.y.peer.replies[0].status.Store(12345678)
			s.y.peer.replies[0].seq.Store(1)
		},
		"unknown message":        func(s *scene) { send(s, []byte{1, 2, 3}) },
		"long message":           func(s *scene) { send(s, make([]byte, 4*maxMsg)) },
		"wake with a descriptor": func(s *scene) { send(s, wakeMessage, memfd(4096, true)) },
		"segment without one":    func(s *scene) { send(s, (&note{typ: msgSegment, seg: 9, size: 4096}).append(nil)) },
		"segment with four": func(s *scene) {
			fd := memfd(4096, true)
			send(s, (&note{typ: msgSegment, seg: 9, size: 4096}).append(nil), fd, fd, fd, fd)
		},
		"segment with too many": func(s *scene) {
			fd := memfd(4096, true)
			send(s, (&note{typ: msgSegment, seg: 9, size: 4096}).append(nil), fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd)
		},
		"segment not sealed": func(s *scene) {
			send(s, (&note{typ: msgSegment, seg: 9, size: 4096}).append(nil), memfd(4096, false))
		},
		"segment too small": func(s *scene) {
			send(s, (&note{typ: msgSegment, seg: 9, size: 8192}).append(nil), memfd(4096, true))
		},
		"segment that is a pipe": func(s *scene) {
			var p [2]int
			require.NoError(t, unix.Pipe2(p[:], unix.O_CLOEXEC))
			send(s, (&note{typ: msgSegment, seg: 9, size: 4096}).append(nil), p[0])
			require.NoError(t, unix.Close(p[0]))
			require.NoError(t, unix.Close(p[1]))
		},
		"segment twice": func(s *scene) {
			fd := memfd(4096, true)
			b := (&note{typ: msgSegment, seg: 9, size: 4096}).append(nil)
			send(s, b, fd)
			send(s, b, fd)
		},
		"region beyond its segment": func(s *scene) {
			e := &s.y.link.table[s.lb.Key().RKey%tableSlots]
			e.size.Store(1 << 30)
			e.gen.Add(2)
			_, err := s.x.Post([]fabric.WR{write(s.la, 0, 8, s.lb.Key(), 0)})
			require.ErrorIs(t, err, fabric.ErrDown)
		},
		"region off its segment": func(s *scene) {
			e := &s.y.link.table[s.lb.Key().RKey%tableSlots]
			e.segOff.Store(^uint64(0) - 100)
			e.gen.Add(2)
			_, err := s.x.Post([]fabric.WR{write(s.la, 0, 8, s.lb.Key(), 0)})
			require.ErrorIs(t, err, fabric.ErrDown)
		},
		"unknown message behind a withdrawn key": func(s *scene) {
			withdraw(s)
			send(s, []byte{1, 2, 3})
			_, err := s.x.Post([]fabric.WR{write(s.la, 0, 8, s.lb.Key(), 0)})
			require.ErrorIs(t, err, fabric.ErrDown)
		},
		"unknown message behind a good-bye": func(s *scene) {
			withdraw(s)
			send(s, nil)
			s.x.link.keepHouse()
			send(s, []byte{1, 2, 3})
			_, err := s.x.Post([]fabric.WR{write(s.la, 0, 8, s.lb.Key(), 0)})
			require.ErrorIs(t, err, fabric.ErrDown)
		},
		"unknown message before a queued request": func(s *scene) {
			request(s)
			post(t, s.x, write(s.la, 0, 8, s.lb.Key(), 0))
			poll(t, s.y.link) // answers the first
			withdraw(s)
			send(s, []byte{1, 2, 3})
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := openPair(t, Options{DisableCMA: true})
			s := &scene{tb: t, la: alloc(t, a, 4096), lb: alloc(t, b, 4096)}
			s.x, s.y = pairOn(t, a, b, fabric.EndpointOptions{ID: 1, Depth: 4 * minSlots})
			ok, peer := pairOn(t, a, b, fabric.EndpointOptions{ID: 2})
			_ = peer
			attack(s)
			var cs [8]fabric.Completion
			var down *fabric.Completion
			testutil.Eventually(t, testutil.Limit, func() bool {
				for _, c := range cs[:a.Poll(cs[:])] {
					require.EqualValues(t, 1, c.EP)
					if c.Op == fabric.OpDown {
						require.Nil(t, down)
						down = &c
					}
				}
				return down != nil
			}, "the endpoint to go down")
			if name == "reply of unknown status" {
				require.Equal(t, fabric.StatusRemoteOp, down.Status)
			} else {
				require.Equal(t, fabric.StatusRemoteInvalid, down.Status)
				require.ErrorIs(t, s.x.Err(), ErrCorrupt)
			}
			require.Zero(t, s.x.q.len(), "requests that have not been completed once")
			_, err := s.x.Post([]fabric.WR{{Op: fabric.OpWrite}})
			require.ErrorIs(t, err, fabric.ErrDown)
			keep := alloc(t, b, 4096)
			testutil.Fill(s.la.Bytes(), 5, 0)
			post(t, ok, write(s.la, 0, 4096, keep.Key(), 0))
			c := await(t, a)
			require.Equal(t, fabric.StatusOK, c.Status)
			require.NoError(t, testutil.Verify(keep.Bytes(), 5, 0))
		})
	}
}

// A peer that announces segments without memory does not use up the address space of this process.
func TestSegmentsBeyondBounds(t *testing.T) {
	fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	require.NoError(t, unix.Ftruncate(fd, maxSegment)) // takes no memory
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	require.NoError(t, err)
	for name, sizes := range map[string]func(yield func(uint64) bool){
		"bytes": func(yield func(uint64) bool) {
			for size := uint64(maxSegment); size >= 4096 && yield(size); size /= 2 {
			}
		},
		"number": func(yield func(uint64) bool) {
			for n := 0; n < maxSegments+100 && yield(4096); n++ {
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, y := pair(t, Options{DisableCMA: true}, fabric.EndpointOptions{})
			la := alloc(t, x.link, 64)
			id := uint32(1 << 20)
			for size := range sizes {
				require.NoError(t, sendFDs(y.sock.fd, (&note{typ: msgSegment, seg: id, size: size}).append(nil), fd))
				x.drainSocket()
				id++
			}
			mem, err := offheap.Alloc(1<<28, offheap.Scratch)
			require.NoError(t, err)
			require.NoError(t, offheap.Free(mem, offheap.Scratch))
			require.LessOrEqual(t, len(x.mem.segs), maxSegments)
			require.LessOrEqual(t, x.mem.mapped, hostMemory())

			lb := alloc(t, y.link, 64)
			testutil.Store64(la.Bytes(), 4711)
			post(t, x, write(la, 0, 8, lb.Key(), 0))
			require.Equal(t, fabric.StatusOK, await(t, x.link, y.link).Status)
			require.EqualValues(t, 4711, testutil.Load64(lb.Bytes()))
		})
	}
}

// What is shared with peers cannot change its size, and the control segment
// cannot be written by them.
func TestSharedFilesAreSealed(t *testing.T) {
	a, _ := openPair(t, Options{})
	r := alloc(t, a, 4096)
	_ = r
	for fd, readOnly := range map[int]bool{a.ctlFD: true, a.segments[1].fd: false} {
		require.ErrorIs(t, unix.Ftruncate(fd, 0), unix.EPERM)
		require.ErrorIs(t, unix.Ftruncate(fd, 1<<30), unix.EPERM)
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
		require.ErrorIs(t, err, unix.EPERM)
		m, err := offheap.Map(fd, 4096, offheap.Scratch)
		if readOnly {
			require.ErrorIs(t, err, unix.EPERM)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, offheap.Free(m, offheap.Scratch))
	}
}

// Entries that make no sense but lead nowhere are refused as wrong keys.
func TestHostileTable(t *testing.T) {
	for name, break_ := range map[string]func(e *tableEntry){
		"owner died half-way": func(e *tableEntry) { e.gen.Add(1) },
		"wraps":               func(e *tableEntry) { e.base.Store(^uint64(0) - 10); e.gen.Add(2) },
	} {
		t.Run(name, func(t *testing.T) {
			x, y := pair(t, Options{}, fabric.EndpointOptions{})
			la, lb := alloc(t, x.link, 64), alloc(t, y.link, 64)
			break_(&y.link.table[lb.Key().RKey%tableSlots])
			post(t, x, write(la, 0, 8, lb.Key(), 0))
			require.Equal(t, fabric.StatusRemoteAccess, await(t, x.link).Status)
			require.Equal(t, fabric.OpDown, await(t, x.link).Op)
		})
	}
}

// A private region whose owner lies about it, or unmapped it, fails without
// harm to this side.
func TestFarMemoryNotThere(t *testing.T) {
	x, y := pair(t, Options{}, fabric.EndpointOptions{})
	if !x.cma.works {
		t.Skip("process_vm_writev is not permitted here")
	}
	mem, err := offheap.Alloc(1<<16, offheap.Scratch)
	require.NoError(t, err)
	r, err := y.link.Register(mem, fabric.AccessAll)
	require.NoError(t, err)
	require.NoError(t, unix.Mprotect(mem, unix.PROT_NONE))
	la := alloc(t, x.link, 1<<16)
	post(t, x, write(la, 0, 1<<16, r.Key(), 0))
	require.Equal(t, fabric.StatusRemoteOp, await(t, x.link).Status)
	require.NoError(t, r.Close())
	require.NoError(t, offheap.Free(mem, offheap.Scratch))
}

// Strangers at the door: other tokens, silence, hang-ups. The peer gets in.
func TestStrangersAtTheListener(t *testing.T) {
	t.Parallel()
	a, b := openPair(t, Options{})
	var x, y *endpoint
	for { // x is to be the one that listens
		var err error
		x, err = a.newEndpoint(fabric.EndpointOptions{})
		require.NoError(t, err)
		y, err = b.newEndpoint(fabric.EndpointOptions{})
		require.NoError(t, err)
		if string(x.shake.addr.token[:]) < string(y.shake.addr.token[:]) {
			break
		}
		require.NoError(t, x.Close())
		require.NoError(t, y.Close())
	}
	call := func(b []byte) int {
		s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Connect(s, socketAddr(x.shake.addr.name)))
		if b != nil {
			require.NoError(t, sendFDs(s, b))
		}
		t.Cleanup(func() { unix.Close(s) })
		return s
	}
	call(nil) // says nothing
	call([]byte("hello"))
	wrong := hello{from: y.shake.addr.token}
	call(wrong.append(nil))
	right := hello{to: x.shake.addr.token, from: y.shake.addr.token}
	call(right.append(nil)) // no descriptors
	require.NoError(t, unix.Shutdown(call(nil), unix.SHUT_RDWR))
	join(t, x, y)
	la, lb := alloc(t, a, 64), alloc(t, b, 64)
	post(t, x, write(la, 0, 8, lb.Key(), 0))
	require.Equal(t, fabric.StatusOK, await(t, a).Status)
}

// Who is too slow with its hello for the peer's time limit dials again.
func TestSlowHello(t *testing.T) {
	t.Parallel()
	var host [16]byte
	a, b := &handshake{use: func(int) {}}, &handshake{use: func(int) {}}
	require.NoError(t, a.listen(host))
	require.NoError(t, b.listen(host))
	if bytes.Compare(a.addr.token[:], b.addr.token[:]) < 0 {
		a, b = b, a
	}
	t.Cleanup(func() { a.close(); b.close() })
	ctx := testutil.Context(t, testutil.Limit)
	said := make(chan error, 1)
	exchange := func(s, peer *handshake) error {
		mine := hello{to: peer.addr.token, from: s.addr.token}
		_, fds, err := s.meet(ctx, &peer.addr, func(sock int) error { return sendFDs(sock, mine.append(nil), s.listener, s.listener) })
		closeFDs(fds)
		return err
	}
	var socks, accepted []int
	note := func(to *[]int) func(int) {
		return func(sock int) {
			if sock >= 0 {
				*to = append(*to, sock)
			}
		}
	}
	a.use, b.use = note(&socks), note(&accepted)
	go func() { said <- exchange(a, b) }()
	for range 3 { // the peer turns it away before it has read the hello
		testutil.Eventually(t, testutil.Limit, func() bool {
			sock, _, err := unix.Accept4(b.listener, unix.SOCK_CLOEXEC)
			return err == nil && unix.Close(sock) == nil
		}, "a dial")
	}
	require.NoError(t, exchange(b, a))
	require.NoError(t, <-said)
	require.Len(t, socks, 4)
	require.Len(t, accepted, 1)
	closeFDs([]int{socks[3], accepted[0]}) // the others are closed
}

func TestConnectRefuses(t *testing.T) {
	a, b := openPair(t, Options{})
	x, err := a.newEndpoint(fabric.EndpointOptions{})
	require.NoError(t, err)
	y, err := b.newEndpoint(fabric.EndpointOptions{})
	require.NoError(t, err)
	ctx := testutil.Context(t, testutil.Limit)
	require.ErrorIs(t, x.Connect(ctx, nil), fabric.ErrBadAddress)
	require.ErrorIs(t, x.Connect(ctx, x.Address()), fabric.ErrBadAddress)
	other := y.shake.addr
	other.host[3]++
	require.ErrorContains(t, x.Connect(ctx, other.append(nil)), "another host")
	_, err = x.Post(make([]fabric.WR, 1))
	require.ErrorIs(t, err, fabric.ErrNotConnected)

	// Nobody comes.
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond) // deadline: it has to end
	defer cancel()
	require.ErrorIs(t, x.Connect(short, y.Address()), context.DeadlineExceeded)
	require.ErrorContains(t, x.Connect(ctx, y.Address()), "make a new one")

	// Nobody is there any more; closing ends a Connect.
	z, err := a.newEndpoint(fabric.EndpointOptions{})
	require.NoError(t, err)
	res := make(chan error, 1)
	go func() { res <- z.Connect(ctx, y.Address()) }()
	require.NoError(t, z.Close())
	require.ErrorIs(t, <-res, fabric.ErrClosed)
	gone := y.shake.addr
	gone.token = [16]byte{} // makes the other side dial
	require.NoError(t, y.Close())
	w, err := a.newEndpoint(fabric.EndpointOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, w.Connect(ctx, gone.append(nil)), fabric.ErrBadAddress)
}

// FuzzRing lets a hostile peer write anything into a channel.
func FuzzRing(f *testing.F) {
	add := func(ms ...message) {
		var b []byte
		for _, m := range ms {
			for _, w := range m.words() {
				for range 8 {
					b = append(b, byte(w))
					w >>= 8
				}
			}
		}
		f.Add(b)
	}
	add(message{kind: frameNotify, imm: 3, bytes: 9})
	add(message{kind: frameWrite, bytes: 100, key: 1, addr: 8}, message{kind: frameRead, slot: 3, bytes: 8})
	add(message{kind: frameFetchAdd, bytes: 8, addr: 64}, message{kind: frameBye})
	f.Fuzz(func(t *testing.T, b []byte) {
		x, y := pair(t, Options{}, fabric.EndpointOptions{})
		reg := register(t, x.link, 4096)
		g := testutil.Guard(reg.Bytes(), 0, 0)
		frames := 0
		for ; len(b) >= 56 && frames < minSlots; frames++ {
			fr := &y.out.slots[frames]
			for i := range fr.w {
				for k := range 8 {
					fr.w[i] |= uint64(b[8*i+k]) << (8 * k)
				}
			}
			b = b[56:]
			fr.seq.Store(uint64(frames) + 1)
		}
		var cs [8]fabric.Completion
		for range 2*frames + 4 {
			for _, c := range cs[:x.link.Poll(cs[:])] {
				require.Contains(t, []fabric.Op{fabric.OpNotify, fabric.OpDown}, c.Op)
			}
		}
		if x.isUp() {
			require.EqualValues(t, frames, x.in.head)
		}
		require.NoError(t, g.Check()) // nobody can guess the key
	})
}

func TestReplyStatus(t *testing.T) {
	var r reply
	for status, want := range map[uint64]fabric.Status{
		0: fabric.StatusOK, uint64(fabric.StatusRemoteAccess): fabric.StatusRemoteAccess,
		200: fabric.StatusRemoteOp, 256: fabric.StatusRemoteOp, 1 << 32: fabric.StatusRemoteOp, 1 << 63: fabric.StatusRemoteOp,
	} {
		r.status.Store(status)
		require.Equal(t, want, r.result(), "%#x", status)
	}
}

// A refused request ends both sides, and the target names the refusal: its peer lives.
func TestTargetOfARefusedRequest(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			x, y := pair(t, o, fabric.EndpointOptions{})
			la, lb := alloc(t, x.link, 64), alloc(t, y.link, 64)
			gone, err := y.link.Alloc(64, fabric.AccessAll)
			require.NoError(t, err)
			require.NoError(t, gone.Close())
			if o.DisableCMA && o.DisableSegments { // something of y that waits
				post(t, y, write(lb, 0, 8, la.Key(), 0))
			}
			post(t, x, write(la, 0, 8, gone.Key(), 0))
			require.Equal(t, fabric.StatusRemoteAccess, await(t, x.link).Status)
			c := await(t, y.link)
			if c.Op == fabric.OpWrite {
				require.Equal(t, fabric.StatusFlushed, c.Status)
				c = await(t, y.link)
			}
			require.Equal(t, fabric.Completion{Op: fabric.OpDown, Status: fabric.StatusRemoteAccess}, c)
			require.ErrorIs(t, y.Err(), fabric.ErrRemoteAccess)
			require.NotErrorIs(t, y.Err(), fabric.ErrPeerGone)
			require.Equal(t, fabric.OpDown, await(t, x.link).Op)
		})
	}
}

// A peer that is connected may refuse, or leave, before this side has mapped its channel: the
// endpoint connects, and goes down for that reason.
func TestPeerThatLeavesAtOnce(t *testing.T) {
	a, b := openPair(t, Options{})
	for range 50 {
		x, err := a.newEndpoint(fabric.EndpointOptions{})
		require.NoError(t, err)
		y, err := b.newEndpoint(fabric.EndpointOptions{})
		require.NoError(t, err)
		ctx := testutil.Context(t, testutil.Limit)
		left := make(chan error)
		go func() {
			err := x.Connect(ctx, y.Address())
			left <- errors.Join(err, x.Close())
		}()
		require.NoError(t, y.Connect(ctx, x.Address()))
		require.NoError(t, <-left)
		require.Equal(t, fabric.StatusPeerGone, await(t, b).Status)
		require.NoError(t, y.Close())
	}
}
