package gather

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// flat is the payload that pieces stand for.
func flat(pieces []Piece) (b []byte) {
	for _, p := range pieces {
		b = append(b, p.Data...)
	}
	return b
}

// Whatever the batch and the limits: the gathers, taken apart one after the
// other, are the batch.
func TestPackAndSplit(t *testing.T) {
	t.Parallel()
	var s Splitter
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		es, _ := randomEntries(rng, Seq, 1+rng.IntN(200), 1<<rng.IntN(9))
		msgs := make([]Message, len(es))
		for i, e := range es {
			msgs[i] = Message{Data: testutil.Payload(int(e.Size), uint64(i), 0), At: e.At, LKey: 9, Registered: rng.IntN(2) == 0}
		}
		l := Limits{Bytes: 600 + rng.IntN(4000), InPlace: rng.IntN(6)}
		threshold := 1 + rng.IntN(100)
		p := NewPacker(l, threshold)
		for done := 0; done < len(msgs); {
			n, err := p.Pack(msgs[done:])
			require.NoError(t, err)
			require.Positive(t, n)
			require.Len(t, p.Pieces(), n+1)
			inPlace := 0
			for i, pc := range p.Pieces()[1:] {
				m := msgs[done+i]
				want := m.Registered && len(m.Data) >= threshold && l.InPlace > 0
				require.Equal(t, Piece{Data: m.Data, LKey: 9, InPlace: want}, pc)
				if want {
					inPlace++
				}
			}
			require.LessOrEqual(t, inPlace, l.InPlace)
			require.False(t, p.Pieces()[0].InPlace, "the header's buffer is used again")
			b := flat(p.Pieces())
			require.LessOrEqual(t, len(b), l.Bytes)
			require.NoError(t, s.Open(nil, b))
			for range n {
				require.True(t, s.Next())
				require.Equal(t, es[done], s.Entry())
				got, ok := s.Bytes()
				require.True(t, ok)
				require.NoError(t, testutil.Verify(got, uint64(done), 0))
				done++
			}
			require.False(t, s.Next())
		}
	}
}

// A gather ends where it must, and not before.
func TestPackCuts(t *testing.T) {
	t.Parallel()
	msg := func(n int, at uint64) Message { return Message{Data: make([]byte, n), At: at, Registered: true} }
	for name, c := range map[string]struct {
		l      Limits
		msgs   []Message
		n      int
		pieces int // in place
		err    error
	}{
		"exactly full":          {Limits{Bytes: 24 + 30}, []Message{msg(10, 1), msg(10, 2), msg(10, 3)}, 3, 0, nil},
		"one byte too many":     {Limits{Bytes: 24 + 29}, []Message{msg(10, 1), msg(10, 2), msg(10, 3)}, 2, 0, nil},
		"header grows with one": {Limits{Bytes: 24 + 40}, []Message{msg(10, 1), msg(10, 2), msg(10, 3), msg(10, 900)}, 3, 0, nil},
		"pieces":                {Limits{Bytes: 9000, InPlace: 2}, []Message{msg(600, 1), msg(600, 2), msg(600, 3)}, 2, 2, nil},
		"small ones are copied": {Limits{Bytes: 9000, InPlace: 1}, []Message{msg(600, 1), msg(6, 2), msg(6, 3), msg(600, 4)}, 3, 1, nil},
		"number steps back":     {Limits{Bytes: 9000}, []Message{msg(8, 5), msg(8, 4)}, 1, 0, nil},
		"too large":             {Limits{Bytes: 100}, []Message{msg(77, 5)}, 0, 0, ErrTooLarge},
		"just not too large":    {Limits{Bytes: 100}, []Message{msg(76, 5)}, 1, 0, nil},
		"nothing":               {Limits{Bytes: 100}, nil, 0, 0, nil},
	} {
		p := NewPacker(c.l, 0)
		n, err := p.Pack(c.msgs)
		require.ErrorIs(t, err, c.err, name)
		require.Equal(t, c.n, n, name)
		if n == 0 {
			require.Empty(t, p.Pieces(), name)
			continue
		}
		direct := 0
		for _, pc := range p.Pieces() {
			if pc.InPlace {
				direct++
			}
		}
		require.Equal(t, c.pieces, direct, name)
	}
	p := NewPacker(Limits{Bytes: 9000, InPlace: 9}, -1)
	_, err := p.Pack([]Message{msg(5000, 1)})
	require.NoError(t, err)
	require.False(t, p.Pieces()[1].InPlace, "never in place")
}

// The SGEs of a message, read one after the other, are the message, and what was
// copied stands in the window where it will stand at the target.
func TestLay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var pieces []Piece
		var want []byte
		for range rng.IntN(12) {
			mem := testutil.Scratch(t, 64)[:rng.IntN(60)]
			testutil.Fill(mem, seed, uint64(len(want)))
			want = append(want, mem...)
			pieces = append(pieces, Piece{Data: mem, LKey: 5, InPlace: rng.IntN(2) == 0})
		}
		budget := rng.IntN(8)
		window := testutil.Scratch(t, len(want)+40)
		sges := make([]fabric.SGE, 2*budget+3)
		l := NewList(pieces, budget)
		var got []byte
		var list []fabric.SGE
		cuts := []int{0, rng.IntN(len(want) + 1), rng.IntN(len(want) + 1), len(want)}
		if cuts[1] > cuts[2] {
			cuts[1], cuts[2] = cuts[2], cuts[1]
		}
		total := 0
		for i := range 3 {
			w, tail := window[cuts[i]:cuts[i+1]], 0
			if i == 2 {
				tail = 8
				w = window[cuts[2] : cuts[3]+8]
				testutil.Fill(w[len(w)-8:], seed, uint64(len(want)))
			}
			n := l.Lay(sges[total:], w, 7, tail)
			list = append(list, sges[total:total+n]...)
			for _, s := range sges[total : total+n] {
				b := fabric.BytesAt(s.Addr, int(s.Len))
				require.NotEmpty(t, b)
				if s.LKey == 7 {
					require.Equal(t, fabric.Addr(window)+uint64(len(got)), s.Addr, "copied elsewhere than where it will lie")
				} else {
					require.Equal(t, uint32(5), s.LKey)
				}
				got = append(got, b...)
			}
			total += n
		}
		require.NoError(t, testutil.Verify(got, seed, 0), "seed %d", seed)
		require.Len(t, got, len(want)+8)
		for i := 1; i < len(list); i++ {
			same := list[i].LKey == 7 && list[i-1].LKey == 7
			at := int(list[i].Addr - fabric.Addr(window))
			require.True(t, !same || at == cuts[1] || at == cuts[2], "neighbours share one SGE unless a window ends between them")
		}
		require.GreaterOrEqual(t, l.Left(), 0)
		// Another list that skips starts where this one was.
		m := NewList(pieces, 0)
		m.Skip(cuts[2])
		n := m.Lay(sges, window[cuts[2]:cuts[3]+8], 7, 8)
		require.Equal(t, 1, n, "all copied: one SGE")
		require.NoError(t, testutil.Verify(fabric.BytesAt(sges[0].Addr, int(sges[0].Len)), seed, uint64(cuts[2])))
	}
}

func TestPackDoesNotAllocate(t *testing.T) {
	msgs := make([]Message, 64)
	for i := range msgs {
		msgs[i] = Message{Data: make([]byte, 64), At: uint64(i)}
	}
	p := NewPacker(Limits{Bytes: 1 << 20}, 0)
	_, err := p.Pack(msgs)
	require.NoError(t, err)
	b := flat(p.Pieces())
	var s Splitter
	dst := make([]byte, 64)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if n, err := p.Pack(msgs); n != 64 || err != nil {
			t.Error("pack failed")
		}
		if s.Open(nil, b[:40], b[40:]) != nil {
			t.Error("open failed")
		}
		for s.Next() {
			if _, ok := s.Bytes(); !ok {
				s.Copy(dst)
			}
		}
	}))
}
