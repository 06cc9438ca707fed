package hub

import (
	"github.com/seed33544411/rma/internal/message"
)

// Taker takes the messages of a Receiving. A nil of Take leaves the message, and with it
// all later ones of the rank, until Hub.Resume.
type Taker interface {
	message.Source

	// Gone is called once for each connection with a rank that has ended: the rank sends no
	// more messages over it, and none waits.
	Gone(rank int, err error)
}

// Receiving is a receive for many messages of all ranks, or of one.
type Receiving struct {
	in       message.In
	to       Taker
	stalls   []bool // by rank: a message was left
	reported []bool // by rank: Gone was called
	closed   bool
}

func newReceiving(ranks int, tag, ignore uint32, only int, to Taker) *Receiving {
	r := &Receiving{to: to, stalls: make([]bool, ranks), reported: make([]bool, ranks)}
	r.in.Tag, r.in.Ignore, r.in.Only, r.in.Source = tag&^ignore, ignore, only, (*source)(r)
	return r
}

// gone reports the end of a rank, once, if r receives from it and has left none of its
// messages.
func (r *Receiving) gone(rank int, err error) {
	if !r.closed && !r.reported[rank] && !r.stalls[rank] && (r.in.Only == 0 || r.in.Only == rank+1) {
		r.reported[rank] = true
		r.to.Gone(rank, err)
	}
}

// overlaps reports whether both of r and o take messages of some tag.
func (r *Receiving) overlaps(o *Receiving) bool {
	return (r.in.Tag^o.in.Tag)&^(r.in.Ignore|o.in.Ignore) == 0
}

// renew begins again with a rank whose connection is replaced: messages of the last one that r
// has left are dropped.
func (r *Receiving) renew(rank int, over error) {
	r.stalls[rank] = false
	if over != nil {
		r.gone(rank, over)
	}
	r.reported[rank] = false
}

// source implements message.Source for a Receiving.
type source Receiving

// Take implements message.Source.
func (r *source) Take(from int, tag uint32, size int, inPlace bool) *message.In {
	if r.stalls[from] {
		return nil
	}
	in := r.to.Take(from, tag, size, inPlace)
	r.stalls[from] = in == nil
	return in
}

// Use implements message.Source.
func (r *source) Use(run *message.Run) {
	if !r.stalls[run.From] {
		r.to.Use(run)
	}
}
