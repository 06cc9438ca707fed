package shm

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/offheap"
)

// Messages on the Unix socket of an endpoint (SOCK_SEQPACKET: one message, one
// packet). All little-endian.
//
//	hello    type 1, version, token of the receiver, token of the sender,
//	         address of the sender's nonce; descriptors: control, channel
//	segment  type 2, segment id, size; descriptor: the segment
//	gone     type 3, segment id
//	again    type 5, segment id: it came without its descriptor, for want of room for one
//	wake     type 4 alone: look at the rings
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

// note is an announcement about a segment; kept until the socket takes it.
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

// maxSegment bounds what a peer makes us map at once; 2^46 is half of what
// x86 gives to a process.
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

// receiver is the buffers of recv, reused for every message.
type receiver struct {
	buf [maxMsg]byte
	oob [64]byte
	msg recvHeader
}

// roomFDs is how many descriptors fit into receiver.oob.
const roomFDs = (64 - unix.SizeofCmsghdr) / 4

// recv takes the next message without blocking. n = 0 with a nil error is the
// end: the peer closed its side. The descriptors are the caller's to close. With an error
// that wraps fabric.ErrResources the message is there but not its descriptors: this
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
		return r.buf[:n], nil, shortage(fmt.Errorf("descriptors sent by the peer: %w", unix.EMFILE))
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeFDs(fds)
		return nil, nil, fmt.Errorf("%w: message truncated (flags %#x)", ErrCorrupt, flags)
	}
	return r.buf[:n], fds, nil
}

// newMemfd creates a segment of size bytes that cannot change its size; seal
// finishes it. The first commit bytes of its memory are set aside now, so that a later
// access there cannot fail.
func newMemfd(name string, size, commit int) (fd int, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, fmt.Errorf("shm: memfd_create: %w", err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil && commit > 0 {
		err = commitMemory(fd, int64(commit))
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("shm: memfd of %d bytes: %w", size, err)
	}
	return fd, nil
}

// commitMemory gives the file its pages. A signal (the runtime sends some)
// makes the kernel undo and stop, so it goes in steps small enough to finish.
func commitMemory(fd int, size int64) error {
	const step = 16 << 20
	for off := int64(0); off < size; {
		n := min(size-off, step)
		switch err := unix.Fallocate(fd, 0, off, n); err {
		case nil:
			off += n
		case unix.EINTR:
		default:
			return err
		}
	}
	return nil
}

// seal makes the seals final. With readOnly, whoever maps the file from now on
// cannot write to it (before Linux 5.1: is trusted not to).
func seal(fd int, readOnly bool) error {
	if readOnly {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE)
		if err != nil && err != unix.EINVAL {
			return fmt.Errorf("shm: seal: %w", err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("shm: seal: %w", err)
	}
	return nil
}

// checkMemfd makes sure that mapping size bytes of a descriptor from a peer
// can never fault: an ordinary memfd of at least that size that cannot shrink.
func checkMemfd(fd int, size uint64) error {
	s, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || s&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("%w: descriptor is no memfd sealed against shrinking (seals %#x, %v)", ErrCorrupt, s, err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		return fmt.Errorf("%w: descriptor lies on file system %#x (%v), want tmpfs", ErrCorrupt, fs.Type, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size < 0 || uint64(st.Size) < size {
		return fmt.Errorf("%w: memfd of %d bytes (%v), want %d", ErrCorrupt, st.Size, err, size)
	}
	return nil
}

// mapPeer maps a descriptor from a peer after checking it; the descriptor
// stays open.
func mapPeer(fd int, size uint64, p offheap.Purpose) ([]byte, error) {
	if err := checkMemfd(fd, size); err != nil {
		return nil, err
	}
	if size > math.MaxInt {
		return nil, fmt.Errorf("shm: memfd of %d bytes: more than this processor addresses", size)
	}
	return offheap.Map(fd, int(size), p)
}

// checkUser refuses peers of other users and returns the peer's process id as
// this PID namespace knows it (0 if it does not).
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

// socketAddr is the abstract address of a listener.
func socketAddr(name [16]byte) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: fmt.Sprintf("@rma-shm-%x", name)}
}

// hostID identifies this boot of this host.
func hostID() (id [16]byte, err error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, fmt.Errorf("shm: boot id: %w", err)
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(b)), "-", ""))
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("shm: boot id %q is no UUID", b)
	}
	return [16]byte(raw), nil
}
