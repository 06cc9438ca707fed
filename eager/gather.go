package eager

import "github.com/seed33544411/rma/gather"

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
