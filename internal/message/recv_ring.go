package message

import (
	"cmp"
	"encoding/binary"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/gather"
)

// The ring stream: messages by themselves, and gathers, which are taken apart segment by
// segment or, where they are coalesced runs, many segments in one go.

// Poll delivers the message at the head of the ring if it is there and its turn has
// come, and does nothing else that Progress does: for a caller that waits for a message
// and polls often. Progress must be called as well, if less often. Where there is
// nothing it costs one load.
//
// Hot path.
func (r *receiver) Poll() bool {
	return r.ring.Waiting() && r.live && r.lie == nil && r.takeRing()
}

// takeRing delivers the message at the head of the ring, if it is there and its
// turn has come.
//
// Hot path.
func (r *receiver) takeRing() bool {
	if r.gather.run.n > 0 {
		return r.takeRun()
	}
	if r.gather.open {
		return r.takeSegment()
	}
	h, ok, err := r.ring.Peek()
	if err != nil {
		r.fail(err)
	}
	if !ok || err != nil {
		return false
	}
	if h.Kind != kindPlain {
		return r.startGather(h)
	}
	if !h.HasMeta {
		r.fail(peerError("ring message without number"))
		return false
	}
	tag := uint32(h.Meta >> 32)
	switch ahead := int32(uint32(h.Meta) - uint32(r.next)); {
	case ahead < 0:
		r.fail(&SequenceError{"ring", h.Meta & 0xffffffff, r.next & 0xffffffff})
		return false
	case ahead > 0:
		return false // descriptors come first
	}
	in := r.match(tag, h.Len, true)
	var dst []byte
	switch {
	case in != nil && in.Use != nil:
		return r.useRing(in, tag)
	case in != nil:
		r.advertised.fromRing(in)
		dst = in.Buf
	case r.unexpected.room(h.Len):
		dst = r.unexpected.add(r.next, tag, h.Len)
		r.stats.Unexpected++
	default:
		return false // stays there; the sender runs out of credit
	}
	r.next++
	if _, _, err = r.ring.Recv(dst); err != nil {
		r.fail(err)
	}
	if in != nil {
		r.received(in, tag, h.Len, err)
	}
	return true
}

// useRing lets a receive use a ring message in place.
func (r *receiver) useRing(in *In, tag uint32) bool {
	l, h, _, err := r.ring.Lease()
	if err == nil {
		n := l.Segments()
		for i := range n {
			if r.parts[i], err = l.Segment(i); err != nil {
				break
			}
		}
		if err == nil {
			r.use(in, tag, r.parts[:n])
		}
		r.parts = [3][]byte{}
		err = cmp.Or(err, l.Release())
	}
	r.next++
	if err != nil {
		r.fail(err)
	}
	r.received(in, tag, h.Len, err)
	return true
}

// startGather begins to take the gather at the head of the ring apart.
func (r *receiver) startGather(h eager.Head) bool {
	if h.Kind != kindGather && h.Kind != kindTagged {
		r.fail(peerError("ring message of kind %d", h.Kind))
		return false
	}
	l, _, ok, err := r.ring.Lease()
	if err == nil && !ok {
		err = peerError("ring message that vanished")
	}
	if err == nil {
		err = r.gather.start(l, h.Kind == kindTagged)
	}
	if err != nil {
		r.fail(err)
	}
	return err == nil
}

// takeSegment delivers the current message of the open gather, if its turn has
// come.
func (r *receiver) takeSegment() bool {
	g := &r.gather
	e, tag := g.split.Entry(), g.tag
	switch {
	case e.At < r.next:
		r.fail(&SequenceError{"ring", e.At, r.next})
		return false
	case e.At > r.next:
		return false
	}
	in := r.match(tag, int(e.Size), true)
	switch {
	case in != nil && in.Use != nil:
		parts, n := g.split.Parts()
		r.use(in, tag, parts[:n])
	case in != nil:
		r.advertised.fromRing(in)
		g.split.Copy(in.Buf)
	case r.unexpected.room(int(e.Size)):
		g.split.Copy(r.unexpected.add(r.next, tag, int(e.Size)))
		r.stats.Unexpected++
	default:
		return false
	}
	r.next++
	err := g.next()
	if err != nil {
		r.fail(err)
	}
	if in != nil {
		r.received(in, tag, int(e.Size), nil)
	}
	return err == nil
}

// takeRun delivers messages of the open run for as long as it is their turn and
// there is a receive for them, or room aside.
//
// Hot path.
func (r *receiver) takeRun() (did bool) {
	g := &r.gather
	run := &g.run
	if seq := run.base + uint64(run.i); seq != r.next {
		if seq < r.next {
			r.fail(&SequenceError{"ring", seq, r.next})
		}
		return false
	}
	for run.i < run.n && r.err == nil {
		if g.tags.same && run.width == 1 && !r.draining {
			to, free := r.shared.source(&r.posted, r.from, g.tag)
			if free && len(r.order.matched) == 0 && r.takePlain() || to != nil && r.takeUsed(to) {
				did = true
				continue
			}
		}
		if !r.takeOne() {
			return did
		}
		did = true
	}
	if r.err == nil {
		if err := g.close(); err != nil {
			r.fail(err)
		}
	}
	return did
}

// takePlain delivers messages of the run to receives that only want to have them copied,
// for as long as those come first. Callbacks post more.
//
// Hot path.
func (r *receiver) takePlain() (did bool) {
	run, tag := &r.gather.run, r.gather.tag
	sizes, body, i, at := run.sizes[run.i:run.n], run.body, 0, run.at
	changes := r.shared.changes()
	bytes := 0
	for i < len(sizes) {
		in, n := r.posted.head, int(sizes[i])
		if in == nil || !in.plain || n > len(in.Buf) || !in.takes(tag) {
			break
		}
		if n == 8 {
			binary.LittleEndian.PutUint64(in.Buf, binary.LittleEndian.Uint64(body[at:]))
		} else {
			copy(in.Buf, body[at:at+n])
		}
		i, at, bytes = i+1, at+n, bytes+n
		next := in.next
		if r.posted.head = next; next == nil {
			r.posted.tail = nil
		}
		r.posted.n--
		in.From, in.Buf = r.from, nil
		in.matched = true
		r.next++
		if in.Done != nil {
			in.Done.Complete(tag, n, nil)
		}
		if r.err != nil || r.shared.changes() != changes || len(r.order.matched) > 0 {
			break
		}
	}
	r.advertised.dirty = r.advertised.dirty || i > 0 // those behind may be advertised now
	return r.took(i, bytes)
}

// takeUsed has to use messages of the run in place, for as long as it does and they
// are for it.
//
// Hot path.
func (r *receiver) takeUsed(to Source) (did bool) {
	run, tag, from := &r.gather.run, r.gather.tag, r.from
	sizes, body, i, at := run.sizes[run.i:run.n], run.body, 0, run.at
	changes := r.shared.changes()
	bytes := 0
	for i < len(sizes) {
		n := int(sizes[i])
		if !to.Use(from, tag, body[at:at+n:at+n]) {
			break
		}
		i, at, bytes = i+1, at+n, bytes+n
		r.next++
		if r.err != nil || r.shared.changes() != changes {
			break
		}
	}
	return r.took(i, bytes)
}

// took notes that n messages of the run, of that many bytes, are through.
func (r *receiver) took(n, bytes int) (did bool) {
	r.stats.Received += uint64(n)
	r.stats.ReceivedBytes += uint64(bytes)
	r.gather.run.i += n
	r.gather.run.at += bytes
	return n > 0
}

// takeOne delivers the message of the run at hand, whatever the receive is.
func (r *receiver) takeOne() bool {
	g := &r.gather
	run, tag := &g.run, g.tag
	n := gather.Size(run.sizes, run.width, run.i)
	b := run.body[run.at : run.at+n : run.at+n]
	in := r.match(tag, n, true)
	switch {
	case in != nil && in.Use != nil:
		r.parts[0] = b
		r.use(in, tag, r.parts[:1])
		r.parts[0] = nil
	case in != nil:
		r.advertised.fromRing(in)
		copy(in.Buf, b)
	case r.unexpected.room(n):
		copy(r.unexpected.add(r.next, tag, n), b)
		r.stats.Unexpected++
	default:
		return false
	}
	r.next++
	run.i++
	run.at += n
	if run.i < run.n && !g.tags.same {
		if err := g.nextTag(); err != nil {
			r.fail(err)
		}
	}
	if in != nil {
		r.received(in, tag, n, nil)
	}
	return true
}
