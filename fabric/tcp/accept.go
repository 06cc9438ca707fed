//go:build linux || darwin || freebsd

package tcp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// listen starts the listener and the goroutine that serves it. Class: setup.
func (l *link) listen() error {
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	var lc net.ListenConfig
	// Multipath TCP takes a slower path through the kernel and refuses some of
	// the socket options used here.
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(ctx, "tcp", netip.AddrPortFrom(l.cfg.Bind, 0).String())
	if err != nil {
		cancel()
		return fmt.Errorf("tcp: open: listen on %v: %w", l.cfg.Bind, err)
	}
	l.ln = ln
	l.port = uint16(ln.Addr().(*net.TCPAddr).Port)
	l.wg.Add(2)
	go l.accept(ctx)
	go l.watchSilence(ctx)
	return nil
}

func (l *link) accept(ctx context.Context) {
	defer l.wg.Done()
	for {
		c, err := l.ln.Accept()
		if err != nil {
			if l.closed.Load() {
				return
			}
			// Out of descriptors, most likely: others may be freed, and there is
			// nobody to tell. Not a busy loop.
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		if !l.pending.add(c) {
			_ = c.Close()
			continue
		}
		l.wg.Add(1)
		go l.greet(c)
	}
}

// greet reads a stranger's hello and hands the connection to the endpoint whose
// token it shows.
func (l *link) greet(c net.Conn) {
	defer l.wg.Done()
	var buf [helloSize]byte
	var h hello
	_ = c.SetDeadline(time.Now().Add(l.cfg.HandshakeTimeout))
	_, err := io.ReadFull(c, buf[:])
	if err == nil {
		err = h.parse(buf[:])
	}
	if !l.pending.remove(c) {
		return // closed already, by closeAll or to make room
	}
	if err == nil {
		l.mu.Lock()
		e := l.byToken[h.token]
		l.mu.Unlock()
		if e != nil && e.offer(c, h) {
			return
		}
	}
	_ = c.Close()
}

// pendingConns is the connections that have shown no token yet.
type pendingConns struct {
	mu     sync.Mutex
	conns  []net.Conn // oldest first
	closed bool
}

// add takes c in; the oldest makes room.
func (p *pendingConns) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if len(p.conns) == maxPending {
		_ = p.conns[0].Close()
		p.conns = append(p.conns[:0], p.conns[1:]...)
	}
	p.conns = append(p.conns, c)
	return true
}

// remove reports whether c was still there.
func (p *pendingConns) remove(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, o := range p.conns {
		if o == c {
			p.conns = append(p.conns[:i], p.conns[i+1:]...)
			return true
		}
	}
	return false
}

func (p *pendingConns) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}
