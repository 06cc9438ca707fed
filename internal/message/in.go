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
	err   error  // how it ended, while it is advertised
	adID  rdv.ID // of its advertisement
	inState
}

// Recycle forgets what the caller has filled in, but for Done. The receive has none of
// Only, Source and Refuse.
//
// Hot path.
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
	ad      uint8 // whether it is advertised
	waits   bool  // may be advertised
	tries   uint8 // times that it was
	matched bool  // a message took it
	ended   bool  // but for the answer to its advertisement
	cancel  bool  // wanted back, as soon as the peer has given it back
	plain   bool  // takes messages of the ring by copying them, and nothing else
	shared  bool  // of the list for several channels
	loose   bool  // made by a Source: ends out of turn
	listed  bool  // in Channel.matched
	reading bool  // counted in receiver.reads
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

// Source is a receive for many messages: it stays on its list.
type Source interface {
	// Take returns the receive for one message of that tag and size, which has
	// room for it; nil leaves the message where it is, like one that no receive
	// asks for, until the source is offered to the channel again. inPlace: the
	// message may be seen in place, so that In.Use without In.Buf will do.
	Take(from int, tag uint32, size int, inPlace bool) *In

	// Use takes a message that lies in one part, where it can do so at once. If
	// not, the answer to Take says what becomes of the message.
	Use(from int, tag uint32, part []byte) bool
}

// receiveFrom has a source make the receive for a message; nil if it makes none.
func receiveFrom(s Source, from int, tag uint32, size int, here bool) *In {
	in := s.Take(from, tag, size, here)
	if in != nil {
		in.loose = true
	}
	return in
}

// register registers n bytes of the buffer of in with p, if that was not done.
func (in *In) register(p *Pins, n int) (err error) {
	if !in.pin.held {
		in.pin, err = p.take(in.Buf[:n], destRights)
	}
	return err
}

// destination returns the memory of in for n bytes, registered.
func (in *In) destination(p *Pins, n int) (fabric.SGE, error) {
	lkey := in.LKey
	if !in.Registered {
		if err := in.register(p, n); err != nil {
			return fabric.SGE{}, err
		}
		lkey = in.pin.lkey
	}
	return fabric.NewSGE(in.Buf[:n], lkey), nil
}

// pieces returns where the announced message of in goes, in dst, registered with p if
// need be.
func (in *In) pieces(p *Pins, dst *[1]fabric.SGE) ([]fabric.SGE, error) {
	if in.Refuse != nil {
		return nil, in.Refuse
	}
	if in.size == 0 {
		return nil, nil
	}
	s, err := in.destination(p, int(in.size))
	dst[0] = s
	return dst[:], err
}

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

// cancel takes in off the list; false if it is not there.
func (q *inQueue) cancel(in *In) bool {
	for b, i := (*In)(nil), q.head; i != nil; b, i = i, i.next {
		if i == in {
			q.remove(b, i)
			return true
		}
	}
	return false
}

// peeked ends a receive that leaves the message where it is.
func (in *In) peeked(tag uint32, size int) {
	if in.Done != nil {
		in.Done.Complete(tag, size, nil)
	}
}

// Shared is a list of receives that take messages from several channels, and
// the order of all receives: of this list, of each channel, and of the Loop. The
// zero value is ready. It belongs to the owner of the channels' links.
//
// A message takes the first receive, in the order of [Shared.Order], that asks
// for it, whichever list that is in. Receives from several channels that are
// posted later than the message came are offered to the channels one by one
// (Channel.Offer, Loop.Offer) before they are put on the list (Shared.Post).
type Shared struct {
	posted  inQueue
	order   uint64
	changed uint64 // how often a receive came or went

	// Again takes a receive back whose message was lost with its sender. It keeps its
	// place in the order. Nil: such a receive fails.
	Again func(*In)
}

// Order is the next place in the order of receives, for In.Order.
func (s *Shared) Order() uint64 {
	s.order++
	return s.order
}

// Len is the number of receives on the list.
func (s *Shared) Len() int { return s.posted.n }

// Post puts a receive on the list, where its Order, which must be set, says.
func (s *Shared) Post(in *In) {
	s.changed++
	in.inState = inState{}
	if s.posted.tail == nil || s.posted.tail.Order < in.Order {
		s.posted.push(in)
		return
	}
	var before *In
	for i := s.posted.head; i.Order < in.Order; i = i.next {
		before = i
	}
	s.posted.insert(before, in)
}

// Cancel takes a receive off the list; false if it is not there. It does not
// complete it.
func (s *Shared) Cancel(in *In) bool {
	s.changed++
	return s.posted.cancel(in)
}

// rivals reports whether a receive of the list stands before in and may take a
// message of the channel named from that in may take.
func (s *Shared) rivals(in *In, from int) bool {
	for i := s.posted.head; i != nil && i.Order < in.Order; i = i.next {
		if i.Peek || i.Only != 0 && i.Only != from+1 {
			continue
		}
		switch {
		case !in.Any && i.takes(in.Tag), in.Any && i.Any:
			return true
		case in.Any && (i.Tag&^i.Ignore < LibraryTags):
			return true
		}
	}
	return false
}

// End ends all receives with err, but for those with a Source, which stay.
func (s *Shared) End(err error) {
	s.changed++
	for before, in := (*In)(nil), s.posted.head; in != nil; {
		next := in.next
		if in.Source != nil {
			before, in = in, next
			continue
		}
		s.posted.remove(before, in)
		in.Done.Complete(0, 0, err)
		in = next
	}
}

// source returns the Source that all messages of tag go to until the list has changed,
// where no other receive comes before it; nil if there is none. free: no receive of the
// list takes such messages.
func (s *Shared) source(own *inQueue, from int, tag uint32) (to Source, free bool) {
	if s == nil || s.posted.n == 0 {
		return nil, true
	}
	q, _, in := pick(own, s, from, tag)
	if q == &s.posted {
		return in.Source, false
	}
	for i := s.posted.head; i != nil; i = i.next {
		if i.takes(tag) && (i.Only == 0 || i.Only == from+1) {
			return nil, false
		}
	}
	return nil, true
}

// pick returns the first receive of own and s that takes the message, with the
// list it stands in and the one before it.
func pick(own *inQueue, s *Shared, from int, tag uint32) (q *inQueue, before, in *In) {
	if s == nil || s.posted.n == 0 {
		before, in = own.find(tag)
		return own, before, in
	}
	return pickFrom(nil, s.posted.head, own, s, from, tag)
}

// pickBehind is pick for what stands behind last in s.
func pickBehind(last *In, own *inQueue, s *Shared, from int, tag uint32) (q *inQueue, before, in *In) {
	return pickFrom(last, last.next, own, s, from, tag)
}

// pickFrom is pick for what stands from i on in s, behind b.
func pickFrom(b, i *In, own *inQueue, s *Shared, from int, tag uint32) (q *inQueue, before, in *In) {
	q = own
	before, in = own.find(tag)
	for ; i != nil; b, i = i, i.next {
		if in != nil && in.Order < i.Order {
			break
		}
		if i.takes(tag) && (i.Only == 0 || i.Only == from+1) {
			return &s.posted, b, i
		}
	}
	return q, before, in
}

// changes counts changes of the receives; of a nil list there are none.
func (s *Shared) changes() uint64 {
	if s == nil {
		return 0
	}
	return s.changed
}
