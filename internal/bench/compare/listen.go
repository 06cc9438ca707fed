package compare

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// ready waits until a server listens. Of TCP the kernel's table is asked, because
// such programs take a connection for their peer.
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

// listening asks the kernel whether something listens on a TCP port, or on the
// Unix socket if one is named.
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

// listens looks a port up in a table of the form of /proc/net/tcp.
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

// listensUnix looks a socket up in a table of the form of /proc/net/unix.
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

// freePort is one that nothing listens on now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
