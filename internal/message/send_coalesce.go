package message

import (
	"encoding/binary"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/logp"
)

// A train is a backlog of small messages only. Streams are made of them, so they are
// not planned: from so many messages on, up to such a size, the model gathers them
// all whatever their sizes and their number, which bound finds out once. They
// are written straight into the ring's mirror, without the lists that a plan needs.

// train says which backlogs are not planned but gathered.
type train struct {
	from int    // messages at least
	size int    // of the longest, in bytes; -1: none
	room int    // bytes of one gather, header and tags included
	run  []*Out // of the one that is made, as long as a batch
}

// consist is what a gather of some messages with consecutive numbers consists of.
type consist struct {
	n, bytes, or int
	tag, diff    uint32 // of the first; bits in which others differ
}

// tagged reports whether the gather says which tags its messages have.
func (t *consist) tagged() bool { return t.tag|t.diff != 0 }

// boundTrain finds what trains are made of. That a gather is best for equal messages of
// all sizes up to some one, in any number, holds for mixtures of them as well: what
// a gather saves is a sum over messages, less what it costs by itself.
func (c *Channel) boundTrain() {
	c.train.size = -1
	if len(c.opt.Policy.Table) > 0 || c.batch.Limits.GatherMax <= 0 {
		return
	}
	gathers := func(n int, size int64) bool {
		b := c.equal(n, size)
		m, err := c.plan.Single(b)
		return err == nil && m == logp.Gather
	}
	counts := [...]int{1, 2, 8, 64}
	from := len(counts) // of counts, for the smallest messages
	for from > 0 && gathers(counts[from-1], 0) && gathers(counts[from-1], 8) {
		from--
	}
	if from == len(counts) {
		return
	}
	// More than the ring holds may be better fetched, which 64 messages do not show.
	most := min(c.inPlace, 1<<16, int(c.batch.Limits.Ring)/c.opt.Batch) - 1
	c.train.from, c.train.size = counts[from], max(min(8, most), -1)
	for size := 32; c.train.size < most; size *= 4 {
		size = min(size, most)
		for _, n := range counts[from:] {
			if !gathers(n, int64(size)) {
				return
			}
		}
		c.train.size = size
	}
}

// equal is a batch of n messages of one size, to ask the model about.
func (c *Channel) equal(n int, size int64) *logp.Batch {
	b := &c.probe
	b.Limits = c.batch.Limits
	b.Messages = b.Messages[:0]
	for range n {
		b.Messages = append(b.Messages, logp.Message{Size: size, Flags: logp.Registered | logp.DestRegistered})
	}
	return b
}

// isTrain reports whether b would go as a train.
func (c *Channel) isTrain(b *logp.Batch) bool {
	if c.train.size < 0 || len(b.Messages) < c.train.from {
		return false
	}
	for _, m := range b.Messages {
		if m.Size > int64(c.train.size) || m.Flags&logp.Urgent != 0 {
			return false
		}
	}
	return true
}

// sendTrain sends what the backlog begins with if it is a train. ok is false if it is
// not, and nothing was sent: it has to be planned. Short path.
func (c *Channel) sendTrain() (moved, ok bool) {
	t := &c.train
	if c.backlog.n < t.from || t.size < 0 || len(c.wants.open) > 0 {
		return false, false
	}
	run, made, behind, ok := c.rest()
	if !ok {
		return false, false
	}
	if !c.couple(run, &made) {
		return false, true
	}
	if _, err := c.ring.Flush(); err != nil {
		c.fail(err)
		return true, true
	}
	c.backlog.drop(made.n, behind)
	c.overtake(run, &made)
	c.learn.left -= learnPlanned - 1
	c.stats.Sent += uint64(made.n)
	c.stats.SentBytes += uint64(made.bytes)
	for i, o := range run {
		run[i] = nil
		if o.pin.held {
			c.pins.release(&o.pin)
		}
		n := len(o.Data)
		if o.Data = nil; o.Done != nil {
			o.Done.Complete(o.Tag, n, nil)
		}
	}
	return true, true
}

// rest looks at the first messages of the backlog, as many as one gather takes.
func (c *Channel) rest() (run []*Out, made consist, behind *Out, ok bool) {
	o := c.backlog.head
	room, most, segment := c.batch.Limits.GatherMax-int64(c.batch.Limits.Header), c.train.size, int64(c.batch.Limits.Segment)
	run = c.train.run
	next, first, diff, or, left, k := o.seq, o.Tag, uint32(0), 0, room, 0
	for ; o != nil && k < len(run); o = o.next {
		n := len(o.Data)
		if n > most || o.Urgent || o.wanted {
			return nil, made, nil, false
		}
		if left -= int64(n) + segment; o.seq != next || left < 0 {
			left += int64(n) + segment
			break
		}
		run[k] = o
		k++
		next++
		or |= n
		diff |= o.Tag ^ first
	}
	made = consist{n: k, bytes: int(room - left - int64(k)*segment), or: or, tag: first, diff: diff}
	return run[:k], made, o, k > 0 && (diff == 0 || made.bytes+k*entryRoom+trainRoom <= c.train.room)
}

// asRun looks whether those of first[from:to] that are to be gathered can be coupled.
func (c *Channel) asRun(from, to int) (run []*Out, made consist, ok bool) {
	run = c.train.run
	for i := from; i < to; i++ {
		if c.modes[i] != logp.Gather {
			continue
		}
		o := c.first[i]
		if made.n == len(run) || o.Registered && len(o.Data) >= c.inPlace || made.n > 0 && o.seq != run[0].seq+uint64(made.n) {
			return nil, made, false
		}
		if made.n == 0 {
			made.tag = o.Tag
		}
		run[made.n] = o
		made.n++
		made.bytes += len(o.Data)
		made.or |= len(o.Data)
		made.diff |= o.Tag ^ made.tag
	}
	return run[:made.n], made, made.n > 0 && made.bytes+made.n*(entryRoom+2)+trainRoom <= c.train.room
}

// entryRoom is the most that a message takes of a gather besides its bytes: two of its
// size, five of its tag, which the model takes for one. trainRoom is what the gather
// takes by itself.
const (
	entryRoom = 2 + binary.MaxVarintLen32
	trainRoom = 64
)

// couple stages the messages of run, which are not to be taken in place and have
// consecutive numbers, as one gather. Short path.
func (c *Channel) couple(run []*Out, made *consist) bool {
	e, base, n, bytes := eager.Envelope{Kind: kindGather}, run[0].seq, made.n, made.bytes
	or := made.or
	c.tags = c.tags[:0]
	if made.tagged() {
		e.Kind = kindTagged
		c.tags = appendRunTags(c.tags, run, made)
		base, n, bytes, or = base-1, n+1, bytes+len(c.tags), or|len(c.tags)
	}
	width := gather.RunWidth(uint32(or))
	room, res, err := c.ring.Compose(e, gather.RunLen(n, width)+bytes)
	if !c.taken(res, err) {
		return false
	}
	var sizes []byte
	c.head, sizes = gather.AppendRun(c.head[:0], base, n, width)
	if made.tagged() {
		putSize(sizes, width, len(c.tags))
		sizes = sizes[width:]
	}
	if width == 1 {
		sizes = sizes[:len(run)]
		for i, o := range run {
			sizes[i] = byte(len(o.Data))
		}
	} else {
		for i, o := range run {
			putSize(sizes[i*width:], width, len(o.Data))
		}
	}
	_, at := room.Put(0, c.head)
	part, at := room.Put(at, c.tags)
	for _, o := range run {
		if b := o.Data; len(b) == 8 && len(part)-at >= 8 {
			binary.LittleEndian.PutUint64(part[at:], binary.LittleEndian.Uint64(b))
			at += 8
		} else if len(part)-at >= len(b) {
			at += copy(part[at:], b)
		} else {
			part, at = room.Put(at, b)
		}
	}
	c.stats.Gathers++
	c.count(logp.Gather, len(run))
	return true
}

func putSize(b []byte, width, n int) {
	if width == 2 {
		binary.LittleEndian.PutUint16(b, uint16(n))
		return
	}
	if width == 1 {
		b[0] = byte(n)
		return
	}
	binary.LittleEndian.PutUint32(b, uint32(n))
}

// overtake is assign for a train that has gone while no advert waited.
func (c *Channel) overtake(run []*Out, made *consist) {
	w := &c.wants
	if made.diff == 0 {
		run = run[len(run)-1:] // the last of a tag is what counts
	}
	for _, o := range run {
		w.pass(o.Tag, o.seq)
	}
}
