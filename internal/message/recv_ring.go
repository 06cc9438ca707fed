package message

import (
	"cmp"
	"encoding/binary"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/gather"
)

// The ring stream: single messages, and gathers, which are split segment by segment or, if
// they are runs of small messages, many segments at a time.

// Poll delivers the message at the head of the ring if there is one and it is next in
// order. It does nothing else that Progress does: it is for a caller that polls often while
// it waits for a message. Progress must be called as well, if less often. If there is no
// message, Poll costs one load.
//
// Hot path.
func (r *receiver) Poll() bool {
	r.opt.Owner.Assert()
	return r.ring.Waiting() && r.live && r.lie == nil && (takeShort(r) || r.takeRing())
}

// rests reports whether a message that was found stays in the ring: no receive is posted that could
// take it, and not long ago there were some.
//
// Hot path.
func rests(r *receiver) bool {
	if r.posted.head != nil || r.draining || r.shared != nil && r.shared.posted.n > 0 {
		return false
	}
	return r.rest.keeps(r.stats.Received)
}

// mostShort is the number of messages that takeShort delivers at most, so that the first one
// is not reported late.
const mostShort = 16

// takeShort delivers short messages at the head of the ring that travel alone, while they
// are next in order and their receives have no other options, or use them in place. All
// others are left to takeRing.
//
// Hot path.
func takeShort(r *receiver) (did bool) {
	if r.draining || len(r.order.matched) > 0 {
		return false
	}
	for range mostShort {
		meta, msg, ok := r.ring.Short(kindPlain)
		if !ok || uint32(meta) != uint32(r.next) || r.err != nil || len(r.order.matched) > 0 || rests(r) {
			break
		}
		tag := uint32(meta >> 32)
		if to, free := r.shared.source(&r.posted, r.from, tag); to != nil && len(msg) <= RunSize {
			r.one[0] = byte(len(msg))
			n, _ := r.takeUsed(to, tag, r.one[:], msg)
			if n == 0 {
				break
			}
			r.ring.TakeShort(len(msg))
		} else if !free || !copyShort(r, tag, msg) {
			break
		}
		r.stats.Received++
		did = true
	}
	return did
}

// copyShort delivers a message at the head of the ring to the first receive of this channel.
// It returns false, without effect, if that does not match or has other options.
//
// Hot path.
func copyShort(r *receiver, tag uint32, msg []byte) bool {
	in := r.posted.head
	if in == nil || !in.plain || len(msg) > len(in.Buf) || !in.takes(tag) {
		return false
	}
	if len(msg) == 8 {
		binary.LittleEndian.PutUint64(in.Buf, binary.LittleEndian.Uint64(msg))
	} else {
		copy(in.Buf, msg)
	}
	r.ring.TakeShort(len(msg))
	drop(r, in)
	if in.Done != nil {
		in.Done.Complete(tag, len(msg), nil)
	}
	return true
}

// drop takes the first receive of this channel, which has the next message, off the list.
//
// Hot path.
func drop(r *receiver, in *In) {
	next := in.next
	if r.posted.head = next; next == nil {
		r.posted.tail = nil
	}
	r.posted.n--
	in.From, in.Buf = r.from, nil
	in.matched = true
	r.next++
	r.advertised.dirty = true // receives behind it may be advertised now
}

// takeRing delivers the message at the head of the ring if there is one and it is next in
// order.
//
// Hot path.
func (r *receiver) takeRing() bool {
	if r.rest.left && rests(r) { // takeShort has found a message
		return false
	}
	if r.gather.open {
		return r.takeGather()
	}
	h, ok, err := r.ring.Peek()
	if err != nil {
		r.fail(err)
	}
	if !ok || err != nil || rests(r) {
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
	in := expected(r, tag, h.Len)
	var dst []byte
	switch {
	case in != nil && in.Use != nil:
		return r.useRing(in, tag)
	case in != nil:
		r.advertised.fromRing(in)
		dst = in.Buf
	default:
		dst = r.unexpected.add(r.next, tag, h.Len)
		r.stats.Unexpected++
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

// expected is match for a message of the ring, which is copied aside if no receive matches: those
// that callbacks of the messages before it have posted count as well.
func expected(r *receiver, tag uint32, size int) *In {
	in := r.match(tag, size, true)
	if in == nil && r.opt.Posted != nil && !r.draining && r.opt.Posted() {
		in = r.match(tag, size, true)
	}
	return in
}

// useRing lets a receive use a message of the ring in place.
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

// startGather begins to split the gather at the head of the ring.
func (r *receiver) startGather(h eager.Head) bool {
	if h.Kind != kindGather && h.Kind != kindTagged {
		r.fail(peerError("ring message of kind %d", h.Kind))
		return false
	}
	l, _, ok, err := r.ring.Lease()
	if err == nil && !ok {
		err = peerError("ring message withdrawn after it was announced")
	}
	if err == nil {
		err = r.gather.start(l, h.Kind == kindTagged)
	}
	if err != nil {
		r.fail(err)
	}
	return err == nil
}

// takeGather delivers messages of the open gather while they are next in order and there is
// a receive for them, or room for unexpected ones.
//
// Hot path.
func (r *receiver) takeGather() (did bool) {
	g := &r.gather
	for g.open && r.err == nil && !rests(r) {
		if at := g.split.Entry().At; at != r.next {
			if at < r.next {
				r.fail(&SequenceError{"ring", at, r.next})
			}
			return did
		}
		if sizes, body, ok := g.split.Ahead(); ok {
			r.takeAhead(sizes, body)
		} else {
			b, _ := g.split.Bytes()
			r.takePart(g.tag, int(g.split.Entry().Size), b)
			if err := g.next(); err != nil {
				r.fail(err)
			}
		}
		did = true
	}
	return did
}

// takeAhead delivers consecutive messages of the open gather, then advances it by all of
// them.
//
// Hot path.
func (r *receiver) takeAhead(sizes gather.Sizes, body []byte) {
	g, i, at := &r.gather, 0, 0
	left, small := sizes.Len(), false
	var ones []byte
	if g.tags.same && !r.draining {
		ones, small = sizes.Ones(0)
	}
	for i < left && r.err == nil && !rests(r) {
		if small {
			if n, bytes := r.takeAlike(ones[i:], body[at:]); n > 0 {
				i, at = i+n, at+bytes
				continue
			}
		}
		n := sizes.At(i)
		r.takePart(g.tag, n, body[at:at+n:at+n])
		if i, at = i+1, at+n; i < left && !g.tags.same {
			if err := g.nextTag(); err != nil {
				r.fail(err)
			}
		}
	}
	if err := g.skip(i, at, i == left); err != nil {
		r.fail(err)
	}
}

// takeAlike delivers messages of one tag while their receives treat all of them alike.
//
// Hot path.
func (r *receiver) takeAlike(sizes, body []byte) (n, bytes int) {
	tag := r.gather.tag
	to, free := r.shared.source(&r.posted, r.from, tag)
	if free && len(r.order.matched) == 0 {
		n, bytes = r.takePlain(tag, sizes, body)
	}
	if n == 0 && to != nil {
		n, bytes = r.takeUsed(to, tag, sizes, body)
	}
	r.stats.Received += uint64(n)
	return n, bytes
}

// takePlain copies messages to receives without other options, while such receives come
// first. Callbacks post more.
//
// Hot path.
func (r *receiver) takePlain(tag uint32, sizes, body []byte) (i, at int) {
	changes := r.shared.changes()
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
		i, at = i+1, at+n
		drop(r, in)
		if in.Done != nil {
			in.Done.Complete(tag, n, nil)
		}
		if r.err != nil || r.shared.changes() != changes || len(r.order.matched) > 0 {
			break
		}
	}
	return i, at
}

// takeUsed offers messages to a source that uses them in place.
//
// Hot path.
func (r *receiver) takeUsed(to Source, tag uint32, sizes, body []byte) (n, bytes int) {
	u := &r.run
	*u = Run{From: r.from, Tag: tag, sizes: sizes, body: body}
	to.Use(u)
	n, bytes = u.n, u.at
	*u = Run{}
	r.next += uint64(n)
	return n, bytes
}

// takePart delivers a message of the open gather to any kind of receive: b, or, if that is
// nil, the current segment, which lies in several parts.
//
// Hot path.
func (r *receiver) takePart(tag uint32, n int, b []byte) {
	in := expected(r, tag, n)
	var dst []byte
	switch {
	case in != nil && in.Use != nil:
		parts := 1
		if r.parts[0] = b; b == nil {
			r.parts, parts = r.gather.split.Parts()
		}
		r.use(in, tag, r.parts[:parts])
		r.parts = [3][]byte{}
	case in != nil:
		r.advertised.fromRing(in)
		dst = in.Buf
	default:
		dst = r.unexpected.add(r.next, tag, n)
		r.stats.Unexpected++
	}
	if b != nil {
		copy(dst, b)
	} else {
		r.gather.split.Copy(dst)
	}
	r.next++
	if in != nil {
		r.received(in, tag, n, nil)
	}
}
