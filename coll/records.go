package coll

import "encoding/binary"

// In a Gatherv, Scatterv or Alltoallv two ranks know the length of a block: which sends it, and which
// receives it. What passes leaders, which do not, consists of records: the length of a block and, if that is
// at most schedule.most, the block. Longer blocks go directly from rank to rank.

// recordHead is the size of the length in a record, in bytes.
const recordHead = 8

// recordMax is the size of the longest block that a record may contain: it travels with a header.
const recordMax = inlineMax - recordHead

// recordMaxAll is the same of an Alltoallv, of which leaders have room for a record of each pair of ranks.
const recordMaxAll = 256 - recordHead

// records returns the size of the longest block that a record of an operation may contain, 0 if it has none.
func (k kind) records() int {
	switch k {
	case kindGatherv, kindScatterv:
		return recordMax
	case kindAlltoallv:
		return recordMaxAll
	}
	return 0
}

// skipRecords returns where n records that b begins with end, -1 if they are not there.
func skipRecords(b []byte, n int32, most int) int {
	at := 0
	for range n {
		if len(b)-at < recordHead {
			return -1
		}
		size := binary.LittleEndian.Uint64(b[at:])
		if at += recordHead; size > uint64(most) {
			continue
		}
		if at += int(size); at > len(b) {
			return -1
		}
	}
	return at
}

// findRecords returns n records of those that b begins with.
func findRecords(b []byte, first, n int32, most int) []byte {
	b = b[skipRecords(b, first, most):]
	return b[:skipRecords(b, n, most)]
}

// record performs a step that makes, moves or opens records. expects and is are the lengths of the block of
// stepOpen; the step is done if they are the same.
func record(s *step, most int, mem func(mem) []byte) (expects, is uint64) {
	switch to := mem(s.to); s.kind {
	case stepWrap:
		from := mem(s.from)
		binary.LittleEndian.PutUint64(to, uint64(len(from)))
		if len(from) <= most {
			copy(to[recordHead:], from)
		}
	case stepPack:
		at := 0
		for slot := range int(s.records) {
			one := to[slot*int(s.first)*(recordHead+most):]
			at += copy(to[at:], one[:skipRecords(one, s.first, most)])
		}
	case stepPick:
		from, at := mem(s.from), 0
		next := s.first // of the records in from
		for range s.records {
			from = from[skipRecords(from, next, most):]
			at += copy(to[at:], findRecords(from, 0, 1, most))
			next = int32(s.slot)
		}
	case stepOpen:
		one := findRecords(mem(s.from), s.first, 1, most)
		expects, is = uint64(len(to)), binary.LittleEndian.Uint64(one)
		if expects == is {
			copy(to, one[recordHead:])
		}
	}
	return expects, is
}

// slots is the memory of n records.
func (l *levels) slots(n int) int { return n * (recordHead + l.s.most) }

// packed reports whether a record contains a block.
func (l *levels) packed(block mem) bool { return block.n <= l.s.most }

// record returns the size of the record of a block.
func (l *levels) record(block mem) int {
	if l.packed(block) {
		return recordHead + block.n
	}
	return recordHead
}

// room returns temporary memory for the records of the blocks of some ranks.
func (l *levels) room(ranks []int, blocks []mem) mem {
	n := 0
	for _, r := range ranks {
		n += l.record(blocks[r])
	}
	return l.temp(n)
}

// wrap makes the records of the blocks of some ranks at the beginning of to.
func (l *levels) wrap(to mem, ranks []int, blocks []mem, after int32) int32 {
	wrapped, at := make([]int32, len(ranks)), 0
	for i, r := range ranks {
		n := l.record(blocks[r])
		wrapped[i] = l.add(step{kind: stepWrap, to: to.part(at, n), from: blocks[r]}, []int32{after})
		at += n
	}
	return l.join(wrapped...)
}

// packSlots makes the records in n slots, of each records each, follow each other.
func (l *levels) packSlots(m mem, n, each int, after []int32) int32 {
	return l.add(step{kind: stepPack, to: m, records: int32(n), first: int32(each)}, after)
}

// open copies the block of a rank from record i of those in pack, after it has compared their lengths.
func (l *levels) open(rank int, to, pack mem, i int, after ...int32) {
	l.add(step{kind: stepOpen, peer: int32(rank), to: to, from: pack, first: int32(i)}, after)
}

// sendRecords sends n records of those in pack.
func (l *levels) sendRecords(peer int, pack mem, first, n int, after int32) {
	part := pack.part(l.slots(first), l.slots(n))
	s := &l.s.steps[l.send(peer, part, after)]
	s.base, s.first, s.records = pack, int32(first), int32(n)
	if part.n > inlineMax { // they may be shorter
		l.s.stage += inlineMax
	}
}

// recvRecords receives n records to m.
func (l *levels) recvRecords(peer int, m mem, n int) int32 {
	i := l.recv(peer, m)
	l.s.steps[i].records = int32(n)
	return i
}

// gatherv collects the records of each host at its leader, and those of all hosts at the root.
func (l *levels) gatherv(root int, send mem, recv []mem) {
	leaders := l.hosts.leaders(root)
	ranks, leader := l.mates(leaders)
	if l.rank == root {
		for _, h := range l.others() {
			there := l.hosts.ranks[h]
			pack := l.temp(l.slots(len(there)))
			got := l.recvRecords(leaders[h], pack, len(there))
			for i, r := range there {
				if l.open(r, recv[r], pack, i, got); !l.packed(recv[r]) {
					l.recv(r, recv[r])
				}
			}
		}
		l.collect(ranks, send, recv)
		return
	}
	switch {
	case leader == root:
		l.send(root, send)
		return
	case l.rank == leader:
		pack, got := l.temp(l.slots(len(ranks))), make([]int32, len(ranks))
		for i, r := range ranks {
			if m := pack.part(l.slots(i), l.slots(1)); r == l.rank {
				got[i] = l.wrap(m, []int{0}, []mem{send}, none)
			} else {
				got[i] = l.recvRecords(r, m, 1)
			}
		}
		l.sendRecords(root, pack, 0, len(ranks), l.packSlots(pack, len(ranks), 1, got))
	default:
		one := l.temp(l.record(send))
		l.send(leader, one, l.wrap(one, []int{0}, []mem{send}, none))
	}
	if !l.packed(send) {
		l.send(root, send)
	}
}

// scatterv is the reverse of gatherv.
func (l *levels) scatterv(root int, send []mem, recv mem) {
	leaders := l.hosts.leaders(root)
	ranks, leader := l.mates(leaders)
	if l.rank == root {
		for _, h := range l.others() {
			pack := l.room(l.hosts.ranks[h], send)
			l.send(leaders[h], pack, l.wrap(pack, l.hosts.ranks[h], send, none))
		}
		for r, m := range send {
			switch {
			case r == root:
				l.copy(recv, m)
			case l.hosts.of[r] == l.hosts.of[root] || !l.packed(m):
				l.send(r, m)
			}
		}
		return
	}
	switch {
	case leader == root:
		l.recv(root, recv)
		return
	case l.rank == leader:
		pack := l.temp(l.slots(len(ranks)))
		got := l.recvRecords(root, pack, len(ranks))
		for i, r := range ranks {
			if r == l.rank {
				l.open(root, recv, pack, i, got)
			} else {
				l.sendRecords(r, pack, i, 1, got)
			}
		}
	default:
		one := l.temp(l.slots(1))
		l.open(root, recv, one, 0, l.recvRecords(leader, one, 1))
	}
	if !l.packed(recv) {
		l.recv(root, recv)
	}
}

// alltoallv sends the records of all blocks for a host to the leader, as one message to the leader there, and
// by it to their ranks. All other blocks go directly. Memory may be used after the step after.
func (l *levels) alltoallv(send, recv []mem, after int32) {
	leaders := l.hosts.leaders(0)
	ranks, leader := l.mates(leaders)
	for _, h := range l.others() { // what leaves this host: by sender, then by receiver
		there := l.hosts.ranks[h]
		if l.rank != leader {
			m := l.room(there, send)
			l.send(leader, m, l.wrap(m, there, send, after))
			continue
		}
		n := len(there)
		pack, got := l.temp(l.slots(len(ranks)*n)), make([]int32, len(ranks))
		for i, r := range ranks {
			if m := pack.part(l.slots(i*n), l.slots(n)); r == l.rank {
				got[i] = l.wrap(m, there, send, after)
			} else {
				got[i] = l.recvRecords(r, m, n)
			}
		}
		l.sendRecords(leaders[h], pack, 0, len(ranks)*n, l.packSlots(pack, len(ranks), n, got))
	}
	for _, h := range l.others() {
		there := l.hosts.ranks[h]
		n := len(there)
		mine, got := l.temp(l.slots(n)), none
		if l.rank != leader {
			got = l.recvRecords(leader, mine, n)
		} else {
			pack := l.temp(l.slots(n * len(ranks)))
			came := l.recvRecords(leaders[h], pack, n*len(ranks))
			for k, r := range ranks {
				m := mine
				if r != l.rank {
					m = l.temp(l.slots(n))
				}
				picked := l.add(step{kind: stepPick, to: m, from: pack, first: int32(k), slot: uint32(len(ranks)), records: int32(n)}, []int32{came})
				if r == l.rank {
					got = picked
				} else {
					l.sendRecords(r, m, 0, n, picked)
				}
			}
		}
		for i, r := range there {
			l.open(r, recv[r], mine, i, got, after)
		}
	}
	pairs(l.builder, send, recv, after, func(r int, m mem) bool { return l.hosts.of[r] == l.hosts.of[l.rank] || !l.packed(m) })
}
