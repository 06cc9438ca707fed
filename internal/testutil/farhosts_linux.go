package testutil

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// FarHosts is TwoHosts with a wire on which a packet takes that long, each way.
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

// farMTU keeps packets few, and the relay cheap.
const farMTU = 16 << 10

// packet is one that is under way.
type packet struct {
	due  time.Time
	data []byte
}

// tunnel makes a network interface whose packets are read and written here.
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

// receivePackets takes packets off one end of the wire until that is closed. When too many are
// under way the last is lost.
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

// sendPackets puts them on the other end when they are due. Those that an interface refuses,
// because it is going, are lost.
func sendPackets(to *os.File, way <-chan packet) {
	for p := range way {
		time.Sleep(time.Until(p.due))
		_, _ = to.Write(p.data)
	}
}
