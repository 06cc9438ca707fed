package initiator

import (
	"encoding/binary"
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

// Several puts may be in flight on a rail other than rail 0. When the rail ends, those that the
// peer has not placed are posted again on rail 0, and no other: the peer's application may have
// seen a later one, and then stored something in the memory of an earlier one.
//
// Therefore a put that is posted behind others in flight is preceded by a mark: its index among
// the puts of this connection of the rail is written to a word of the peer, which is placed
// after the puts before it, and before this one. When the peer has closed its endpoint, it
// sends the last mark that it has: the puts before that one are placed, and none behind it, not in
// part. A put that is alone in flight needs no mark.

// MarkSize is the length in bytes of the word of marks, and its alignment. MarksSize is that of the
// memory of Rails.Marks: the word that the peer writes, and the source of the marks that this side
// writes.
const MarkSize, MarksSize = 8, 2 * MarkSize

// marking reports whether a put may be posted behind others that are in flight.
func (m *marks) marking() bool { return m.mine != nil && m.theirs.Len >= MarkSize }

// mark returns the request that writes a mark.
func (m *marks) mark(c *chain, id, index uint64) fabric.WR {
	b := m.mine.Bytes()[MarkSize:MarksSize]
	binary.LittleEndian.PutUint64(b, index)
	return fabric.WR{
		ID: id, Op: fabric.OpWrite, Flags: fabric.FlagInline,
		Local:      c.piece(fabric.NewSGE(b, m.mine.LKey())),
		RemoteAddr: m.theirs.Addr, RKey: m.theirs.RKey,
	}
}

// check takes the last mark of the peer, which has closed its endpoint: one that was posted, not
// before one that is known to be placed. The error wraps ErrMisbehaves.
func (m *marks) check(last uint64) error {
	if last < m.confirmed || last > m.marked {
		return fmt.Errorf("%w: it has placed the mark %d of a rail, where %d to %d were possible", ErrMisbehaves, last, m.confirmed, m.marked)
	}
	m.placed = last
	return nil
}
