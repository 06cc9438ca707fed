package rma

import (
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/mr"
)

const (
	// chain is how many requests one Post takes: enough that the cost of one
	// crossing into C vanishes beside that of the requests.
	chain = 32

	// pieces is how many local pieces the requests of one Post may have: what a
	// chain of requests of a few pieces each needs. Only transfers of many small
	// pieces use it up, and go on with the next Post.
	pieces = 512

	// resultSlots is how many atomics may be under way on one link.
	resultSlots = 1024
)

// proto drives one-sided operations. All but in belongs to the owner of the
// progress engine.
type proto struct {
	in     inbox
	peers  []*Peer // by rank
	active []*Peer // peers with something to post
	talks  talks   // peers with messages to send or receive
	awaits []*op   // words that are waited for
	later  []*op   // atomics that back off
	began  time.Time
	arena  *mr.Arena // for copies of small memory of applications
	heart  heartbeat
	steps  uint
	nap    eager.Nap
	doze   eager.Nap // where words are waited for
	flying []*op     // by work request ID less 1

	hears     atomic.Bool    // messages of all peers are wanted
	shared    message.Shared // receives from any peer
	receivers []*Receiving
	turn      int // the peer whose waiting messages are looked at first

	free  []uint32
	slots []slots // by link

	tickets  uint64 // of operations that were complete at once: the last one
	redeemed redeemed

	wrs  [chain]fabric.WR
	made [chain]made
	sges [pieces]fabric.SGE
	used int                  // of sges
	cs   [8]fabric.Completion // polled for by who hands in
}

// slots are words in registered memory that results of atomics come to, and
// flags go out from.
type slots struct {
	region fabric.Region
	free   []int32
}

func newSlots(l fabric.Link) (slots, error) {
	r, err := l.Alloc(8*resultSlots, fabric.AccessLocalWrite)
	if err != nil {
		return slots{}, err
	}
	s := slots{region: r}
	for i := range int32(resultSlots) {
		s.free = append(s.free, resultSlots-1-i)
	}
	return s, nil
}

func (s *slots) bytes(i int32) []byte { return s.region.Bytes()[8*i : 8*i+8] }

// slot gives o a slot, if there is one. Kept until o is through.
func (t *proto) slot(o *op) bool {
	if o.slot >= 0 {
		return true
	}
	s := &t.slots[o.peer.link]
	n := len(s.free)
	if n == 0 {
		return false
	}
	o.slot = s.free[n-1]
	s.free = s.free[:n-1]
	return true
}

// id gives o a work request ID. Kept until o is through.
func (t *proto) id(o *op) uint64 {
	if o.id == 0 {
		if len(t.free) == 0 {
			t.flying = append(t.flying, nil)
			t.free = append(t.free, uint32(len(t.flying)))
		}
		o.id = t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
		t.flying[o.id-1] = o
	}
	return uint64(o.id)
}

// forget frees the ID and the slot of o.
func (t *proto) forget(o *op) {
	if o.id != 0 {
		t.flying[o.id-1] = nil
		t.free = append(t.free, o.id)
		o.id = 0
	}
	if o.slot >= 0 {
		s := &t.slots[o.peer.link]
		s.free = append(s.free, o.slot)
		o.slot = -1
	}
}

// Pending implements progress.Protocol.
func (t *proto) Pending() bool { return t.in.top.Load() != nil }

// Step implements progress.Protocol.
func (t *proto) Step() bool {
	if t.steps++; t.steps%beatSteps == 0 {
		t.heart.beat()
	}
	did := t.takeOver()
	if len(t.later) > 0 && t.resume() {
		did = true
	}
	for i := 0; i < len(t.active); {
		p := t.active[i]
		if t.post(p) {
			did = true
		}
		if p.posts.head != nil || p.loops.redo.head != nil || len(p.acks) > 0 {
			i++
			continue
		}
		p.active = false
		last := len(t.active) - 1
		t.active[i] = t.active[last]
		t.active[last] = nil
		t.active = t.active[:last]
	}
	if len(t.awaits) > 0 && t.look() {
		did = true
	}
	return t.stepTalks() || did
}

// handOver takes o over, behind what was handed in before, and does with it what can
// be done at once. Owner's.
// Hot path.
func (t *proto) handOver(p *Peer, o *op) {
	t.takeOver()
	t.enqueue(o)
	if !p.active {
		return
	}
	t.post(p)
	if p.soon && p.flying > 0 {
		if n := p.eng.links[p.link].Poll(t.cs[:]); n > 0 {
			t.Complete(p.link, t.cs[:n])
		}
	}
}

// takeOver takes over what was handed in. It reports whether there was anything.
func (t *proto) takeOver() bool {
	if !t.Pending() {
		return false
	}
	for o := t.in.take(); o != nil; {
		next := o.next
		o.next = nil
		t.enqueue(o)
		o = next
	}
	return true
}

// enqueue takes an operation over.
func (t *proto) enqueue(o *op) {
	p := o.peer
	switch {
	case o.kind == kindCancel:
		t.cancel(o.target)
		o.recycle()
		return
	case o.kind == kindResume:
		t.offerAgain(o.resume)
		o.recycle()
		return
	case o.kind >= kindSend:
		if p.down != nil && (o.kind != kindRecv || !p.hears()) {
			t.fail(o, p.down)
			return
		}
		t.enqueueMessage(p, o)
		return
	case o.kind == kindAwait:
		t.await(o)
		return
	case o.kind == kindFlush:
		t.flush(p, o)
		return
	}
	if o.kind != kindFence {
		o.epoch = p.epoch
		p.open++
	}
	if p.down != nil {
		t.note(o, p.down)
		t.end(o)
		return
	}
	if o.more != nil && o.more.user.mem != nil {
		if err := t.stage(p, o); err != nil {
			t.note(o, err)
			t.end(o)
			return
		}
	}
	if o.kind == kindFence && p.ep == nil && p.posts.head == nil {
		o.recycle() // there is nothing before it
		return
	}
	o.queued = true
	p.posts.push(o)
	t.wake(p)
}

// wake puts p on the list of peers with something to post, once there is a
// connection to post to.
func (t *proto) wake(p *Peer) {
	if p.ep == nil {
		p.call()
		return
	}
	if !p.active {
		p.active = true
		t.active = append(t.active, p)
	}
}

// Rest implements progress.Protocol.
func (t *proto) Rest(on bool) time.Duration {
	d := t.restTalks(on)
	if on && len(t.awaits) > 0 {
		if n := t.napAwaits(); n != 0 && (d == 0 || n < d) {
			d = n
		}
	}
	if on && len(t.later) > 0 {
		d = time.Millisecond // the shortest that sleeps can be
	}
	return t.heart.nap(d)
}
