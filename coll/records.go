package coll

import (
	"encoding/binary"
	"slices"
)

// In a Gatherv or Scatterv the root knows the lengths of all blocks, and every other rank its own. What
// passes the leader of a host, which knows no more, consists of records: the length of a block and, if
// that is at most schedule.most, the block. Longer blocks go directly between their rank and the root.

// recordHead is the size of the length in a record, in bytes.
const recordHead = 8

// recordMax is the size of the longest block that a record may contain: it travels with a header.
const recordMax = inlineMax - recordHead

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
			one := to[slot*(recordHead+most):]
			at += copy(to[at:], one[:skipRecords(one, 1, most)])
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

// wrap makes the record of a block at to.
func (l *levels) wrap(to, block mem) int32 {
	return l.add(step{kind: stepWrap, to: to, from: block}, nil)
}

// record returns the size of the record of a block.
func (l *levels) record(block mem) int {
	if l.packed(block) {
		return recordHead + block.n
	}
	return recordHead
}

// open copies the block of a rank from record i of those in pack, after it has compared their lengths.
func (l *levels) open(rank int, to, pack mem, i int, after int32) {
	l.add(step{kind: stepOpen, peer: int32(rank), to: to, from: pack, first: int32(i)}, []int32{after})
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
		for _, r := range ranks {
			if r == root {
				l.copy(recv[r], send)
			} else {
				l.recv(r, recv[r])
			}
		}
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
				got[i] = l.wrap(m, send)
			} else {
				got[i] = l.recvRecords(r, m, 1)
			}
		}
		l.sendRecords(root, pack, 0, len(ranks), l.add(step{kind: stepPack, to: pack, records: int32(len(ranks))}, got))
	default:
		one := l.temp(l.record(send))
		l.send(leader, one, l.wrap(one, send))
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
			there, n := l.hosts.ranks[h], 0
			for _, r := range there {
				n += l.record(send[r])
			}
			pack, wrapped := l.temp(n), make([]int32, len(there))
			for i, r := range slices.Backward(there) {
				n -= l.record(send[r])
				wrapped[i] = l.wrap(pack.part(n, l.record(send[r])), send[r])
			}
			l.send(leaders[h], pack, l.join(wrapped...))
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
