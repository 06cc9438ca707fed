package coll

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// machine performs the schedules of all ranks of a team in one goroutine, one step after the
// other in random order. It punishes schedules that use memory before it may be used: what a
// receive will overwrite is garbage from its beginning, a send reads its memory last, and the memory
// of a rank that is done is garbage for the others.
type machine struct {
	g     *rand.Rand
	ranks []*rank
	mail  map[[3]int32][]byte // by sender, receiver, slot
	told  map[[2]int32]uint32 // by teller, listener
	shown map[[2]int32][2]uint64
}

type rank struct {
	areas [][]byte // of all ranks
	plan  *schedule
	bufs  [][]byte
	fold  folding
	waits []int32
	state []uint8 // 0 waits, 1 ready, 2 begun, 3 done
	left  int     // steps
	kept  [][]byte
}

// end keeps the result of a rank, and overwrites its memory.
func (r *rank) end() {
	for _, b := range r.bufs {
		r.kept = append(r.kept, slices.Clone(b))
	}
	for _, b := range r.bufs {
		for i := range b {
			b[i] = 0x5a
		}
	}
}

func (r *rank) mem(m mem) []byte {
	if m.n == 0 {
		return nil
	}
	if m.buf < 0 {
		return r.areas[-1-m.buf][m.off : m.off+m.n]
	}
	return r.bufs[m.buf][m.off : m.off+m.n]
}

func (m *machine) add(plan *schedule, bufs [][]byte, fold folding) {
	r := &rank{plan: plan, bufs: bufs, fold: fold, state: make([]uint8, len(plan.steps))}
	r.bufs[tmp] = bytes.Repeat([]byte{0xa5}, plan.temp) // of another operation
	for i, s := range plan.steps {
		r.waits = append(r.waits, s.waits)
		if s.waits == 0 {
			r.state[i] = 1
		}
	}
	m.ranks = append(m.ranks, r)
}

// run performs steps until none is left, and fails if some are never ready, or if a message
// is never received.
func (m *machine) run(t *testing.T) {
	left := 0
	for _, r := range m.ranks {
		if r.left = len(r.plan.steps); r.left == 0 {
			r.end()
		}
		left += r.left
	}
	// A rank may be behind, as far as the others can go without it.
	behind, held := m.g.IntN(2*len(m.ranks)), true
	for left > 0 {
		moved, went := false, false
		for _, at := range m.g.Perm(len(m.ranks)) {
			if held && at == behind {
				continue
			}
			r := m.ranks[at]
			for _, i := range m.g.Perm(len(r.state)) {
				if r.state[i] == 0 || r.state[i] == 3 || m.g.IntN(4) == 0 {
					moved = moved || r.state[i] == 1 || r.state[i] == 2
					continue
				}
				before := r.state[i]
				m.step(t, int32(at), i)
				went = went || r.state[i] != before
				if moved = moved || r.state[i] != before; r.state[i] == 3 {
					left--
					if r.left--; r.left == 0 {
						r.end()
					}
					for _, n := range r.plan.steps[i].next {
						if r.waits[n]--; r.waits[n] == 0 {
							r.state[n] = 1
						}
					}
				}
			}
		}
		if !moved && !held {
			require.Fail(t, "the schedules wait for each other")
		}
		held = went
	}
	require.Empty(t, m.mail, "every message is received")
	for _, r := range m.ranks {
		for i, b := range r.kept {
			copy(r.bufs[i], b)
		}
	}
}

// step moves one step on.
func (m *machine) step(t *testing.T, at int32, i int) {
	r := m.ranks[at]
	s := &r.plan.steps[i]
	switch {
	case s.kind == stepSend && r.state[i] == 1 && s.from.n > inlineMax:
		r.state[i] = 2
	case s.kind == stepSend:
		k := [3]int32{at, s.peer, int32(s.slot)}
		require.NotContains(t, m.mail, k)
		if m.mail[k] = slices.Clone(r.mem(s.from)); s.records > 0 {
			m.mail[k] = slices.Clone(findRecords(r.mem(s.base), s.first, s.records, r.plan.most))
		}
		r.state[i] = 3
	case s.kind == stepRecv || s.kind == stepTake:
		if r.state[i] == 1 && s.kind == stepRecv {
			scribble(m.g, r.mem(s.to))
		}
		r.state[i] = 2
		k := [3]int32{s.peer, at, int32(s.slot)}
		b, ok := m.mail[k]
		if !ok {
			return
		}
		delete(m.mail, k)
		if s.records > 0 {
			require.LessOrEqual(t, len(b), s.to.n)
			require.Equal(t, len(b), skipRecords(b, s.records, r.plan.most))
		} else {
			require.Len(t, b, s.to.n)
		}
		if s.kind == stepTake {
			copy(r.mem(s.to), r.mem(s.base))
			r.fold(r.mem(s.to), b, s.lower)
		} else {
			copy(r.mem(s.to), b)
		}
		r.state[i] = 3
	case s.kind == stepTell:
		for l := range m.ranks {
			if s.peer < 0 || l == int(s.peer) {
				require.Greater(t, s.slot, m.told[[2]int32{at, int32(l)}])
				m.told[[2]int32{at, int32(l)}] = s.slot
				shown := m.shown[[2]int32{at, int32(l)}]
				for k, at := range []mem{s.from, s.base} {
					if at.n > 0 {
						shown[k] = address(r.mem(at))
					}
				}
				m.shown[[2]int32{at, int32(l)}] = shown
			}
		}
		r.state[i] = 3
	case s.kind == stepWait:
		if m.told[[2]int32{s.peer, at}] >= s.slot {
			r.state[i] = 3
		}
	case s.kind == stepRead:
		require.GreaterOrEqual(t, m.told[[2]int32{s.peer, at}], s.slot)
		copy(r.mem(s.to), fabric.BytesAt(m.shown[[2]int32{s.peer, at}][s.line]+uint64(s.from.off), s.to.n))
		r.state[i] = 3
	case s.kind == stepWrite:
		require.GreaterOrEqual(t, m.told[[2]int32{s.peer, at}], s.slot)
		require.NotZero(t, m.ranks[s.peer].left, "the rank is done")
		copy(fabric.BytesAt(m.shown[[2]int32{s.peer, at}][s.line]+uint64(s.to.off), s.from.n), r.mem(s.from))
		r.state[i] = 3
	case s.kind == stepFold:
		copy(r.mem(s.to), r.mem(s.base))
		r.fold(r.mem(s.to), r.mem(s.from), s.lower)
		r.state[i] = 3
	case s.kind == stepWrap || s.kind == stepPack || s.kind == stepPick || s.kind == stepOpen:
		expects, is := record(s, r.plan.most, r.mem)
		require.Equal(t, expects, is)
		r.state[i] = 3
	default:
		copy(r.mem(s.to), r.mem(s.from))
		r.state[i] = 3
	}
}

// scribble fills b with random bytes.
func scribble(g *rand.Rand, b []byte) {
	var word [8]byte
	for len(b) > 0 {
		binary.NativeEndian.PutUint64(word[:], g.Uint64())
		b = b[copy(b, word[:]):]
	}
}

// Every algorithm of every operation has the result of a serial reference, for any number of
// ranks, root and number of elements, in and not in place, in any order of the steps.
func TestAlgorithms(t *testing.T) {
	if testutil.Race {
		t.Skip("one goroutine runs all ranks")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // each try allocates megabytes and drops them
	g := rand.New(rand.NewPCG(1, 2))
	tried := map[string]int{}
	for k := kindBarrier; k < numKinds; k++ {
		for _, op := range []Op[affine]{Func(plus), FuncInOrder(compose)} {
			for p := 1; p <= 17; p++ {
				c := call{kind: k, op: op().code}
				for _, alg := range algorithms(c) {
					for _, n := range []int{0, 1, 3, 2*p + 1, inlineMax / 8, 5000, 9000, 40000} {
						roots := []int{0}
						if k.rooted() {
							roots = []int{0, g.IntN(p), p - 1}
						}
						switch {
						case n == inlineMax/8: // some blocks are longer, some are not
							if alg != algHierarchy || k != kindAllgatherv && k.records() == 0 {
								continue
							}
							if k.records() > 0 {
								n = k.records() / 8
							}
						case n == 40000: // several pieces
							if alg != algHierarchy && alg != algCirculant || p != 3 && p != 6 {
								continue
							}
						case n < 5000 || p <= 3: // 9000: more than travels with headers
						case n > 5000:
							continue
						case p <= 5 || p == 7 || p == 8 || p == 17:
							n = 600 // blocks too long for a message with its header
						default:
							continue
						}
						on := []*hosts{nil}
						if alg == algHierarchy {
							on = divisions(g, p)
						}
						for _, root := range roots {
							for _, h := range on {
								if alg == algHierarchy && !h.serves(c) {
									continue
								}
								tried[fmt.Sprintf("%v %v", k, alg)]++
								try(t, g, k, alg, p, root, n, op, h)
								if t.Failed() {
									t.Fatalf("%v by %v, %d ranks, root %d, %d elements, in order: %v, hosts %+v", k, alg, p, root, n, op().inOrder, h)
								}
							}
						}
					}
				}
			}
			if k < kindReduce || k > kindReduceScatterv && k < kindScan {
				break // no reduction
			}
		}
	}
	require.Len(t, tried, 89, "algorithms of operations")
}

// Ranks write to each other's memory, for any number of ranks and root.
func TestAlgorithmsWritten(t *testing.T) {
	if testutil.Race {
		t.Skip("one goroutine runs all ranks")
	}
	g, op := rand.New(rand.NewPCG(3, 4)), Func(plus)
	for p := 1; p <= 17; p++ {
		for range 4 { // of which about the half write
			for root := range p {
				try(t, g, kindBcast, algSingle, p, root, sharedFrom/8+g.IntN(3), op, nil)
				try(t, g, kindGather, algSingle, p, root, 100+g.IntN(3), op, nil)
			}
			try(t, g, kindAllgather, algSingle, p, 0, writtenFrom/8+g.IntN(3), op, nil)
			if p <= 3 {
				try(t, g, kindAllgather, algSingle, p, 0, 2*writtenPiece/8+g.IntN(3), op, nil)
			}
		}
	}
}

// A Bcast of so many chunks that the slots are used again, of which there would be an odd number, waits for the
// readers of what it writes over.
func TestBcastUsesSlotsAgain(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(5, 6))
	for _, c := range []struct{ p, bytes int }{{2, 5 << 18}, {3, 3 << 19}, {20, 500 << 10}} {
		for range 3 {
			try(t, g, kindBcast, algShared, c.p, g.IntN(c.p), c.bytes/8, Func(plus), nil)
		}
	}
}

// divisions returns divisions of p ranks among hosts: in halves, by turns, of different sizes, and
// in any way.
func divisions(g *rand.Rand, p int) (out []*hosts) {
	for _, host := range []func(r int) int{
		func(r int) int { return 2 * r / p },
		func(r int) int { return r % 2 },
		func(r int) int { return min(r, 1) },
		func(r int) int { return r / 2 },
		func(r int) int { return (r + 2) / 3 },
		func(int) int { return g.IntN(p) },
	} {
		numbers := make([]int, p)
		for r := range numbers {
			numbers[r] = host(r)
		}
		out = append(out, divide(numbers))
	}
	return out
}

func plus(dst, src []affine) {
	for i := range dst {
		dst[i] = affine{dst[i].A + src[i].A, dst[i].B ^ src[i].B}
	}
}

// try performs one operation by all ranks, and compares.
func try(t *testing.T, g *rand.Rand, k kind, alg algorithm, p, root, n int, op Op[affine], on *hosts) {
	seed := g.Uint64()
	inPlace, meet, apart := g.IntN(2) == 0, g.IntN(4) == 0, g.IntN(2) == 0
	most := min(k.records(), [...]int{0, 40, recordMax}[g.IntN(3)]) // of a block in a record
	combine := op().combine
	m := &machine{g: g, mail: map[[3]int32][]byte{}, told: map[[2]int32]uint32{}, shown: map[[2]int32][2]uint64{}}
	f := &figures{boards: byBoard{flags: apart}}
	if p%3 == 2 && alg == algFlags {
		f.procs = 1
	}
	areas := make([][]byte, p)
	for r := range areas {
		if alg == algShared {
			areas[r] = make([]byte, areaOf(p)/2)
		}
	}
	lens := make([]int, p) // of blocks
	for r := range lens {
		lens[r] = n
		switch k {
		case kindReduceScatterv, kindGatherv, kindScatterv, kindAllgatherv, kindAlltoallv:
			lens[r] = max(0, n+g.IntN(5)-2)
		}
	}
	total := 0
	for _, l := range lens {
		total += l
	}
	none := slices.Repeat([]affine{{9, 9}}, max(n, total))
	ins := make([][]affine, p)
	of := func(r, n int) []affine {
		if ins[r] == nil {
			ins[r] = affines(seed, r, max(n, total))
		}
		return slices.Clone(ins[r][:n])
	}
	reds := make([][]affine, p+1) // of the first ranks
	red := func(hi, n int) []affine {
		for r := range hi {
			switch {
			case reds[r+1] != nil:
			case r == 0:
				reds[1] = of(0, n)
			default:
				reds[r+1] = slices.Clone(reds[r])
				combine(reds[r+1], of(r, n))
			}
		}
		return reds[hi]
	}
	wants, gots := make([][]affine, p), make([][]affine, p)
	for r := range p {
		send, recv := &blocks[affine]{}, &blocks[affine]{}
		var w, got []affine
		one := func(in []affine) { // data of this rank, whole, in and out
			got = slices.Clone(none[:len(in)])
			if inPlace {
				got = in
			}
			send, recv = whole(in), whole(got)
		}
		switch k {
		case kindBcast:
			got = slices.Clone(none[:n])
			if r == root {
				got = of(root, n)
			}
			w, recv = of(root, n), whole(got)
		case kindReduce:
			if one(of(r, n)); r == root {
				w = red(p, n)
			} else {
				got, recv = nil, whole([]affine(nil))
			}
		case kindAllreduce:
			one(of(r, n))
			w = red(p, n)
		case kindScan:
			one(of(r, n))
			w = red(r+1, n)
		case kindExscan:
			if one(of(r, n)); r > 0 {
				w = red(r, n)
			} else {
				w = slices.Clone(got)
			}
		case kindReduceScatter, kindReduceScatterv:
			send = listed(cut(of(r, total), lens))
			if got = slices.Clone(none[:lens[r]]); inPlace {
				got = send.at(r)
			}
			w, recv = cut(red(p, total), lens)[r], whole(got)
		case kindGather, kindGatherv:
			send = whole(of(r, lens[r]))
			if r == root {
				got = slices.Clone(none[:total])
				recv = listed(cut(got, lens))
				if inPlace {
					copy(recv.at(r), send.at(0))
					send = whole(recv.at(r))
				}
				for x := range p {
					w = append(w, of(x, lens[x])...)
				}
			}
		case kindScatter, kindScatterv:
			w = cut(of(root, total), lens)[r]
			got = slices.Clone(none[:lens[r]])
			if r == root {
				if send = listed(cut(of(root, total), lens)); inPlace {
					got = send.at(r)
				}
			}
			recv = whole(got)
		case kindAllgather, kindAllgatherv:
			send = whole(of(r, lens[r]))
			got = slices.Clone(none[:total])
			if recv = listed(cut(got, lens)); inPlace {
				copy(recv.at(r), send.at(0))
				send = whole(recv.at(r))
			}
			for x := range p {
				w = append(w, of(x, lens[x])...)
			}
		case kindAlltoall, kindAlltoallv: // each sends lens[to]
			send = listed(cut(of(r, total), lens))
			all := slices.Repeat([]int{lens[r]}, p)
			got = slices.Clone(none[:0])
			got = slices.Grow(got, p*lens[r])[:p*lens[r]]
			if inPlace && k == kindAlltoall {
				copy(got, of(r, total))
				send = listed(cut(got, lens))
			}
			recv = listed(cut(got, all))
			for x := range p {
				w = append(w, cut(of(x, total), lens)[r]...)
			}
		}
		if k < kindReduce || k > kindReduceScatterv && k < kindScan {
			op = nil
		}
		var a arguments
		require.NoError(t, setArguments(&a, k, r, p, root, n, send, recv, op))
		a.alg, a.meet, a.hosts, a.figures, a.most = alg, meet, on, f, most
		m.add(build(&a.problem), a.bufs, a.fold)
		m.ranks[r].areas = areas
		wants[r], gots[r] = w, got
	}
	m.run(t)
	for r := range p {
		require.NoError(t, equals(fmt.Sprintf("%v by %v: rank %d", k, alg, r), wants[r], gots[r]))
	}
}

// A broadcast is divided into segments only where a rank passes them on.
func TestBcastSegments(t *testing.T) {
	for _, x := range []struct {
		alg         algorithm
		p, segments int
	}{{algBinomial, 2, 1}, {algChain, 2, 1}, {algBinomial, 3, 1}, {algChain, 3, 16}, {algBinomial, 4, 16}, {algTree3, 4, 1}, {algTree3, 5, 16}, {algTree16, 17, 1}} {
		c := call{kind: kindBcast, alg: x.alg, size: 1, count: 1 << 20}
		for r := range x.p {
			s := build(&problem{call: c, rank: r, team: x.p, recv: []mem{{1, 0, 1 << 20}}})
			n := 0
			for i := range s.steps {
				if s.steps[i].kind == stepRecv {
					n++
				}
			}
			if r == 0 {
				require.Zero(t, n)
			} else {
				require.Equal(t, x.segments, n, "%v, %d ranks", x.alg, x.p)
			}
		}
	}
}
