package sim

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/offheap"
)

// op is one request in an endpoint's ring.
type op struct {
	wr     fabric.WR
	size   uint64
	sges   []fabric.SGE // wr.Local's memory, kept when the slot is reused
	inline []byte       // payload of FlagInline
	due    uint64       // step before which it does not start
	fin    uint64       // step before which its completion is not reported
	yield  uint64       // reads: steps in which writes may pass
	last   uint64       // step of the last piece, plus 1
	inject fabric.Status
	status fabric.Status
	done   bool
	parts  uint8 // pieces of the body, 0 before the start
	next   uint8 // pieces done
	perm   [maxPieces]uint8
}

func (ep *Endpoint) at(i uint64) *op { return &ep.ops[i&uint64(len(ep.ops)-1)] }

// stuck reports whether the oldest request, which must exist, cannot advance until the
// other side acts.
func (ep *Endpoint) stuck() bool {
	p := ep.peer
	if ep.link.frozen || p.link.frozen || p.peer != ep && p.state <= up {
		return true
	}
	o := ep.at(ep.exec)
	return ep.exec != ep.tail && o.wr.Flags&fabric.FlagNotify != 0 && p.state == up && p.notes.Len() >= p.depth
}

// advance executes the requests that are due.
func (ep *Endpoint) advance() {
	for ep.state == up && ep.exec != ep.tail {
		o := ep.at(ep.exec)
		if o.done {
			ep.exec++
			continue
		}
		if ep.stuck() {
			return
		}
		ep.waiting = false
		if ep.peer.state != up {
			ep.fall(fabric.StatusPeerGone)
			return
		}
		if o.due > ep.link.net.steps {
			return
		}
		if o.yield > 0 {
			if o.last != ep.link.net.steps+1 {
				o.last = ep.link.net.steps + 1
				o.yield--
			}
			ep.overtake()
			return
		}
		if st := ep.check(o); st != fabric.StatusOK {
			ep.fail(ep.exec, st)
			return
		}
		if !ep.run(o) {
			return
		}
	}
}

// overtake executes the writes behind the oldest request, a read that yields, up to the
// first that must not pass it.
func (ep *Endpoint) overtake() {
	p := ep.peer
	for i := ep.exec + 1; i != ep.tail; i++ {
		o := ep.at(i)
		if o.done {
			continue
		}
		if o.wr.Op != fabric.OpWrite || o.wr.Flags&fabric.FlagFence != 0 || o.due > ep.link.net.steps ||
			o.wr.Flags&fabric.FlagNotify != 0 && p.notes.Len() >= p.depth ||
			ep.check(o) != fabric.StatusOK || !ep.run(o) {
			return
		}
	}
}

// expire gives up a peer that has been silent for too long.
func (ep *Endpoint) expire() {
	if ep.state != up || ep.exec == ep.tail || !ep.stuck() {
		ep.waiting = false
		return
	}
	now := ep.link.net.now()
	if !ep.waiting {
		ep.waiting, ep.since = true, now
		return
	}
	if now-ep.since < ep.timeout {
		return
	}
	if ep.link.frozen || ep.peer.link.frozen || ep.peer.peer != ep {
		ep.fail(ep.exec, fabric.StatusPeerGone)
	} else {
		ep.fail(ep.exec, fabric.StatusNotReady)
	}
}

// check validates o against the present regions of both sides.
func (ep *Endpoint) check(o *op) fabric.Status {
	if o.inject != fabric.StatusOK {
		return o.inject
	}
	if !ep.link.keys.CheckLocal(&o.wr) {
		return fabric.StatusLocalProtection
	}
	if o.size == 0 {
		return fabric.StatusOK // accesses nothing: the key is not checked, as on a device
	}
	if !ep.peer.link.keys.Allows(o.wr.RKey, o.wr.RemoteAddr, o.size, softlink.RemoteNeed(o.wr.Op)) {
		return fabric.StatusRemoteAccess
	}
	return fabric.StatusOK
}

// run executes o, or one piece of it, and reports whether o is done. check(o) must have
// succeeded in the same critical section.
func (ep *Endpoint) run(o *op) bool {
	addr := o.wr.RemoteAddr
	switch o.wr.Op {
	case fabric.OpWrite:
		if !ep.write(o) {
			return false
		}
	case fabric.OpRead:
		if o.size == 8 && addr%8 == 0 {
			o.scatter64(softlink.Load64(addr))
		} else {
			softlink.Scatter(o.wr.Local, fabric.BytesAt(addr, int(o.size)))
		}
	case fabric.OpFetchAdd:
		o.scatter64(softlink.FetchAdd(addr, o.wr.Operand))
	case fabric.OpCompareSwap:
		o.scatter64(softlink.CompareSwap(addr, o.wr.Compare, o.wr.Operand))
	}
	n := ep.link.net
	o.done = true
	o.fin = n.steps + n.upTo(n.opt.MaxCompletionDelay)
	if o.wr.Op != fabric.OpWrite {
		return true
	}
	p := ep.peer
	if o.wr.Flags&fabric.FlagNotify != 0 {
		p.notes.Push(fabric.Completion{EP: p.id, Op: fabric.OpNotify, Imm: o.wr.Imm, Bytes: uint32(o.size)})
		p.link.event()
	} else if n.opt.Caps.WakesOnWrite {
		p.link.event()
	}
	return true
}

// write makes o, or one more piece of it, visible.
func (ep *Endpoint) write(o *op) bool {
	n := ep.link.net
	var tail uint64
	if end := o.wr.RemoteAddr + o.size; n.opt.Caps.LastByteLast && o.size >= 8 && end%8 == 0 {
		tail = 8
	}
	body := o.size - tail
	if n.opt.Pieces <= 1 || o.size <= 8 {
		o.place(0, body)
		o.place(body, o.size)
		return true
	}
	if o.last == n.steps+1 {
		return false // one piece a step
	}
	o.last = n.steps + 1
	if o.parts == 0 {
		o.parts = uint8(1 + n.upTo(n.opt.Pieces-1))
		for i := range o.parts {
			j := uint8(n.upTo(int(i)))
			o.perm[i], o.perm[j] = o.perm[j], i
		}
	}
	if o.next < o.parts {
		k := uint64(o.perm[o.next])
		o.place(o.cut(k, body), o.cut(k+1, body))
		o.next++
		if o.next < o.parts || tail > 0 {
			return false
		}
		return true
	}
	o.place(body, o.size)
	return true
}

// cut returns the offset of piece k of the body, at an aligned address of the target.
func (o *op) cut(k, body uint64) uint64 {
	if k == 0 || k >= uint64(o.parts) {
		return min(k, 1) * body
	}
	at := body * k / uint64(o.parts)
	return min(at+(-(o.wr.RemoteAddr+at))%8, body)
}

// place copies bytes [from, to) of the write to the target.
func (o *op) place(from, to uint64) {
	if from >= to {
		return
	}
	addr := o.wr.RemoteAddr + from
	if to-from == 8 && addr%8 == 0 {
		var w [8]byte
		o.gather(w[:], from)
		softlink.Store64(addr, binary.NativeEndian.Uint64(w[:]))
	} else {
		o.gather(fabric.BytesAt(addr, int(to-from)), from)
	}
	offheap.Release() // the target loads a word that follows, without a call of the link
}

// gather copies the write's bytes from off on to dst.
func (o *op) gather(dst []byte, off uint64) {
	if o.wr.Flags&fabric.FlagInline != 0 {
		copy(dst, o.inline[off:])
		return
	}
	for i := range o.wr.Local {
		s := &o.wr.Local[i]
		if off >= uint64(s.Len) {
			off -= uint64(s.Len)
			continue
		}
		k := copy(dst, fabric.BytesAt(s.Addr+off, int(uint64(s.Len)-off)))
		if dst, off = dst[k:], 0; len(dst) == 0 {
			return
		}
	}
}

// scatter64 stores an 8-byte value of the target in the local pieces.
func (o *op) scatter64(v uint64) {
	var w [8]byte
	binary.NativeEndian.PutUint64(w[:], v)
	softlink.Scatter(o.wr.Local, w[:])
}

// retire reports completed requests, in order.
func (ep *Endpoint) retire() {
	for ep.head != ep.tail {
		o := ep.at(ep.head)
		if !o.done || o.fin > ep.link.net.steps {
			return
		}
		ep.head++
		if int64(ep.head-ep.exec) > 0 {
			ep.exec = ep.head
		}
		if o.status != fabric.StatusOK || o.wr.Flags&fabric.FlagSignaled != 0 {
			ep.ready.Push(fabric.Completion{ID: o.wr.ID, EP: ep.id, Op: o.wr.Op, Status: o.status})
		}
		ep.link.event()
	}
}

// flush ends every request not executed: number i with st, the others with StatusFlushed,
// including those that overtook number i.
func (ep *Endpoint) flush(i uint64, st fabric.Status) {
	for k := ep.head; k != ep.tail; k++ {
		o := ep.at(k)
		o.fin = 0
		if !o.done {
			o.done, o.status = true, fabric.StatusFlushed
			if k == i {
				o.status = st
			}
		} else if k > i {
			o.status = fabric.StatusFlushed
		}
	}
	ep.exec = ep.tail
	ep.retire()
}

// fail takes the endpoint down because request i ended with st.
func (ep *Endpoint) fail(i uint64, st fabric.Status) {
	oe := &fabric.OpError{Op: ep.at(i).wr.Op, Status: st, Endpoint: ep.id}
	ep.flush(i, st)
	ep.state, ep.err, ep.downSt = down, oe, st
	ep.link.event()
	ep.link.net.joined.Broadcast()
	switch st {
	case fabric.StatusRemoteAccess, fabric.StatusRemoteInvalid, fabric.StatusRemoteOp:
		ep.peer.refused = st
		if ep.link.net.opt.TargetFails {
			ep.peer.fall(fabric.StatusPeerGone)
		}
	}
}

// fall takes the endpoint down for a cause outside it. If it has refused a request of the
// peer, that is the cause.
func (ep *Endpoint) fall(st fabric.Status) {
	if ep.state == down || ep.state == closed {
		return
	}
	if ep.refused != fabric.StatusOK {
		ep.flush(ep.tail, fabric.StatusFlushed)
		ep.exec, st = ep.tail, ep.refused
	}
	if ep.exec != ep.tail {
		ep.fail(ep.exec, st)
		return
	}
	ep.flush(ep.tail, st)
	ep.state, ep.downSt = down, st
	ep.err = &fabric.OpError{Op: fabric.OpDown, Status: st, Endpoint: ep.id}
	ep.link.event()
	ep.link.net.joined.Broadcast()
}
