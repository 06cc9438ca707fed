package eager

import "github.com/seed33544411/rma/gather"

// Lease gives access to a message in the ring, without copying it. Only one lease of a
// channel may be open at a time, and no other message can be received before Release. A
// hostile peer can change the memory at any time: decode each value once, or copy it first.
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

// open reports whether the lease is still open.
func (l Lease) open() bool { return l.c != nil && l.c.lease == l.gen }

// Segments returns the number of parts of the payload, 1 to 3: the part in its first block,
// the run of the following blocks, and the rest of the run if the ring ended in between. 0
// after Release.
func (l Lease) Segments() int {
	if !l.open() {
		return 0
	}
	return l.c.segments()
}

// Segment returns part i of the payload, in the ring. It starts on an 8-byte boundary and
// may be empty. It must not be used after Release. Segment panics if i is out of range.
func (l Lease) Segment(i int) ([]byte, error) {
	if !l.open() {
		return nil, ErrLeaseEnded
	}
	if uint(i) >= uint(l.c.segments()) {
		panic("eager: lease segment out of range")
	}
	return l.c.segment(i), nil
}

// Release returns the message's blocks. A second call returns ErrLeaseEnded.
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

// Split opens the message of the lease as a gather. Segments may be used in
// place, through s, until Release; s then fails with gather.ErrReleased. Errors wrap
// gather.ErrHeader, or are ErrLeaseEnded. The channel continues after a malformed gather:
// the layer above decides what to do.
//
// Hot path.
func (l Lease) Split(s *gather.Splitter) error {
	if !l.open() {
		return ErrLeaseEnded
	}
	c := l.c
	switch c.segments() {
	case 1:
		return s.Open(&c.lease, c.segment(0))
	case 2:
		return s.Open(&c.lease, c.segment(0), c.segment(1))
	}
	return s.Open(&c.lease, c.segment(0), c.segment(1), c.segment(2))
}
