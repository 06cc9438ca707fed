package gather

import "github.com/seed33544411/rma/fabric"

// Piece is a part of a message's payload. Data sent in place must be registered with LKey,
// off-heap or pinned, and must not change until the channel permits it.
type Piece struct {
	Data    []byte
	LKey    uint32
	InPlace bool // sent by a separate SGE, not copied
}

// List turns the pieces of one message into SGEs, window by window. It is created for each
// message and never allocates.
type List struct {
	pieces []Piece
	i, off int
	budget int // remaining SGEs in place; further pieces are copied
}

// NewList starts at the first piece. At most inPlace SGEs are in place.
func NewList(pieces []Piece, inPlace int) List { return List{pieces: pieces, budget: inPlace} }

// Left returns the number of SGEs that may still be in place.
func (l *List) Left() int { return l.budget }

// SetLeft sets Left: the windows of one message may be laid out in any order, by copies of
// one List.
func (l *List) SetLeft(n int) { l.budget = n }

// Skip advances by n bytes.
func (l *List) Skip(n int) {
	for n > 0 && l.i < len(l.pieces) {
		m := min(n, len(l.pieces[l.i].Data)-l.off)
		l.advance(m)
		n -= m
	}
}

func (l *List) advance(m int) {
	if l.off += m; l.off == len(l.pieces[l.i].Data) {
		l.i, l.off = l.i+1, 0
	}
}

// Lay fills the staging window with the next bytes of the message, except the last tail
// bytes of the window, which the caller has filled, and stores the SGEs, in order, at the
// front of dst. Copied data has the same place in the window as at the target, with
// neighbours in one SGE under key; data in place leaves a hole. It returns the number of
// SGEs: at most 2·inPlace + 1 in one window, and over all windows of a message one more for
// each further window. dst must have room.
//
// Hot path.
func (l *List) Lay(dst []fabric.SGE, window []byte, key uint32, tail int) int {
	n, at, from, end := 0, 0, 0, len(window)-tail
	for at < end {
		p := &l.pieces[l.i]
		m := min(len(p.Data)-l.off, end-at)
		if p.InPlace && l.budget > 0 && m > 0 {
			if from < at {
				dst[n] = fabric.NewSGE(window[from:at], key)
				n++
			}
			dst[n] = fabric.NewSGE(p.Data[l.off:l.off+m], p.LKey)
			n++
			l.budget--
			from = at + m
		} else {
			copy(window[at:], p.Data[l.off:l.off+m])
		}
		at += m
		l.advance(m)
	}
	if from < len(window) {
		dst[n] = fabric.NewSGE(window[from:], key)
		n++
	}
	return n
}
