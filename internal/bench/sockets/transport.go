package sockets

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/rmanet"
)

// rmanetPrefix precedes the link in the names of transports of rmanet.
const rmanetPrefix = "rmanet-"

// Transports are the names of the transports: each of rmanet is followed by the socket that
// it replaces.
var Transports = []string{rmanetPrefix + "shm", "unix", rmanetPrefix + "tcp", "tcp"}

// overRma reports whether a transport needs the ranks' engines.
func overRma(transport string) bool { return strings.HasPrefix(transport, rmanetPrefix) }

// Fabric returns the link that the ranks of a transport use.
func Fabric(transport string) string {
	if link, ok := strings.CutPrefix(transport, rmanetPrefix); ok {
		return link
	}
	return "shm"
}

// listen offers a workload; dir is a directory for sockets.
func listen(ctx context.Context, eng *rma.Engine, transport, dir, name string) (net.Listener, error) {
	var c net.ListenConfig
	switch transport {
	case "unix":
		return c.Listen(ctx, "unix", filepath.Join(dir, name))
	case "tcp":
		return c.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	return rmanet.Listen(eng, "0")
}

// dialer connects to the listener with that address.
func dialer(eng *rma.Engine, transport, addr string) (Dial, error) {
	switch transport {
	case "unix", "tcp":
		return func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, transport, addr)
		}, nil
	case rmanetPrefix + "shm", rmanetPrefix + "tcp":
		if link, want := eng.Peer(1-eng.Rank()).Link(), Fabric(transport); link != want {
			return nil, fmt.Errorf("the ranks are connected by %s, want %s", link, want)
		}
		return func(ctx context.Context) (net.Conn, error) { return rmanet.Dial(ctx, eng, addr) }, nil
	}
	return nil, fmt.Errorf("%w: transport %q", ErrRequest, transport)
}
