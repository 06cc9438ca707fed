package coll

import (
	"encoding/binary"
	"errors"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/onesided"
)

// Operations by single copies. A rank tells the others, in its line on their boards, where the
// memory of its call is; they copy what they need from there, or write what it needs (rma.Attachment), and tell it
// when they have: then its call may end. The areas are not used.
//
// The only thing that a rank takes from a peer is an address, in that peer's memory. The lengths
// are those of its own call, which the peer's must equal. Memory that a failed operation gives back
// may change while a peer reads it, and must not be written by it any more: see withdraw.

// builders of these schedules are sharers without areas.
type reader struct {
	*sharer
	piece mem // temporary memory for what is reduced
}

// Ranks that have processors of their own write to each other's memory where that takes less time than if each only
// reads. These are the bytes of a bcast from which on the root copies a share, those of a block of an allgather that each
// rank copies to where it belongs on all ranks, and the pieces in which it does, which its cache keeps.
const sharedFrom, writtenFrom, writtenPiece = 32 << 10, 128 << 10, 256 << 10

// readPiece is about the size of the pieces in which memory of others is read to be reduced: it is
// in the second cache then, and a call of the system does not cost much more than the copy.
const readPiece = 64 << 10

// shownAt is where in a line the addresses are.
const shownAt = 16

// buildSingle returns the schedule of a problem by single copies.
func buildSingle(pr *problem) *schedule {
	b := &reader{sharer: &sharer{builder: newBuilder(pr.rank, pr.team, int(pr.size), pr.inOrder), last: none}}
	b.figures = pr.figures
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

// write copies from to memory of a peer, from off on of what it shows. It has told it, as often as count.
func (b *reader) write(peer int, which int32, off int, from mem, count uint32) {
	if from.n == 0 {
		return
	}
	b.do(step{kind: stepWrite, peer: int32(peer), slot: count, line: which, to: mem{off: off}, from: from})
}

// apart reports whether there are others, which run on processors of their own.
func (b *reader) apart() bool { return b.size > 1 && b.figures.apart(b.size) }

// bcastTogether is a bcast in which the root writes as much as each of the others reads.
func (b *reader) bcastTogether(root int, m mem) {
	read := m.part(0, (m.n-m.n/b.size+63)&^63)
	rest := m.part(read.n, m.n-read.n)
	if b.rank == root {
		b.showTo(all, m, mem{})
		b.others(func(r int) {
			b.hear(r, 1)
			b.write(r, first, read.n, rest, 1)
		})
		b.tell(all)
		b.hearAll()
		return
	}
	b.showTo(root, m, mem{})
	b.hear(root, 1)
	b.read(read, root, first, 0, 1)
	b.tell(root)
	b.hear(root, 2)
}

func (b *reader) bcast(root int, m mem) {
	if b.apart() && m.n >= sharedFrom {
		b.bcastTogether(root, m)
		return
	}
	if b.rank == root {
		b.showTo(all, m, mem{})
		b.others(func(r int) { b.hear(r, 1) })
		return
	}
	b.hear(root, 1)
	b.read(m, root, first, 0, 1)
	b.tell(root)
}

// gatherWritten is a gather in which each rank writes its block to the root's memory, while the root copies its own.
func (b *reader) gatherWritten(root int, send mem, recv []mem) {
	if b.rank != root {
		b.hear(root, 1)
		b.write(root, first, b.rank*send.n, send, 1)
		b.tell(root)
		return
	}
	b.showTo(all, recv[0], mem{})
	b.move(recv[root], send)
	b.others(func(r int) { b.hear(r, 1) })
}

func (b *reader) gather(root int, send mem, recv []mem) {
	if b.apart() {
		b.gatherWritten(root, send, recv)
		return
	}
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

// allgatherWritten is an allgather in which each rank writes its block, piece by piece, to the memory of all.
func (b *reader) allgatherWritten(send mem, recv []mem) {
	b.showTo(all, recv[0], mem{})
	mine := recv[b.rank]
	for at := 0; at < send.n; at += writtenPiece {
		n := min(writtenPiece, send.n-at)
		b.move(mine.part(at, n), send.part(at, n))
		b.others(func(r int) {
			if at == 0 {
				b.hear(r, 1)
			}
			b.write(r, first, b.rank*send.n+at, send.part(at, n), 1)
		})
	}
	b.tell(all)
	b.hearAll()
}

func (b *reader) allgather(send mem, recv []mem) {
	if b.apart() && send.n >= writtenFrom {
		b.allgatherWritten(send, recv)
		return
	}
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

// shownIn returns the address of memory that a peer has shown in its line of an operation.
func (a *area) shownIn(came []byte, flag uint64, s *step) uint64 {
	line := came[a.lineOf(int(s.peer), flag):]
	return binary.NativeEndian.Uint64(line[shownAt+8*s.line:]) // the peer may change it: any is as good
}

// read performs a step that reads memory of a peer. ok is false if the peer has withdrawn it. b.mu is
// held.
func (b *board) read(o *operation, s *step) (wrong error, ok bool) {
	peer := int(s.peer)
	err := b.area.attached[peer].Read(o.mem(s.to), b.area.shownIn(b.came, o.flag, s)+uint64(s.from.off))
	b.fence.Add(1) // the data is read before the word
	if !b.told(peer, o.flag, o.flag<<tellBits|uint64(s.slot)) {
		return nil, false // the team is being revoked
	}
	return o.failed(err)
}

// failed returns the result of a step that has accessed a peer's memory.
func (o *operation) failed(err error) (wrong error, ok bool) {
	if err == nil {
		return nil, true // what follows allocates
	}
	if pe := (*rma.PeerError)(nil); errors.As(err, &pe) {
		err = &rma.PeerError{Rank: pe.Rank, Op: o.kind.String(), Err: pe.Err}
	}
	return err, false
}

// writingAt is where in a line a word says that its rank writes to memory that has been shown to it: a hazard pointer
// (Michael 2004). It is stored before the rank looks whether the memory is still shown; who withdraws memory does the
// one and then the other, so that one of the two sees what the other has stored.
const writingAt = 40

// write performs a step that writes to memory of a peer. ok is false if the peer has withdrawn it. b.mu is held.
func (b *board) write(o *operation, s *step) (wrong error, ok bool) {
	peer := int(s.peer)
	writing := b.area.mems[peer][b.area.lineOf(b.t.rank, o.flag)+writingAt:]
	onesided.Release64(writing, 1)
	b.fence.Add(1)
	if !b.told(peer, o.flag, o.flag<<tellBits|uint64(s.slot)) {
		onesided.Release64(writing, 0)
		return nil, false // the team is being revoked
	}
	err := b.area.attached[peer].Write(o.mem(s.from), b.area.shownIn(b.came, o.flag, s)+uint64(s.to.off))
	onesided.Release64(writing, 0)
	return o.failed(err)
}

// withdraw says that memory which others may be accessing changes from now on, as its operation has
// failed: what this rank has told about it is told no more. Who has read looks once more whether it
// is still told, and otherwise waits for the revocation, which has been sent; for those who write, see writerTo.
// The engine of a rank that waits for more lets go of the word, as of one that fail has changed. b.mu is held.
func (b *board) withdraw() {
	if b.exposed == 0 {
		return
	}
	at := b.area.lineOf(b.t.rank, b.exposed)
	for r, mem := range b.area.mems {
		if r != b.t.rank {
			onesided.Release64(mem[at+tellSize-8:], tellBack|b.exposed<<tellBits)
		}
	}
	b.fence.Add(1)
	b.withdrawn, b.exposed = b.exposed, 0
}
