package rma

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
)

const (
	// chain is how many requests one Post takes: enough that the cost of one
	// crossing into C vanishes beside that of the requests.
	chain = 32

	// resultSlots is how many atomics may be under way on one link.
	resultSlots = 1024
)

// proto drives one-sided operations. All but in belongs to the owner of the
// progress engine.
type proto struct {
	in     inbox
	peers  []*Peer // by rank
	active []*Peer // peers with something to post
	talks  []*Peer // peers with messages to send or receive
	nap    eager.Nap
	flying []*op // by work request ID less 1
	free   []uint32
	slots  []slots // by link

	wrs  [chain]fabric.WR
	sges [chain]fabric.SGE
	ids  [chain]uint32
}

// slots are words in registered memory that results of atomics come to.
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

// Pending implements progress.Protocol.
func (t *proto) Pending() bool { return t.in.top.Load() != nil }

// Step implements progress.Protocol.
func (t *proto) Step() bool {
	did := false
	if t.Pending() {
		did = true
		for o := t.in.take(); o != nil; {
			next := o.next
			o.next = nil
			t.enqueue(o)
			o = next
		}
	}
	for i := 0; i < len(t.active); {
		p := t.active[i]
		if t.post(p) {
			did = true
		}
		if p.posts.head != nil {
			i++
			continue
		}
		p.active = false
		last := len(t.active) - 1
		t.active[i] = t.active[last]
		t.active[last] = nil
		t.active = t.active[:last]
	}
	return t.stepTalks() || did
}

func (t *proto) enqueue(o *op) {
	p := o.peer
	if p.down != nil {
		t.fail(o, p.down)
		return
	}
	if o.kind >= kindSend {
		t.enqueueMessage(p, o)
		return
	}
	p.posts.push(o)
	if !p.active {
		p.active = true
		t.active = append(t.active, p)
	}
}

// post hands the peer's operations to its link until its queue is full. It
// reports whether any were taken.
func (t *proto) post(p *Peer) bool {
	did := false
	for p.posts.head != nil && !(p.full && p.flying > 0) {
		n := t.build(p)
		if n == 0 {
			return did // no slot for a result: one comes with a completion
		}
		took, err := p.ep.Post(t.wrs[:n])
		for i := range n {
			o := t.flying[t.ids[i]]
			if i < took {
				p.posts.pop()
				p.flying++
				did = true
				continue
			}
			t.forget(t.ids[i], o)
		}
		switch {
		case err == nil:
			p.full = took < n
			if p.full {
				p.counts.Retries++
			}
			if p.full && p.flying == 0 {
				return true // full of nothing: stay awake and ask again
			}
		case errors.Is(err, fabric.ErrInvalidWR):
			t.fail(p.posts.pop(), err)
			did = true
		default:
			t.downWith(p, err)
			return true
		}
	}
	return did
}

// build makes work requests of the first operations of the peer.
func (t *proto) build(p *Peer) int {
	n := 0
	for o := p.posts.head; o != nil && n < chain; o = o.next {
		if o.kind >= fabric.OpFetchAdd {
			s := &t.slots[p.link]
			if len(s.free) == 0 {
				break
			}
			o.slot = s.free[len(s.free)-1]
			s.free = s.free[:len(s.free)-1]
			o.sge = fabric.NewSGE(s.bytes(o.slot), s.region.LKey())
		}
		if len(t.free) == 0 {
			t.free = append(t.free, uint32(len(t.flying)))
			t.flying = append(t.flying, nil)
		}
		id := t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
		t.flying[id] = o
		t.ids[n], t.sges[n] = id, o.sge
		t.wrs[n] = fabric.WR{
			ID: uint64(id) + 1, Op: o.kind, Flags: fabric.FlagSignaled, Local: t.sges[n : n+1 : n+1],
			RemoteAddr: o.remote, RKey: o.rkey, Compare: o.compare, Operand: o.operand,
		}
		n++
	}
	return n
}

// forget frees what build took for o.
func (t *proto) forget(id uint32, o *op) {
	t.flying[id] = nil
	t.free = append(t.free, id)
	if o.slot >= 0 {
		s := &t.slots[o.peer.link]
		s.free = append(s.free, o.slot)
		o.slot = -1
	}
}

// Complete implements progress.Protocol.
func (t *proto) Complete(link int, cs []fabric.Completion) {
	for i := range cs {
		c := &cs[i]
		if c.Op >= fabric.OpNotify || c.ID>>48-talkTag < talkTags {
			if int64(c.EP) < int64(len(t.peers)) { // else the passive end of the connection with oneself
				t.completeTalk(t.peers[c.EP], c)
			}
			continue
		}
		if c.ID == 0 || c.ID > uint64(len(t.flying)) || t.flying[c.ID-1] == nil {
			continue // an event that nobody here waits for
		}
		id := uint32(c.ID - 1)
		o := t.flying[id]
		p := o.peer
		p.flying--
		p.full = false
		if o.slot >= 0 && c.Status == fabric.StatusOK {
			o.value = binary.NativeEndian.Uint64(t.slots[link].bytes(o.slot))
		}
		t.forget(id, o)
		if c.Status == fabric.StatusOK {
			t.count(o)
			o.Finish()
			continue
		}
		err := c.Err()
		if c.Status == fabric.StatusFlushed {
			p.reportDown(t, nil)
			err = because(err, p.down)
		}
		t.fail(o, err)
		t.downWith(p, err)
	}
}

// reportDown notes the end of a connection that the link reports, with the
// endpoint's own reason.
func (p *Peer) reportDown(t *proto, err error) {
	if p.ep != nil {
		if why := p.ep.Err(); why != nil {
			err = because(err, why)
		}
	}
	if err == nil {
		err = fabric.ErrDown
	}
	t.downWith(p, err)
}

// because joins an error with its cause, in one line.
func because(err, cause error) error {
	switch {
	case err == nil:
		return cause
	case cause == nil || errors.Is(err, cause):
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func (t *proto) count(o *op) {
	c := &o.peer.counts
	switch o.kind {
	case fabric.OpWrite:
		c.Puts++
		c.PutBytes += uint64(o.sge.Len)
	case fabric.OpRead:
		c.Gets++
		c.GetBytes += uint64(o.sge.Len)
	default:
		c.Atomics++
	}
}

func (t *proto) fail(o *op, err error) {
	o.peer.counts.Failed++
	o.err = &PeerError{Rank: o.peer.rank, Op: opName(o.kind), Err: err}
	o.Finish()
}

// downWith notes that the connection with p is no more, and fails what has not
// been posted. What has been comes back flushed.
//
// That the peer is gone is the better reason, also when it comes later: a device
// refuses access to a dying process before anybody knows that it dies.
func (t *proto) downWith(p *Peer, err error) {
	if p.down == nil || errors.Is(err, ErrPeerGone) && !errors.Is(p.down, ErrPeerGone) && !errors.Is(p.down, ErrClosed) {
		if p.down = err; !errors.Is(err, ErrPeerGone) && !errors.Is(err, ErrClosed) {
			p.down = because(ErrFlushed, err)
		}
	}
	for _, q := range []*opQueue{&p.posts, &p.talk.sends, &p.talk.recvs} {
		for q.head != nil {
			t.fail(q.pop(), p.down)
		}
	}
	if p.talk.ch != nil {
		t.listen(p) // its messages end in the next step
	}
	p.talk.loop.Sever(p.down)
}
