package message

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
