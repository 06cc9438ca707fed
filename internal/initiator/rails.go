package initiator

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/mr"
)

// A peer may be reached by further connections, its rails. A large put or get is divided
// into parts that end at the same time, one for each rail, or sent whole over the best one;
// everything else uses the queue's own connection, rail 0.
//
// Links order the requests of one connection only. Therefore an operation that uses other
// rails is posted when the puts and atomics before it are complete, and nothing is posted
// behind such a put until it is complete, messages included, except for what one rail carries
// whole behind puts that it carries whole. Such gets are posted behind each other.
//
// When a rail ends, its parts are posted again on rail 0, but not before both sides have
// closed its endpoints: until then the peer could still place what was in flight. Parts name
// the same memory each time, so that it does not matter what the first attempt has placed,
// unless a later put was placed as well (rails_marks.go).

const (
	// learnFrom is the least size in bytes of a part that is timed: the latency does not
	// hide the rate.
	learnFrom = 32 << 10

	// change is the factor by which a rate changes that is another one. Rails that share a limit
	// seem slower together than alone, each by the bytes that the other has in flight.
	change = 4

	// settled is the number of samples after which an estimate is compared with what it was.
	settled = 4
)

// Requests of parts have partID in their ID, the rail, the part and the ID of the operation.
const (
	partID    = 1 << 39
	railShift = 36
	partShift = 33
)

// Marks sets the memory of the marks of a rail, which belongs to the queue from then on, before its
// first connection. The peer may write its first 8 bytes.
func (x *Rails) Marks(i int, mine fabric.Region) {
	x.q.eng.prog.AssertOwned()
	x.rail[i].mine = mine
}

// Up adds the connection of a rail, from 1. The peer's word for marks is theirs, without a length
// if the link does not copy 8 bytes when they are posted (fabric.FlagInline).
func (x *Rails) Up(i int, ep fabric.Endpoint, theirs fabric.RemoteKey) {
	x.q.eng.prog.AssertOwned()
	r := &x.rail[i]
	*r = rail{ep: ep, cost: x.assumed(), stats: r.stats, marks: marks{mine: r.mine, theirs: theirs}}
	x.some = true
	x.forget(i)
}

// Down removes the connection of a rail, which is closed on this side.
func (x *Rails) Down(i int) {
	x.q.eng.prog.AssertOwned()
	x.rail[i].ep = nil
	x.forget(i)
}

// Closed reports that the peer, too, has closed the connection of a rail, and the last mark that
// it has. The error wraps ErrMisbehaves if that cannot be: then the connection must end.
func (x *Rails) Closed(i int, mark uint64) error {
	x.q.eng.prog.AssertOwned()
	r := &x.rail[i]
	if err := r.check(mark); err != nil {
		return err
	}
	r.ep, r.closed = nil, true
	x.settle(i)
	return nil
}

// Idle reports whether no request of a rail is in flight.
func (x *Rails) Idle(i int) bool {
	x.q.eng.prog.AssertOwned()
	return x.rail[i].inflight == 0
}

// Counts returns the counters of a rail.
func (x *Rails) Counts(i int) RailCounts {
	x.q.eng.prog.AssertOwned()
	r := &x.rail[i]
	c := r.stats
	c.PerByte, c.Up = r.cost.PerByte, x.q.down == nil && x.endpoint(i) != nil
	return c
}

// assumed returns the cost of a rail before anything was sent over it: that of the path.
func (x *Rails) assumed() logp.Rail {
	c := logp.Rail{Latency: 20e3, PerByte: 1}
	if p := x.q.groups.params; p != nil {
		const far, near = 1 << 20, 64 << 10
		if g := (p.Os.At(far) - p.Os.At(near)) / (far - near); g > 0 {
			c.PerByte = g
		}
		c.Latency = p.Os.At(0) + 2*p.Lh
	}
	return c
}

// assume sets the cost of the rails that have not been timed, rail 0 among them: what is assumed
// of one must not differ from what is assumed of the others.
func (x *Rails) assume() {
	for i := range x.rail {
		if r := &x.rail[i]; r.samples == 0 && (i == 0 || r.ep != nil) {
			r.cost = x.assumed()
		}
	}
}

// endpoint returns the endpoint of a rail, nil if it has none.
func (x *Rails) endpoint(i int) fabric.Endpoint {
	if i == 0 {
		return x.q.ep
	}
	return x.rail[i].ep
}

// hold adds n to the operations that nothing may overtake.
func (x *Rails) hold(n int) {
	x.held += n
	x.q.groups.open += n
}

// release lets others be posted behind an operation that nothing might overtake.
func (x *Rails) release(d *divided) {
	if d.held {
		d.held = false
		x.hold(-1)
	}
}

// post posts the parts that are due. It reports whether a link took any.
func (x *Rails) post() (did bool) {
	q := x.q
	full := uint(0) // rails: their parts keep their order
	for i := 0; i < len(x.due) && q.down == nil; {
		u := x.due[i]
		p := &u.o.more.parts[u.i]
		ep := x.endpoint(int(p.rail))
		if ep == nil || full>>p.rail&1 != 0 {
			i++
			continue
		}
		wrs := x.request(u, p)
		n, err := ep.Post(wrs)
		if n > 0 && len(wrs) > 1 {
			x.rail[p.rail].marked, p.marked = p.index, true
		}
		switch {
		case n == len(wrs):
			x.took(u.o, p)
			did = true
		case err == nil: // the queue is full
			full |= 1 << p.rail
			if x.idle(int(p.rail)) {
				did = true // no completion will follow: stay awake and retry
			}
			i++
			continue
		case errors.Is(err, fabric.ErrInvalidWR):
			u.o.note(err)
			x.end(u.o)
		default:
			x.failed(int(p.rail), err)
			return did
		}
		x.due = slices.Delete(x.due, i, i+1)
	}
	return did
}

// idle reports whether no request is in flight on the connection of a rail.
func (x *Rails) idle(i int) bool {
	if i == 0 {
		return x.q.inflight == 0
	}
	return x.rail[i].inflight == 0
}

// request returns the request of a part, and before it the mark that it needs.
func (x *Rails) request(u duePart, p *part) []fabric.WR {
	c, k := &x.q.eng.chain, &u.o.more.keys[p.rail]
	c.used = 0
	n, id := 0, partID|uint64(p.rail)<<railShift
	if r := &x.rail[p.rail]; u.o.kind == Put && p.rail > 0 && r.placing > 0 && r.marked < p.index && r.marking() {
		c.wrs[0] = r.mark(c, id, p.index)
		n = 1
	}
	c.wrs[n] = fabric.WR{
		ID: id | uint64(u.i)<<partShift | uint64(u.o.id),
		Op: u.o.kind.request(), Flags: fabric.FlagSignaled,
		Local:      c.piece(fabric.SGE{Addr: u.o.sge.Addr + uint64(p.off), Len: p.n, LKey: k.LKey}),
		RemoteAddr: u.o.remote + uint64(p.off), RKey: k.RKey,
	}
	return c.wrs[:n+1]
}

// took records that a link took the request of a part.
func (x *Rails) took(o *Op, p *part) {
	r := &x.rail[p.rail]
	p.since, p.idle = time.Now(), r.inflight == 0
	r.inflight++
	r.bytes += int64(p.n)
	if o.kind == Put {
		r.placing++
	}
	if p.rail == 0 {
		x.q.inflight++
		if o.kind == Get {
			x.reads++
		}
	}
	if d := &o.more.divided; d.way == wayFirst {
		x.release(d) // what follows is behind it on rail 0
	}
}

// failed handles the end of a connection.
func (x *Rails) failed(i int, err error) {
	if i == 0 {
		x.q.host.Reported(err)
		return
	}
	x.q.host.RailLost(i, err)
}

// complete handles the completion of a part.
func (x *Rails) complete(c *fabric.Completion) {
	q := x.q
	o := q.eng.inflight.find(c.ID & (1<<32 - 1))
	if o == nil || o.q != q {
		if c.Status == fabric.StatusRemoteAccess { // of a mark
			q.host.Sever(c.Err())
		}
		return
	}
	i := uint8(c.ID >> partShift & (mr.MaxRails - 1))
	d := &o.more.divided
	p := &d.parts[i]
	rail := int(p.rail)
	r := &x.rail[rail]
	r.inflight--
	r.bytes -= int64(p.n)
	if o.kind == Put {
		r.placing--
	}
	if p.rail == 0 {
		q.inflight--
		q.full = false
		if o.kind == Get {
			x.reads--
		}
	}
	switch {
	case c.Status == fabric.StatusOK:
		x.time(p)
		x.carried(o, p)
	case p.rail == 0:
		err := q.host.Reason(c)
		o.note(err)
		x.end(o)
		q.host.Down(err)
	case q.down != nil:
		o.note(q.down)
		x.end(o)
	case c.Status == fabric.StatusRemoteAccess: // as on rail 0
		err := c.Err()
		o.note(err)
		x.end(o)
		q.host.Sever(err)
	default:
		x.due = append(x.due, duePart{o, i})
		x.failed(rail, c.Err())
	}
	x.settle(rail)
}

// settle ends the puts that the peer has placed on a rail that both sides have closed, and
// diverts the other parts to rail 0, in order, when none is in flight any longer.
func (x *Rails) settle(i int) {
	r := &x.rail[i]
	if i == 0 || !r.closed || r.inflight > 0 {
		return
	}
	if x.line == i {
		x.line = 0 // what is posted again is on rail 0
	}
	slices.SortStableFunc(x.due, func(a, b duePart) int { // on each rail
		pa, pb := &a.o.more.parts[a.i], &b.o.more.parts[b.i]
		return cmp.Or(cmp.Compare(pa.rail, pb.rail), cmp.Compare(pa.index, pb.index))
	})
	var placed []duePart
	x.due = slices.DeleteFunc(x.due, func(u duePart) bool {
		p := &u.o.more.parts[u.i]
		switch {
		case int(p.rail) != i:
			return false
		case u.o.kind == Put && p.index < r.placed:
			placed = append(placed, u)
			return true
		}
		p.rail, p.marked = 0, false
		r.stats.Again++
		return false
	})
	for _, u := range placed {
		x.carried(u.o, &u.o.more.parts[u.i])
	}
	r.marks = marks{mine: r.mine}
	x.kick()
}

// carried ends a part that the peer has placed or read.
func (x *Rails) carried(o *Op, p *part) {
	r := &x.rail[p.rail]
	if p.marked {
		r.confirmed = max(r.confirmed, p.index)
	}
	r.stats.Parts++
	r.stats.Bytes += uint64(p.n)
	x.end(o)
}

// kick has the parts that are due posted.
func (x *Rails) kick() {
	if len(x.due) > 0 && x.q.down == nil {
		x.q.wake()
	}
}

// time learns the rate of the rail of a part that has ended. What is known of the ways that use a
// rail is forgotten when its rate has changed.
func (x *Rails) time(p *part) {
	r := &x.rail[p.rail]
	now := time.Now()
	since := p.since
	if r.last.After(since) {
		since = r.last
	}
	r.last = now
	if p.n < learnFrom {
		return
	}
	t := float64(now.Sub(since))
	if p.idle {
		t = max(t-r.cost.Latency, t/2)
	}
	v := max(t/float64(p.n), 1e-3)
	r.untimed = 0
	was := r.cost.PerByte
	if r.samples++; r.samples > 1 {
		v = (was + min(v, outlier*was)) / 2
	}
	if r.cost.PerByte = v; math.Abs(v-was) > was/4 {
		x.moved = now
	}
	switch {
	case r.samples < settled:
	case r.known == 0:
		r.known = v
	case v > change*r.known || v < r.known/change:
		r.known = v
		x.forget(int(p.rail))
	}
}

// end ends a part of o.
func (x *Rails) end(o *Op) {
	d := &o.more.divided
	if d.left--; d.left == 0 {
		now, since := time.Now(), d.began
		if x.ended.After(since) {
			since = x.ended
		}
		x.ended = now
		x.mix(now)
		x.by[d.kind()]--
		// The begin of one behind others on rail 0 is not known, unless the last one was timed.
		switch t := x.trialOf(o.sge.Len); {
		case o.Err != nil || d.probe || since.Before(x.mixed) || d.way == wayDivided && d.began.Before(x.moved): // by other rates
			t.series.n, t.series.bytes, t.series.ns = 0, 0, 0
		case d.way == wayFirst && d.after && since.Equal(d.began):
		default:
			t.sample(d.way, float64(o.sge.Len), float64(now.Sub(since)), x.open-1+burst)
		}
		x.open--
		x.release(d)
		if d.rest > 0 && o.queued {
			x.next(o)
		}
	}
	o.unpend()
}

// next has the next slice of o posted, which is the first operation of the queue, or ends o if
// a slice has failed.
func (x *Rails) next(o *Op) {
	q := x.q
	if o.Err != nil {
		q.posts.pop().queued = false
		return
	}
	o.slice()
	q.wake()
}

// down ends the parts that are not posted.
func (x *Rails) down(err error) {
	due := x.due
	x.due = nil
	for _, u := range due {
		u.o.note(err)
		x.end(u.o)
	}
}
