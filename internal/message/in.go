package message

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/rdv"
)

// In is a receive. The caller fills the first part; from Recv to
// Completer.Complete it belongs to the channel.
type In struct {
	Buf        []byte
	LKey       uint32 // of the registered region that Buf lies in
	Tag        uint32
	RKey       uint32
	Ignore     uint32 // bits of tags that are not compared
	Any        bool   // any tag below LibraryTags
	Registered bool   // LKey is valid
	Remote     bool   // RKey is valid: the peer may write Buf, before the message is known
	Peek       bool   // ends with tag and size of the message, which stays

	// Of receives in the order of a Shared.
	Order  uint64 // from Shared.Order
	Only   int    // Options.From of the only channel, plus 1; 0: any
	Source Source // makes a receive for each message; this one stays
	Refuse error  // of receives from a Source: the announced message is not wanted, for this reason
	From   int    // out: Options.From of the message's channel

	// Use, if set, is called with the message in place instead of copying it to
	// Buf, in one to three parts, which are the peer's to change and valid for
	// the call only. Messages that the peer announced come in one part, in Buf.
	Use func(tag uint32, parts [][]byte)

	Done Completer

	next *In
	pin  pin
	tag  uint32
	size uint32

	seq   uint64 // of the message that took it
	after uint64 // not to be advertised before the message behind that one
	err   error  // how it ended, while its advert is open
	adID  rdv.ID // of its advert
	inState
}

// Recycle forgets what the caller has filled in, but for Done. The receive has none of
// Only, Source and Refuse. Short path.
func (in *In) Recycle() {
	if in.Buf != nil {
		in.Buf = nil
	}
	if in.Use != nil {
		in.Use = nil
	}
	in.Tag, in.Ignore, in.Order = 0, 0, 0
	in.Any, in.Registered, in.Remote, in.Peek = false, false, false, false
}

// inState is what a new use of a receive must find zero.
type inState struct {
	ad      uint8 // state of its advert
	waits   bool  // may be advertised
	tries   uint8 // times that it was
	matched bool  // a message took it
	ended   bool  // but for the answer to its advert
	cancel  bool  // wanted back, as soon as the peer has given it back
	plain   bool  // takes messages of the ring by copying them, and nothing else
	shared  bool  // of the list for several channels
	loose   bool  // made by a Source: ends out of turn
	listed  bool  // in Channel.matched
	here    bool  // has its message, in Channel.matched
	gone    bool  // its message was lost, in Channel.matched
	late    bool  // Use is to be called at the end, with Buf
}

// takes reports whether in asks for tag.
func (in *In) takes(tag uint32) bool {
	if in.Any {
		return tag < LibraryTags
	}
	return (in.Tag^tag)&^in.Ignore == 0
}

// LibraryTags is the first tag that receives of any tag do not take.
const LibraryTags = 1 << 31

// inQueue is a list of receives, oldest first.
type inQueue struct {
	head, tail *In
	n          int
}

func (q *inQueue) push(in *In) {
	in.next = nil
	if q.tail == nil {
		q.head = in
	} else {
		q.tail.next = in
	}
	q.tail = in
	q.n++
}

func (q *inQueue) pop() *In {
	in := q.head
	q.remove(nil, in)
	return in
}

func (q *inQueue) has(in *In) bool {
	i := q.head
	for i != nil && i != in {
		i = i.next
	}
	return i != nil
}

// insert puts in behind before.
func (q *inQueue) insert(before, in *In) {
	if before == nil {
		in.next, q.head = q.head, in
	} else {
		in.next, before.next = before.next, in
	}
	if in.next == nil {
		q.tail = in
	}
	q.n++
}

// find returns the first receive that takes tag, and the one before it.
func (q *inQueue) find(tag uint32) (before, in *In) {
	for in = q.head; in != nil && !in.takes(tag); before, in = in, in.next {
	}
	return before, in
}

// remove takes out in, which stands behind before.
func (q *inQueue) remove(before, in *In) {
	if before == nil {
		q.head = in.next
	} else {
		before.next = in.next
	}
	if q.tail == in {
		q.tail = before
	}
	in.next = nil
	q.n--
}

// Recv hands a receive in. It may end at once, if a message that was put aside
// matches. Short path.
func (c *Channel) Recv(in *In) {
	in.inState, in.after = inState{}, 0
	if in.err != nil {
		in.err = nil
	}
	if c.unexp.n > 0 && c.takeAside(in) {
		return
	}
	if c.finished {
		c.received(in, 0, 0, c.err)
		return
	}
	c.posted.push(in)
	c.watch(in)
	in.plain = !in.waits && !in.Peek && in.Use == nil && in.Source == nil && len(in.Buf) < c.ads.min
}

// Waits reports whether a message of the ring is known to be here that no receive has
// taken so far. Short path.
func (c *Channel) Waits() bool { return c.open || c.ring.Found() }

// match takes the receive for a message of tag and size off the list; nil if
// there is none. Receives whose buffer is too short end with an error; those that
// use a message of the ring in place need none.
func (c *Channel) match(tag uint32, size int, ring bool) *In {
	for {
		q, before, in := c.pick(tag)
		if in == nil {
			return nil
		}
		if in.Source != nil {
			return c.make(in.Source, tag, size, ring)
		}
		if in.shared = q != &c.posted; in.shared {
			c.opt.Shared.changed++
		}
		q.remove(before, in)
		if in.From = c.opt.From; in.Peek {
			c.peeked(in, tag, size)
			continue
		}
		in.matched = true
		c.unwatch(in)
		if size <= len(in.Buf) || in.Use != nil && ring {
			return in
		}
		c.received(in, tag, 0, shortBuffer(size, in))
	}
}

// make has a source make the receive for a message.
func (c *Channel) make(s Source, tag uint32, size int, here bool) *In {
	in := s.Take(c.opt.From, tag, size, here)
	if in != nil {
		in.loose = true
	}
	return in
}

// pick finds the receive for a message of tag. At the end of the channel one that would
// have taken a lost message is passed over.
func (c *Channel) pick(tag uint32) (q *inQueue, before, in *In) {
	q, before, in = pick(&c.posted, c.opt.Shared, c.opt.From, tag)
	for c.draining && in != nil && q != &c.posted && c.unexp.hides(in) {
		q, before, in = pickBehind(in, &c.posted, c.opt.Shared, c.opt.From, tag)
	}
	return q, before, in
}

// peeked ends a receive that leaves the message where it is.
func (c *Channel) peeked(in *In, tag uint32, size int) {
	if in.Done != nil {
		in.Done.Complete(tag, size, nil)
	}
}

func shortBuffer(size int, in *In) error { return &ShortBufferError{Need: size, Have: len(in.Buf)} }

// received ends a receive, now or when the peer has answered its advert: until
// then it may write there.
func (c *Channel) received(in *In, tag uint32, n int, err error) {
	if in.ad == adOpen {
		in.tag, in.size, in.err, in.ended, in.matched = tag, uint32(n), err, true, true
		if c.err == nil {
			c.long.Nudge() // who has sent all it had to send may look no more
			c.longNew = true
		}
		return
	}
	if in.tag = tag; len(c.matched) > 0 && !in.loose {
		c.inTurn(in, n, err)
		return
	}
	c.over(in, tag, n, err)
}

// over ends a receive.
func (c *Channel) over(in *In, tag uint32, n int, err error) {
	if in.late && err == nil {
		part := [1][]byte{in.Buf[:n]}
		in.Use(tag, part[:])
	}
	c.pins.release(&in.pin)
	if err == nil {
		c.stats.Received++
		c.stats.ReceivedBytes += uint64(n)
	}
	done := in.Done
	in.Buf, in.Use = nil, nil
	if done != nil {
		done.Complete(tag, n, err)
	}
}

// destination is the registered memory of in for n bytes.
func (c *Channel) destination(in *In, n int) (fabric.SGE, error) {
	lkey := in.LKey
	if !in.Registered {
		if err := c.pinIn(in, n); err != nil {
			return fabric.SGE{}, err
		}
		lkey = in.pin.lkey
	}
	return fabric.NewSGE(in.Buf[:n], lkey), nil
}

// announced is a message that the peer has announced and that waits for its
// turn, or for a receive.
type announced struct {
	seq    uint64
	tag    uint32
	size   uint32
	handle rdv.Handle
}
