//go:build linux || darwin || freebsd

package tcp

import (
	"context"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// propose is how many lanes the dialling side asks for, or, once that is agreed,
// the number of the last that it makes.
func (e *endpoint) propose(c net.Conn, lane uint8) uint8 {
	if lane != 0 {
		return lane
	}
	var p path
	if rc, err := c.(*net.TCPConn).SyscallConn(); err == nil {
		_ = rc.Control(func(s uintptr) { p = e.l.pathOf(int(s), c) })
	}
	return uint8(e.l.cfg.lanes(p.class))
}

// dialLanes makes n lanes, one after the other: the peer has answered, so that
// each takes a round trip or two.
func (e *endpoint) dialLanes(ctx context.Context, to netip.AddrPort, a *address, n uint8) ([]net.Conn, error) {
	var lanes []net.Conn
	for i := uint8(1); i <= n; i++ {
		c, _, err := e.dialOne(ctx, to, a, i)
		if err != nil {
			closeConns(lanes)
			return nil, err
		}
		lanes = append(lanes, c)
	}
	return lanes, nil
}

// await waits for the peer to dial, all lanes that it wants and this side does.
// Who shows the right token but is another endpoint than the one asked for is
// turned away, and waiting goes on; a peer that begins anew has given up on what
// it made before.
func (e *endpoint) await(ctx context.Context, a *address) ([]net.Conn, hello, error) {
	var conns []net.Conn // the first and its lanes, in order
	var first hello
	lanes := 0
	for conns == nil || len(conns) <= lanes {
		select {
		case <-ctx.Done():
			closeConns(conns)
			return nil, hello{}, ctx.Err()
		case in := <-e.incoming:
			if in.h.nonce != a.nonce || in.h.lane != 0 && int(in.h.lane) != len(conns) || !quiet(in.conn) {
				_ = in.conn.Close()
				continue
			}
			if in.h.lane == 0 {
				closeConns(conns)
				conns = nil
			}
			mine := hello{token: a.token, nonce: e.nonce, reads: maxReads, lane: in.h.lane, lanes: in.h.lanes}
			if in.h.lane == 0 {
				mine.lanes = min(in.h.lanes, e.propose(in.conn, 0))
			}
			// The first bytes on a fresh socket: they do not block.
			_ = in.conn.SetDeadline(time.Now().Add(e.l.cfg.HandshakeTimeout))
			if _, err := in.conn.Write(mine.append(nil)); err != nil {
				_ = in.conn.Close() // the peer gave up; it may dial again
				continue
			}
			if in.h.lane == 0 {
				first, lanes = in.h, int(mine.lanes)
			}
			conns = append(conns, in.conn)
		}
	}
	return conns, first, nil
}

// takeSockets takes the descriptors out of conns, which are closed, unless err
// says that there are none. The path is the first's.
func (e *endpoint) takeSockets(conns []net.Conn, err error) (fds []int, p path, _ error) {
	if err != nil {
		return nil, p, err
	}
	defer closeConns(conns)
	for i, c := range conns {
		fd, way, err := e.l.takeSocket(c, e.peerTimeout)
		if err != nil {
			closeAll(fds)
			return nil, p, err
		}
		if i == 0 {
			p = way
		}
		fds = append(fds, fd)
	}
	return fds, p, nil
}

// init gives the endpoint its lanes.
func (b *bulk) init(fds []int, atLeast int) {
	b.min = uint32(min(uint64(atLeast), maxMessage))
	if len(fds) == 0 {
		return
	}
	b.out = make([]transfer, maxTransfers)
	b.lanes = make([]lane, len(fds))
	for i, fd := range fds {
		b.lanes[i] = lane{fd: fd}
	}
}

func closeConns(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
