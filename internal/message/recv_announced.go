package message

import (
	"github.com/seed33544411/rma/internal/fifo"
	"github.com/seed33544411/rma/rdv"
)

// announced is a message that the peer has announced and that waits for its
// turn, or for a receive.
type announced struct {
	seq    uint64
	tag    uint32
	size   uint32
	handle rdv.Handle
}

// heldQueue holds announced messages that wait for their turn, by rising number. It is
// bounded by what rdv lets a peer have outstanding.
//
// Mostly they come in that order: a message that was meant for the ring is announced
// behind later ones if the ring stays full.
type heldQueue struct{ fifo.Queue[announced] }

// insert puts a where its number says; false: there is another one of that number.
func (q *heldQueue) insert(a announced) bool {
	twice := false
	q.Insert(a, func(x *announced) bool {
		twice = twice || x.seq == a.seq
		return x.seq > a.seq
	})
	return !twice
}

// mostReads is how many messages of one peer are read at once: each takes a
// registration, of which a link has some ten thousand, and memory of its receiver.
const mostReads = 1024

// reads bounds the messages that are read from a peer at once.
type reads struct {
	pins   *Pins
	n      int
	parked []rdv.Handle // those that wait until it is fewer
}

// may reports whether one more may be read.
func (r *reads) may() bool { return r.n < mostReads }

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
