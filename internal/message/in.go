package message

import (
	"math"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/rdv"
)

// In is a receive. The caller sets the exported fields; from Recv to Completer.Complete the
// receive belongs to the channel.
type In struct {
	Buf        []byte
	LKey       uint32 // of the registered region that Buf lies in
	Tag        uint32
	RKey       uint32
	Ignore     uint32 // bits of tags that are not compared
	Any        bool   // any tag less than LibraryTags
	Registered bool   // LKey is valid
	Remote     bool   // RKey is valid: the peer may write Buf before the message is known
	Peek       bool   // ends with tag and size of the message, which is not received

	// Receives in the order of a Shared.
	Order  uint64 // from Shared.Order
	Only   int    // Options.From of the only channel, plus 1; 0: any
	Source Source // makes a receive for each message; this one stays on the list
	Refuse error  // of receives from a Source: why the announced message is refused
	From   int    // out: Options.From of the message's channel

	// Use, if set, is called with the message in place, instead of a copy to Buf. The
	// message has one to three parts, which the peer may change and which are valid only
	// during the call. Messages that the peer announced are passed in one part, in Buf.
	Use func(tag uint32, parts [][]byte)

	Done Completer

	next *In
	pin  pin
	tag  uint32
	size uint32

	seq   uint64        // number of the message that took it
	after uint64        // not to be advertised before the message after this one
	err   error         // its result, while it is advertised
	adID  rdv.ID        // of its advertisement
	owing time.Duration // time that the peer has owed the answer to it, see Overdue
	inState
}

// Recycle clears the fields that the caller has set, except Done. Only, Source and Refuse
// must not be set.
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

// inState is cleared before a receive is used again.
type inState struct {
	ad      uint8 // state of its advertisement
	waits   bool  // may be advertised
	tries   uint8 // times that it was advertised
	matched bool  // a message took it
	ended   bool  // its result is known; only the answer to its advertisement is missing
	cancel  bool  // withdrawn: to be canceled when the peer has returned it, or its message is lost
	owed    bool  // advertised, and the peer has to answer now
	plain   bool  // copies messages of the ring, with no other options
	shared  bool  // on the list for several channels
	away    bool  // in Shared.away
	loose   bool  // made by a Source: exempt from the order of ends
	listed  bool  // in Channel.matched
	reading bool  // counted in receiver.reads
	here    bool  // has its message, in Channel.matched
	gone    bool  // its message was lost, in Channel.matched
	late    bool  // call Use at the end, with Buf
}

// takes reports whether in matches tag.
func (in *In) takes(tag uint32) bool {
	if in.Any {
		return tag < LibraryTags
	}
	return (in.Tag^tag)&^in.Ignore == 0
}

// takesFrom reports whether in takes messages of tag from the channel.
func (in *In) takesFrom(from int, tag uint32) bool {
	return in.takes(tag) && (in.Only == 0 || in.Only == from+1)
}

// LibraryTags is the first tag that receives of any tag do not match.
const LibraryTags = 1 << 31

// Source is a receive for many messages. It stays on its list.
type Source interface {
	// Take returns the receive for one message of the given tag and size, with a large
	// enough buffer. If it returns nil, the message stays where it is, like an unexpected
	// one that receives posted later do not take, until the source is offered to the
	// channel again, or withdrawn (Channel.Reoffer). inPlace: the message can be
	// used in place, so that In.Use without In.Buf suffices.
	Take(from int, tag uint32, size int, inPlace bool) *In

	// Use handles messages of a run, from the first one on, if it can do so at once. Take
	// decides about each of those that it leaves. It must not post or withdraw receives.
	Use(run *Run)
}

// RunSize is the largest size of a message of a Run.
const RunSize = math.MaxUint8

// Run is a sequence of small messages of one channel and tag that lie one behind the
// other in the ring, for Source.Use.
type Run struct {
	From int // Options.From of the channel
	Tag  uint32

	sizes, body []byte // body is what all of them have together
	n, at       int    // messages and bytes taken
}

// Len returns the number of messages that are left, Bytes how many bytes they have.
func (u *Run) Len() int   { return len(u.sizes) - u.n }
func (u *Run) Bytes() int { return len(u.body) - u.at }

// Next takes the next message; ok is false if none is left. The message is valid until
// Source.Use returns, and is the peer's to change.
//
// Hot path.
func (u *Run) Next() (msg []byte, ok bool) {
	if u.n >= len(u.sizes) {
		return nil, false
	}
	end := u.at + int(u.sizes[u.n])
	msg = u.body[u.at:end:end]
	u.n, u.at = u.n+1, end
	return msg, true
}

// Drop takes all messages that are left.
func (u *Run) Drop() { u.n, u.at = len(u.sizes), len(u.body) }

// receiveFrom makes a source create the receive for a message. It returns nil if it creates
// none.
func receiveFrom(s Source, from int, tag uint32, size int, here bool) *In {
	in := s.Take(from, tag, size, here)
	if in != nil {
		in.loose = true
	}
	return in
}

// register registers n bytes of the buffer of in with p, unless that was done.
func (in *In) register(p *Pins, n int) (err error) {
	if !in.pin.held {
		in.pin, err = p.take(in.Buf[:n], destRights)
	}
	return err
}

// destination returns the first n bytes of the memory of in, registered.
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

// pieces returns the destination of the announced message of in, in dst, registered with p
// if necessary.
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

// insert inserts in after before.
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

// find returns the first receive that matches tag, and its predecessor.
func (q *inQueue) find(tag uint32) (before, in *In) {
	for in = q.head; in != nil && !in.takes(tag); before, in = in, in.next {
	}
	return before, in
}

// remove removes in, whose predecessor is before.
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

// cancel removes in from the list. It returns false if in is not listed.
func (q *inQueue) cancel(in *In) bool {
	for b, i := (*In)(nil), q.head; i != nil; b, i = i, i.next {
		if i == in {
			q.remove(b, i)
			return true
		}
	}
	return false
}

// peeked ends a receive that leaves its message where it is.
func (in *In) peeked(tag uint32, size int) {
	if in.Done != nil {
		in.Done.Complete(tag, size, nil)
	}
}

// Shared is a list of receives that take messages from several channels. It also keeps the
// order of all receives: those of this list, of each channel, and of the Loopback. The zero
// value is ready. It belongs to the owner of the channels' links.
//
// A message takes the first receive that matches it, in the order of [Shared.Order], from
// any list. A receive from several channels that is posted after the message arrived is
// first offered to each channel (Channel.Offer, Loopback.Offer), and put on the list after
// that (Shared.Post).
type Shared struct {
	posted  inQueue
	order   uint64
	changed uint64 // incremented when a receive is added or removed

	// away are receives for which a channel has a message that may still be lost with its
	// sender. They then return to their place.
	away inQueue

	// Again reinserts a receive whose message was lost with its sender. It keeps its place
	// in the order. If Again is nil, such a receive fails.
	Again func(*In)
}

// Order returns the next place in the order of receives, for In.Order.
func (s *Shared) Order() uint64 {
	s.order++
	return s.order
}

// Len returns the number of receives on the list.
func (s *Shared) Len() int { return s.posted.n }

// Post inserts a receive at its Order, which must be set.
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

// Cancel removes a receive from the list, without completing it. It returns false if the
// receive is not listed: it ends with its message, or with ErrCanceled if that is lost.
func (s *Shared) Cancel(in *In) bool {
	s.changed++
	in.cancel = !s.posted.cancel(in)
	return !in.cancel
}

// rivals reports whether the list holds a receive that precedes in and may take a message
// of channel from that in may take, or may hold it again when the sender of another message
// is gone.
func (s *Shared) rivals(in *In, from int) bool {
	for i := s.posted.head; i != nil && i.Order < in.Order; i = i.next {
		if !i.Peek && (i.Only == 0 || i.Only == from+1) && i.competes(in) {
			return true
		}
	}
	for i := s.away.head; i != nil; i = i.next {
		if i.Order < in.Order && i.From != from && i.competes(in) {
			return true
		}
	}
	return false
}

// competes reports whether in may take a message that other may take, which ignores no bits
// of tags.
func (in *In) competes(other *In) bool {
	if other.Any {
		return in.Any || in.Tag&^in.Ignore < LibraryTags
	}
	return in.takes(other.Tag)
}

// leave notes that in, of the list, has a message that may be lost; stay that it has ended,
// or returns.
func (s *Shared) leave(in *In) {
	in.away = true
	s.away.push(in)
}

func (s *Shared) stay(in *In) {
	in.away = false
	s.away.cancel(in)
}

// End ends all receives with err, except those with a Source, which stay.
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

// source returns the Source that all messages of tag go to until the list changes, if no
// other receive precedes it, else nil. free: no receive of the list takes such messages.
func (s *Shared) source(own *inQueue, from int, tag uint32) (to Source, free bool) {
	if s == nil || s.posted.n == 0 {
		return nil, true
	}
	q, _, in := pick(own, s, from, tag)
	if q == &s.posted {
		return in.Source, false
	}
	for i := s.posted.head; i != nil; i = i.next {
		if i.takesFrom(from, tag) {
			return nil, false
		}
	}
	return nil, true
}

// pick returns the first receive of own and s that takes the message, with its list and its
// predecessor there.
func pick(own *inQueue, s *Shared, from int, tag uint32) (q *inQueue, before, in *In) {
	if s == nil || s.posted.n == 0 {
		before, in = own.find(tag)
		return own, before, in
	}
	return pickFrom(nil, s.posted.head, own, s, from, tag)
}

// pickBehind is pick for the receives after last in s.
func pickBehind(last *In, own *inQueue, s *Shared, from int, tag uint32) (q *inQueue, before, in *In) {
	return pickFrom(last, last.next, own, s, from, tag)
}

// pickFrom is pick for the receives of s from i on; b is the predecessor of i.
func pickFrom(b, i *In, own *inQueue, s *Shared, from int, tag uint32) (q *inQueue, before, in *In) {
	q = own
	before, in = own.find(tag)
	for ; i != nil; b, i = i, i.next {
		if in != nil && in.Order < i.Order {
			break
		}
		if i.takesFrom(from, tag) {
			return &s.posted, b, i
		}
	}
	return q, before, in
}

// owner returns the first receive of the list, behind last unless that is nil, that precedes
// in and takes messages of tag from the channel. One that is listed although such a message
// waits has a Source, which has left the message for later.
func (s *Shared) owner(last, in *In, from int, tag uint32) *In {
	if s == nil {
		return nil
	}
	i := s.posted.head
	if last != nil {
		i = last.next
	}
	for ; i != nil && i.Order < in.Order; i = i.next {
		if i.takesFrom(from, tag) {
			return i
		}
	}
	return nil
}

// changes returns a counter of changes of the list, 0 for a nil list.
func (s *Shared) changes() uint64 {
	if s == nil {
		return 0
	}
	return s.changed
}
