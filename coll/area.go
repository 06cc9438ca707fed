package coll

import (
	"context"
	"fmt"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/onesided"
)

// Operations by shared memory. Each rank has an area, in the region of its board, that the
// others map: it copies data there, tells all that it has, and copies or reduces directly out
// of the areas of the others. A rank tells another by a store to its line there, which is its
// alone for an operation: the call, and a word of the number of the operation and of a count
// that grows.
//
// An area consists of two halves, which operations use in turn: see board.admitShared.

const (
	// tellSize is the size of a line, a cache line: the call, and the word at the end.
	tellSize = 64
	// tellBits is the number of bits of the word that count within an operation.
	tellBits = 24
	// tellEnd is the count of a rank that has completed the operation.
	tellEnd = 1<<tellBits - 1
	// tellBack is the bit of a word whose rank tells it no more: see board.withdraw.
	tellBack = 1 << 63
	// areaMax is the size of the area of a rank, of more than few ranks such that those of a
	// host are areasMax, in bytes.
	areaMax, areasMax = 1 << 20, 16 << 20
	// areaBudget bounds the areas of a rank in all teams. Teams beyond it have none.
	areaBudget = 64 << 20
	// sharedMax is the largest data, of the smaller of the two buffers, of an operation by
	// shared memory. What is larger is read by single copies.
	sharedMax = 4 << 20
)

// areaOf returns the size of the area of a rank in a team of p.
func areaOf(p int) int { return min(areaMax, areasMax/p) &^ (8*4096 - 1) }

// areaHead returns the size of what is in front of the area, behind the board: the lines of p
// ranks, and a word.
func areaHead(p int) int { return (p*boardOps + 1) * tellSize }

// area is the part of a board for operations by shared memory.
type area struct {
	at       int      // where it begins in the region, with the lines; 0: there is none
	data     int      // where the data is
	half     int      // size of a half
	mems     [][]byte // the regions, by rank; nil until they are mapped
	mappings []*rma.Mapping
	attached []*rma.Attachment // to the ranks, where all can be read; nil of this one
	count    uint64            // operations by shared memory that were admitted
	last     [2]shared         // of the last ones, by half
}

// shared is what an operation by shared memory leaves behind.
type shared struct {
	flag  uint64
	meets bool // all ranks waited for each other
}

// lineOf returns the offset in a region of the line in which a rank tells about an operation.
func (a *area) lineOf(rank int, flag uint64) int {
	return a.at + (rank*boardOps+int(flag%boardOps)+1)*tellSize
}

// bytes returns n bytes at off of a half of the area of a rank.
func (a *area) bytes(rank, half, off, n int) []byte {
	off += a.data + half*a.half
	return a.mems[rank][off : off+n : off+n]
}

// mapBoards maps the boards of the other ranks, with their areas, and attaches to their memory. It
// returns whether it could. It waits for connections, but not for calls of the other ranks.
func (b *board) mapBoards() (mapped, attached bool) {
	a, me := area{mems: make([][]byte, len(b.members)), attached: make([]*rma.Attachment, len(b.members))}, b.t.rank
	attached = true
	for r := range b.members {
		if r == me {
			a.mems[r] = b.came
			continue
		}
		m, err := rma.Map(context.Background(), b.t.eng.Peer(b.t.ranks[r]), b.members[r].key.Slice(0, b.members[r].key.Len())) // Config.SetupTimeout bounds it
		if err != nil {
			a.unmap()
			return false, false
		}
		a.mems[r], a.mappings = m.Bytes(), append(a.mappings, m)
		offheap.Populate(a.mems[r][:b.area.data])
		if a.attached[r], err = m.Attach(); err != nil {
			attached = false
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead.Load() {
		a.unmap()
		return false, false
	}
	b.area.mems, b.area.mappings, b.area.attached = a.mems, a.mappings, a.attached
	return true, attached
}

// unmap lets go of the areas of the others, and of their memory. b.mu is held, and no operation is
// performed any more.
func (a *area) unmap() {
	for _, m := range a.mappings {
		_ = m.Close()
	}
	for _, at := range a.attached {
		if at != nil {
			_ = at.Close()
		}
	}
	a.mappings, a.attached = nil, nil
}

// admitShared gives an operation by shared memory a half of the area, and finds out what must
// be true before it writes there: all ranks have completed the operation that used the half
// before. They have if they have begun the operation since then. Otherwise each has told, or
// will, at the end of the former, or in the latter. b.mu and o.mu are held.
func (b *board) admitShared(o *operation) {
	a := &b.area
	o.half = int(a.count & 1)
	before, since := a.last[o.half], a.last[o.half^1]
	switch o.gate = (gate{}); {
	case a.count < 2 || since.meets:
	case before.meets:
		o.gate = gate{since.flag, since.flag<<tellBits | 1}
	default:
		o.gate = gate{before.flag, before.flag<<tellBits | tellEnd}
	}
	a.last[o.half] = shared{o.flag, o.meet || o.kind.meets()}
	a.count++
}

// gate is what the others tell when a half of the area is free: a word about an operation.
type gate struct {
	flag uint64 // of the operation; 0: it is free
	want uint64
}

// told reports whether a rank has told a value about an operation; otherwise it is waited for.
// b.mu is held.
func (b *board) told(rank int, flag, want uint64) bool {
	at := b.area.lineOf(rank, flag) + tellSize - 8
	word := onesided.Load64(b.came[at:])
	if reached(word, want) {
		return true
	}
	b.next = wait{at, want, word >= tellBack}
	return false
}

// reached reports whether a word is at least the one that is wanted, and has not been taken back.
func reached(word, want uint64) bool { return want <= word && word < tellBack }

// free reports whether all ranks have told that the half of an operation is free. b.mu is
// held.
func (b *board) free(o *operation) bool {
	if o.gate.flag <= b.met.Load() {
		return true
	}
	for r := range b.t.ranks {
		if r != b.t.rank && !b.told(r, o.gate.flag, o.gate.want) {
			return false
		}
	}
	return true
}

// tell performs a step that tells the others, or one, how far this rank is. b.mu is held.
func (b *board) tell(o *operation, s *step) {
	a, word := &b.area, o.flag<<tellBits|uint64(s.slot)
	at := a.lineOf(b.t.rank, o.flag)
	b.show(o, s)
	for r, mem := range a.mems {
		if r == b.t.rank || s.peer >= 0 && r != int(s.peer) {
			continue
		}
		line := mem[at : at+tellSize]
		o.call.put(line)
		o.putShown(line)
		onesided.Release64(line[tellSize-8:], word)
		b.stored |= 1 << r
	}
}

// heard reports whether a rank has told what a step waits for; wrong says that its call is
// another. b.mu is held.
func (b *board) heard(o *operation, s *step) (wrong error, ok bool) {
	peer := int(s.peer)
	if !b.told(peer, o.flag, o.flag<<tellBits|uint64(s.slot)) {
		return nil, false
	}
	at := b.area.lineOf(peer, o.flag)
	line := b.came[at : at+tellSize]
	if word := onesided.Load64(line[tellSize-8:]); word&^tellBack>>tellBits != o.flag { // it may have been taken back meanwhile
		return &rma.PeerError{Rank: b.t.ranks[peer], Op: o.kind.String(), Err: fmt.Errorf("%w: it is ahead of this rank", ErrProtocol)}, false
	}
	if o.call.is(line) {
		return nil, true
	}
	return b.tellsOther(o.call, peer, line), true
}

// tellsOther returns an error if the call in the line of a rank is not mine.
func (b *board) tellsOther(mine call, rank int, line []byte) error {
	var its [16]byte
	copy(its[:], line) // the rank may change it
	c, ok := parseCall(its[:])
	switch {
	case c == mine:
		return nil
	case !ok:
		return &rma.PeerError{Rank: b.t.ranks[rank], Op: mine.kind.String(), Err: ErrProtocol}
	}
	return b.t.mismatch(rank, mine, &header{call: c}, 0)
}

// waitsFor reports whether an operation by shared memory needs what a peer has not told: that its half
// is free, or what a step waits for. o.mu is held.
func (b *board) waitsFor(o *operation, peer int) bool {
	told := func(flag uint64) uint64 { return onesided.Load64(b.came[b.area.lineOf(peer, flag)+tellSize-8:]) }
	if g := o.gate; o.plan.writes && g.flag > b.met.Load() && !reached(told(g.flag), g.want) {
		return true
	}
	word := told(o.flag)
	for i := range o.plan.steps {
		if s := &o.plan.steps[i]; s.kind == stepWait && int(s.peer) == peer && !reached(word, o.flag<<tellBits|uint64(s.slot)) {
			return true
		}
	}
	return false
}
