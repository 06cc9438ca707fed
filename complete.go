package rma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// Complete implements progress.Protocol.
// Hot path.
func (t *proto) Complete(link int, cs []fabric.Completion) {
	for i := range cs {
		c := &cs[i]
		if c.Op >= fabric.OpNotify || c.ID>>48-talkTag < talkTags {
			switch p := t.of(c.EP); {
			case p == nil:
			case c.Op == fabric.OpNotify && c.Imm>>16 == notifyMagic:
				t.notified(p, c)
			default:
				t.completeTalk(p, c)
			}
			continue
		}
		id := c.ID & (1<<slotShift - 1)
		if id == 0 || id > uint64(len(t.flying)) || t.flying[id-1] == nil {
			t.completeAck(c)
			continue
		}
		o := t.flying[id-1]
		p := o.peer
		p.flying--
		p.full = false
		o.pending--
		if o.kind == kindAccumulate {
			p.asks.written(uint8(c.ID >> slotShift))
		}
		if c.Status == fabric.StatusOK {
			if o.slot >= 0 {
				o.value = binary.NativeEndian.Uint64(t.slots[link].bytes(o.slot))
			}
			if o.pending == 0 && !o.queued && (o.kind != kindLoop || !t.retry(o)) {
				t.end(o)
			}
			continue
		}
		err := c.Err()
		if c.Status == fabric.StatusFlushed {
			p.reportDown(t, nil)
			err = because(err, p.down)
		}
		t.note(o, err)
		if o.pending == 0 && !o.queued {
			t.end(o)
		}
		t.downWith(p, err)
	}
}

// completeAck takes the completion of an acknowledgement or of a read of a heartbeat, or
// one that nobody here waits for.
func (t *proto) completeAck(c *fabric.Completion) {
	p := t.of(c.EP)
	if p == nil || c.ID != ackID && c.ID != beatID {
		return
	}
	p.flying--
	p.full = false
	switch {
	case c.Status != fabric.StatusOK:
		p.reportDown(t, c.Err())
	case c.ID == beatID:
		t.felt(p)
	}
}

// note keeps the first error of o.
func (t *proto) note(o *op, err error) {
	if o.err == nil {
		o.err = &PeerError{Rank: o.rank(), Op: opName(o.kind), Err: err}
	}
}

// end finishes a one-sided operation of which nothing is under way any more.
func (t *proto) end(o *op) {
	if o.id != 0 || o.slot >= 0 {
		t.forget(o)
	}
	if o.kind == kindFence {
		o.recycle()
		return
	}
	p := o.peer
	if o.loose {
		o.loose = false
		p.loose--
	}
	switch {
	case o.more == nil:
	case o.more.head:
		t.endLoop(o)
	case o.kind == kindAccumulate:
		t.endReduce(o)
	case o.more.user.mem != nil:
		t.unstage(o)
	}
	p.open--
	if o.err != nil {
		p.counts.Failed++
	} else {
		o.count(&p.counts)
	}
	if p.flushes.head == nil {
		o.Finish()
		return
	}
	epoch, err := o.epoch, o.err
	o.Finish()
	t.flushed(p, epoch, err)
}

// count counts an operation that ended well.
func (o *op) count(c *Counts) {
	n := uint64(o.sge.Len)
	if o.more != nil {
		n += o.more.cur.Len()
	}
	switch o.kind {
	case fabric.OpWrite:
		c.Puts++
		c.PutBytes += n
	case fabric.OpRead:
		c.Gets++
		c.GetBytes += n
	case kindAccumulate:
		c.Accumulates++
		c.PutBytes += uint64(len(o.more.acc.src))
	case kindPutSignal:
		c.Signals++
		c.PutBytes += n
	default:
		c.Atomics++
	}
}

// fail ends a message, or what waits for nothing of a link, with an error.
func (t *proto) fail(o *op, err error) {
	o.peer.counts.Failed++
	t.note(o, err)
	o.Finish()
}

// reportDown notes the end of a connection that the link reports, with the
// endpoint's own reason.
func (p *Peer) reportDown(t *proto, err error) {
	if p.ep != nil {
		switch why := p.ep.Err(); {
		case why != nil && errors.Is(err, fabric.ErrDown):
			err = why // which is what ErrDown asks to be looked up
		case why != nil:
			err = because(err, why)
		}
	}
	if err == nil {
		err = fabric.ErrDown
	}
	t.downWith(p, err)
}

// because joins an error with its cause, in one line, and says nothing twice.
func because(err, cause error) error {
	switch {
	case err == nil:
		return cause
	case cause == nil || errors.Is(err, cause):
		return err
	}
	for _, s := range []error{ErrPeerGone, ErrRemoteAccess, ErrFlushed} {
		if errors.Is(err, s) && errors.Is(cause, s) {
			return cause
		}
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// downWith notes that the connection with p is no more, and fails what has not
// been posted. What has been comes back flushed.
//
// That the peer is gone is the better reason, also when it comes later: a device
// refuses access to a dying process before anybody knows that it dies.
func (t *proto) downWith(p *Peer, err error) {
	if p.down == nil || errors.Is(err, ErrPeerGone) && !errors.Is(p.down, ErrPeerGone) && !errors.Is(p.down, ErrClosed) {
		p.down = err
		if !errors.Is(err, ErrPeerGone) && !errors.Is(err, ErrPeerHung) && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNoConnection) {
			p.down = because(ErrFlushed, err)
		}
		if s := stateOf(err); s != 0 && !p.own {
			p.eng.watches.tell(PeerEvent{Rank: p.rank, State: s, Err: p.down})
		}
	}
	if p.noticed != nil {
		close(p.noticed)
		p.noticed = nil
	}
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
	for p.talk.sends.head != nil {
		t.fail(p.talk.sends.pop(), p.down)
	}
	if h := p.talk.hangUp; h != nil {
		p.talk.hangUp = nil
		time.AfterFunc(min(lastWait, p.eng.cfg.PeerTimeout), h)
	}
	t.endAwaits()
	p.talk.loop.Sever(p.down)
	switch {
	case p.talk.ch != nil:
		t.listen(p) // its messages end in the next step
	case !p.hears():
		for p.talk.recvs.head != nil {
			t.fail(p.talk.recvs.pop(), p.down)
		}
		t.ended(p, p.down)
	}
}
