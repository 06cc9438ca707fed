package eager

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/internal/testutil"
)

// someSteps draws rings that may take the place of a first one.
func someSteps(rng *rand.Rand, o Options) (steps []Step) {
	for n := o.Blocks * o.BlockSize; len(steps) < 3; {
		s := Step{Blocks: 2 << rng.IntN(6), BlockSize: 64 * (1 + rng.IntN(12))}
		if m := s.Blocks * s.BlockSize; m > n {
			n = m
			steps = append(steps, s)
		} else if n >= 1<<15 {
			break
		}
	}
	return steps
}

// resizes makes a side want larger rings, or the first ones, at random.
func (s *script) resizes() {
	x := s.sides[s.rng.IntN(2)].ch
	switch s.rng.IntN(5) {
	case 0:
		x.Shrink()
	default:
		x.Want(s.rng.IntN(1 << 15))
	}
}

// runResizing is run with rings that are replaced all the time.
func (s *script) runResizing(steps int) (moves uint32) {
	s.buf = make([]byte, 1<<16+16)
	for range steps {
		s.resizes()
		s.some(10)
	}
	s.drain()
	for _, x := range s.sides {
		out, in := x.ch.Moved()
		moves += out + in
	}
	return moves
}

// Order, contents and number of the messages hold, whatever the rings, the mode and the network,
// while both rings are replaced all the time; at the end all memory is accounted for.
func TestRandomResizing(t *testing.T) {
	eachNetwork(t, 8, 2, func(t *testing.T, o sim.Options) {
		scriptResizing(t, simLinks(o), o.Seed, 400)
	})
}

func TestResizingOverRealLinks(t *testing.T) {
	for link, open := range realLinks {
		t.Run(link, func(t *testing.T) {
			for seed := range uint64(3) {
				scriptResizing(t, open, seed, 300)
			}
		})
	}
}

func scriptResizing(t *testing.T, open opener, seed uint64, steps int) {
	rng := rand.New(rand.NewPCG(seed, 9))
	la, _ := open(t)
	oa, ob := randomOptions(rng, la.Caps()), randomOptions(rng, la.Caps())
	oa.Steps, ob.Steps = someSteps(rng, oa), someSteps(rng, ob)
	budget := NewBudget(1 << 20)
	oa.Budget, ob.Budget = budget, budget
	ok := t.Run(fmt.Sprintf("%d/%s/%s", seed, name(oa), name(ob)), func(t *testing.T) {
		t.Cleanup(func() { require.Zero(t, budget.Stats().Used, "memory of the budget that was not given back") })
		a, b := pair(t, open, oa, ob)
		s := newScript(t, seed, a, b)
		moves := s.runResizing(steps)
		require.Greater(t, moves, uint32(4), "%+v", budget.Stats())
		require.Positive(t, s.got)
	})
	require.True(t, ok)
}

// settleRings makes progress on both sides until neither has to do with rings.
func settleRings(t *testing.T, a, b *side) {
	testutil.Eventually(t, testutil.Limit, func() bool {
		for _, x := range []*side{a, b} {
			x.poll()
			_, _, err := x.ch.Peek()
			require.NoError(t, err)
			_, err = x.ch.Progress(false)
			require.NoError(t, err)
		}
		idle := func(x *side) bool { return x.ch.due == 0 && !x.ch.rz.asked && x.ch.rz.next == nil }
		return idle(a) && idle(b)
	}, "the rings are settled")
}

func resizable() Options {
	return Options{Blocks: 8, BlockSize: 192, Mode: ModeLap, Steps: []Step{{Blocks: 64, BlockSize: 1024}, {Blocks: 64, BlockSize: 8192}}}
}

// A ring grows as asked, within the steps and the budgets of both sides, and shrinks.
func TestRingFollows(t *testing.T) {
	t.Parallel()
	oa, ob := resizable(), resizable()
	oa.Budget, ob.Budget = NewBudget(1<<20), NewBudget(600<<10)
	a, b := pair(t, simLinks(sim.Options{}), oa, ob)
	first := a.ch.Stats().Memory
	require.LessOrEqual(t, first, 8<<10)
	size := func() int { return a.ch.Stats().PeerRing }
	require.Equal(t, 8*192, size())

	a.ch.Want(4096)
	settleRings(t, a, b)
	require.Equal(t, 64<<10, size(), "the smallest step that suffices")
	require.Equal(t, 64<<10, b.ch.Stats().Ring)
	require.Equal(t, int64(68<<10), ob.Budget.Stats().Used)
	a.ch.Want(512 << 10)
	settleRings(t, a, b)
	require.Equal(t, 512<<10, size(), "the largest step")
	require.Equal(t, BudgetStats{Used: 516 << 10, Limit: 600 << 10, Grown: 2}, ob.Budget.Stats())
	require.Equal(t, 25*8192-16, a.ch.MaxPayload(flowctl.Data, true))

	a.ch.Want(1 << 30)
	settleRings(t, a, b)
	moves, _ := a.ch.Moved()
	require.Equal(t, uint32(2), moves, "there is none larger")

	// Either side may shrink; the other direction is not affected.
	b.ch.Want(4096)
	settleRings(t, a, b)
	require.Equal(t, 64<<10, b.ch.Stats().PeerRing)
	b.ch.Shrink()
	settleRings(t, a, b)
	require.Equal(t, 8*192, size())
	require.Equal(t, 8*192, b.ch.Stats().PeerRing)
	require.Zero(t, oa.Budget.Stats().Used)
	require.Zero(t, ob.Budget.Stats().Used)
	require.Equal(t, first, a.ch.Stats().Memory)
	require.Equal(t, first, b.ch.Stats().Memory)
}

// What one of the two budgets has no room for does not come, and the owner is told; later asks
// are spaced, and succeed when there is room.
func TestBudgetRefuses(t *testing.T) {
	t.Parallel()
	for _, writer := range []bool{true, false} {
		t.Run(fmt.Sprint("writer ", writer), func(t *testing.T) {
			oa, ob := resizable(), resizable()
			oa.Budget, ob.Budget = NewBudget(1<<20), NewBudget(1<<20)
			poor := ob.Budget
			if writer {
				poor = oa.Budget
			}
			short := 0
			poor.Short = func() { short++ }
			require.True(t, poor.take(1<<20))
			a, b := pair(t, simLinks(sim.Options{}), oa, ob)
			a.ch.Want(4096)
			settleRings(t, a, b)
			moves, _ := a.ch.Moved()
			require.Zero(t, moves)
			require.Positive(t, short)
			require.Equal(t, uint64(short), poor.Stats().Refused)
			require.NoError(t, a.ch.Err())
			poor.give(1 << 20)
			require.Zero(t, oa.Budget.Stats().Used+ob.Budget.Stats().Used)
			asks := 0
			for ; moves == 0; asks++ {
				require.Less(t, asks, 64)
				a.ch.Want(4096)
				settleRings(t, a, b)
				moves, _ = a.ch.Moved()
			}
			require.Greater(t, asks, 2, "asks are spaced")
		})
	}
}

// A side without steps keeps its ring.
func TestNoSteps(t *testing.T) {
	t.Parallel()
	o := resizable()
	o.Steps = nil
	a, b := pair(t, simLinks(sim.Options{}), resizable(), o)
	a.ch.Want(4096)
	settleRings(t, a, b)
	moves, _ := a.ch.Moved()
	require.Zero(t, moves)
	_, err := Open(a.link, a.ep, Options{Steps: []Step{{Blocks: 64}, {Blocks: 32}}})
	require.ErrorIs(t, err, ErrOptions)
}

// Messages about rings that no correct peer sends end the channel.
func TestHostileResizing(t *testing.T) {
	t.Parallel()
	good := goodSetup()
	good.Mode = ModeLap
	bad := good
	bad.Geometry.Blocks = 15
	ask := binary.LittleEndian.AppendUint64(nil, 1<<40)
	for name, c := range map[string]struct {
		kind    uint8
		payload []byte
		meta    bool
		times   int
		want    string
	}{
		"unknown kind":           {kind: 9, want: "unknown"},
		"short ask":              {kind: kindAsk, payload: ask[:7], want: "unknown"},
		"ask with meta":          {kind: kindAsk, payload: ask, meta: true, want: "malformed"},
		"short offer":            {kind: kindOffer, payload: good.Append(nil)[:43], want: "unknown"},
		"bad geometry":           {kind: kindOffer, payload: bad.Append(nil), want: "power of two"},
		"two offers":             {kind: kindOffer, payload: good.Append(nil), times: 2, want: "unexpected offer"},
		"move to nowhere":        {kind: kindMove, want: "answer to no offer"},
		"decline of nothing":     {kind: kindDecline, want: "answer to no offer"},
		"refusal of nothing":     {kind: kindRefuse, want: "not asked for"},
		"longer than one block":  {kind: kindAsk, payload: make([]byte, 200), want: "malformed"},
		"more than there can be": {kind: kindAsk, payload: ask, times: 20, want: "in sequence"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{Blocks: 32, BlockSize: 192, Mode: ModeLap, Steps: []Step{{Blocks: 64}}}
			a, b := pair(t, simLinks(sim.Options{}), o, o)
			for range max(c.times, 1) {
				res, err := a.ch.Send(Envelope{Kind: c.kind, Class: flowctl.Control, HasMeta: c.meta, flags: flagRing}, c.payload)
				require.NoError(t, err)
				require.Equal(t, Accepted, res)
			}
			a.poll()
			_, ok, err := b.ch.Peek()
			require.False(t, ok)
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, c.want)
			require.NoError(t, b.ep.Err(), "the link lives")
		})
	}
}

// A ring that is offered but too large for this side is declined, and the next asks of a peer
// that declines are refused without an allocation.
func TestDeclinedOffer(t *testing.T) {
	t.Parallel()
	oa := resizable()
	oa.MaxPeerRing = 128 << 10
	a, b := pair(t, simLinks(sim.Options{}), oa, resizable())
	a.ch.Want(1 << 18)
	settleRings(t, a, b)
	require.NoError(t, a.ch.Err())
	require.Equal(t, 8*192, a.ch.Stats().PeerRing)
	require.Positive(t, b.ch.rz.deaf)
	for range 64 {
		a.ch.Want(4096)
		settleRings(t, a, b)
	}
	require.Equal(t, 64<<10, a.ch.Stats().PeerRing)
}

// keyed is a region whose key was asked for once asked has been called.
type keyed struct {
	fabric.Region
	asked func()
}

func (k *keyed) Key() fabric.RemoteKey {
	k.asked()
	return k.Region.Key()
}

// A refusal that had no room goes before the offer of the first ring that came after it, also if
// the peer makes room between the two.
func TestOfferFollowsRefusal(t *testing.T) {
	t.Parallel()
	ob := resizable()
	ob.Budget = NewBudget(100 << 10)
	a, b := pair(t, simLinks(sim.Options{}), resizable(), ob)
	a.ch.Want(4096)
	settleRings(t, a, b)
	require.Equal(t, 64<<10, b.ch.Stats().Ring)
	for res := Accepted; res == Accepted; {
		var err error
		res, err = b.ch.Send(Envelope{Class: flowctl.Control}, []byte{1})
		require.NoError(t, err)
	}
	a.ch.Want(512 << 10)
	_, err := a.ch.Progress(false)
	require.NoError(t, err)
	a.poll()
	_, _, err = b.ch.Peek()
	require.NoError(t, err)
	_, err = b.ch.Progress(false)
	require.NoError(t, err)
	require.EqualValues(t, dueRefuse, b.ch.due)

	b.ch.Shrink()
	buf := make([]byte, 1)
	b.ch.rz.home.reg = &keyed{b.ch.rz.home.reg, func() {
		a.poll()
		for ok := true; ok; {
			var err error
			_, ok, err = a.ch.Recv(buf)
			require.NoError(t, err)
		}
		_, err := a.ch.Progress(false)
		require.NoError(t, err)
		b.poll()
	}}
	_, err = b.ch.Progress(false)
	require.NoError(t, err)
	b.ch.setup(b.ch.rz.next) // makes room if that did not ask
	settleRings(t, a, b)
	settleRings(t, a, b) // what b sent last
	require.Equal(t, 8*192, b.ch.Stats().Ring)
}

// A credit word of the ring before is accepted until the first one of the present ring, and then
// no longer.
func TestCreditOfTheRingBefore(t *testing.T) {
	t.Parallel()
	a, b := pair(t, simLinks(sim.Options{}), resizable(), resizable())
	buf := make([]byte, 200)
	send := func(n int) {
		for i := 0; i < n; {
			res, err := a.ch.Send(Envelope{}, buf[:100])
			require.NoError(t, err)
			if res == Accepted {
				i++
			}
			b.poll()
			a.poll()
			for ok := true; ok; {
				_, ok, err = b.ch.Recv(buf)
				require.NoError(t, err)
			}
			_, err = a.ch.Progress(false)
			require.NoError(t, err)
		}
	}
	send(5)
	a.ch.Want(4096)
	settleRings(t, a, b)
	a.pokeCell(creditCell, a.ch.rz.before.Head()<<1|1)
	_, err := a.ch.Progress(true)
	require.NoError(t, err)
	require.True(t, a.ch.tx.PeerSleeps(), "a late word of the ring before")
	send(100)
	a.pokeCell(creditCell, 5<<1)
	_, err = a.ch.Progress(true)
	require.ErrorIs(t, err, flowctl.ErrCursorBack)
}

// pokeCell is poke for a cell.
func (s *side) pokeCell(cell int, w uint64) {
	binary.LittleEndian.PutUint64(s.ch.cells[cell:], w)
}

// Messages in the ring before and in the present one arrive after the sender's end.
func TestDrainAcrossRings(t *testing.T) {
	t.Parallel()
	a, b := pair(t, simLinks(sim.Options{}), resizable(), resizable())
	msg := func(i byte) {
		testutil.Eventually(t, testutil.Limit, func() bool {
			a.poll()
			_, err := a.ch.Progress(false)
			require.NoError(t, err)
			res, err := a.ch.Send(Envelope{}, []byte{i})
			require.NoError(t, err)
			return res == Accepted
		}, "message %d", i)
	}
	a.ch.Want(4096)
	testutil.Eventually(t, testutil.Limit, func() bool { // the offer is at the sender
		a.poll()
		_, err := a.ch.Progress(false)
		require.NoError(t, err)
		_, _, err = b.ch.Peek()
		require.NoError(t, err)
		_, err = b.ch.Progress(false)
		require.NoError(t, err)
		return b.ch.rz.next != nil && b.ch.due == 0
	}, "an offer")
	msg(1)
	_, _, err := a.ch.Peek()
	require.NoError(t, err)
	for i := byte(2); i < 20; i++ {
		msg(i)
	}
	moves, _ := a.ch.Moved()
	require.Equal(t, uint32(1), moves)
	b.ch.fail(fabric.ErrPeerGone)
	require.True(t, b.ch.Drain())
	buf := make([]byte, 1)
	for i := byte(1); i < 20; i++ {
		_, ok, err := b.ch.Recv(buf)
		require.NoError(t, err)
		require.True(t, ok, "message %d", i)
		require.Equal(t, i, buf[0])
	}
	_, ok, err := b.ch.Recv(buf)
	require.NoError(t, err)
	require.False(t, ok)
}

// FuzzResizing lets the fuzzer choose network, rings and script of rings that are replaced.
func FuzzResizing(f *testing.F) {
	fuzzNetworks(f, 17, 10, func(t *testing.T, seed uint64, rng *rand.Rand, o sim.Options, oa, ob Options) {
		oa.Steps, ob.Steps = someSteps(rng, oa), someSteps(rng, ob)
		a, b := pair(t, simLinks(o), oa, ob)
		newScript(t, seed, a, b).runResizing(60)
	})
}

// FuzzAside gives a receiver any message about rings, and any number of them: it never accesses
// memory outside its rings, and takes no more of its budget than one offer and one ring.
func FuzzAside(f *testing.F) {
	s := goodSetup()
	s.Mode = ModeLap
	f.Add(uint8(kindAsk), binary.LittleEndian.AppendUint64(nil, 4096), uint8(3))
	f.Add(uint8(kindOffer), s.Append(nil), uint8(1))
	f.Add(uint8(kindMove), []byte{}, uint8(1))
	f.Add(uint8(kindDecline), []byte{}, uint8(2))
	f.Fuzz(func(t *testing.T, kind uint8, payload []byte, times uint8) {
		o := resizable()
		o.Budget = NewBudget(1 << 20)
		a, b := pair(t, simLinks(sim.Options{}), o, o)
		if len(payload) > a.ch.MaxPayload(flowctl.Control, false) {
			return
		}
		for range times % 4 {
			_, err := a.ch.Send(Envelope{Kind: kind, Class: flowctl.Control, flags: flagRing}, payload)
			require.NoError(t, err)
			a.poll()
			_, ok, err := b.ch.Peek()
			require.False(t, ok)
			if err != nil {
				require.ErrorIs(t, err, ErrCorrupt)
				return
			}
			_, _ = b.ch.Progress(false)
			require.LessOrEqual(t, o.Budget.Stats().Used, int64(1<<20))
		}
	})
}
