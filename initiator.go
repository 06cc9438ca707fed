package rma

import (
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/pending"
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

// initiator drives one-sided operations. All of it belongs to the owner of the progress
// engine.
type initiator struct {
	inbox    *pending.Inbox
	peers    []*Peer   // by rank
	active   []*Peer   // peers with something to post
	awaits   []*op     // words that are waited for
	doze     eager.Nap // where words are waited for
	later    []*op     // atomics that back off
	began    time.Time
	arena    *mr.Arena // for copies of small memory of applications
	inflight []*op     // by work request ID less 1
	free     []uint32
	slots    []slots // by link

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
func (t *initiator) slot(o *op) bool {
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
func (t *initiator) id(o *op) uint64 {
	if o.id == 0 {
		if len(t.free) == 0 {
			t.inflight = append(t.inflight, nil)
			t.free = append(t.free, uint32(len(t.inflight)))
		}
		o.id = t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
		t.inflight[o.id-1] = o
	}
	return uint64(o.id)
}

// forget frees the ID and the slot of o.
func (t *initiator) forget(o *op) {
	if o.id != 0 {
		t.inflight[o.id-1] = nil
		t.free = append(t.free, o.id)
		o.id = 0
	}
	if o.slot >= 0 {
		s := &t.slots[o.peer.link]
		s.free = append(s.free, o.slot)
		o.slot = -1
	}
}

// step goes on with what there is to do. It reports whether it did anything.
func (t *initiator) step() bool {
	did := len(t.later) > 0 && t.resume()
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
	return len(t.awaits) > 0 && t.look() || did
}

// handOver takes o over, behind what was handed in before, and does with it what can
// be done at once. Owner's.
// Hot path.
func (t *initiator) handOver(p *Peer, o *op) {
	t.inbox.TakeOver()
	t.start(o)
	if !p.active {
		return
	}
	t.post(p)
	if p.soon && p.inflight > 0 {
		if n := p.eng.links[p.link].Poll(t.cs[:]); n > 0 {
			p.eng.proto.Complete(p.link, t.cs[:n])
		}
	}
}

// start begins an operation. Owner's.
func (t *initiator) start(o *op) {
	p := o.peer
	switch o.kind {
	case kindAwait:
		t.await(o)
		return
	case kindFlush:
		t.flush(p, o)
		return
	case kindFence:
	default:
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
		o.Drop() // there is nothing before it
		return
	}
	o.queued = true
	p.posts.push(o)
	t.wake(p)
}

// wake puts p on the list of peers with something to post, once there is a
// connection to post to.
func (t *initiator) wake(p *Peer) {
	if p.ep == nil {
		p.conn.Call()
		return
	}
	if !p.active {
		p.active = true
		t.active = append(t.active, p)
	}
}

// down fails what has not been posted to a peer whose connection is no more.
func (t *initiator) down(p *Peer) {
	for _, q := range []*opQueue{&p.posts, &p.loops.redo} {
		for q.head != nil {
			t.spoil(q, p.down)
		}
	}
	p.acks = p.acks[:0]
	t.endAsks(p)
	if len(t.later) > 0 {
		t.resume()
	}
	t.endAwaits()
}

// rest is how long a sleep may last for what is under way, 0 for ever.
func (t *initiator) rest() (d time.Duration) {
	if len(t.awaits) > 0 {
		d = t.napAwaits()
	}
	if len(t.later) > 0 {
		d = time.Millisecond // the shortest that sleeps can be
	}
	return d
}
