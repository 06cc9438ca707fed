package flowctl

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The model: one writer, one reader, a network that keeps order in each
// direction, and every interleaving of their steps. The states of a small ring
// are finitely many once positions are taken relative to the oldest block in
// use, and all of them are visited.
//
// The ring and the staging memory are modelled slot by slot, by what is in
// them and not by cursors, so that a mistake in the cursors shows.

type run struct {
	pos    uint64
	k      int
	class  Class
	signal bool // its write asks for a completion
}

func (r run) end() uint64 { return r.pos + uint64(r.k) }

type state struct {
	s           Sender
	r           Receiver
	visible     uint64   // writes before it have reached the ring
	runs        []run    // runs with blocks that the writer has not got back
	words       []uint64 // credit words on their way
	cell        uint64   // the last word that arrived
	unsignalled int      // blocks since the last signalled run
	unread      uint32   // bit per slot: the ring block holds unread data
	staging     uint32   // bit per slot: the staging copy is in use by the link
	part        bool     // all of the next block that is there is consumed; the writer may append to it
	// Credits, counted one by one as they change hands.
	inFlight, waiting, owed, returned int
}

// mutant is a deliberate mistake; the explorer must find each.
type mutant int

const (
	healthy      mutant = iota
	earlyCredit         // credit returned for what is not consumed yet
	noReserve           // data takes the last blocks
	rareSignals         // completions asked for once a ring
	lateCredit          // credit returned only when the whole ring is consumed
	forgetsOwner        // staging reused as soon as the reader has consumed
	ignoresPart         // a block that is consumed in part does not count
)

type model struct {
	g     Geometry
	m     mutant
	start uint64
}

func (m *model) initial() *state {
	return &state{s: SenderAt(m.g, m.start), r: ReceiverAt(m.g, m.start), visible: m.start, cell: m.start << 1}
}

func (x *state) clone() *state {
	y := *x
	y.runs, y.words = slices.Clone(x.runs), slices.Clone(x.words)
	return &y
}

// key names the state up to whole laps.
func (m *model) key(x *state) string {
	base := (x.s.head - max(x.s.head-x.s.credit, x.s.head-x.s.done)) &^ uint64(m.g.Blocks-1)
	b := make([]byte, 0, 96)
	put := func(v uint64) { b = append(b, byte(v), byte(v>>8)) }
	for _, v := range []uint64{x.s.head, x.s.credit, x.s.done, x.r.next, x.r.returned, x.r.arrived, x.visible} {
		put(v - base)
	}
	put(x.cell - base<<1)
	put(uint64(x.unsignalled))
	if x.part {
		b = append(b, 1)
	}
	b = binary.LittleEndian.AppendUint32(b, x.unread)
	b = binary.LittleEndian.AppendUint32(b, x.staging)
	put(uint64(len(x.words)))
	for _, w := range x.words {
		put(w - base<<1)
	}
	for _, r := range x.runs {
		put(r.pos - base)
		flags := uint64(r.class) << 8
		if r.signal {
			flags |= 1 << 9
		}
		put(uint64(r.k) | flags)
	}
	return string(b)
}

func (m *model) slots(pos uint64, k int) (bits uint32) {
	for i := range k {
		bits |= 1 << m.g.Slot(pos+uint64(i))
	}
	return bits
}

// steps returns all successors of x, or the invariant that a step breaks.
func (m *model) steps(x *state) (next []*state, labels []string, err error) {
	add := func(y *state, format string, args ...any) {
		next, labels = append(next, y), append(labels, fmt.Sprintf(format, args...))
	}
	// The writer starts a run.
	for _, c := range []Class{Data, Control} {
		most := m.g.MaxRun()
		if c == Control {
			most = int(m.g.Control)
		}
		for k := 1; k <= most; k++ {
			y := x.clone()
			use := c
			if m.m == noReserve {
				use = Control
			}
			pos, ok := y.s.Reserve(k, use)
			if !ok {
				continue
			}
			bits := m.slots(pos, k)
			if y.staging&bits != 0 {
				return nil, nil, fmt.Errorf("run %d+%d overwrites staging the link still reads", pos, k)
			}
			y.staging |= bits
			y.inFlight += k
			y.unsignalled += k
			every := m.g.SignalEvery()
			if m.m == rareSignals {
				every = int(m.g.Blocks)
			}
			r := run{pos: pos, k: k, class: c, signal: y.unsignalled >= every}
			if r.signal {
				y.unsignalled = 0
			}
			y.runs = append(y.runs, r)
			add(y, "reserve %d class %d", k, c)
		}
	}
	// The oldest write reaches the ring.
	for _, r := range x.runs {
		if r.pos-x.visible > uint64(m.g.Blocks) || r.pos != x.visible {
			continue
		}
		bits := m.slots(r.pos, r.k)
		if x.unread&bits != 0 {
			return nil, nil, fmt.Errorf("run %d+%d overwrites unread blocks", r.pos, r.k)
		}
		y := x.clone()
		y.unread |= bits
		y.visible = r.end()
		y.inFlight -= r.k
		y.waiting += r.k
		add(y, "arrive %d", r.k)
		break
	}
	// The reader consumes the oldest run that is there, or, if that is one block, what is there of
	// it: the rest when it sees the run behind.
	for _, r := range x.runs {
		if r.pos != x.r.next || x.r.next == x.visible {
			continue
		}
		if r.k == 1 && r.class == Data && m.g.Every > 1 && !x.part {
			y := x.clone()
			y.part = true
			if m.m != ignoresPart {
				y.r.Part()
			}
			add(y, "consume a part")
		}
		if x.part && x.visible == r.end() {
			break
		}
		y := x.clone()
		y.part = false
		n, err := y.r.Arrived(y.visible)
		if err != nil || n != int(x.visible-x.r.next) {
			return nil, nil, fmt.Errorf("reader sees %d blocks (%v), there are %d", n, err, x.visible-x.r.next)
		}
		y.unread &^= m.slots(r.pos, r.k)
		y.r.Consume(r.k)
		y.waiting -= r.k
		y.owed += r.k
		add(y, "consume %d", r.k)
		break
	}
	// The reader returns credit: because it is due, or anyway.
	due := x.r.Due(false)
	if m.m == lateCredit {
		due = x.r.Owed() >= int(m.g.Blocks)
	}
	if due || m.m != lateCredit && x.r.Owed() > 0 || m.m == earlyCredit && x.waiting > 0 {
		y := x.clone()
		w := y.r.Word()
		if m.m == earlyCredit {
			w = y.visible << 1
		}
		y.words = append(y.words, w)
		y.returned += y.owed
		y.owed = 0
		label := "force credit"
		if due {
			label = "credit"
		}
		add(y, "%s", label)
	}
	// The oldest word reaches the cell.
	if len(x.words) > 0 {
		y := x.clone()
		y.cell, y.words = y.words[0], y.words[1:]
		add(y, "word arrives")
	}
	// The writer looks at the cell.
	if x.cell != x.s.credit<<1 {
		y := x.clone()
		old := y.s.credit
		if err := y.s.Apply(y.cell); err != nil {
			return nil, nil, err
		}
		y.returned -= int(y.s.credit - old)
		if m.m == forgetsOwner {
			y.s.done = y.s.credit
		}
		y.trim()
		add(y, "apply")
	}
	// The link completes the oldest signalled write that has arrived.
	for _, r := range x.runs {
		if !r.signal || r.end()-x.s.done > uint64(m.g.Blocks) || r.end() == x.s.done || x.visible-r.end() > uint64(m.g.Blocks) {
			continue
		}
		y := x.clone()
		y.staging &^= m.slots(y.s.done, int(r.end()-y.s.done))
		if err := y.s.Complete(r.end()); err != nil {
			return nil, nil, err
		}
		y.trim()
		add(y, "complete")
		break
	}
	return next, labels, nil
}

// trim forgets runs whose blocks are all back.
func (x *state) trim() {
	lo := x.s.head - max(x.s.head-x.s.credit, x.s.head-x.s.done)
	for len(x.runs) > 0 && x.s.head-x.runs[0].end() >= x.s.head-lo {
		x.runs = x.runs[1:]
	}
}

// check tests what must hold in every state.
func (m *model) check(x *state) error {
	n := uint64(m.g.Blocks)
	if x.s.head-x.s.credit > n || x.s.head-x.s.done > n || x.s.head-x.r.next > n {
		return fmt.Errorf("more than a ring in use")
	}
	if out := int(x.s.head - x.s.credit); out != x.inFlight+x.waiting+x.owed+x.returned {
		return fmt.Errorf("credits lost: %d out, %d in flight + %d waiting + %d owed + %d returned", out, x.inFlight, x.waiting, x.owed, x.returned)
	}
	ctrl := 0
	for _, r := range x.runs {
		if r.class == Control {
			ctrl += r.k
		}
	}
	if x.s.Free(Control)+ctrl < int(m.g.Control) {
		return fmt.Errorf("%d blocks free and %d hold control: data took the reserve of %d", x.s.Free(Control), ctrl, m.g.Control)
	}
	// Nothing left to happen by itself: then the writer must be able to go on.
	settled := x.visible == x.s.head && (x.r.next == x.visible || x.part && x.r.next+1 == x.visible) && len(x.words) == 0 && x.cell>>1 == x.s.credit&wordMask &&
		!slices.ContainsFunc(x.runs, func(r run) bool { return r.signal && x.s.head-r.end() < x.s.head-x.s.done })
	due := x.r.Due(false)
	if m.m == lateCredit {
		due = x.r.Owed() >= int(m.g.Blocks)
	}
	if settled && !due {
		if x.s.Free(Data) < m.g.MaxRun() {
			return fmt.Errorf("deadlock: all is quiet, %d of %d blocks for data", x.s.Free(Data), m.g.MaxRun())
		}
		if x.s.Free(Control) < int(m.g.Control) {
			return fmt.Errorf("deadlock: all is quiet, %d of %d blocks for control", x.s.Free(Control), m.g.Control)
		}
	}
	return nil
}

// explore visits every state. It returns how many there are, or the first
// broken invariant with the steps that lead to it.
func (m *model) explore() (int, error) {
	type via struct{ from, label string }
	first := m.initial()
	came := map[string]via{m.key(first): {}}
	queue := []*state{first}
	trail := func(k string) (t []string) {
		for v := came[k]; v.label != ""; v = came[v.from] {
			t = append(t, v.label)
		}
		slices.Reverse(t)
		return t
	}
	for len(queue) > 0 {
		x := queue[0]
		queue = queue[1:]
		k := m.key(x)
		if err := m.check(x); err != nil {
			return len(came), fmt.Errorf("%w after %v", err, trail(k))
		}
		next, labels, err := m.steps(x)
		if err != nil {
			return len(came), fmt.Errorf("%w after %v", err, trail(k))
		}
		for i, y := range next {
			ky := m.key(y)
			if _, seen := came[ky]; !seen {
				came[ky] = via{k, labels[i]}
				queue = append(queue, y)
			}
		}
	}
	return len(came), nil
}

func TestEveryInterleaving(t *testing.T) {
	t.Parallel()
	for _, g := range []Geometry{
		{2, 1, 1},
		{4, 1, 1}, {4, 1, 2}, {4, 1, 3}, {4, 2, 1}, {4, 2, 2}, {4, 3, 1},
	} {
		t.Run(fmt.Sprintf("%d-%d-%d", g.Blocks, g.Control, g.Every), func(t *testing.T) {
			t.Parallel()
			require.NoError(t, g.Validate())
			m := &model{g: g}
			n, err := m.explore()
			require.NoError(t, err)
			t.Logf("%d states", n)
			// The same near the wrap of the positions and of the credit word.
			for _, start := range []uint64{math.MaxUint64 - 5, 1<<63 - 4} {
				m := &model{g: g, start: start}
				n2, err := m.explore()
				require.NoError(t, err)
				require.GreaterOrEqual(t, n2, n)
			}
		})
	}
}

// An explorer that cannot fail proves nothing.
func TestExplorerFindsMistakes(t *testing.T) {
	t.Parallel()
	for m, want := range map[mutant]string{
		earlyCredit:  "", // several invariants break; which one comes first does not matter
		noReserve:    "data took the reserve",
		rareSignals:  "deadlock",
		lateCredit:   "deadlock",
		forgetsOwner: "staging",
		ignoresPart:  "deadlock",
	} {
		_, err := (&model{g: Geometry{4, 1, 2}, m: m}).explore()
		require.ErrorContains(t, err, want, "mutant %d", m)
	}
}

// Larger rings have too many states to see them all: walk through them.
func TestRandomWalks(t *testing.T) {
	t.Parallel()
	for _, g := range []Geometry{{8, 1, 4}, {8, 3, 5}, {8, 1, 7}, {16, 2, 8}, {16, 1, 1}, {32, 4, 16}} {
		for seed := range uint64(8) {
			rng := rand.New(rand.NewPCG(seed, uint64(g.Blocks)))
			m := &model{g: g, start: math.MaxUint64 - 40}
			x := m.initial()
			for range 2000 {
				next, _, err := m.steps(x)
				require.NoError(t, err, "%+v seed %d", g, seed)
				require.NotEmpty(t, next, "%+v seed %d: no step left", g, seed)
				x = next[rng.IntN(len(next))]
				require.NoError(t, m.check(x), "%+v seed %d", g, seed)
			}
			require.NotEqual(t, m.start, x.s.credit)
		}
	}
}
