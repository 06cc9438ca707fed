package message

import (
	"slices"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/internal/fifo"
	"github.com/seed33544411/rma/rdv"
)

// unexpected holds the messages that no receive has matched, in order: copies of small
// ones, and announced ones that the peer still holds. There may be a hundred thousand of
// them, and a slow receiver takes the first again and again: that must not move the others.
type unexpected struct {
	list  []aside // from head on
	head  int
	n     int
	bytes int
	limit int

	// If copies and a full ring of window bytes more would exceed the limit, the credit for
	// copied messages is withheld: the ring empties, so that announced messages are not
	// held up, but does not fill again.
	ring   *eager.Channel
	window int
	moves  uint32 // rings of this side that have followed the first
}

type aside struct {
	announced
	data *copied // nil if the peer holds the message
	copy bool
}

// announce adds a message that the peer holds.
func (u *unexpected) announce(a announced) { u.append(aside{announced: a}) }

// append reuses the removed front of the list when it is half of the list: each entry moves
// at most once for each one added.
func (u *unexpected) append(a aside) {
	if len(u.list) == cap(u.list) && u.head > 0 && u.head >= len(u.list)/2 {
		n := copy(u.list, u.list[u.head:])
		clear(u.list[n:])
		u.list, u.head = u.list[:n], 0
	}
	u.list = append(u.list, a)
	u.n++
}

// asideOverhead is the memory of a copy in addition to its data, in bytes.
const asideOverhead = 64

// add reserves room for a copy, which the caller fills.
func (u *unexpected) add(seq uint64, tag uint32, size int) []byte {
	c := newCopied(size)
	u.append(aside{announced: announced{seq: seq, tag: tag, size: uint32(size)}, data: c, copy: true})
	u.count(cap(c.bytes) + asideOverhead)
	return c.bytes
}

// count adds n bytes to the size of the copies.
func (u *unexpected) count(n int) {
	u.bytes += n
	u.ring.Withhold(u.bytes > 0 && u.bytes > u.limit-u.window)
}

// remove removes entry i and closes the gap from the nearer end.
func (u *unexpected) remove(i int) {
	if u.list[i].copy {
		u.count(-cap(u.list[i].data.bytes) - asideOverhead)
	}
	u.n--
	if last := len(u.list) - 1; i-u.head > last-i {
		copy(u.list[i:], u.list[i+1:])
		u.list[last] = aside{}
		u.list = u.list[:last]
		return
	}
	copy(u.list[u.head+1:i+1], u.list[u.head:i])
	u.list[u.head] = aside{}
	if u.head++; u.head == len(u.list) {
		u.list, u.head = u.list[:0], 0
	}
}

// bury inserts a lost message at the place of its number.
func (u *unexpected) bury(seq uint64, tag uint32) {
	u.append(aside{announced: announced{seq: seq, tag: tag}})
	for i := len(u.list) - 1; i > u.head && u.list[i-1].seq > seq; i-- {
		u.list[i-1], u.list[i] = u.list[i], u.list[i-1]
	}
}

// hides reports whether in would take a message before number end that the peer still holds,
// and that is lost if the peer is gone.
func (u *unexpected) hides(in *In, end uint64) bool {
	for i := range u.list[u.head:] {
		if a := &u.list[u.head+i]; !a.copy && a.seq < end && in.takes(a.tag) {
			return true
		}
	}
	return false
}

func (u *unexpected) clear() {
	*u = unexpected{limit: u.limit, ring: u.ring, window: u.window, moves: u.moves}
}

// announced is a message that the peer has announced and that waits for its turn or for a
// receive.
type announced struct {
	seq    uint64
	tag    uint32
	size   uint32
	handle rdv.Handle
}

// heldQueue holds announced messages that wait for their turn, by rising number. It is
// bounded by the number of messages that rdv lets a peer have outstanding.
//
// Mostly they arrive in that order; but if the ring stays full, a message meant for the
// ring is announced behind later ones.
type heldQueue struct{ fifo.Queue[announced] }

// insert inserts a at the place of its number. It returns false if that number is already
// there.
func (q *heldQueue) insert(a announced) bool {
	twice := false
	q.Insert(a, func(x *announced) bool {
		twice = twice || x.seq == a.seq
		return x.seq > a.seq
	})
	return !twice
}

// mostReads is the number of messages of one peer that are read at once. Each takes a
// registration, of which a link has some ten thousand, and memory of its receiver.
const mostReads = 1024

// reads bounds the messages that are read from a peer at once.
type reads struct {
	pins   *Pins
	n      int
	parked []rdv.Handle // messages that wait until fewer are being read
}

// may reports whether one more message may be read.
func (r *reads) may() bool { return r.n < mostReads }

// pinned reports whether the memory of a parked message is registered.
func (r *reads) pinned(fetching map[rdv.Handle]*In) bool {
	return slices.ContainsFunc(r.parked, func(h rdv.Handle) bool { in := fetching[h]; return in != nil && in.pin.held })
}

// start counts a message whose memory is registered, end one that is no longer read.
func (r *reads) start(in *In) {
	in.reading = true
	r.n++
	r.pins.reading++
}

func (r *reads) end(in *In) {
	if in.reading {
		in.reading = false
		r.n--
		r.pins.reading--
	}
}

// order holds the receives of one peer that wait for others to end. Receives that compete
// for messages end in the order of these, although some are fetched while others are
// complete: what is received from a peer that dies meanwhile is then a prefix of what it
// had sent. A receive that was matched and is being fetched is listed, and so is one that
// has its message but stands behind such a receive. Receives of a Source are not listed:
// the source is notified of the order and keeps it itself.
type order struct {
	matched   []*In
	ready     []*In
	releasing bool // the callbacks of ready are running
}

// waits reports whether in, which has its message, must wait for others.
func (q *order) waits(in *In) bool { return q.releasing || competitor(q.matched, in) != nil }

// competitor returns the first of ins that might have taken the message of in, or in its
// message. It returns nil if there is none.
func competitor(ins []*In, in *In) *In {
	for _, x := range ins {
		if x.takes(in.tag) || in.takes(x.tag) {
			return x
		}
	}
	return nil
}

// add lists in. here: it has its message.
func (q *order) add(in *In, here bool) {
	in.listed, in.here = true, here
	q.matched = append(q.matched, in)
}

// remove removes in from the list.
func (q *order) remove(in *In) {
	q.matched = slices.DeleteFunc(q.matched, func(x *In) bool { return x == in })
	in.listed = false
}

// due removes the receives that need not wait any longer from the list and returns them.
// The result is valid until the next call.
func (q *order) due() []*In {
	q.ready = q.ready[:0]
	kept := q.matched[:0]
	for _, in := range q.matched {
		if in.here && competitor(kept, in) == nil {
			q.ready = append(q.ready, in)
		} else {
			kept = append(kept, in)
		}
	}
	clear(q.matched[len(kept):])
	q.matched = kept
	return q.ready
}

// end removes all receives from the list, because the peer is gone. Receives whose message
// has not arrived, and those behind them that compete with them, have lost it, and u hides
// later messages from later receives. came are the others, which can end now. lost can end
// now as well; the rest end when neither the link nor the peer writes there any longer.
func (q *order) end(u *unexpected) (came, lost []*In) {
	matched := q.matched
	q.matched = nil
	var all []*In // that have lost their message
	for _, in := range matched {
		in.listed = false
		if in.here || in.ended {
			before := competitor(all, in)
			if before == nil {
				if in.here {
					came = append(came, in)
				}
				continue
			}
			in.seq = before.seq // the place at which it hides messages
		}
		all = append(all, in)
		u.bury(in.seq, in.tag)
		switch {
		case in.here || in.gone:
			lost = append(lost, in)
		case in.ended:
			in.gone = true // the peer, or the link, may still write there
		}
	}
	return came, lost
}
