package coll

import (
	"cmp"
	"slices"
)

// inlineMax is the size of the largest data that travels in one message with its header,
// through staging memory. Above it one more message costs less than the copies.
const inlineMax = 4096

// foldMax is the size of the largest data of a reduction that travels in one message with its
// header: it is reduced from where the message arrives, while it is in the cache.
const foldMax = 32 << 10

// foldTotal is the largest data of a reduction that travels so. More data, of which several
// messages have to wait for room at the receiver, is fetched.
const foldTotal = 128 << 10

// giving is the number of messages with more than inlineMax bytes of data for a reduction
// that a rank sends at a time: they use the same staging memory in turn.
const giving = 4

// mem is a range of one of the buffers of an operation: of the application's, or of its
// temporary memory. Schedules name memory in this way, not by addresses, so that one
// schedule serves many operations, and its cost can be computed for ranks elsewhere.
type mem struct {
	buf    int32
	off, n int
}

// areaMem returns n bytes at off of the area of a rank.
func areaMem(rank, off, n int) mem { return mem{int32(-1 - rank), off, n} }

// meets reports whether m and o have bytes in common.
func (m mem) meets(o mem) bool {
	return m.buf == o.buf && m.off < o.off+o.n && o.off < m.off+m.n
}

// part returns n bytes of m from off on.
func (m mem) part(off, n int) mem { return mem{m.buf, m.off + off, n} }

// tmp is the buffer of temporary memory.
const tmp = 0

type stepKind uint8

const (
	stepSend  stepKind = iota // from is sent to peer
	stepRecv                  // to becomes a message of peer
	stepFold                  // to becomes base∘from or, with lower, from∘base
	stepTake                  // the same, but from is a message of peer, of at most foldMax bytes
	stepCopy                  // to becomes from
	stepTell                  // peer, or all if it is below 0, is told slot: how far this rank is
	stepWait                  // until peer has told slot or more
	stepRead                  // to becomes memory of peer's call, which it has shown
	stepWrite                 // such memory, at the offset of to, becomes from
	stepWrap                  // to becomes the record of from
	stepPack                  // the records in the slots of to, first in each, follow each other
	stepPick                  // to becomes records of from: first, and each slot behind it
	stepOpen                  // to becomes the block of a record in from, which is peer's
)

// step is one step of a schedule. It begins when the steps before it are done, and is done
// when its effect has taken place here: a send, when its memory may change.
type step struct {
	kind    stepKind
	lower   bool
	fold    bool // sends: the peer's step is a stepTake
	peer    int32
	slot    uint32
	records int32 // sends and receives: so many, of unknown lengths; to and from have room for the longest
	stage   int   // sends: offset in the staging memory
	first   int32 // of the records in base, of sends, or in from
	line    int32 // place of the message among those of its receiver; of sends only in schedules by flags; of reads and writes: of the memory among that shown
	to      mem
	from    mem
	base    mem     // of reductions: no bytes: that is to; of sends: the records
	waits   int32   // number of steps before this one
	next    []int32 // the steps behind it
}

// inline reports whether the data of a send or receive of n bytes follows its header.
func (s *step) inline(n int) bool { return n <= inlineMax || s.fold || s.kind == stepTake }

// stepBytes is the memory of a step without next.
const stepBytes = 136

// expected is a message that a schedule receives.
type expected struct {
	peer int32
	slot uint32
	step int32
}

// schedule is the part of one rank in an operation: steps and their order.
type schedule struct {
	steps    []step
	first    []int32    // the steps that wait for none
	expected []expected // sorted by peer and slot
	temp     int        // bytes of temporary memory
	stage    int        // bytes of staging memory
	flags    bool       // performed by a board
	writes   bool       // to the area of this rank
	alg      algorithm
	most     int // size of the longest block in a record
}

// find returns the step that receives a message, -1 if there is none.
func (s *schedule) find(peer int, slot uint32) int32 {
	i, ok := slices.BinarySearchFunc(s.expected, expected{peer: int32(peer), slot: slot}, byPeer)
	if !ok {
		return -1
	}
	return s.expected[i].step
}

func byPeer(a, b expected) int {
	return cmp.Or(cmp.Compare(a.peer, b.peer), cmp.Compare(a.slot, b.slot))
}

// builder makes the schedule of one rank, or its part among some ranks of the team. The steps
// of two ranks correspond: the n-th send of one to the other is received by the other's n-th
// receive from it.
type builder struct {
	rank, size int     // in the team or, in a part, in members
	members    []int   // of a part: numbers in the team
	levels     *levels // of algHierarchy
	*draft

	reducedFrom []int32 // by peer: the step of reduceBlock that sends the peer's block
}

// draft is a schedule that is being made. The parts of a builder have the same.
type draft struct {
	elem      int // bytes of an element: no message divides one
	inOrder   bool
	figures   *figures // of the problem
	folds     bool     // data for reductions of more than inlineMax bytes travels with its header
	s         *schedule
	sent, got []uint32 // by peer, its number in the team: messages so far

	gives  int           // messages of give with more than inlineMax bytes
	stages [giving]int   // their staging memory
	given  [giving]int32 // the last send that uses it
}

func newBuilder(rank, size, elem int, inOrder bool) *builder {
	return &builder{rank: rank, size: size, draft: &draft{elem: elem, inOrder: inOrder, s: &schedule{}, sent: make([]uint32, size), got: make([]uint32, size)}}
}

// among returns a builder of the part of this rank among members, of which it is one.
func (b *builder) among(members []int) *builder {
	return &builder{rank: slices.Index(members, b.rank), size: len(members), members: members, draft: b.draft}
}

// inTeam returns the number in the team of a rank.
func (b *builder) inTeam(rank int) int32 {
	if b.members != nil {
		rank = b.members[rank]
	}
	return int32(rank)
}

// none is a step to wait for that does not exist.
const none = int32(-1)

// add appends a step behind the steps after.
func (b *builder) add(s step, after []int32) int32 {
	i := int32(len(b.s.steps))
	for k, a := range after {
		if a == none || slices.Contains(after[:k], a) {
			continue
		}
		s.waits++
		b.s.steps[a].next = append(b.s.steps[a].next, i)
	}
	b.s.steps = append(b.s.steps, s)
	return i
}

// send sends m to a peer.
func (b *builder) send(peer int, m mem, after ...int32) int32 {
	to := b.inTeam(peer)
	s := step{kind: stepSend, peer: to, slot: b.sent[to], stage: b.s.stage, from: m}
	b.sent[to]++
	b.s.stage += headerSize
	if m.n <= inlineMax {
		b.s.stage += m.n
	}
	b.s.stage = (b.s.stage + 7) &^ 7
	return b.add(s, after)
}

// give sends m to a peer's take or takeOnto. It returns the step after which m may change.
func (b *builder) give(peer int, m mem, after ...int32) int32 {
	if m.n <= inlineMax || !b.folds {
		return b.send(peer, m, after...)
	}
	var sent []int32
	to := b.inTeam(peer)
	for _, part := range b.parts(m) {
		s := step{kind: stepSend, fold: true, peer: to, slot: b.sent[to], from: part}
		b.sent[to]++
		waits, k := after, b.gives%giving
		if b.gives < giving {
			b.stages[k] = b.s.stage
			b.s.stage += headerSize + foldMax
		} else {
			waits = append(slices.Clone(after), b.given[k])
		}
		b.gives++
		s.stage = b.stages[k]
		b.given[k] = b.add(s, waits)
		sent = append(sent, b.given[k])
	}
	return b.join(sent...)
}

// parts divides m into parts of at most foldMax bytes.
func (b *builder) parts(m mem) (out []mem) {
	if m.n <= inlineMax {
		return []mem{m}
	}
	most := foldMax / b.elem * b.elem
	for at := 0; at < m.n; at += most {
		out = append(out, m.part(at, min(most, m.n-at)))
	}
	return out
}

// recv receives m.
func (b *builder) recv(peer int, m mem, after ...int32) int32 {
	return b.expect(step{kind: stepRecv, peer: b.inTeam(peer), to: m}, after)
}

func (b *builder) expect(s step, after []int32) int32 {
	s.slot = b.got[s.peer]
	b.got[s.peer]++
	i := b.add(s, after)
	b.s.expected = append(b.s.expected, expected{s.peer, s.slot, i})
	return i
}

// take receives a message and folds it into m: lower says that it comes from lower ranks.
// The message is received before the steps after are done, and folded then.
func (b *builder) take(peer int, m mem, lower bool, after ...int32) int32 {
	return b.takeOnto(peer, m, m, lower, after...)
}

// takeOnto is take, but m becomes the combination of base with the message.
func (b *builder) takeOnto(peer int, m, base mem, lower bool, after ...int32) int32 {
	inPlace := base == m
	if m.n <= inlineMax || b.folds {
		var taken []int32
		for _, part := range b.parts(m) {
			s := step{kind: stepTake, peer: b.inTeam(peer), to: part, lower: lower}
			if !inPlace {
				s.base = base.part(part.off-m.off, part.n)
			}
			taken = append(taken, b.expect(s, after))
		}
		return b.join(taken...)
	}
	if inPlace {
		base = mem{}
	}
	t := b.temp(m.n)
	r := b.recv(peer, t)
	return b.add(step{kind: stepFold, to: m, from: t, base: base, lower: lower}, append(after, r))
}

// fold combines from into to.
func (b *builder) fold(to, from mem, lower bool, after ...int32) int32 {
	return b.add(step{kind: stepFold, to: to, from: from, lower: lower}, after)
}

// copy copies from to to.
func (b *builder) copy(to, from mem, after ...int32) int32 {
	if to == from || to.n == 0 {
		return b.join(after...)
	}
	return b.add(step{kind: stepCopy, to: to, from: from}, after)
}

// join returns a step that is done when the steps after are, none if there are none.
func (b *builder) join(after ...int32) int32 {
	switch {
	case len(after) == 0:
		return none
	case len(after) == 1, len(after) == 2 && after[1] == none:
		return after[0]
	}
	return b.add(step{kind: stepCopy}, after)
}

// temp returns n bytes of temporary memory, aligned to 16.
func (b *builder) temp(n int) mem {
	m := mem{tmp, b.s.temp, n}
	b.s.temp += (n + 15) &^ 15
	return m
}

// done returns the schedule.
func (b *builder) done() *schedule {
	for i := range b.s.steps {
		if b.s.steps[i].waits == 0 {
			b.s.first = append(b.s.first, int32(i))
		}
	}
	slices.SortFunc(b.s.expected, byPeer)
	for i, e := range b.s.expected {
		b.s.steps[e.step].line = int32(i)
	}
	return b.s
}

// block returns where block i of p begins when n elements are divided evenly, in elements.
func block(n, p, i int) int { return n/p*i + min(i, n%p) }
