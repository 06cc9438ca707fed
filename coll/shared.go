package coll

// sharer makes the schedule of one rank in an operation by shared memory. Its steps are
// performed in their order. Data is passed in rounds: a rank copies to its area, tells the
// others, and waits for them. Rounds use two quarters of an area, the parts of a half, in turn:
// who has heard of a round that others have finished the one before may write what they read
// then.
type sharer struct {
	*builder
	last    int32 // the step before
	count   uint32
	quarter int // bytes
}

// flatAllreduce and flatReduce are the sizes of the data of all ranks in a reduction that a rank
// which wants the result reduces alone, in one round. Of more, each rank reduces a share, for
// which all wait twice. The root of a Reduce works for longer then, but the others are done.
const flatAllreduce, flatReduce = 32 << 10, 512 << 10

// chunkOf returns the size of the pieces in which one rank passes n bytes to the others while
// they read them.
func chunkOf(p, n int) int { return min(max(16<<10, n/maxRounds), areaOf(p)/4) }

// maxRounds bounds the rounds of an operation by shared memory, and so the length of schedules.
const maxRounds = 64

// sharedRounds returns about the number of rounds of an operation by shared memory of p ranks, of
// n bytes, or blocks of so many.
func sharedRounds(k kind, p, n int) int {
	most := areaOf(p) / 4
	switch k {
	case kindAlltoall, kindScatter, kindReduceScatter:
		most = most / p &^ 63
	case kindBcast:
		most = chunkOf(p, n)
	}
	return (n + most - 1) / most
}

// memoryBuilder makes schedules of operations with equal blocks through memory that the others
// read: areas, or that of the calls.
type memoryBuilder interface {
	bcast(root int, m mem)
	reduce(root int, send, recv mem)
	allreduce(send, recv mem)
	reduceScatter(send []mem, recv mem)
	gather(root int, send mem, recv []mem)
	scatter(root int, send []mem, recv mem)
	allgather(send mem, recv []mem)
	alltoall(send, recv []mem)
}

// through adds the steps of the problem, except for those by which ranks only meet, to b.
func (pr *problem) through(b memoryBuilder) {
	switch pr.kind {
	case kindBcast:
		b.bcast(int(pr.root), pr.recv[0])
	case kindReduce:
		b.reduce(int(pr.root), pr.send[0], pr.recv[0])
	case kindAllreduce:
		b.allreduce(pr.send[0], pr.recv[0])
	case kindReduceScatter:
		b.reduceScatter(pr.send, pr.recv[0])
	case kindGather:
		b.gather(int(pr.root), pr.send[0], pr.recv)
	case kindScatter:
		b.scatter(int(pr.root), pr.send, pr.recv[0])
	case kindAllgather:
		b.allgather(pr.send[0], pr.recv)
	case kindAlltoall:
		b.alltoall(pr.send, pr.recv)
	}
}

// buildShared returns the schedule of a problem by shared memory.
func buildShared(pr *problem) *schedule {
	b := &sharer{builder: newBuilder(pr.rank, pr.team, int(pr.size), pr.inOrder), last: none, quarter: areaOf(pr.team) / 4}
	pr.through(b)
	if pr.kind == kindBarrier || !pr.kind.meets() || pr.meet {
		b.do(step{kind: stepTell, peer: all, slot: tellEnd})
	}
	if pr.kind == kindBarrier || pr.meet {
		b.others(func(r int) { b.hear(r, tellEnd) })
	}
	b.s.flags, b.s.alg = true, algShared
	return b.done()
}

// all are the others, for tell.
const all = -1

// do adds a step behind the others.
func (b *sharer) do(s step) { b.last = b.add(s, []int32{b.last}) }

// tell tells a peer, or all, that what this rank has done since is complete.
func (b *sharer) tell(peer int) {
	b.count++
	b.do(step{kind: stepTell, peer: int32(peer), slot: b.count})
}

// hear waits until a peer has told as often as count.
func (b *sharer) hear(peer int, count uint32) {
	b.do(step{kind: stepWait, peer: int32(peer), slot: count})
}

// others calls f for all other ranks, of which each rank has another order.
func (b *sharer) others(f func(r int)) {
	for s := 1; s < b.size; s++ {
		f((b.rank + s) % b.size)
	}
}

// hearAll waits until all have told as often as this rank.
func (b *sharer) hearAll() {
	b.others(func(r int) { b.hear(r, b.count) })
}

// move copies data, to or from an area or not.
func (b *sharer) move(to, from mem) {
	if to == from || to.n == 0 {
		return
	}
	b.s.writes = b.s.writes || to.buf == int32(-1-b.rank)
	b.do(step{kind: stepCopy, to: to, from: from})
}

// rounds divides n bytes into pieces of whole elements of at most most bytes, at least one, and
// calls f for each, with the place of the round in the half.
func (b *sharer) rounds(n, most int, f func(round, at, off, n int)) {
	if b.elem > 0 {
		most = max(1, most/b.elem) * b.elem
	}
	for i, off := 0, 0; i == 0 || off < n; i, off = i+1, off+most {
		f(i, i%2*b.quarter, off, min(most, n-off))
	}
}

// spread returns the distance of p pieces in a quarter: so many bytes, in whole cache lines.
func (b *sharer) spread() int { return b.quarter / b.size &^ 63 }

func (b *sharer) bcast(root int, m mem) {
	if b.size == 1 {
		return
	}
	most := chunkOf(b.size, m.n)
	if b.elem > 0 {
		most = max(1, most/b.elem) * b.elem
	}
	pace := (most + 63) &^ 63
	slots := 2 * b.quarter / pace &^ 1 // whole halves, as they are told and heard
	chunks := max(1, (m.n+most-1)/most)
	for i := range chunks {
		part := m.part(i*most, min(most, m.n-i*most))
		at := i % slots * pace
		if b.rank == root {
			if i >= slots && i%(slots/2) == 0 { // all have read the half that is next
				b.others(func(r int) { b.hear(r, uint32((i-slots)/(slots/2)+1)) })
			}
			b.move(areaMem(root, at, part.n), part)
			b.tell(all)
			continue
		}
		b.hear(root, uint32(i+1))
		b.move(part, areaMem(root, at, part.n))
		if (i+1)%(slots/2) == 0 && i+1 < chunks {
			b.tell(root)
		}
	}
}

func (b *sharer) gather(root int, send mem, recv []mem) {
	if b.rank == root {
		b.move(recv[root], send)
	}
	b.rounds(send.n, b.quarter, func(round, at, off, n int) {
		if b.rank != root {
			if round >= 2 {
				b.hear(root, uint32(round-1))
			}
			b.move(areaMem(b.rank, at, n), send.part(off, n))
			b.tell(all)
			return
		}
		b.others(func(r int) {
			b.hear(r, uint32(round+1))
			b.move(recv[r].part(off, n), areaMem(r, at, n))
		})
		b.tell(all)
	})
}

func (b *sharer) scatter(root int, send []mem, recv mem) {
	pace := b.spread()
	b.rounds(recv.n, pace, func(round, at, off, n int) {
		if b.rank != root {
			b.hear(root, uint32(round+1))
			b.move(recv.part(off, n), areaMem(root, at+b.rank*pace, n))
			b.tell(root)
			return
		}
		b.others(func(r int) {
			if round >= 2 {
				b.hear(r, uint32(round-1))
			}
			b.move(areaMem(root, at+r*pace, n), send[r].part(off, n))
		})
		b.tell(all)
	})
	if b.rank == root {
		b.move(recv, send[root])
	}
}

func (b *sharer) allgather(send mem, recv []mem) {
	b.rounds(send.n, b.quarter, func(_, at, off, n int) {
		b.move(areaMem(b.rank, at, n), send.part(off, n))
		b.tell(all)
		b.move(recv[b.rank].part(off, n), send.part(off, n))
		b.others(func(r int) {
			b.hear(r, b.count)
			b.move(recv[r].part(off, n), areaMem(r, at, n))
		})
	})
}

func (b *sharer) alltoall(send, recv []mem) {
	pace := b.spread()
	b.rounds(send[0].n, pace, func(_, at, off, n int) {
		b.others(func(r int) { b.move(areaMem(b.rank, at+r*pace, n), send[r].part(off, n)) })
		b.tell(all)
		b.move(recv[b.rank].part(off, n), send[b.rank].part(off, n))
		b.others(func(r int) {
			b.hear(r, b.count)
			b.move(recv[r].part(off, n), areaMem(r, at+b.rank*pace, n))
		})
	})
}

// combine reduces n bytes at off of the areas of all ranks, in their order, to to, which is none
// of them. own, if it has bytes, is where those of this rank are.
func (b *sharer) combine(to mem, off, n int, own mem) {
	of := func(r int) mem {
		if r == b.rank && own.n > 0 {
			return own
		}
		return areaMem(r, off, n)
	}
	if n == 0 {
		return
	}
	if b.size == 1 {
		b.move(to, of(0))
		return
	}
	b.s.writes = b.s.writes || to.buf < 0
	b.do(step{kind: stepFold, to: to, base: of(0), from: of(1)})
	for r := 2; r < b.size; r++ {
		b.do(step{kind: stepFold, to: to, from: of(r)})
	}
}

func (b *sharer) reduceScatter(send []mem, recv mem) {
	pace := b.spread()
	b.rounds(recv.n, pace, func(_, at, off, n int) {
		for r := range b.size { // its own as well: recv may be that block
			b.move(areaMem(b.rank, at+r*pace, n), send[r].part(off, n))
		}
		b.tell(all)
		b.hearAll()
		b.combine(recv.part(off, n), at+b.rank*pace, n, mem{})
	})
}

func (b *sharer) allreduce(send, recv mem) {
	if send.n*b.size <= flatAllreduce {
		b.move(areaMem(b.rank, 0, send.n), send)
		b.tell(all)
		b.hearAll()
		b.combine(recv, 0, send.n, mem{})
		return
	}
	b.reduceShares(send, func(at int, shares []mem, off int) {
		b.others(func(r int) {
			b.hear(r, b.count)
			b.move(recv.part(off+shares[r].off-at, shares[r].n), shares[r])
		})
		b.move(recv.part(off+shares[b.rank].off-at, shares[b.rank].n), shares[b.rank])
	})
}

func (b *sharer) reduce(root int, send, recv mem) {
	if send.n*b.size <= flatReduce {
		b.move(areaMem(b.rank, 0, send.n), send)
		b.tell(all)
		if b.rank == root {
			b.hearAll()
			b.combine(recv, 0, send.n, mem{})
		}
		return
	}
	b.reduceShares(send, func(at int, shares []mem, off int) {
		if b.rank != root {
			return
		}
		b.others(func(r int) {
			b.hear(r, b.count)
			b.move(recv.part(off+shares[r].off-at, shares[r].n), shares[r])
		})
		b.move(recv.part(off+shares[root].off-at, shares[root].n), shares[root])
	})
}

// reduceShares reduces send of all ranks in rounds, a share of each on each rank. Then collect
// reads the shares, in the areas of the ranks, of a round that begins at off of the data and at
// at of the areas.
func (b *sharer) reduceShares(send mem, collect func(at int, shares []mem, off int)) {
	b.rounds(send.n, b.quarter, func(_, at, off, n int) {
		shares := b.blocks(mem{0, at, n}, b.size)
		for r := range shares {
			shares[r].buf = areaMem(r, 0, 0).buf
		}
		b.others(func(r int) {
			s := shares[r]
			b.move(areaMem(b.rank, s.off, s.n), send.part(off+s.off-at, s.n))
		})
		b.tell(all)
		b.hearAll()
		mine := shares[b.rank]
		b.combine(mine, mine.off, mine.n, send.part(off+mine.off-at, mine.n))
		b.tell(all)
		collect(at, shares, off)
	})
}
