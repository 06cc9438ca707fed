// Package hook replaces the connections of a test binary's package net: what listens
// on 127.0.0.1, and what dials it, goes over two engines of this process. It stands in
// a copy of GOROOT whose package net has HookListen and HookDial.
package hook

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/wireup"
	"github.com/seed33544411/rma/rmanet"
)

const token = "both are in this process"

var (
	mu     sync.Mutex
	taken  = map[int]bool{} // ports that are listened on
	engine [2]*rma.Engine
)

func init() {
	link := os.Getenv("SUITES_LINK")
	if link == "" || link == "loopback" {
		return
	}
	if err := open(link); err != nil {
		fmt.Fprintln(os.Stderr, "hook:", err)
		os.Exit(3)
	}
	net.HookListen, net.HookDial = listen, dial
}

func open(link string) error {
	dir, err := os.MkdirTemp("", "hook")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if _, err = wireup.Serve(context.Background(), ln, wireup.ServerConfig{Size: 2, Token: []byte(token)}); err != nil {
		return err
	}
	errs := make(chan error)
	for r := range engine {
		go func() {
			var err error
			engine[r], err = rma.Open(ctx, &rma.Config{
				Job:    &rma.Job{Rank: r, Size: 2, Root: "unix:" + ln.Addr().String(), Token: []byte(token)},
				Fabric: rma.Fabric(link), Sampling: rma.SamplingOff,
			})
			errs <- err
		}()
	}
	for range engine {
		if err := <-errs; err != nil {
			return err
		}
	}
	// The connection of the two is made here: tests count goroutines.
	l, err := rmanet.Listen(engine[1], "1")
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := rmanet.Dial(ctx, engine[0], "1:1")
	if err != nil {
		return err
	}
	return c.Close()
}

type listener struct {
	*rmanet.Listener
	addr *net.TCPAddr // the same one each time, as a socket's
}

func (l listener) Addr() net.Addr { return l.addr }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn{c.(*rmanet.Conn)}, nil
}

func (l listener) Close() error {
	err := l.Listener.Close()
	if err == nil {
		mu.Lock()
		delete(taken, l.addr.Port)
		mu.Unlock()
	}
	return err
}

func listen(network, addr string) (net.Listener, error, bool) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || len(network) < 3 || network[:3] != "tcp" || network == "tcp6" ||
		host != "" && host != "localhost" && host != "127.0.0.1" && host != "0.0.0.0" {
		return nil, nil, false
	}
	if p, err := net.LookupPort(network, port); err == nil {
		port = strconv.Itoa(p)
	}
	l, err := rmanet.Listen(engine[1], port)
	if err != nil {
		return nil, err, true
	}
	n, _ := strconv.Atoi(l.Addr().(rmanet.Addr).Service)
	mu.Lock()
	taken[n] = true
	mu.Unlock()
	return listener{l.(*rmanet.Listener), address(n)}, nil, true
}

func dial(ctx context.Context, to net.Addr) (net.Conn, error, bool) {
	a, ok := to.(*net.TCPAddr)
	if !ok || !a.IP.IsLoopback() && !a.IP.IsUnspecified() {
		return nil, nil, false
	}
	mu.Lock()
	ours := taken[a.Port]
	mu.Unlock()
	if !ours {
		return nil, nil, false // the system says that nobody listens
	}
	c, err := rmanet.Dial(ctx, engine[0], "1:"+strconv.Itoa(a.Port))
	if err != nil {
		return nil, err, true
	}
	return conn{c.(*rmanet.Conn)}, nil, true
}

// address is a socket's: what tests print, parse and compare.
func address(n int) *net.TCPAddr {
	if n >= 1<<16 {
		n = 1024 + n%30000
	}
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: n}
}

type conn struct{ *rmanet.Conn }

func faked(a net.Addr) net.Addr {
	n, _ := strconv.Atoi(a.(rmanet.Addr).Service)
	return address(n)
}

func (c conn) LocalAddr() net.Addr                    { return faked(c.Conn.LocalAddr()) }
func (c conn) RemoteAddr() net.Addr                   { return faked(c.Conn.RemoteAddr()) }
func (c conn) SetKeepAlive(bool) error                { return nil }
func (c conn) SetNoDelay(bool) error                  { return nil }
func (c conn) SetLinger(int) error                    { return nil }
func (c conn) SetKeepAlivePeriod(time.Duration) error { return nil }
