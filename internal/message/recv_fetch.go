package message

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// heldQueue holds announced messages that wait for their turn, by rising
// number. It is bounded by what rdv lets a peer have outstanding.
type heldQueue struct {
	buf   []announced
	first int
}

func (q *heldQueue) len() int { return len(q.buf) - q.first }

func (q *heldQueue) head() *announced { return &q.buf[q.first] }

func (q *heldQueue) push(a announced) {
	if q.first > 0 && q.first == len(q.buf) {
		q.buf, q.first = q.buf[:0], 0
	}
	q.buf = append(q.buf, a)
}

func (q *heldQueue) pop() announced {
	a := q.buf[q.first]
	if q.first++; q.first == len(q.buf) {
		q.buf, q.first = q.buf[:0], 0
	}
	return a
}

// Match takes a message whose turn has come and for which there is a receive;
// others are held until then. Neighbours that are taken here are fetched together.
func (h handler) Match(m rdv.Incoming) ([]fabric.SGE, rdv.Verdict) {
	c := h.Channel
	want := c.next
	if n := c.held.len(); n > 0 {
		want = c.held.buf[len(c.held.buf)-1].seq + 1
	}
	if m.Form != scatter.FormSequence || m.Pos < want {
		c.refuse(&SequenceError{"descriptors", m.Pos, want})
		return nil, rdv.Refuse
	}
	a := announced{seq: m.Pos, tag: m.Tag, size: m.Size, handle: m.Handle}
	if m.Pos != c.next || c.held.len() > 0 || c.broken() != nil {
		c.held.push(a)
		return nil, rdv.Later
	}
	c.next++
	in := c.match(a.tag, int(a.size), false)
	if in == nil {
		c.unexp.announce(a)
		return nil, rdv.Later
	}
	c.large(in)
	dst, err := c.prepare(in, a)
	if err != nil {
		c.received(in, a.tag, 0, err)
		return nil, rdv.Refuse // the sender hears of it
	}
	c.fetching(in, &a)
	return dst, rdv.Take
}

// refuse notes that the peer lies. The channel ends in the next step of
// Progress: this one runs within rdv.
func (c *Channel) refuse(err error) {
	if c.lie == nil {
		c.lie = err
	}
}

// takeHeld delivers the message at the head of the announced ones, whose turn
// it is.
func (c *Channel) takeHeld() bool {
	a := *c.held.head()
	if c.draining {
		c.held.pop()
		c.bury(a.seq, a.tag)
		return true
	}
	in := c.match(a.tag, int(a.size), false)
	if in == nil {
		c.unexp.announce(a)
	} else {
		c.large(in)
		c.accept(in, a)
	}
	c.held.pop()
	c.next++
	return true
}

// accept has a message fetched into a receive.
func (c *Channel) accept(in *In, a announced) {
	dst, err := c.prepare(in, a)
	if err != nil {
		_, _ = c.long.Refuse(a.handle) // the sender hears of it
		c.received(in, a.tag, 0, err)
		return
	}
	c.fetching(in, &a)
	if err := c.long.Accept(a.handle, dst); err != nil && c.fetch[a.handle] == in {
		delete(c.fetch, a.handle)
		c.ended(in, a.tag, 0, err)
	}
}

// prepare returns the pieces of in for a message; valid until the next call.
func (c *Channel) prepare(in *In, a announced) ([]fabric.SGE, error) {
	in.tag, in.size, in.seq = a.tag, a.size, a.seq
	if in.Refuse != nil {
		return nil, in.Refuse
	}
	if a.size == 0 {
		return nil, nil
	}
	s, err := c.destination(in, int(a.size))
	c.dst[0] = s
	return c.dst[:], err
}

// Received ends a message of the peer's: fetched or failed.
func (h handler) Received(m rdv.Incoming, err error) {
	c := h.Channel
	in := c.fetch[m.Handle]
	if in == nil {
		// Failed before a receive asked for it. Its number counts all the same.
		c.withdraw(err)
		return
	}
	delete(c.fetch, m.Handle)
	c.ended(in, m.Tag, int(m.Size), err)
}

// ended ends a receive that was being fetched.
func (c *Channel) ended(in *In, tag uint32, n int, err error) {
	if err != nil && c.broken() != nil {
		c.lose(in)
		return
	}
	c.received(in, tag, n, err)
}

// withdraw is told that an announced message is void.
func (c *Channel) withdraw(err error) {
	if c.broken() != nil {
		return // whoever asks for it later hears of it
	}
	c.refuse(err)
}
