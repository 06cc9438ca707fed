package shm

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
)

// Messages on the Unix socket of an endpoint (SOCK_SEQPACKET: one message, one
// packet). All little-endian.
//
//	hello    type 1, version, token of the receiver, token of the sender,
//	         address of the sender's nonce; descriptors: control, channel
//	segment  type 2, segment id, size; descriptor: the segment
//	gone     type 3, segment id
//	again    type 5, segment id: it arrived without its descriptor, for which there was no room
//	wake     type 4 alone: check the rings
const (
	msgHello   = 1
	msgSegment = 2
	msgGone    = 3
	msgWake    = 4
	msgAgain   = 5

	helloSize   = 48
	segmentSize = 16
	goneSize    = 8
	maxMsg      = 64 // receive buffer; longer messages are corrupt
	maxFDs      = 3  // room for one more descriptor than any message carries
)

var wakeMessage = []byte{msgWake}

type hello struct {
	to, from  [16]byte
	nonceAddr uint64
}

func (h *hello) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, msgHello)
	b = binary.LittleEndian.AppendUint32(b, addressVersion)
	b = append(b, h.to[:]...)
	b = append(b, h.from[:]...)
	return binary.LittleEndian.AppendUint64(b, h.nonceAddr)
}

func parseHello(b []byte) (h hello, err error) {
	if len(b) != helloSize || binary.LittleEndian.Uint32(b) != msgHello || binary.LittleEndian.Uint32(b[4:]) != addressVersion {
		return h, fmt.Errorf("%w: hello of %d bytes", ErrCorrupt, len(b))
	}
	copy(h.to[:], b[8:])
	copy(h.from[:], b[24:])
	h.nonceAddr = binary.LittleEndian.Uint64(b[40:])
	return h, nil
}

// note is an announcement about a segment. It is kept until the socket takes it.
type note struct {
	typ  uint32
	seg  uint32
	size uint64
	fd   int
}

func (n *note) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, n.typ)
	b = binary.LittleEndian.AppendUint32(b, n.seg)
	if n.typ == msgSegment {
		b = binary.LittleEndian.AppendUint64(b, n.size)
	}
	return b
}

func parseNote(b []byte) (n note, err error) {
	if len(b) >= goneSize {
		n = note{typ: binary.LittleEndian.Uint32(b), seg: binary.LittleEndian.Uint32(b[4:]), fd: -1}
		switch {
		case (n.typ == msgGone || n.typ == msgAgain) && len(b) == goneSize && n.seg != 0:
			return n, nil
		case n.typ == msgSegment && len(b) == segmentSize && n.seg != 0:
			n.size = binary.LittleEndian.Uint64(b[8:])
			if n.size > 0 && n.size <= maxSegment {
				return n, nil
			}
		}
	}
	return note{}, fmt.Errorf("%w: message %x", ErrCorrupt, b)
}

// maxSegment bounds one segment; 2^46 is half of the address space of an x86 process. take bounds those
// of a peer together.
const maxSegment = 1 << 46

func closeFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// sendFDs sends one message; it never blocks and never raises SIGPIPE.
func sendFDs(sock int, b []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		_, err := unix.SendmsgN(sock, b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// receiver holds the buffers of recv, reused for every message.
type receiver struct {
	buf [maxMsg]byte
	oob [64]byte
	msg recvHeader
}

// roomFDs is the number of descriptors that fit receiver.oob.
const roomFDs = (64 - unix.SizeofCmsghdr) / 4

// recv receives the next message without blocking. n = 0 with a nil error is the end: the
// peer closed its side. The caller must close the descriptors. With an error that wraps
// fabric.ErrResources the message was received without its descriptors, because this
// process may not have more.
func (r *receiver) recv(sock int) (b []byte, fds []int, err error) {
	n, oobn, flags, err := r.recvmsg(sock)
	if err != nil {
		return nil, nil, err
	}
	if oobn > 0 {
		cms, err := unix.ParseSocketControlMessage(r.oob[:oobn])
		if err != nil {
			return nil, nil, fmt.Errorf("%w: control message: %w", ErrCorrupt, err)
		}
		for i := range cms {
			if got, err := unix.ParseUnixRights(&cms[i]); err == nil {
				fds = append(fds, got...)
			}
		}
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) == unix.MSG_CTRUNC && len(fds) < roomFDs {
		closeFDs(fds)
		return r.buf[:n], nil, fabric.Shortage(fmt.Errorf("descriptors sent by the peer: %w", unix.EMFILE))
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeFDs(fds)
		return nil, nil, fmt.Errorf("%w: message truncated (flags %#x)", ErrCorrupt, flags)
	}
	return r.buf[:n], fds, nil
}

// checkUser refuses peers of other users and returns the peer's process id in this PID
// namespace (0 if it has none).
func checkUser(sock int) (pid int, err error) {
	cred, err := unix.GetsockoptUcred(sock, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, fmt.Errorf("shm: credentials of the peer: %w", err)
	}
	if int(cred.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("%w: uid %d, this side is %d", ErrForeignUser, cred.Uid, os.Geteuid())
	}
	return int(cred.Pid), nil
}

// socketAddr returns the abstract address of a listener.
func socketAddr(name [16]byte) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: fmt.Sprintf("@rma-shm-%x", name)}
}

// hostID returns the id of this boot of this host.
func hostID() (id [16]byte, err error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, fmt.Errorf("shm: boot id: %w", err)
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(b)), "-", ""))
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("shm: boot id %q is not a UUID", b)
	}
	return [16]byte(raw), nil
}

// socket is this side's end of the connection, with the announcements that are not sent
// yet.
type socket struct {
	// mu guards the fields below against announcements, which any goroutine may make.
	mu     sync.Mutex
	fd     int // -1 if there is none; hazard closes it
	outbox []note

	// owner
	stalled bool // announcements wait for something that causes no event
	watched bool // for room
}

func (s *socket) set(fd int) {
	s.mu.Lock()
	s.fd = fd
	s.mu.Unlock()
}

// announce announces a segment to the peer, now or as soon as the socket has room: sent is
// false if the owner must continue. Any goroutine may call it.
func (s *socket) announce(n note) (sent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return true
	}
	if n.typ == msgGone {
		for i := range s.outbox {
			if s.outbox[i].typ == msgSegment && s.outbox[i].seg == n.seg {
				s.outbox = append(s.outbox[:i], s.outbox[i+1:]...)
				return true // the peer has not seen it
			}
		}
	}
	if slices.Contains(s.outbox, n) {
		return true // requested twice
	}
	s.outbox = append(s.outbox, n)
	return s.send() == nil
}

// send sends announcements of the outbox while the socket takes them. mu is held.
func (s *socket) send() error {
	var b [maxMsg]byte
	for len(s.outbox) > 0 {
		n := &s.outbox[0]
		var err error
		if n.typ == msgSegment {
			err = sendFDs(s.fd, n.append(b[:0]), n.fd)
		} else {
			err = sendFDs(s.fd, n.append(b[:0]))
		}
		if err != nil {
			return err
		}
		s.outbox = s.outbox[1:]
	}
	s.outbox = nil
	return nil
}

// flush is send for the owner: l watches the socket for room while there is more.
func (s *socket) flush(l *link) {
	s.mu.Lock()
	err := s.send()
	s.mu.Unlock()
	// Room in the socket causes an event; the arrival of other sockets' descriptors
	// (ETOOMANYREFS) or free memory (ENOBUFS) does not.
	s.stalled = err != nil && err != unix.EAGAIN
	if want := err == unix.EAGAIN; want != s.watched {
		s.watched = want
		ev := uint32(unix.EPOLLIN)
		if want {
			ev |= unix.EPOLLOUT
		}
		_ = l.watch(unix.EPOLL_CTL_MOD, s.fd, ev)
	}
}
