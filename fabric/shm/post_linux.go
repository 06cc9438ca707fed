package shm

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
)

// outcome is what became of an attempt to execute a request.
type outcome uint8

const (
	executed  outcome = iota // done, with a status
	needsPeer                // only the target's progress engine can
	isFar                    // on private memory: see far
	epDown                   // the endpoint went down meanwhile
)

// Post implements fabric.Endpoint. A request is executed before Post returns unless
// it needs the target's help or stands behind one that does.
// Hot path.
func (ep *endpoint) Post(wrs []fabric.WR) (n int, err error) {
	if s := ep.state.Load(); s != stateUp {
		return 0, refusal(s)
	}
	visible, fenced := false, true // something for the peer to see; a fence behind it
	ahead := 0                     // how many of wrs[n:] are carried out already
	for ; n < len(wrs); n++ {
		wr := &wrs[n]
		if reason := softlink.CheckShape(wr, &ep.link.caps); reason != "" {
			err = &fabric.WRError{Index: n, Op: wr.Op, Reason: reason}
			break
		}
		if ep.cq.Len()+ep.q.len() >= ep.depth {
			break
		}
		if ep.q.len() != 0 {
			ep.enqueue(wr)
			continue
		}
		notify := wr.Flags&fabric.FlagNotify != 0
		if notify && !ep.roomOrStarve(1) {
			break
		}
		var st fabric.Status
		out, f := executed, true
		if ahead > 0 {
			ahead--
		} else if st, out, f = ep.execute(wr); out == isFar {
			st, out, ahead = ep.far(wrs[n:])
			f = true
		}
		if out == needsPeer {
			ep.enqueue(wr)
			continue
		}
		if out == epDown {
			break
		}
		if st != fabric.StatusOK {
			n = ep.flushPost(wrs, n, st)
			return n, nil
		}
		if wr.Op != fabric.OpRead {
			visible, fenced = true, f
			if notify {
				ep.pushNotify(wr.Imm, uint32(wr.Len()))
				fenced = true
			}
		}
		if wr.Flags&fabric.FlagSignaled != 0 {
			ep.cq.Push(fabric.Completion{ID: wr.ID, EP: ep.id, Op: wr.Op})
		}
	}
	if s := ep.state.Load(); s != stateUp {
		return n, refusal(s)
	}
	if ep.cq.Len()+ep.q.len() != 0 {
		ep.warm()
	}
	if ep.q.len() != 0 {
		ep.advance()
	}
	if visible && ep.isUp() {
		if !fenced {
			ep.fullFence()
		}
		ep.wakePeer()
	}
	return n, err
}

// refusal is why Post takes nothing in state s.
func refusal(s uint32) error {
	if s == stateNew {
		return fabric.ErrNotConnected
	}
	return fabric.ErrDown
}

// flushPost reports the failure of wrs[n], flushes the rest of the list as far
// as there is room, takes the endpoint down, and returns how many were taken.
func (ep *endpoint) flushPost(wrs []fabric.WR, n int, st fabric.Status) int {
	for s := st; n < len(wrs) && ep.cq.Push(ep.failure(&wrs[n], s)); n++ {
		s = fabric.StatusFlushed
	}
	ep.fullFence()
	ep.wakePeer() // for what went before
	ep.failRequest(st)
	return n
}

func (ep *endpoint) failure(wr *fabric.WR, st fabric.Status) fabric.Completion {
	return fabric.Completion{ID: wr.ID, EP: ep.id, Op: wr.Op, Status: st}
}

// execute carries wr out now if its memory is mapped. fenced says that a full fence
// stands behind what it stored.
func (ep *endpoint) execute(wr *fabric.WR) (st fabric.Status, out outcome, fenced bool) {
	if !ep.link.keys.CheckLocal(wr) {
		return fabric.StatusLocalProtection, executed, false
	}
	n := wr.Len()
	if n == 0 { // touches nothing: no key is looked at, as on a device
		return fabric.StatusOK, executed, false
	}
	x := ep.lookup(wr.RKey, wr.RemoteAddr, n, softlink.RemoteNeed(wr.Op))
	if x == nil {
		if !ep.isUp() {
			return 0, epDown, false
		}
		return ep.refused(), executed, false
	}
	if x.mem == 0 {
		return 0, isFar, false
	}
	return fabric.StatusOK, executed, ep.run(x, wr, n)
}

// run carries out wr, which has been checked and whose n bytes, at least one, lie in the
// mapped region x. fenced says that a full fence stands behind what it stored.
// Hot path.
func (ep *endpoint) run(x *xlate, wr *fabric.WR, n uint64) (fenced bool) {
	at := x.mem + (wr.RemoteAddr - x.base)
	if l := &wr.Local[0]; n == 8 && l.Len == 8 && at&7 == 0 {
		switch wr.Op {
		case fabric.OpWrite:
			orderStores() // behind the stores of earlier requests
			word(at).Store(load8(l.Addr))
		case fabric.OpRead:
			store8(l.Addr, word(at).Load())
		default:
			store8(l.Addr, atomic8(wr.Op, at, wr.Compare, wr.Operand))
		}
		return true
	}
	switch large := n >= ep.link.copies.from.Load(); {
	case wr.Op == fabric.OpWrite && large:
		return putBulk(ep.link.copies.plan.Load(), at, wr.Local, n)
	case wr.Op == fabric.OpWrite:
		return put(at, wr.Local, n)
	case large:
		getBulk(ep.link.copies.plan.Load(), wr.Local, at, n)
	default:
		get(wr.Local, at, n)
	}
	return true
}

// refused is the status of a request whose key is not valid: a peer that closes
// withdraws its regions behind its endpoint, and who asks late has lost a peer
// rather than named a wrong key.
func (ep *endpoint) refused() fabric.Status {
	if ep.drainSocket(); ep.hup {
		return fabric.StatusPeerGone
	}
	return fabric.StatusRemoteAccess
}

// room reports whether k more frames fit into the peer's ring. The peer's head
// is its claim: one that runs backwards or past the tail is corruption.
func (ep *endpoint) room(k int) bool {
	n := uint64(len(ep.out))
	if ep.outTail+uint64(k)-ep.outSeen <= n {
		return true
	}
	h := ep.peerHdr.head.Load()
	if ep.outTail-h > ep.outTail-ep.outSeen {
		ep.corrupt(fmt.Errorf("%w: ring head %d outside [%d, %d]", ErrCorrupt, h, ep.outSeen, ep.outTail))
		return false
	}
	ep.outSeen = h
	return ep.outTail+uint64(k)-h <= n
}

// roomOrStarve is room that leaves word with the peer if there is none, so
// that it wakes us when there is.
func (ep *endpoint) roomOrStarve(k int) bool {
	if ep.room(k) {
		if ep.starved {
			ep.satisfied()
		}
		return true
	}
	if !ep.isUp() {
		return false
	}
	ep.starved = true
	ep.peerHdr.starved.Store(1)
	return ep.room(k)
}

// satisfied withdraws what roomOrStarve left with the peer.
func (ep *endpoint) satisfied() {
	ep.starved = false
	ep.peerHdr.starved.Store(0)
}

// push publishes a frame; there is room.
func (ep *endpoint) push(m *message) {
	f := &ep.out[ep.outTail&uint64(len(ep.out)-1)]
	f.w = m.words()
	ep.outTail++
	f.seq.Store(ep.outTail)
}

func (ep *endpoint) pushNotify(imm, bytes uint32) {
	ep.push(&message{kind: frameNotify, imm: imm, bytes: bytes})
}

// sayBye tells the peer that this is the end, so that its next Poll knows. If
// the ring is full the socket's end has to do.
func (ep *endpoint) sayBye() {
	if n := uint64(len(ep.out)); n > 0 && ep.outTail-ep.peerHdr.head.Load() < n {
		ep.push(&message{kind: frameBye})
	}
}
