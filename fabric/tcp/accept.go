//go:build linux || darwin || freebsd

package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
)

// listen starts the listener and the goroutines that serve connections.
// Setup path.
func (l *link) listen() error {
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	lc := net.ListenConfig{KeepAlive: -1} // takeSocket sets it
	// Multipath TCP takes a slower path through the kernel and refuses some of
	// the socket options used here.
	lc.SetMultipathTCP(false)
	err := listenAll(ctx, &lc, l)
	if err != nil {
		cancel()
		return fmt.Errorf("tcp: open: listen on %v: %w", l.cfg.Bind, fabric.Shortage(err))
	}
	l.wg.Add(1 + len(l.lns))
	for _, ln := range l.lns {
		go l.accept(ctx, ln)
	}
	go watchSilence(ctx, l)
	if l.cfg.Resume || l.cfg.Rail {
		watchCarrier(ctx, l)
	}
	return nil
}

// listenTries is how many ports are tried until one is free at all addresses.
const listenTries = 16

// listenAll listens on cfg.Bind, and on the same port of cfg.Paths, except for addresses that this
// host does not have.
func listenAll(ctx context.Context, lc *net.ListenConfig, l *link) error {
	var err error
	for range listenTries {
		port := uint16(0)
		for _, a := range append([]netip.Addr{l.cfg.Bind}, l.cfg.Paths...) {
			var ln net.Listener
			if ln, err = lc.Listen(ctx, "tcp", netip.AddrPortFrom(a, port).String()); err == nil {
				ln, err = newDoor(ln)
			}
			switch {
			case err == nil:
				l.lns = append(l.lns, ln)
				port = uint16(ln.Addr().(*net.TCPAddr).Port)
			case port > 0 && errors.Is(err, unix.EADDRNOTAVAIL):
				err = nil
			}
			if err != nil {
				break
			}
		}
		if err == nil {
			l.port = port
			return nil
		}
		closeListeners(l)
		if !errors.Is(err, unix.EADDRINUSE) {
			return err
		}
	}
	return err
}

func closeListeners(l *link) {
	for _, ln := range l.lns {
		_ = ln.Close()
	}
	l.lns = nil
}

func (l *link) accept(ctx context.Context, ln net.Listener) {
	defer l.wg.Done()
	for {
		c, err := ln.Accept()
		if err != nil {
			if l.closed.Load() {
				return
			}
			// Probably out of descriptors, of which others may be freed. If not, Connect
			// reports it. The pause keeps this from being a busy loop.
			err = fabric.Shortage(err)
			l.noAccept.Store(&err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		l.noAccept.Store(nil)
		if s := l.pending.add(c, time.Now()); s != nil {
			l.wg.Add(1)
			go l.greet(s)
			continue
		}
		_ = c.Close()
	}
}

// greet makes a stranger prove that it knows the token of the endpoint that it names, and
// passes the connection to that endpoint.
func (l *link) greet(s *stranger) {
	defer l.wg.Done()
	in := arrival{conn: s.conn}
	e, end, err := l.prove(s, &in)
	if !l.pending.remove(s) {
		return // already closed, by closeAll or to make room
	}
	if err == nil && e != nil && e.offer(in) {
		return
	}
	if err == nil && end != nil {
		end.tell(&in)
	}
	_ = s.conn.Close()
}

// prove checks the stranger's proof. A stranger that names no endpoint of this link is
// asked for the same proof, so that it cannot find out which endpoints exist, or have ended.
func (l *link) prove(s *stranger, in *arrival) (e *endpoint, end *ended, err error) {
	c, t := s.conn, &in.said
	_ = c.SetDeadline(time.Now().Add(l.cfg.HandshakeTimeout))
	if _, err := io.ReadFull(c, t.next(helloSize)); err != nil {
		return nil, nil, err
	}
	if err := in.h.parse(t.said[:]); err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	if e = l.byNonce[in.h.to]; e == nil {
		end = endedAs(l, in.h.to, time.Now())
	}
	l.mu.Unlock()
	key := l.nobody
	switch {
	case e != nil:
		key = e.token
	case end != nil:
		key = end.token
	}
	if e != nil || end != nil {
		l.pending.named(s, in.h.to)
	}
	challenge := newChallenge()
	if _, err := c.Write(t.add(challenge[:])); err != nil {
		return nil, nil, err
	}
	if _, err := io.ReadFull(c, t.next(proofSize)); err != nil {
		return nil, nil, err
	}
	if !t.signed(&key, purposeProof) {
		return nil, nil, errNotPeer
	}
	return e, end, nil
}

// add adds c. If there are too many strangers, the oldest one whose time has passed is
// closed to make room; if there is none, or too many are from c's network, c is refused: a
// correct peer dials again.
func (p *strangers) add(c net.Conn, now time.Time) *stranger {
	host := hostOf(c.RemoteAddr())
	bits := host.BitLen()
	if host.Is6() {
		bits = 64 // a host with one IPv6 address has all of its /64
	}
	s := &stranger{conn: c, since: now}
	s.net, _ = host.Prefix(bits)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	crowd := p.from[s.net] >= maxPendingFrom
	if (crowd || len(p.conns) >= maxPending) && !p.evict(now, s.net, crowd) {
		return nil
	}
	if p.from == nil {
		p.from = map[netip.Prefix]int{}
	}
	p.from[s.net]++
	p.conns = append(p.conns, s)
	return s
}

// evict closes the oldest stranger that has had minPending and that named does not protect, of the
// network from if crowd is set. It reports whether there was one.
func (p *strangers) evict(now time.Time, from netip.Prefix, crowd bool) bool {
	for i, o := range p.conns {
		if now.Sub(o.since) < minPending {
			return false
		}
		if o.names == 0 && (!crowd || o.net == from) {
			_ = o.conn.Close()
			p.drop(i)
			return true
		}
	}
	return false
}

func (p *strangers) drop(i int) {
	from := p.conns[i].net
	if p.from[from]--; p.from[from] == 0 {
		delete(p.from, from)
	}
	p.conns = append(p.conns[:i], p.conns[i+1:]...)
}

// named records that s has named an endpoint of this link, which a stranger cannot guess: it is not
// closed to make room, unless there are maxNamed such for the endpoint already.
func (p *strangers) named(s *stranger, nonce uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, o := range p.conns {
		if o.names == nonce {
			n++
		}
	}
	if n < maxNamed {
		s.names = nonce
	}
}

// remove removes s and reports whether it was still there.
func (p *strangers) remove(s *stranger) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, o := range p.conns {
		if o == s {
			p.drop(i)
			return true
		}
	}
	return false
}

func (p *strangers) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.conns {
		_ = s.conn.Close()
	}
	p.conns, p.from = nil, nil
}
