//go:build linux || darwin || freebsd

package tcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// propose is how many lanes this side asks for on a connection, and which Crypt.
func (e *endpoint) propose(c net.Conn) (lanes uint8, crypt Crypt) {
	var p path
	if rc, err := c.(*net.TCPConn).SyscallConn(); err == nil {
		_ = rc.Control(func(s uintptr) { p = e.l.pathOf(int(s), c) })
	}
	return uint8(e.l.cfg.lanes(p.class)), e.l.cfg.Crypt.of(p.class)
}

// dialLanes makes the lanes that the peer agreed to, one after the other: it has
// answered, so that each takes a few round trips.
func (e *endpoint) dialLanes(ctx context.Context, to netip.AddrPort, a *address, first answer) ([]agreed, error) {
	var lanes []agreed
	for i := uint8(1); i <= first.lanes; i++ {
		c, ans, err := e.dialOne(ctx, to, a, hello{lane: i, lanes: first.lanes, crypt: first.crypt})
		if err == nil && ans.crypt != first.crypt {
			_ = c.conn.Close()
			err = errStranger
		}
		if err != nil {
			closeConns(lanes)
			return nil, err
		}
		lanes = append(lanes, c)
	}
	return lanes, nil
}

// await waits for the peer to dial, all lanes that it wants and this side does.
// Who knows the token but is another endpoint than the one asked for is turned away,
// and waiting goes on; a peer that begins anew has given up on what it made before.
func (e *endpoint) await(ctx context.Context, a *address) ([]agreed, uint32, error) {
	var conns []agreed // the first and its lanes, in order
	var first answer
	reads := uint32(0)
	for conns == nil || len(conns) <= int(first.lanes) {
		select {
		case <-ctx.Done():
			closeConns(conns)
			if why := e.l.noAccept.Load(); why != nil {
				return nil, 0, errors.Join(ctx.Err(), *why)
			}
			return nil, 0, ctx.Err()
		case in := <-e.incoming:
			lane := in.h.lane
			if in.h.from != a.nonce || lane != 0 && (int(lane) != len(conns) || in.h.crypt != first.crypt) || !quiet(in.conn) {
				_ = in.conn.Close()
				continue
			}
			mine := answer{reads: maxReads, lanes: in.h.lanes, crypt: in.h.crypt}
			if lane == 0 {
				closeConns(conns)
				conns = nil
				lanes, crypt := e.propose(in.conn)
				mine.lanes, mine.crypt = min(mine.lanes, lanes), max(mine.crypt, crypt)
			}
			c, err := in.agree(e, a, &mine)
			if err != nil {
				_ = in.conn.Close() // the peer gave up; it may dial again
				continue
			}
			if lane == 0 {
				first, reads = mine, in.h.reads
			}
			conns = append(conns, c)
		}
	}
	return conns, reads, nil
}

// agree ends the handshake of the side that was dialled.
func (in *incoming) agree(e *endpoint, a *address, mine *answer) (agreed, error) {
	t := &in.said
	from := t.n
	t.add(mine.append(nil))
	t.sign(&a.token, purposeAnswer)
	// Few bytes on a fresh socket: they do not block.
	_ = in.conn.SetDeadline(time.Now().Add(e.l.cfg.HandshakeTimeout))
	if _, err := in.conn.Write(t.said[from:t.n]); err != nil {
		return agreed{}, err
	}
	k, err := t.keys(e.token, a.token, mine.crypt, false)
	return agreed{in.conn, k}, err
}

// takeSockets takes the descriptors out of conns, which are closed, unless err
// says that there are none. The path is the first's.
func (e *endpoint) takeSockets(conns []agreed, err error) (socks []socket, p path, _ error) {
	if err != nil {
		return nil, p, err
	}
	defer closeConns(conns)
	for _, c := range conns {
		s, way, err := e.l.takeSocket(c.conn, e.peerTimeout)
		if err == nil {
			s.sec, err = newRecords(&c.keys)
			socks = append(socks, s)
		}
		if err != nil {
			closeAll(socks)
			return nil, p, err
		}
		if len(socks) == 1 {
			p = way
			p.crypt = c.keys.crypt
		}
	}
	return socks, p, nil
}

// init gives the endpoint its lanes.
func (b *bulk) init(socks []socket, atLeast int) {
	b.min = uint32(min(uint64(atLeast), maxMessage))
	if len(socks) == 0 {
		return
	}
	b.out = make([]transfer, maxTransfers)
	b.lanes = make([]lane, len(socks))
	for i, s := range socks {
		b.lanes[i] = lane{socket: s}
	}
}

func closeConns(conns []agreed) {
	for _, c := range conns {
		_ = c.conn.Close()
	}
}

func closeAll(socks []socket) {
	for i := range socks {
		socks[i].close()
	}
}
