package compare

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"
)

// ready waits until a server listens. For TCP it reads the kernel's table, because such
// programs would take a trial connection for their peer.
func ready(ctx context.Context, socket string, port int, ended <-chan struct{}) error {
	deadline := time.NewTimer(listenTime)
	defer deadline.Stop()
	look := time.NewTicker(askEvery)
	defer look.Stop()
	for !listening(socket, port) {
		select {
		case <-look.C:
		case <-deadline.C:
			return fmt.Errorf("server does not listen after %v: %w", listenTime, ErrStuck)
		case <-ended:
			return fmt.Errorf("server ended before its client came: %w", ErrOutput)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// listening reads from the kernel's tables whether a process listens on a TCP port, or on
// the Unix socket if one is named.
func listening(socket string, port int) bool {
	if socket != "" {
		b, _ := os.ReadFile("/proc/net/unix")
		return listensUnix(string(b), socket)
	}
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(name)
		if listens(string(b), port) {
			return true
		}
	}
	return false
}

// listens finds a port in a table of the form of /proc/net/tcp.
func listens(table string, port int) bool {
	want := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > 3 && strings.HasSuffix(f[1], want) && f[3] == "0A" { // LISTEN
			return true
		}
	}
	return false
}

// listensUnix finds a socket in a table of the form of /proc/net/unix.
func listensUnix(table, path string) bool {
	const accepts = 1 << 16 // __SO_ACCEPTCON
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		var flags uint32
		if len(f) != 8 || f[7] != path {
			continue
		}
		if _, err := fmt.Sscanf(f[3], "%x", &flags); err == nil && flags&accepts != 0 {
			return true
		}
	}
	return false
}

// Servers' ports are below the ephemeral ports (from 32768 on Linux, 49152 elsewhere): a
// connection of another process could take one of those between the check and the start of
// the server.
const (
	firstPort = 16 << 10
	lastPort  = 32<<10 - 1
)

var ports struct {
	sync.Mutex
	last int
}

// freePort returns a port that has no listener and that it has not returned lately. It does not listen
// itself: a process that is started meanwhile would have the socket for a moment, and pass for the server.
func freePort() int {
	ports.Lock()
	defer ports.Unlock()
	if ports.last == 0 {
		ports.last = firstPort + rand.IntN(lastPort-firstPort)
	}
	for range lastPort - firstPort {
		if ports.last++; ports.last > lastPort {
			ports.last = firstPort
		}
		if !listening("", ports.last) {
			break
		}
	}
	return ports.last
}
