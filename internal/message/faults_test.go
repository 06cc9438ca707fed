package message

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/rdv"
)

// A channel whose connection ends ends everything posted, once, whatever
// state it is in.
func TestPeerGone(t *testing.T) {
	for policy := range policies {
		for seed := range uint64(20) {
			t.Run(fmt.Sprintf("%s/%d", policy, seed), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, 5))
				o := randomOptions(rng)
				o.Policy = policies[policy]
				a, b := pair(t, simLinks(sim.Options{Seed: seed, MaxDelay: 10, MaxCompletionDelay: 10}), scriptMem, o, o)
				var notes []*note
				add := func() *note {
					n := &note{}
					notes = append(notes, n)
					return n
				}
				p := &player{t: t, rng: rng, s: a, seed: seed, big: 20000}
				hand := func() {
					for range 10 {
						m := &Out{Tag: rng.Uint32N(2), Done: add()}
						m.Data, m.LKey, m.RKey, m.Registered = p.memory(p.size())
						a.ch.Send(m)
						in := &In{Buf: make([]byte, 20000), Any: true, Done: add()}
						b.ch.Recv(in)
						out := &Out{Data: make([]byte, p.size()), Done: add()}
						b.ch.Send(out)
						a.ch.Recv(&In{Buf: make([]byte, 20000), Tag: rng.Uint32N(2), Done: add()})
					}
				}
				hand()
				for range rng.IntN(60) {
					_, _ = a.turn(), b.turn()
				}
				require.NoError(t, b.ep.Close())
				for i := range 200 {
					_, _ = a.turn(), b.turn()
					if i == 3 {
						hand()
					}
				}
				require.NoError(t, a.ep.Close())
				for range 64 {
					a.poll()
					b.poll()
				}
				require.Error(t, a.ch.Err())
				require.NoError(t, a.ch.Close())
				require.NoError(t, b.ch.Close())
				hand()
				for i, n := range notes {
					require.Equal(t, 1, n.n, "%d", i)
				}
			})
		}
	}
}

// What ends in a channel that was closed without trouble ends too.
func TestCloseEndsAll(t *testing.T) {
	t.Parallel()
	a, b := pair(t, simLinks(sim.Options{}), 1<<16, Options{}, Options{})
	var in, out, alone note
	a.ch.Recv(&In{Buf: make([]byte, 8), Tag: 9, Done: &in})
	big := a.reg.Bytes()[:60000]
	a.ch.Send(&Out{Data: big, LKey: a.reg.LKey(), RKey: a.reg.Key().RKey, Registered: true, Done: &out})
	a.ch.Send(&Out{Data: []byte("x"), Done: &alone})
	require.NoError(t, a.turn())
	require.NoError(t, a.ep.Close())
	require.NoError(t, b.ep.Close())
	for range 8 {
		a.poll()
		b.poll()
	}
	require.NoError(t, a.ch.Close())
	require.NoError(t, a.ch.Close(), "twice")
	require.Equal(t, 1, in.n)
	require.ErrorIs(t, in.err, ErrClosed)
	require.Equal(t, 1, out.n)
	require.Equal(t, 1, alone.n)
	var late note
	a.ch.Send(&Out{Data: []byte("x"), Done: &late})
	require.ErrorIs(t, late.err, ErrClosed)
	a.ch.Recv(&In{Buf: make([]byte, 8), Done: &late})
	require.Equal(t, 2, late.n)
}

// The path of messages does not allocate once its buffers have grown.
func TestNoAllocation(t *testing.T) {
	for name, c := range map[string]struct {
		n, size int
		policy  string
	}{
		"one small": {1, 8, "auto"},
		"gather":    {64, 64, "gather"},
		"eager":     {16, 64, "eager"},
		"in place":  {16, 2000, "gather"},
		"scatter":   {8, 20000, "scatter"},
		"auto":      {32, 300, "auto"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, simLinks(sim.Options{}), 1<<20, Options{Policy: policies[c.policy]}, Options{})
			outs, ins := make([]Out, c.n), make([]In, c.n)
			var sent, got note
			round := func() {
				sent.n, got.n = 0, 0
				for i := range ins {
					ins[i] = In{Buf: b.reg.Bytes()[i*c.size:][:c.size], LKey: b.reg.LKey(), Registered: true, Tag: 5, Done: &got}
					b.ch.Recv(&ins[i])
				}
				for i := range outs {
					outs[i] = Out{Data: a.reg.Bytes()[i*c.size:][:c.size], LKey: a.reg.LKey(), RKey: a.reg.Key().RKey, Registered: true, Tag: 5, Done: &sent}
					a.ch.Send(&outs[i])
				}
				for sent.n < c.n || got.n < c.n {
					if a.turn() != nil || b.turn() != nil {
						t.Fatal(a.ch.Err(), b.ch.Err())
					}
				}
			}
			for range 20 {
				round()
			}
			require.Zero(t, testutil.AllocsPerRun(50, round))
		})
	}
}

// Unregistered memory is pinned and registered for the transfer, and no longer.
func TestPinsAreReleased(t *testing.T) {
	t.Parallel()
	a, b := pair(t, simLinks(sim.Options{}), 64, Options{Policy: policies["scatter"]}, Options{})
	var sent, got note
	data, buf := make([]byte, 50000), make([]byte, 50000)
	data[49999] = 7
	b.ch.Recv(&In{Buf: buf, Any: true, Done: &got})
	a.ch.Send(&Out{Data: data, Done: &sent})
	for sent.n == 0 {
		require.NoError(t, a.turn())
		require.NoError(t, b.turn())
	}
	require.NoError(t, got.err)
	require.Equal(t, data, buf)
	// The links' Close, in pair's clean-up, would find regions still open.
}

// A backlog that cannot go is not planned again in every round.
func TestRefusedIsNotPlannedAgain(t *testing.T) {
	t.Parallel()
	const n = 40 // more than may be announced at once, with a tag each
	a, b := pair(t, simLinks(sim.Options{}), n*20000, Options{Policy: policies["scatter"], Rendezvous: rdv.Options{Transfers: 16}}, Options{})
	var sent, got note
	for i := range n {
		data := a.reg.Bytes()[i*20000:][:20000]
		a.ch.Send(&Out{Data: data, LKey: a.reg.LKey(), RKey: a.reg.Key().RKey, Registered: true, Tag: uint32(i), Done: &sent})
	}
	turn := func() {
		require.NoError(t, a.turn())
		require.NoError(t, b.turn())
	}
	for range 100 {
		turn()
	}
	planned := a.ch.Stats().Plans
	for range 1000 {
		turn()
	}
	require.Equal(t, planned, a.ch.Stats().Plans)
	require.Positive(t, a.ch.Stats().Backlog)
	for range n {
		b.ch.Recv(&In{Buf: make([]byte, 20000), Any: true, Done: &got})
	}
	for i := 0; sent.n < n || got.n < n; i++ {
		require.Less(t, i, 1_000_000)
		turn()
	}
}
