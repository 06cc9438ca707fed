package shm

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
)

// helloWait bounds how long one caller at the listener may take to introduce
// itself before the next one is heard.
const helloWait = 2 * time.Second

// Connect implements fabric.Endpoint. Setup path. The side with the larger
// token dials the other's listener; both then say hello with their control and
// channel segments. Neither waits for more than the other's hello.
func (ep *endpoint) Connect(ctx context.Context, peer []byte) error {
	a, err := parseAddress(peer)
	if err != nil {
		return err
	}
	switch {
	case a.host != ep.addr.host:
		return fmt.Errorf("shm: %w: of another host (or before a reboot): use another link", fabric.ErrBadAddress)
	case a.token == ep.addr.token:
		return fmt.Errorf("shm: %w: the endpoint's own", fabric.ErrBadAddress)
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.closing.Load() {
		return fmt.Errorf("shm: connect: %w", fabric.ErrClosed)
	}
	if ep.used {
		return errors.New("shm: connect: called before on this endpoint: make a new one")
	}
	ep.used = true
	if err := ep.join(ctx, &a); err != nil {
		ep.teardown()
		return fmt.Errorf("shm: connect: %w", shortage(err))
	}
	return nil
}

// join runs the handshake and makes the endpoint known to the owner.
func (ep *endpoint) join(ctx context.Context, a *address) (err error) {
	own, err := ep.makeChannel()
	if err != nil {
		return err
	}
	defer unix.Close(own) // the peer has a copy then
	mine := hello{to: a.token, from: ep.addr.token, nonceAddr: fabric.Addr(ep.hazard.mem) + nonceOff}
	say := func(sock int) error { return sendFDs(sock, mine.append(nil), ep.link.ctlFD, own) }
	var theirs hello
	var fds []int
	if bytes.Compare(ep.addr.token[:], a.token[:]) > 0 {
		theirs, fds, err = ep.dial(ctx, a, say)
	} else {
		theirs, fds, err = ep.accept(ctx, a, say)
	}
	defer closeFDs(fds)
	if err != nil {
		return err
	}
	_ = unix.Close(ep.listener)
	ep.listener = -1
	if err := ep.mapChannel(fds); err != nil {
		return err
	}
	if ep.noCMA = ep.probeCMA(theirs.nonceAddr); ep.noCMA == "" {
		ep.cma = true
	}
	ep.meet()
	if ep.q.inline, err = offheap.Alloc(len(ep.q.reqs)*maxInline, offheap.Staging); err != nil {
		return err
	}
	ep.aliveAt = cpu.Ticks()

	l := ep.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fabric.ErrClosed
	}
	ep.state.Store(stateUp)
	for _, s := range l.segments {
		ep.announce(note{typ: msgSegment, seg: s.id, size: s.size, fd: s.fd})
	}
	l.joined = append(l.joined, ep)
	l.countUsers()
	l.kick()
	return nil
}

// makeChannel creates the own channel segment and returns its descriptor.
func (ep *endpoint) makeChannel() (fd int, err error) {
	slots := minSlots
	for slots < ep.depth {
		slots *= 2
	}
	if fd, err = newMemfd("rma-shm-channel", chanSize(slots), bounceOff(slots)); err != nil {
		return -1, err
	}
	mem, err := offheap.Map(fd, chanSize(slots), offheap.Rings)
	if err == nil {
		err = seal(fd, false)
	}
	if err != nil {
		_ = unix.Close(fd)
		_ = offheap.Free(mem, offheap.Rings)
		return -1, err
	}
	hdr := overlay[chanHeader](mem, 0)
	hdr.magic.Store(chanMagic)
	hdr.slots.Store(uint32(slots))
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	hdr.nonce[0].Store(binary.NativeEndian.Uint64(nonce[:]))
	hdr.nonce[1].Store(binary.NativeEndian.Uint64(nonce[8:]))
	ep.in = overlays[frame](mem, frameOff, slots)
	for i := range ep.in {
		ep.in[i].seq.Store(uint64(i) + 1 - uint64(slots)) // as if consumed a lap ago
	}
	ep.replies = overlays[reply](mem, replyOff, maxReqs)
	ep.ownBnc = mem[bounceOff(slots):]
	ep.ownHdr = hdr
	ep.hazard = &hazard{hdr: hdr, mem: mem, sock: -1}
	l := ep.link
	l.mu.Lock()
	l.hazards[ep.hazard] = struct{}{}
	l.mu.Unlock()
	return fd, nil
}

// mapChannel maps what the peer sent with its hello: control, channel.
func (ep *endpoint) mapChannel(fds []int) (err error) {
	if err := checkMemfd(fds[0], ctlSize); err != nil {
		return err
	}
	if ep.peerCtlM, err = offheap.MapRead(fds[0], ctlSize, offheap.Rings); err != nil {
		return err
	}
	ep.peerCtl = overlay[ctlHeader](ep.peerCtlM, 0)
	ep.peerTable = overlays[tableEntry](ep.peerCtlM, tableOff, tableSlots)
	// The header says how large the channel is; until then its first page is
	// all that may be looked at.
	if err := checkMemfd(fds[1], layoutPages); err != nil {
		return err
	}
	head, err := offheap.MapRead(fds[1], layoutPages, offheap.Rings)
	if err != nil {
		return err
	}
	hdr := overlay[chanHeader](head, 0)
	magic, slots := hdr.magic.Load(), int(hdr.slots.Load())
	_ = offheap.Free(head, offheap.Rings)
	if magic != chanMagic || ep.peerCtl.magic.Load() != ctlMagic || slots < minSlots || slots > maxSlots || slots&(slots-1) != 0 {
		return fmt.Errorf("%w: channel with magic %#x and %d slots", ErrCorrupt, magic, slots)
	}
	if ep.peerMem, err = mapPeer(fds[1], uint64(chanSize(slots)), offheap.Rings); err != nil {
		return err
	}
	ep.peerHdr = overlay[chanHeader](ep.peerMem, 0)
	ep.peerReply = overlays[reply](ep.peerMem, replyOff, maxReqs)
	ep.out = overlays[frame](ep.peerMem, frameOff, slots)
	ep.peerBnc = ep.peerMem[bounceOff(slots):]
	ep.forget()
	return nil
}

// probeCMA tries process_vm_readv and process_vm_writev on the peer's channel,
// which is mapped here as well, so that both can be seen to reach the memory
// they should. It returns why they cannot be used, "" if they can.
func (ep *endpoint) probeCMA(nonceAddr uint64) (reason string) {
	switch {
	case ep.link.opts.DisableCMA:
		return "disabled by configuration"
	case ep.pid <= 0:
		return "the peer lives in a process-id namespace that is not seen here"
	}
	var got, put [2]uint64
	var iov [1]unix.Iovec
	buf, err := offheap.Alloc(16, offheap.Staging)
	if err != nil {
		return err.Error()
	}
	defer offheap.Free(buf, offheap.Staging)
	// As in borrow: what is tried must still be there, until it has been tried.
	ep.peerHdr.hazard.Store(probing)
	defer ep.peerHdr.hazard.Store(0)
	if ep.peerHdr.magic.Load() != chanMagic {
		return "the peer is closing"
	}
	setIovec(&iov[0], fabric.Addr(buf), 16)
	remote := []unix.RemoteIovec{{Base: uintptr(nonceAddr), Len: 16}}
	if n, err := unix.ProcessVMReadv(ep.pid, iov[:], remote, 0); n != 16 || err != nil {
		return refusalCMA("process_vm_readv", n, err)
	}
	for i := range got {
		got[i] = binary.NativeEndian.Uint64(buf[8*i:])
		if got[i] != ep.peerHdr.nonce[i].Load() {
			return "process_vm_readv reads another process: process ids differ between the two"
		}
	}
	_, _ = rand.Read(buf[:8])
	put[0] = binary.NativeEndian.Uint64(buf)
	setIovec(&iov[0], fabric.Addr(buf), 8)
	remote[0] = unix.RemoteIovec{Base: uintptr(nonceAddr - nonceOff + probeOff), Len: 8}
	n, err := unix.ProcessVMWritev(ep.pid, iov[:], remote, 0)
	switch {
	case n != 8 || err != nil:
		return refusalCMA("process_vm_writev", n, err)
	case ep.peerHdr.probe.Load() != put[0]:
		return "process_vm_writev does not reach the peer's memory"
	}
	return ""
}

// refusalCMA says what a process_vm call's refusal means.
func refusalCMA(call string, n int, err error) string {
	switch err {
	case nil:
		return fmt.Sprintf("%s moves %d bytes only", call, n)
	case unix.EPERM:
		return call + ": not permitted: ptrace restrictions (kernel.yama.ptrace_scope, another user namespace, PR_SET_DUMPABLE)"
	case unix.ENOSYS:
		return call + ": not in this kernel, or forbidden by seccomp"
	}
	return call + ": " + err.Error()
}

// dial knocks at the peer's listener and exchanges hellos.
func (ep *endpoint) dial(ctx context.Context, a *address, say func(int) error) (h hello, fds []int, err error) {
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return h, nil, fmt.Errorf("socket: %w", err)
	}
	ep.setSock(sock)
	for {
		err = unix.Connect(sock, socketAddr(a.name))
		if err == nil {
			break
		}
		if err == unix.EAGAIN || err == unix.EINTR { // its backlog is full
			if err = ep.wait(ctx, nil); err == nil {
				continue
			}
			return h, nil, err
		}
		return h, nil, fmt.Errorf("%w: nobody listens there (closed, or another network namespace): %w", fabric.ErrBadAddress, err)
	}
	if ep.pid, err = checkUser(sock); err != nil {
		return h, nil, err
	}
	if err = say(sock); err != nil {
		return h, nil, fmt.Errorf("hello: %w", err)
	}
	return ep.hearHello(ctx, sock, a)
}

// accept waits for the peer at the own listener and exchanges hellos. Callers
// that are not the peer are turned away.
func (ep *endpoint) accept(ctx context.Context, a *address, say func(int) error) (h hello, fds []int, err error) {
	for {
		sock, _, err := unix.Accept4(ep.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err == unix.EAGAIN || err == unix.EINTR || err == unix.ECONNABORTED {
			if err = ep.wait(ctx, []unix.PollFd{{Fd: int32(ep.listener), Events: unix.POLLIN}}); err == nil {
				continue
			}
		}
		if err != nil {
			return h, nil, err
		}
		pid, err := checkUser(sock)
		if err == nil {
			patience, cancel := context.WithTimeout(ctx, helloWait)
			h, fds, err = ep.hearHello(patience, sock, a)
			cancel()
		}
		if err == nil {
			ep.setSock(sock) // first: who has our hello may begin
			if err = say(sock); err == nil {
				ep.pid = pid
				return h, fds, nil
			}
			ep.setSock(-1)
		}
		closeFDs(fds)
		_ = unix.Close(sock)
		if errors.Is(err, fabric.ErrResources) {
			return h, nil, err
		}
		if err := ctx.Err(); err != nil {
			return h, nil, err
		}
	}
}

// hearHello receives the hello of a caller and checks that it is the peer.
func (ep *endpoint) hearHello(ctx context.Context, sock int, a *address) (h hello, fds []int, err error) {
	var rx receiver
	for {
		var b []byte
		b, fds, err = rx.recv(sock)
		if err == unix.EAGAIN {
			if err = ep.wait(ctx, []unix.PollFd{{Fd: int32(sock), Events: unix.POLLIN}}); err == nil {
				continue
			}
		}
		if err != nil {
			return h, nil, err
		}
		if len(b) == 0 {
			err = fmt.Errorf("%w: refused by the peer", fabric.ErrBadAddress)
		} else if h, err = parseHello(b); err == nil && (len(fds) != 2 || h.to != ep.addr.token || h.from != a.token) {
			err = fmt.Errorf("%w: hello of somebody else", fabric.ErrBadAddress)
		}
		if err != nil {
			closeFDs(fds)
			fds = nil
		}
		return h, fds, err
	}
}

func (ep *endpoint) setSock(sock int) {
	ep.sockMu.Lock()
	ep.sock = sock
	ep.sockMu.Unlock()
	ep.hazard.meet(sock)
}

// wait sleeps until one of fds is ready, the context ends or the endpoint is
// closed; a slice of time at most, the caller tries again.
func (ep *endpoint) wait(ctx context.Context, fds []unix.PollFd) error {
	slice := 20
	if fds == nil {
		slice = 1
	}
	_, err := unix.Poll(fds, slice)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case ep.closing.Load():
		return fabric.ErrClosed
	case err != nil && err != unix.EINTR:
		return fmt.Errorf("poll: %w", err)
	}
	return nil
}
