package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
)

// serveBudget bounds the frames of one endpoint in one Poll, so that the others get their
// turn: a few bounce buffers' worth of copying.
const serveBudget = 64

// serve processes frames of the ring: it reports notifications in cs and executes requests.
// May take the endpoint down.
// Hot path.
func (ep *endpoint) serve(cs []fabric.Completion) int {
	n := 0
	answered := false
	for range serveBudget {
		if !ep.in.ready() {
			break
		}
		f := ep.in.next()
		if seq := f.seq.Load(); seq != ep.in.head+1 {
			ep.corrupt(fmt.Errorf("%w: frame %d has the sequence number of frame %d", ErrCorrupt, ep.in.head, seq-1))
			return n
		}
		w := f.w // once, because the peer may change it
		m, err := parseFrame(&w)
		if err != nil {
			ep.corrupt(err)
			return n
		}
		if m.kind == frameNotify && n == len(cs) {
			break
		}
		switch m.kind {
		case frameNotify:
			cs[n] = fabric.Completion{EP: ep.id, Op: fabric.OpNotify, Imm: m.imm, Bytes: m.bytes}
			n++
		case frameBye:
			ep.hup = true
		default:
			answer(ep.link, &ep.peer, &m)
			answered = true
			ep.link.served++
		}
		ep.in.head++
	}
	if ep.in.publish() || answered {
		ep.bell.wake()
	}
	return n
}

// answer executes a request of the peer on memory of l and replies in the peer's channel. Eager path.
func answer(l *link, peer *channel, m *message) {
	st, value := fabric.StatusRemoteAccess, uint64(0)
	n := int(m.bytes)
	l.serving.Store(m.key) // before the look-up; see link.inUse
	switch m.kind {
	case frameWrite:
		if l.keys.Allows(m.key, m.addr, uint64(n), fabric.AccessRemoteWrite) {
			sgl := [1]fabric.SGE{fabric.NewSGE(bounce(peer.bounce, int(m.slot), n), 0)}
			put(m.addr, sgl[:], uint64(n))
			st = fabric.StatusOK
		}
	case frameRead:
		if l.keys.Allows(m.key, m.addr, uint64(n), fabric.AccessRemoteRead) {
			copy(bounce(peer.bounce, int(m.slot), n), fabric.BytesAt(m.addr, n))
			st = fabric.StatusOK
		}
	default:
		op := fabric.OpFetchAdd
		if m.kind == frameCompareSwap {
			op = fabric.OpCompareSwap
		}
		if l.keys.Allows(m.key, m.addr, 8, softlink.RemoteNeed(op)) {
			value = atomic8(op, m.addr, m.compare, m.operand)
			st = fabric.StatusOK
		}
	}
	l.serving.Store(0)
	rp := &peer.replies[m.slot]
	rp.status.Store(uint64(st))
	rp.value.Store(value)
	rp.seq.Store(m.req + 1)
}

// drainSocket processes waiting messages. The end of the stream sets hup.
func (ep *endpoint) drainSocket() { readSocket(ep, false) }

// readSocket is drainSocket up to a message that wakes, if toWake: mostly there is no other. Sockets
// that are still readable end the next sleep.
func readSocket(ep *endpoint, toWake bool) {
	for range 1024 { // bounds the work for a peer that never stops
		if end, wake := takeMessage(ep); end || wake && toWake {
			return
		}
	}
}

// takeMessage processes the next message, which may be one that wakes. It reports whether there will
// be none soon.
func takeMessage(ep *endpoint) (end, wake bool) {
	if ep.sock.fd < 0 {
		return true, false
	}
	b, fds, err := ep.link.rx.recv(ep.sock.fd)
	switch {
	case err == unix.EAGAIN:
		return true, false
	case errors.Is(err, ErrCorrupt):
	case errors.Is(err, fabric.ErrResources):
		err = ep.mem.miss(b)
	case err != nil || len(b) == 0:
		closeFDs(fds)
		ep.hup = true
		ep.warm()
		return true, false
	case len(b) == 1 && b[0] == msgWake && len(fds) == 0:
		return false, true
	default:
		var n note
		switch n, err = parseNote(b); {
		case err != nil:
		case n.typ == msgAgain && len(fds) == 0:
			ep.link.tellAgain(ep, n.seg)
		default:
			err = ep.mem.take(&n, fds)
		}
		closeFDs(fds)
	}
	if err != nil {
		ep.corrupt(err)
		return true, false
	}
	return false, false
}

// announce announces a segment to the peer, now or as soon as the socket has room. Any
// goroutine may call it.
func (ep *endpoint) announce(n note) {
	if ep.isUp() && !ep.sock.announce(n) {
		ep.link.kick() // the owner continues when there is room
	}
}
