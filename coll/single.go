package coll

import (
	"encoding/binary"
	"errors"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/onesided"
)

// Operations by single copies. A rank tells the others, in its line on their boards, where the
// memory of its call is; they copy what they need from there (rma.Attachment), and tell it when they
// have: then its call may end. The areas are not used.
//
// The only thing that a reader takes from a peer is an address, in that peer's memory. The lengths
// are those of its own call, which the peer's must equal. Memory that a failed operation gives back
// may change while a peer reads it: see withdraw.

// builders of these schedules are sharers without areas.
type reader struct {
	*sharer
	piece mem // temporary memory for what is reduced
}

// readPiece is about the size of the pieces in which memory of others is read to be reduced: it is
// in the second cache then, and a call of the system does not cost much more than the copy.
const readPiece = 64 << 10

// shownAt is where in a line the addresses are.
const shownAt = 16

// buildSingle returns the schedule of a problem by single copies.
func buildSingle(pr *problem) *schedule {
	b := &reader{sharer: &sharer{builder: newBuilder(pr.rank, pr.team, int(pr.size), pr.inOrder), last: none}}
	pr.through(b)
	if pr.meet {
		b.do(step{kind: stepTell, peer: all, slot: tellEnd})
		b.others(func(r int) { b.hear(r, tellEnd) })
	}
	b.s.flags, b.s.alg = true, algSingle
	return b.done()
}

// showTo tells a peer, or all, where memory of this rank is. second is other memory than the first
// one.
func (b *reader) showTo(peer int, first, second mem) {
	b.count++
	b.do(step{kind: stepTell, peer: int32(peer), slot: b.count, from: first, base: second})
}

// Memory that a rank shows.
const (
	first  = 0
	second = 1
)

// read copies memory of a peer, from off on of what it shows. It has told it, as often as count.
func (b *reader) read(to mem, peer int, which int32, off int, count uint32) {
	if to.n > 0 {
		b.do(step{kind: stepRead, peer: int32(peer), slot: count, line: which, to: to, from: mem{n: to.n, off: off}})
	}
}

func (b *reader) bcast(root int, m mem) {
	if b.rank == root {
		b.showTo(all, m, mem{})
		b.others(func(r int) { b.hear(r, 1) })
		return
	}
	b.hear(root, 1)
	b.read(m, root, first, 0, 1)
	b.tell(root)
}

func (b *reader) gather(root int, send mem, recv []mem) {
	if b.rank != root {
		b.showTo(root, send, mem{})
		b.hear(root, 1)
		return
	}
	b.move(recv[root], send)
	b.others(func(r int) {
		b.hear(r, 1)
		b.read(recv[r], r, first, 0, 1)
		b.tell(r)
	})
}

func (b *reader) scatter(root int, send []mem, recv mem) {
	if b.rank == root {
		b.showTo(all, send[0], mem{})
		b.move(recv, send[root])
		b.others(func(r int) { b.hear(r, 1) })
		return
	}
	b.hear(root, 1)
	b.read(recv, root, first, b.rank*recv.n, 1)
	b.tell(root)
}

func (b *reader) allgather(send mem, recv []mem) {
	b.showTo(all, send, mem{})
	b.move(recv[b.rank], send)
	b.others(func(r int) {
		b.hear(r, 1)
		b.read(recv[r], r, first, 0, 1)
	})
	b.tell(all)
	b.hearAll()
}

func (b *reader) alltoall(send, recv []mem) {
	n := send[0].n
	if next := (b.rank + 1) % b.size; send[next] == recv[next] { // in place: what others read must not change
		kept := b.temp(b.size * n)
		b.others(func(r int) { b.move(kept.part(r*n, n), send[r]) })
		b.showTo(all, kept.part(0, n), mem{})
	} else {
		b.showTo(all, send[0], mem{})
	}
	b.move(recv[b.rank], send[b.rank])
	b.others(func(r int) {
		b.hear(r, 1)
		b.read(recv[r], r, first, b.rank*n, 1)
	})
	b.tell(all)
	b.hearAll()
}

// combine reduces n bytes at off of the memory that the ranks show, in their order, to to; own is
// that of this rank. to may be own.
func (b *reader) combine(to, own mem, off int) {
	if b.size == 1 {
		b.move(to, own)
	}
	most := max(1, readPiece/max(1, b.elem)) * max(1, b.elem)
	if b.piece.n == 0 {
		b.piece = b.temp(min(most, to.n))
	}
	for at := 0; at < to.n; at += most {
		n := min(most, to.n-at)
		part, mine, piece := to.part(at, n), own.part(at, n), b.piece.part(0, n)
		begun := part == mine // part has the reduction of what came before
		take := func(r int) {
			if !begun {
				b.read(part, r, first, off+at, 1)
				b.do(step{kind: stepFold, to: part, from: mine, lower: b.rank < r})
				begun = true
				return
			}
			b.read(piece, r, first, off+at, 1)
			b.do(step{kind: stepFold, to: part, from: piece, lower: r < b.rank})
		}
		for r := b.rank - 1; r >= 0; r-- {
			take(r)
		}
		for r := b.rank + 1; r < b.size; r++ {
			take(r)
		}
	}
}

func (b *reader) reduceScatter(send []mem, recv mem) {
	b.showTo(all, send[0], mem{})
	b.hearAll()
	b.combine(recv, send[b.rank], b.rank*recv.n)
	b.tell(all)
	b.hearAll()
}

func (b *reader) allreduce(send, recv mem) {
	shares := b.blocks(mem{0, 0, send.n}, b.size)
	mine := shares[b.rank]
	b.showTo(all, send, recv)
	b.hearAll()
	b.combine(recv.part(mine.off, mine.n), send.part(mine.off, mine.n), mine.off)
	b.tell(all)
	b.others(func(r int) {
		b.hear(r, 2)
		b.read(recv.part(shares[r].off, shares[r].n), r, second, shares[r].off, 2)
	})
	b.tell(all)
	b.hearAll()
}

func (b *reader) reduce(root int, send, recv mem) {
	if send.n*b.size <= flatReduce {
		if b.rank != root {
			b.showTo(root, send, mem{})
			b.hear(root, 1)
			return
		}
		b.count++
		b.hearAll()
		b.combine(recv, send, 0)
		b.count--
		b.tell(all)
		return
	}
	shares := b.blocks(mem{0, 0, send.n}, b.size)
	mine := shares[b.rank]
	result := recv.part(mine.off, mine.n)
	if b.rank != root {
		result = b.temp(mine.n)
	}
	b.showTo(all, send, result)
	b.hearAll()
	b.combine(result, send.part(mine.off, mine.n), mine.off)
	b.tell(all) // also that it has read
	b.hearAll()
	if b.rank != root {
		b.hear(root, 3)
		return
	}
	b.others(func(r int) { b.read(recv.part(shares[r].off, shares[r].n), r, second, 0, 2) })
	b.tell(all)
}

// show notes the addresses of the memory that a step tells. b.mu is held.
func (b *board) show(o *operation, s *step) {
	for i, m := range [2]mem{s.from, s.base} {
		if m.n > 0 {
			o.shown[i] = address(o.mem(m))
			b.exposed = o.flag
		}
	}
}

// putShown puts the addresses of an operation into a line.
func (o *operation) putShown(line []byte) {
	for i, at := range o.shown {
		binary.NativeEndian.PutUint64(line[shownAt+8*i:], at)
	}
}

// read performs a step that reads memory of a peer. ok is false if the peer has withdrawn it. b.mu is
// held.
func (b *board) read(o *operation, s *step) (wrong error, ok bool) {
	peer := int(s.peer)
	line := b.came[b.area.lineOf(peer, o.flag):]
	at := binary.NativeEndian.Uint64(line[shownAt+8*s.line:]) // the peer may change it: any is as good
	err := b.area.attached[peer].Read(o.mem(s.to), at+uint64(s.from.off))
	b.fence.Add(1) // the data is read before the word
	if !b.told(peer, o.flag, o.flag<<tellBits|uint64(s.slot)) {
		return nil, false // the team is being revoked
	}
	if err == nil {
		return nil, true // what follows allocates
	}
	if pe := (*rma.PeerError)(nil); errors.As(err, &pe) {
		err = &rma.PeerError{Rank: pe.Rank, Op: o.kind.String(), Err: pe.Err}
	}
	return err, false
}

// stop ends operations on the board: the memory of their calls may change behind it.
func (b *board) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.dead.Swap(true) {
		b.withdraw()
	}
}

// withdraw says that memory which others may be reading changes from now on, as its operation has
// failed: what this rank has told about it is told no more. Who has read looks once more whether it
// is still told, and otherwise waits for the revocation, which has been sent. b.mu is held.
func (b *board) withdraw() {
	if b.exposed == 0 {
		return
	}
	at := b.area.lineOf(b.t.rank, b.exposed)
	for r, mem := range b.area.mems {
		if r != b.t.rank {
			onesided.Store64(mem[at+tellSize-8:], b.exposed<<tellBits)
		}
	}
	b.exposed = 0
}
