package shm

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/offheap"
)

// queue holds the requests of an endpoint that could not be executed in Post: those that
// need the target's progress engine (private memory without CMA, atomics on private memory)
// and, to keep their order, all behind them.
//
// A request for the target is split into chunks. Each takes a request number r, the bounce
// buffer and the reply slot r mod maxReqs of this side's channel, and a frame in the peer's
// ring. The target executes frames in ring order, so that requests of this kind follow each
// other without waiting; any other request waits until nothing is in flight.
//
// Indices only grow: head ≤ issue ≤ tail. Requests in [head, issue) are submitted to the
// target completely, issue possibly in part, the rest waits.
type queue struct {
	reqs              []request
	head, issue, tail uint64
	sent, done        uint64 // request numbers: submitted, answered
	chunk             [maxReqs]uint32
	inline            []byte // payload of queued inline writes, maxInline each
	committed         bool   // the bounce buffers are backed by memory
}

// request is a queued work request.
type request struct {
	wr    fabric.WR    // Local is sges
	sges  []fabric.SGE // own copy; capacity kept between uses
	total uint64
	sent  uint64 // bytes submitted to the target
	done  uint64 // bytes answered
	src   cursor // position of sent in Local, writes
	dst   cursor // position of done in Local, reads
}

// keptSGEs is the length of list up to which queueing never allocates.
const keptSGEs = 4

func (q *queue) init(depth int) {
	size := 1
	for size < depth {
		size *= 2
	}
	q.reqs = make([]request, size)
	room := make([]fabric.SGE, size*keptSGEs)
	for i := range q.reqs {
		q.reqs[i].sges = room[i*keptSGEs : i*keptSGEs : (i+1)*keptSGEs]
	}
}

func (q *queue) release() {
	_ = offheap.Free(q.inline, offheap.Staging)
	q.inline = nil
}

func (q *queue) len() int { return int(q.tail - q.head) }

func (q *queue) at(i uint64) *request { return &q.reqs[i&uint64(len(q.reqs)-1)] }

// inFlight returns the number of chunks that the target has not answered.
func (q *queue) inFlight() int { return int(q.sent - q.done) }

// push appends wr. There must be room. Eager path of private memory without CMA.
func (q *queue) push(wr *fabric.WR) {
	r := q.at(q.tail)
	sges := append(r.sges[:0], wr.Local...)
	*r = request{wr: *wr, sges: sges, total: wr.Len()}
	if wr.Flags&fabric.FlagInline != 0 && r.total > 0 {
		at := int(q.tail&uint64(len(q.reqs)-1)) * maxInline
		keep := q.inline[at : at+int(r.total)]
		softlink.Gather(keep, wr.Local)
		r.sges = append(r.sges[:0], fabric.NewSGE(keep, 0))
	}
	r.wr.Local = r.sges
	q.tail++
}

// flush ends all requests, the oldest one with its own status, with completions of endpoint
// id in cq.
func (q *queue) flush(oldest fabric.Status, id uint32, cq *softlink.CompQ) {
	for st := oldest; q.head != q.tail; q.head++ {
		cq.Push(completion(id, &q.at(q.head).wr, st))
		st = fabric.StatusFlushed
	}
	q.issue, q.done = q.tail, q.sent
}

// advance collects answers and submits requests that may proceed. It reports whether
// anything changed. May take the endpoint down.
func (ep *endpoint) advance() bool {
	q := &ep.q
	sent := q.sent
	moved := ep.collect()
	for ep.isUp() && q.issue != q.tail && ep.issueNext() {
		moved = true
	}
	if !ep.isUp() {
		return true
	}
	if q.sent != sent || moved {
		ep.bell.fence() // for writes executed from the queue
		ep.bell.wake()
		return true
	}
	return false
}

// issueNext submits request issue to the target or executes it. It reports whether the
// request is completely submitted or executed.
func (ep *endpoint) issueNext() bool {
	q := &ep.q
	r := q.at(q.issue)
	if r.sent == 0 {
		if q.issue == q.head {
			if done, gone := ep.executeQueued(r); done || gone {
				return done
			}
		} else if !r.mayFollow(ep) {
			return false
		}
	}
	return ep.submit(r)
}

// executeQueued tries to execute the oldest request without the target. gone: the request
// must wait or the endpoint is down.
func (ep *endpoint) executeQueued(r *request) (done, gone bool) {
	if r.wr.Flags&fabric.FlagNotify != 0 && !ep.reserve(1) {
		return false, true
	}
	st, out := ep.execute(&r.wr)
	if out == isFar {
		one := [1]fabric.WR{r.wr}
		st, out, _ = ep.far(one[:])
	}
	switch {
	case out == epDown:
		return false, true
	case out == needsPeer:
		return false, false
	}
	ep.q.issue++
	if st == fabric.StatusOK && r.wr.Flags&fabric.FlagNotify != 0 {
		ep.out.pushNotify(r.wr.Imm, uint32(r.total))
	}
	ep.complete(st)
	return true, false
}

// mayFollow reports whether r needs the target's progress engine as well, and is valid as
// far as is known here.
func (r *request) mayFollow(ep *endpoint) bool {
	if r.total == 0 || !ep.link.keys.CheckLocal(&r.wr) {
		return false
	}
	x := ep.lookup(r.wr.RKey, r.wr.RemoteAddr, r.total, softlink.RemoteNeed(r.wr.Op))
	bulk := r.wr.Op == fabric.OpWrite || r.wr.Op == fabric.OpRead
	return x != nil && x.mem == 0 && !(ep.cma.works && bulk)
}

// submit sends the chunks of r as far as there is room. It reports whether all are sent.
func (ep *endpoint) submit(r *request) bool {
	q := &ep.q
	if !q.committed {
		if err := commit(ep.own.bounce); err != nil {
			ep.fail(fabric.StatusUnknown, err)
			return false
		}
		q.committed = true
	}
	notify := r.wr.Flags&fabric.FlagNotify != 0
	for r.sent < r.total {
		if q.inFlight() == maxReqs || !ep.reserve(2) {
			return false
		}
		n := min(r.total-r.sent, chunkSize)
		if rest := r.total - r.sent - n; rest > 0 && rest < 8 {
			n -= 8 // the last chunk contains the last aligned word
		}
		slot := int(q.sent % maxReqs)
		m := message{
			slot: uint16(slot), addr: r.wr.RemoteAddr + r.sent, key: r.wr.RKey, bytes: uint32(n),
			operand: r.wr.Operand, compare: r.wr.Compare, req: q.sent,
		}
		switch r.wr.Op {
		case fabric.OpWrite:
			m.kind = frameWrite
			r.src.gather(bounce(ep.own.bounce, slot, int(n)), r.wr.Local)
		case fabric.OpRead:
			m.kind = frameRead
		case fabric.OpFetchAdd:
			m.kind = frameFetchAdd
		default:
			m.kind = frameCompareSwap
		}
		q.chunk[slot] = uint32(n)
		q.sent++
		r.sent += n
		ep.out.push(&m)
	}
	if notify {
		ep.out.pushNotify(r.wr.Imm, uint32(r.total))
	}
	q.issue++
	return true
}

// commit allocates the memory of bounce buffers before their first use, which most
// connections never reach. If there is none the endpoint goes down, instead of the process
// by SIGBUS. Kernels before Linux 5.14 cannot do this.
func commit(bounce []byte) error {
	for {
		switch err := unix.Madvise(bounce, unix.MADV_POPULATE_WRITE); err {
		case nil, unix.EINVAL:
			return nil
		case unix.EINTR, unix.EAGAIN:
		default:
			return fmt.Errorf("%w: no memory for bounce buffers: %w", fabric.ErrResources, err)
		}
	}
}

// bounce returns the first n bytes of a bounce buffer.
func bounce(b []byte, slot, n int) []byte { return b[slot*chunkSize : slot*chunkSize+n] }

// collect processes the target's answers, in order, and completes requests. May take the
// endpoint down.
func (ep *endpoint) collect() (moved bool) {
	q := &ep.q
	for q.done != q.sent {
		slot := int(q.done % maxReqs)
		rp := &ep.own.replies[slot]
		if rp.seq.Load() != q.done+1 {
			break
		}
		moved = true
		r := q.at(q.head)
		if st := rp.result(); st != fabric.StatusOK {
			ep.complete(st)
			return true
		}
		n := q.chunk[slot]
		switch r.wr.Op {
		case fabric.OpWrite:
		case fabric.OpRead:
			r.dst.scatter(bounce(ep.own.bounce, slot, int(n)), r.wr.Local)
		default:
			store8(r.wr.Local[0].Addr, rp.value.Load())
		}
		q.done++
		if r.done += uint64(n); r.done == r.total {
			ep.complete(fabric.StatusOK)
		}
	}
	return moved
}

// result returns the status of the request. It is read once, because the peer may change
// it.
func (r *reply) result() fabric.Status {
	s := r.status.Load()
	if s < 256 && fabric.Status(s).Err() != fabric.ErrUnknownStatus {
		return fabric.Status(s)
	}
	return fabric.StatusRemoteOp
}

// complete ends the oldest request. A failure takes the endpoint down.
func (ep *endpoint) complete(st fabric.Status) {
	r := ep.q.at(ep.q.head)
	if st != fabric.StatusOK || r.wr.Flags&fabric.FlagSignaled != 0 {
		ep.cq.Push(completion(ep.id, &r.wr, st))
	}
	ep.q.head++
	if st != fabric.StatusOK {
		ep.failRequest(st)
	}
}
