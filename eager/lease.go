package eager

import "github.com/seed33544411/rma/gather"

// Lease gives access to a message where it lies in the ring, without copying.
// One lease of a channel may be open at a time; no other message can be
// received before Release. The peer owns the memory in the sense that a
// dishonest one can change it at any time: decode what must not change under
// you only once, or copy it.
type Lease struct {
	c   *Channel
	gen uint64
}

// Lease opens a lease on the next message. ok is false if there is none.
//
// Hot path.
func (c *Channel) Lease() (l Lease, h Head, ok bool, err error) {
	h, ok, err = c.Peek()
	if !ok {
		return l, h, false, err
	}
	c.lease++
	return Lease{c, c.lease}, h, true, nil
}

// open reports whether the lease still holds.
func (l Lease) open() bool { return l.c != nil && l.c.lease == l.gen }

// Segments is the number of pieces in which the payload lies, 1 to 3: what is in
// its first block, the run of the blocks behind it, and the rest of the run where
// the ring ended in between. 0 after Release.
func (l Lease) Segments() int {
	if !l.open() {
		return 0
	}
	return l.c.segments()
}

// Segment returns piece i of the payload, in the ring. It starts on an 8-byte
// boundary and may be empty. Not to be used after Release. Panics if i is out
// of range.
func (l Lease) Segment(i int) ([]byte, error) {
	if !l.open() {
		return nil, ErrLeaseEnded
	}
	if uint(i) >= uint(l.c.segments()) {
		panic("eager: lease segment out of range")
	}
	return l.c.segment(i), nil
}

// Release gives the message's blocks back. A second call is ErrLeaseEnded.
//
// Hot path.
func (l Lease) Release() error {
	if !l.open() {
		return ErrLeaseEnded
	}
	l.c.endLease()
	l.c.consume()
	return nil
}

// Split opens the message of the lease as a gather of kind k. Segments may be used
// in place, through s, until Release; s then fails with gather.ErrReleased. Errors
// wrap gather.ErrHeader, or are ErrLeaseEnded; a bad gather is the layer above's to
// judge, the channel goes on.
//
// Hot path.
func (l Lease) Split(s *gather.Splitter, k gather.Kind) error {
	if !l.open() {
		return ErrLeaseEnded
	}
	c := l.c
	switch c.segments() {
	case 1:
		return s.Open(k, &c.lease, c.segment(0))
	case 2:
		return s.Open(k, &c.lease, c.segment(0), c.segment(1))
	}
	return s.Open(k, &c.lease, c.segment(0), c.segment(1), c.segment(2))
}
