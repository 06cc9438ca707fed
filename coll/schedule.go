package coll

import (
	"cmp"
	"slices"
)

// inlineMax is the size of the largest data that travels in one message with its header,
// through staging memory. Above it one more message costs less than the copies.
const inlineMax = 4096

// mem is a range of one of the buffers of an operation: of the application's, or of its
// temporary memory. Schedules name memory in this way, not by addresses, so that one
// schedule serves many operations, and its cost can be computed for ranks elsewhere.
type mem struct {
	buf    int32
	off, n int
}

// part returns n bytes of m from off on.
func (m mem) part(off, n int) mem { return mem{m.buf, m.off + off, n} }

// tmp is the buffer of temporary memory.
const tmp = 0

type stepKind uint8

const (
	stepSend stepKind = iota // from is sent to peer
	stepRecv                 // to becomes a message of peer
	stepFold                 // to becomes base∘from or, with lower, from∘base
	stepTake                 // the same, but from is a message of peer, of at most inlineMax bytes
	stepCopy                 // to becomes from
)

// step is one step of a schedule. It begins when the steps before it are done, and is done
// when its effect has taken place here: a send, when its memory may change.
type step struct {
	kind  stepKind
	lower bool
	peer  int32
	slot  uint32
	stage int // sends: offset in the staging memory
	to    mem
	from  mem
	base  mem     // of reductions: no bytes: that is to
	waits int32   // number of steps before this one
	next  []int32 // the steps behind it
}

// stepBytes is the memory of a step without next.
const stepBytes = 128

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

// builder makes the schedule of one rank. The steps of two ranks correspond: the n-th send
// of one to the other is received by the other's n-th receive from it.
type builder struct {
	rank, size int
	elem       int // bytes of an element: no message divides one
	inOrder    bool
	s          *schedule
	sent, got  []uint32 // by peer: messages so far

	reducedFrom []int32 // by peer: the step of reduceBlock that sends the peer's block
}

func newBuilder(rank, size, elem int, inOrder bool) *builder {
	return &builder{rank: rank, size: size, elem: elem, inOrder: inOrder, s: &schedule{}, sent: make([]uint32, size), got: make([]uint32, size)}
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
	s := step{kind: stepSend, peer: int32(peer), slot: b.sent[peer], stage: b.s.stage, from: m}
	b.sent[peer]++
	b.s.stage += headerSize
	if m.n <= inlineMax {
		b.s.stage += m.n
	}
	b.s.stage = (b.s.stage + 7) &^ 7
	return b.add(s, after)
}

// recv receives m.
func (b *builder) recv(peer int, m mem, after ...int32) int32 {
	return b.expect(step{kind: stepRecv, peer: int32(peer), to: m}, after)
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
	if base == m {
		base = mem{}
	}
	if m.n <= inlineMax {
		return b.expect(step{kind: stepTake, peer: int32(peer), to: m, base: base, lower: lower}, after)
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
	return b.s
}

// block returns where block i of p begins when n elements are divided evenly, in elements.
func block(n, p, i int) int { return n/p*i + min(i, n%p) }
