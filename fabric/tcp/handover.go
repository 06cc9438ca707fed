//go:build linux || darwin || freebsd

package tcp

// What other goroutines pass to the owner of the link, which takes it in adopt.

// use sets the endpoint's connections. mu is held.
func use(e *endpoint, socks []socket, p path) {
	e.path, e.out.chunk = p, wholeSegments(maxAccess, p.mss)
	e.lanes.init(socks[1:], e.l.cfg.LaneMin, p.mss)
	e.sock = socks[0]
}

// enter has the owner adopt an endpoint, which has a socket.
func enter(l *link, e *endpoint) {
	l.mu.Lock()
	l.joined = append(l.joined, e)
	l.waking.Set() // FD is readable
	l.fresh.Add(1)
	l.mu.Unlock()
	select {
	case l.met <- struct{}{}:
	default:
	}
}

// recall has the owner suspend or resume an endpoint.
func recall(l *link, e *endpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resumed = append(l.resumed, e)
	l.waking.Set()
	l.fresh.Add(1)
}
