//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// tap reads and writes frames of one interface of a host without being a rank of the job,
// as an attacker on the network can.
type tap struct {
	fd    int
	ended atomic.Bool
	task  sync.WaitGroup
}

// flow is one direction of a connection.
type flow struct{ from, to netip.AddrPort }

// segment is a TCP segment in a frame.
type segment struct {
	flow
	frame    []byte // with headers
	seq, ack uint32
	syn, rst bool
	payload  []byte
}

// Sizes of headers without options, and flags.
const (
	etherLen, ipLen, tcpLen      = 14, 20, 20
	flagSYN, flagRST, flagACK    = 1 << 1, 1 << 2, 1 << 4
	protoTCP                     = 6
	tapBuffer                    = 32 << 20
	atVersion, atProto, atFlags  = etherLen, etherLen + 9, 13
	atTotal, atSource, atTargets = etherLen + 2, etherLen + 12, etherLen + 16
)

// parseSegment returns the TCP segment of an Ethernet frame with IPv4.
func parseSegment(b []byte) (s segment, ok bool) {
	if len(b) < etherLen+ipLen+tcpLen || b[atVersion]>>4 != 4 || b[atProto] != protoTCP {
		return s, false
	}
	ihl := int(b[atVersion]&15) * 4
	end := etherLen + int(binary.BigEndian.Uint16(b[atTotal:]))
	if end == etherLen { // the kernel left it to the adapter
		end = len(b)
	}
	if end > len(b) || etherLen+ihl+tcpLen > end {
		return s, false
	}
	t := b[etherLen+ihl : end]
	off := int(t[12]>>4) * 4
	if off < tcpLen || off > len(t) {
		return s, false
	}
	from, _ := netip.AddrFromSlice(b[atSource : atSource+4])
	to, _ := netip.AddrFromSlice(b[atTargets : atTargets+4])
	return segment{frame: b, payload: t[off:],
		flow: flow{netip.AddrPortFrom(from, binary.BigEndian.Uint16(t)), netip.AddrPortFrom(to, binary.BigEndian.Uint16(t[2:]))},
		seq:  binary.BigEndian.Uint32(t[4:]), ack: binary.BigEndian.Uint32(t[8:]),
		syn: t[atFlags]&flagSYN != 0, rst: t[atFlags]&flagRST != 0}, true
}

// reset returns the frame by which the receiver of s would end its connection.
func (s segment) reset() []byte {
	b := make([]byte, etherLen+ipLen+tcpLen)
	copy(b, s.frame[6:12])
	copy(b[6:], s.frame[:6])
	copy(b[12:], s.frame[12:14])
	ip, t := b[etherLen:etherLen+ipLen], b[etherLen+ipLen:]
	ip[0], ip[8], ip[9] = 0x45, 64, protoTCP
	binary.BigEndian.PutUint16(ip[2:], ipLen+tcpLen)
	copy(ip[12:], s.to.Addr().AsSlice())
	copy(ip[16:], s.from.Addr().AsSlice())
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	binary.BigEndian.PutUint16(t, s.to.Port())
	binary.BigEndian.PutUint16(t[2:], s.from.Port())
	binary.BigEndian.PutUint32(t[4:], s.ack)
	binary.BigEndian.PutUint32(t[8:], s.seq+uint32(len(s.payload)))
	t[12], t[atFlags] = tcpLen/4<<4, flagRST|flagACK
	pseudo := append(slices.Clone(ip[12:20]), 0, protoTCP, 0, tcpLen)
	binary.BigEndian.PutUint16(t[16:], checksum(append(pseudo, t...)))
	return b
}

// checksum returns the Internet checksum of an even number of bytes.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// tap calls heard with each segment that arrives on an interface of the i-th host, in
// order; frames are valid during the call.
func (n *twoHosts) tap(i int, device string, heard func(t *tap, s segment)) (*tap, error) {
	t := &tap{}
	err := n.in(i, func() (err error) {
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network order
		link, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		if t.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		_ = unix.SetsockoptInt(t.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, tapBuffer)
		if err = unix.SetsockoptTimeval(t.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}); err == nil {
			err = unix.Bind(t.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index})
		}
		if err != nil {
			unix.Close(t.fd)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	t.task.Go(func() {
		defer unix.Close(t.fd)
		buf := make([]byte, 256<<10)
		for !t.ended.Load() {
			k, from, err := unix.Recvfrom(t.fd, buf, 0)
			if ll, is := from.(*unix.SockaddrLinklayer); err != nil || !is || ll.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			if s, ok := parseSegment(buf[:k]); ok {
				heard(t, s)
			}
		}
	})
	return t, nil
}

func (t *tap) send(frame []byte) { _, _ = unix.Write(t.fd, frame) }

func (t *tap) close() {
	t.ended.Store(true) // setting it again does no harm
	t.task.Wait()
}

// in calls f in the network of the i-th host. The thread returns from there: if it ended,
// the kernel would kill the processes that it has started.
func (n *twoHosts) in(i int, f func() error) error {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	there, err := os.Open("/run/netns/" + n.name[i])
	if err != nil {
		return err
	}
	defer there.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("setns: %w", err)
	}
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(err) // this thread must not run anything else
		}
	}()
	return f()
}
