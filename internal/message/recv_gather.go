package message

import (
	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/gather"
)

// openGather is the gather at the head of the ring while it is split.
type openGather struct {
	open  bool
	lease eager.Lease
	split gather.Splitter // at the next segment, while open
	tags  tagReader
	tag   uint32 // of that segment
}

// start begins to split the gather under l. tagged: its first segment holds the tags of the
// others. Errors wrap ErrPeer.
func (g *openGather) start(l eager.Lease, tagged bool) error {
	g.open, g.lease = true, l
	if err := l.Split(&g.split); err != nil {
		return peerError("gather: %w", err)
	}
	g.tags.none()
	if tagged {
		if !g.split.Next() {
			return peerError("gather without the tags it should have")
		}
		b, err := g.tags.reset(int(g.split.Entry().Size))
		if err == nil {
			g.split.Copy(b)
			err = g.tags.open()
		}
		if err != nil {
			return err
		}
	}
	return g.next()
}

// next goes to the next segment, or closes the gather behind the last one.
func (g *openGather) next() error {
	if !g.split.Next() {
		return g.end()
	}
	return g.nextTag()
}

// nextTag makes the next tag that of the current segment.
func (g *openGather) nextTag() (err error) {
	g.tag, err = g.tags.next()
	return err
}

// skip advances by n segments, which hold the given number of bytes, to one whose tag was
// read. If the n segments are the last ones (all), it closes the gather.
func (g *openGather) skip(n, bytes int, all bool) error {
	if all || !g.split.Skip(n, bytes) {
		return g.end()
	}
	return nil
}

// end closes the gather, and returns the error that ended it before its last segment, if
// any.
func (g *openGather) end() error {
	err := g.close()
	if broken := g.split.Err(); broken != nil {
		return broken
	}
	return err
}

// close returns the blocks of the gather to the ring.
func (g *openGather) close() error {
	g.open = false
	return g.lease.Release()
}

// abandon closes the gather before its end: the ring ends as well.
func (g *openGather) abandon() {
	if g.open {
		_ = g.close()
	}
}
