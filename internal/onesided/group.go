package onesided

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/mr"
)

// A group is many puts, gets or accumulates in one request that the target's engine
// executes: lists of addresses and sizes, followed by the data that goes to the target. It
// uses the slots of accumulates. docs/wire.md defines the bytes.

const (
	groupVersion = 2 // 1: in smaller slots
	groupHeader  = 24
	listHeader   = 8              // before each list
	listSpace    = listHeader + 7 // around each list and its data: zeros up to a multiple of 8 follow

	// GroupPieces bounds the pieces of a group: more pieces, of a few bytes each, would
	// take the target longer than a full slot of data.
	GroupPieces = 512
)

// Kinds of groups.
const (
	groupPut        = 1
	groupGet        = 2
	groupAccumulate = 3
)

// MaxPiece returns how many bytes a piece of an accumulate in a group may have, a multiple of
// every element's size: with its list, and the previous elements if they are fetched, it
// fits a slot.
func (c Combining) MaxPiece() uint64 {
	if c.Fetch && c.Op != NoOp {
		return (SlotSize - 256) / 2
	}
	return SlotSize - 256
}

// ErrGroup means that a group is malformed: no correct peer sends it.
var ErrGroup = errors.New("malformed group of puts or gets")

// Answer is the destination of the data of a group of gets.
type Answer struct {
	Addr uint64
	RKey uint32
	Len  uint32 // length according to the lists
}

// Grouper makes groups of the next pieces of a Cursor. It reuses its lists, and belongs to
// one goroutine.
type Grouper struct {
	entries []gather.Entry
	marks   []Mark       // after each entry
	pieces  []fabric.SGE // the local side
	first   []int        // index in pieces of the first piece of each entry
}

// View computes the next requests of c, as many as one group may hold, and returns their
// number and bytes. A group holds at least the first of them. c does not move. pieces and
// limit are those of Cursor.Next.
func (g *Grouper) View(c *Cursor, pieces int, limit uint64) (n, bytes int) {
	g.entries, g.marks, g.pieces, g.first = g.entries[:0], g.marks[:0], g.pieces[:0], g.first[:0]
	at := c.Mark()
	room := uint64(SlotSize - groupHeader - listSpace - gather.ListMin)
	for !c.Done() && len(g.entries) < GroupPieces {
		from := len(g.pieces)
		for range pieces {
			g.pieces = append(g.pieces, fabric.SGE{})
		}
		k, remote, size := c.Next(g.pieces[from:], limit)
		if size > room {
			g.pieces = g.pieces[:from]
			break
		}
		g.pieces = g.pieces[:from+k]
		room -= size
		g.entries = append(g.entries, gather.Entry{At: remote.Addr, Size: uint32(size), Region: remote.Key})
		g.marks = append(g.marks, c.Mark())
		g.first = append(g.first, from)
		bytes += int(size)
	}
	c.Seek(at)
	return len(g.entries), bytes
}

// Make makes a group of the requests of the last View, or of the first of them, in slot,
// and moves c past them. Answers to gets are placed after the request, which is slot's
// first n bytes; rkey is the key of slot for the target. pieces and bytes are those of the
// group.
func (g *Grouper) Make(c *Cursor, get bool, slot []byte, rkey uint32) (n, pieces, bytes int) {
	if get {
		return g.make(c, groupGet, Combining{Op: NoOp, Fetch: true}, slot, rkey)
	}
	return g.make(c, groupPut, Combining{}, slot, rkey)
}

// MakeAccumulate is Make for an accumulate, of whose View how.MaxPiece was the limit. What
// it fetches is placed like the answer to gets.
func (g *Grouper) MakeAccumulate(c *Cursor, how Combining, slot []byte, rkey uint32) (n, pieces, bytes int) {
	return g.make(c, groupAccumulate, how, slot, rkey)
}

// make makes a group of a kind. NoOp: its pieces have no data for the target.
func (g *Grouper) make(c *Cursor, kind byte, how Combining, slot []byte, rkey uint32) (n, pieces, bytes int) {
	b := slot[:groupHeader]
	clear(b)
	if b[0], b[1] = groupVersion, kind; kind == groupAccumulate {
		b[2], b[3] = byte(how.Op), byte(how.Type)|order()<<4
	}
	done := 0
	for done < len(g.entries) {
		room := len(slot) - len(b) - listSpace
		if how.Fetch {
			room -= bytes
		}
		if how.Fetch && how.Op != NoOp {
			room /= 2
		}
		if room < gather.ListMin {
			break // not even the list's own header may fit
		}
		at := len(b)
		list, k := gather.AppendList(slot[at+listHeader:at+listHeader], gather.Dest, g.entries[done:], room)
		if k == 0 {
			break
		}
		b = slot[:at+listHeader+len(list)]
		for i := done; i < done+k; i++ {
			bytes += int(g.entries[i].Size)
			if how.Op != NoOp {
				b = g.appendBytes(b, i)
			}
		}
		binary.LittleEndian.PutUint32(slot[at:], uint32(len(b)-at-listHeader))
		clear(slot[at+4 : at+listHeader])
		for len(b)%8 != 0 {
			b = append(b, 0)
		}
		done += k
	}
	if done == 0 {
		return 0, 0, 0
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-groupHeader))
	if how.Fetch {
		binary.LittleEndian.PutUint64(b[8:], fabric.Addr(slot)+uint64(len(b)))
		binary.LittleEndian.PutUint32(b[16:], rkey)
	}
	c.Seek(g.marks[done-1])
	return len(b), done, bytes
}

// appendBytes appends the data of entry i.
func (g *Grouper) appendBytes(b []byte, i int) []byte {
	end := len(g.pieces)
	if i+1 < len(g.first) {
		end = g.first[i+1]
	}
	for _, p := range g.pieces[g.first[i]:end] {
		b = append(b, fabric.BytesAt(p.Addr, int(p.Len))...)
	}
	return b
}

// TakeAnswer stores the data of a group of gets to the destinations of c, from the mark on.
// c does not move.
func TakeAnswer(c *Cursor, from Mark, b []byte) {
	now := c.Mark()
	c.Seek(from)
	var sges [16]fabric.SGE
	for len(b) > 0 && !c.Done() {
		k, _, _ := c.Next(sges[:], uint64(len(b)))
		for _, s := range sges[:k] {
			b = b[copy(fabric.BytesAt(s.Addr, int(s.Len)), b):]
		}
	}
	c.Seek(now)
}

// Server executes the groups of peers. It belongs to one goroutine.
type Server struct {
	domain *mr.Domain
	rail   int // index of the link that receives the groups
	list   gather.Header
	asked  []byte // lists of gets
	fence  atomic.Uint64
	reg    *mr.Registration // held: the region of the last entry
	rkey   uint32
}

// NewServer returns a Server for groups received by the rail with that index.
func NewServer(d *mr.Domain, rail int) *Server { return &Server{domain: d, rail: rail} }

// Serve executes the group in slot, memory of this rank that the peer may be changing at
// the same time: data is copied before it is checked. Entries are executed in order, like
// writes or reads of the link: the first refused one changes no byte, and later ones are
// not examined. The data of gets is left at the start of slot, for Answer. Errors wrap
// ErrGroup, gather.ErrHeader or fabric.ErrRemoteAccess. It allocates only to grow its
// lists.
func (s *Server) Serve(slot []byte) (a Answer, err error) {
	var head [groupHeader]byte
	copy(head[:], slot)
	n := binary.LittleEndian.Uint32(head[4:])
	a.Addr, a.RKey = binary.LittleEndian.Uint64(head[8:]), binary.LittleEndian.Uint32(head[16:])
	how := Combining{Op: Reduction(head[2]), Type: Type(head[3] & 15), Fetch: a != (Answer{})}
	switch kind := head[1]; {
	case head[0] != groupVersion || kind < groupPut || kind > groupAccumulate || binary.LittleEndian.Uint32(head[20:]) != 0 ||
		kind != groupAccumulate && head[2]|head[3] != 0:
		return Answer{}, fmt.Errorf("%w: version %d, kind %d", ErrGroup, head[0], kind)
	case uint64(n) > uint64(len(slot)-groupHeader) || n%8 != 0 || n == 0:
		return Answer{}, fmt.Errorf("%w: %d bytes", ErrGroup, n)
	case kind == groupAccumulate && (!how.Known() || head[3]>>4 == 0 || head[3]>>4 > 2):
		return Answer{}, fmt.Errorf("%w: %v of type %d, byte order %d", ErrGroup, how.Op, how.Type, head[3]>>4)
	case kind == groupAccumulate && head[3]>>4 != order():
		return Answer{}, ErrOrder
	case kind == groupAccumulate:
		a.Len, err = s.accumulate(slot, int(n), how)
	case kind == groupPut:
		if a != (Answer{}) {
			return Answer{}, fmt.Errorf("%w: puts with an answer", ErrGroup)
		}
		err = s.lists(slot[groupHeader:groupHeader+n], s.put)
	default:
		a.Len, err = s.get(slot, int(n))
	}
	if s.reg != nil {
		_ = s.reg.Release() // if the region was closed meanwhile, Close reports failures
		s.reg = nil
	}
	if err != nil {
		return Answer{}, err
	}
	return a, nil
}

// lists calls f with each list of b.
func (s *Server) lists(b []byte, f func([]byte) error) error {
	for len(b) > 0 {
		var head [listHeader]byte // copied, because the peer may change it
		copy(head[:], b)
		n := uint64(binary.LittleEndian.Uint32(head[:]))
		if len(b) < listHeader || n > uint64(len(b)-listHeader) || binary.LittleEndian.Uint32(head[4:]) != 0 {
			return fmt.Errorf("%w: a list of %d bytes", ErrGroup, n)
		}
		if err := f(b[listHeader : listHeader+n]); err != nil {
			return err
		}
		b = b[listHeader+(n+7)&^7:]
	}
	return nil
}

// memory returns the memory of the entry, held until the next call.
func (s *Server) memory(e *gather.Entry, need fabric.Access) ([]byte, error) {
	if s.reg == nil || s.rkey != e.Region {
		if s.reg != nil {
			_ = s.reg.Release()
			s.reg = nil
		}
		reg, err := s.domain.HoldKey(s.rail, e.Region)
		if err != nil {
			return nil, err
		}
		s.reg, s.rkey = reg, e.Region
	}
	return s.reg.Part(e.At, uint64(e.Size), need)
}

// each calls f with the memory of each entry of the list, up to the first that is refused.
// Places and sizes must be multiples of align.
func (s *Server) each(need fabric.Access, align int, f func(mem []byte)) error {
	for it := s.list.Iter(); ; {
		e, ok := it.Next()
		if !ok {
			return nil
		}
		if e.Size == 0 {
			continue
		}
		if (e.At|uint64(e.Size))%uint64(align) != 0 {
			return ErrAlign
		}
		mem, err := s.memory(&e, need)
		if err != nil {
			return err
		}
		f(mem)
	}
}

// put executes one gather.
func (s *Server) put(b []byte) error {
	if err := s.list.Parse(gather.Dest, b); err != nil {
		return err
	}
	src := b[s.list.Len():]
	return s.each(fabric.AccessRemoteWrite, 1, func(dst []byte) {
		s.place(dst, src)
		src = src[len(dst):]
	})
}

// place writes one entry as a link does: after earlier writes, and, if it ends on a
// multiple of 8, with its last word last and in one store.
func (s *Server) place(dst, src []byte) {
	s.fence.Add(1)
	if n := len(dst) - 8; n >= 0 && (fabric.Addr(dst)+uint64(len(dst)))%8 == 0 {
		copy(dst[:n], src)
		Release64(dst[n:], binary.NativeEndian.Uint64(src[n:]))
		return
	}
	copy(dst, src)
}

// get collects the data that the lists in the first n bytes after the header request, at
// the start of slot. It uses a copy of the lists, which the peer may change and the data
// overwrites.
func (s *Server) get(slot []byte, n int) (size uint32, err error) {
	s.asked = append(s.asked[:0], slot[groupHeader:groupHeader+n]...)
	out := slot[:0]
	err = s.lists(s.asked, func(b []byte) error {
		body, err := s.list.ParseList(gather.Dest, b)
		if err == nil && body > uint64(len(slot)-groupHeader-n-len(out)) {
			err = fmt.Errorf("%w: gets of %d bytes", ErrGroup, body)
		}
		if err != nil {
			return err
		}
		return s.each(fabric.AccessRemoteRead, 1, func(src []byte) { out = append(out, src...) })
	})
	return uint32(len(out)), err
}

// IsAccumulate reports whether the group in slot is an accumulate, of which a refusal has no
// consequence for later requests. After Serve slot may hold data instead.
func IsAccumulate(slot []byte) bool { return slot[1] == groupAccumulate }

// accumulate combines the elements in the first n bytes after the header with those at their
// places. It collects previous elements like get.
func (s *Server) accumulate(slot []byte, n int, how Combining) (size uint32, err error) {
	b, out := slot[groupHeader:groupHeader+n], []byte(nil)
	if how.Fetch {
		s.asked = append(s.asked[:0], b...)
		b, out = s.asked, slot[:0]
	}
	err = s.lists(b, func(b []byte) error {
		var body uint64
		var src []byte
		var err error
		if how.Op == NoOp {
			body, err = s.list.ParseList(gather.Dest, b)
		} else if err = s.list.Parse(gather.Dest, b); err == nil {
			src = b[s.list.Len():]
			body = uint64(len(src))
		}
		if err == nil && how.Fetch && body > uint64(len(slot)-groupHeader-n-len(out)) {
			err = fmt.Errorf("%w: accumulates that fetch %d bytes", ErrGroup, body)
		}
		if err != nil {
			return err
		}
		return s.each(how.Needs(), how.Type.Size(), func(dst []byte) {
			mine := src[:min(len(dst), len(src))]
			out = how.Append(out, dst, mine)
			src = src[len(mine):]
		})
	})
	return uint32(len(out)), err
}
