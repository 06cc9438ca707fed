package onesided

import "github.com/seed33544411/rma/fabric"

// Cursor iterates over the two sides of a transfer in step. The zero value is an empty
// transfer. A Cursor may be set repeatedly, and keeps the memory of its lists.
type Cursor struct {
	local, remote   side
	locals, remotes []Piece
	pos, total      uint64
	lo, hi          uint64 // of a shape: the range of local memory
	extent          uint64 // and the length of the range of remote memory
	nest            nest   // of a shape
}

// Mark is a position of a Cursor.
type Mark struct {
	pos, lOff, rOff uint64
	l, r            int
}

// Done reports whether the mark is at the end of c.
func (m Mark) Done(c *Cursor) bool { return m.pos >= c.total }

// Pos returns the number of bytes before the mark.
func (m Mark) Pos() uint64 { return m.pos }

// keepPieces is the number of pieces for which an unused Cursor keeps memory.
const keepPieces = 1024

// Reset empties the cursor.
func (c *Cursor) Reset() {
	if cap(c.locals) > keepPieces || cap(c.remotes) > keepPieces {
		c.locals, c.remotes = nil, nil
	}
	c.locals, c.remotes = c.locals[:0], c.remotes[:0]
	c.pos, c.total, c.lo, c.hi, c.extent = 0, 0, 0, 0, 0
}

// AddLocal appends a piece of this side's memory to the transfer; End completes
// the lists.
func (c *Cursor) AddLocal(p Piece) { c.locals = join(c.locals, p) }

// AddRemote appends a piece of the target's memory.
func (c *Cursor) AddRemote(p Piece) { c.remotes = join(c.remotes, p) }

// End completes the lists. It reports whether both hold the same number of bytes.
func (c *Cursor) End() bool {
	var l, r uint64
	for i := range c.locals {
		l += c.locals[i].Len
	}
	for i := range c.remotes {
		r += c.remotes[i].Len
	}
	c.local.setList(c.locals)
	c.remote.setList(c.remotes)
	c.pos, c.total = 0, l
	return l == r
}

// Overlap reports whether pieces of the local list, or of the remote one,
// overlap.
func (c *Cursor) Overlap(remote bool) bool {
	if remote {
		return overlap(c.remotes)
	}
	return overlap(c.locals)
}

// SetShape makes the cursor iterate over a shape that passed Check, from the two addresses.
func (c *Cursor) SetShape(local, remote Piece, s Shape, p Plan) {
	c.pos, c.total = 0, p.Total
	c.lo, c.hi, c.extent = local.Addr, local.Addr+p.Local, p.Remote
	c.nest.set(s)
	c.local.setShape(local, s, false)
	c.remote.setShape(remote, s, true)
}

// Span returns the memory from the first run of a shape to the end of its last one, on
// either side, and the length of its runs. ok is false if the cursor has no shape, or its
// iteration has begun.
func (c *Cursor) Span() (local, remote Piece, run int, ok bool) {
	if c.extent == 0 || c.pos != 0 {
		return local, remote, 0, false
	}
	return Piece{c.lo, c.hi - c.lo, c.local.key}, Piece{c.remote.base, c.extent, c.remote.key}, c.nest.run, true
}

// Copy copies a shape between the memory of Span: from the local to the remote side, or,
// with get, the other way, until about turn bytes, or a run, have been copied. If that is all, the cursor is at
// its end; otherwise the next call continues, unless Recopy comes first.
func (c *Cursor) Copy(local, remote []byte, get bool, turn int) {
	to, from := remote, local
	if get {
		to, from = local, remote
	}
	if c.nest.copy(to, from, !get, turn) {
		c.pos = c.total
	}
}

// Recopy makes the next Copy begin with the first run.
func (c *Cursor) Recopy() { c.nest.at = place{} }

// Uses reports whether the transfer's local side overlaps [lo, hi).
func (c *Cursor) Uses(lo, hi uint64) bool {
	for i := range c.locals {
		if p := &c.locals[i]; p.Addr < hi && lo < p.Addr+p.Len {
			return true
		}
	}
	return c.lo < hi && lo < c.hi
}

// Len returns the number of bytes of the transfer.
func (c *Cursor) Len() uint64 { return c.total }

// Pos returns the number of bytes before the present position.
func (c *Cursor) Pos() uint64 { return c.pos }

// Done reports whether the cursor is at its end.
func (c *Cursor) Done() bool { return c.pos >= c.total }

// Mark returns the present position.
func (c *Cursor) Mark() Mark {
	return Mark{pos: c.pos, lOff: c.local.off, rOff: c.remote.off, l: c.local.i, r: c.remote.i}
}

// Seek returns to a position from Mark.
func (c *Cursor) Seek(m Mark) {
	if c.pos = m.pos; m.pos >= c.total {
		return
	}
	c.local.resume(m.pos, m.l, m.lOff)
	c.remote.resume(m.pos, m.r, m.rOff)
}

// Next fills sges with the pieces of the next work request, which moves n bytes to or from
// remote; n is at most limit, and k pieces are used. len(sges) and limit must be positive,
// and the cursor not at its end. Does not allocate.
func (c *Cursor) Next(sges []fabric.SGE, limit uint64) (k int, remote Piece, n uint64) {
	remote = Piece{Addr: c.remote.addr + c.remote.off, Key: c.remote.key}
	for want := min(limit, c.remote.left()); n < want && k < len(sges); k++ {
		step := min(c.local.left(), want-n, maxSGE)
		sges[k] = c.local.sge(step)
		c.local.advance(step)
		n += step
	}
	remote.Len = n
	c.remote.advance(n)
	c.pos += n
	return k, remote, n
}
