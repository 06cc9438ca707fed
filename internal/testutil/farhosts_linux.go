package testutil

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// FarHosts is TwoHosts with a wire that delays packets by delay, each way.
func FarHosts(tb testing.TB, delay time.Duration) (do [2]func(func())) {
	tb.Helper()
	var ends [2]*os.File
	for i := range do {
		do[i] = inNamespace(tb)
		var err error
		do[i](func() { ends[i], err = tunnel("wire") })
		if err != nil {
			tb.Skipf("tunnels cannot be made here: %v", err)
		}
		IP(tb, do[i], "addr", "add", fmt.Sprintf("192.0.2.%d/24", i+1), "dev", "wire")
		IP(tb, do[i], "link", "set", "wire", "up", "mtu", fmt.Sprint(farMTU))
		IP(tb, do[i], "link", "set", "lo", "up")
	}
	var relays sync.WaitGroup
	for i := range ends {
		from, to, way := ends[i], ends[1-i], make(chan packet, 4096)
		relays.Go(func() { receivePackets(from, way, delay) })
		relays.Go(func() { sendPackets(to, way) })
	}
	tb.Cleanup(func() {
		for _, f := range ends {
			f.Close()
		}
		relays.Wait()
	})
	return do
}

// farMTU keeps the number of packets low, and so the cost of the relay.
const farMTU = 16 << 10

// packet is a packet in flight.
type packet struct {
	due  time.Time
	data []byte
}

// tunnel creates a network interface whose packets this process reads and writes.
func tunnel(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	r, err := unix.NewIfreq(name)
	if err == nil {
		r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, r)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "tun"), nil
}

// receivePackets reads packets from one end of the wire until it is closed. If too many are
// in flight, it drops the newest.
func receivePackets(from *os.File, way chan<- packet, delay time.Duration) {
	defer close(way)
	buf := make([]byte, farMTU)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case way <- packet{time.Now().Add(delay), append([]byte(nil), buf[:n]...)}:
		default:
		}
	}
}

// sendPackets writes packets to the other end when they are due. Those that the interface
// refuses, because it is being removed, are lost.
func sendPackets(to *os.File, way <-chan packet) {
	for p := range way {
		time.Sleep(time.Until(p.due))
		_, _ = to.Write(p.data)
	}
}
