package message

import (
	"cmp"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/gather"
)

// openGather is the gather at the head of the ring while it is taken apart: as a run
// where all its messages have consecutive numbers and it lies in one part, else by
// split, segment by segment.
type openGather struct {
	open  bool
	lease eager.Lease
	split gather.Splitter
	run   segments
	tags  tagReader
	tag   uint32 // of the segment at hand
}

// segments is a run (gather.Splitter.Run) that is being taken apart.
type segments struct {
	sizes []byte // of all, width bytes each
	width int
	body  []byte // of all, one behind the other
	base  uint64 // number of the first
	i     int    // the one at hand
	at    int    // where in body it is
	n     int    // how many there are; 0: no run is open
}

// start begins to take the gather under l apart. tagged: its first segment holds the tags
// of the others. Errors wrap ErrPeer.
func (g *openGather) start(l eager.Lease, tagged bool) error {
	g.open, g.lease = true, l
	if err := l.Split(&g.split, gather.Seq); err != nil {
		return peerError("gather: %w", err)
	}
	g.tags.none()
	if base, sizes, width, body, ok := g.split.Run(); ok {
		return g.startRun(segments{base: base, sizes: sizes, width: width, body: body, n: len(sizes) / width}, tagged)
	}
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
		return cmp.Or(g.split.Err(), g.close())
	}
	return g.nextTag()
}

// startRun begins to take a run apart.
func (g *openGather) startRun(r segments, tagged bool) error {
	if tagged {
		n := gather.Size(r.sizes, r.width, 0)
		b, err := g.tags.reset(n)
		if err == nil {
			copy(b, r.body)
			err = g.tags.open()
		}
		if err != nil {
			return err
		}
		r.i, r.at = 1, n
	}
	g.run = r
	if r.i == r.n {
		return g.close() // tags of no message
	}
	return g.nextTag()
}

// nextTag makes the next tag that of the segment at hand.
func (g *openGather) nextTag() (err error) {
	g.tag, err = g.tags.next()
	return err
}

// close gives the blocks of the gather back to the ring.
func (g *openGather) close() error {
	g.run = segments{}
	g.open = false
	return g.lease.Release()
}

// abandon closes the gather before its end: the ring goes with it.
func (g *openGather) abandon() {
	if g.open {
		_ = g.close()
	}
}
