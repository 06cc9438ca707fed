package message

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/sampling"
)

// Scripts that advertise write messages in place, and come too late at times.
func TestAdvertsAreUsed(t *testing.T) {
	t.Parallel()
	var written, late uint64
	for seed := range uint64(6) {
		_, w, l := script(t, simLinks(sim.Options{Seed: seed, MaxDelay: 5}), seed, "auto", always, 300, 40000)
		t.Logf("%d written, %d adverts late", w, l)
		written, late = written+w, late+l
	}
	require.Greater(t, written, uint64(50))
	require.Positive(t, late)
}

// Where the model chooses, a message is written from a size on that is not above
// the one from which it would be announced.
func TestWrittenFrom(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]func(c *Channel) bool{
		"auto": func(c *Channel) bool {
			return c.model.alone < c.model.writeFrom && c.model.writeFrom <= c.advertiseFrom && c.advertiseFrom < 1<<20
		},
		"eager": func(c *Channel) bool {
			return c.model.writeFrom == c.advertiseFrom && int64(c.model.writeFrom) > c.Limits().EagerMax
		},
		"scatter": func(c *Channel) bool { return c.model.writeFrom == 1 && c.advertiseFrom == 1 },
		"table":   func(c *Channel) bool { return c.model.writeFrom == 3001 && c.advertiseFrom == 3001 },
	} {
		a, _ := pair(t, simLinks(sim.Options{}), 64, Options{}, Options{})
		require.NoError(t, a.ch.SetPolicy(policies[policy]))
		require.True(t, want(a.ch), "%s: alone %d, written from %d, announced from %d", policy, a.ch.model.alone, a.ch.model.writeFrom, a.ch.advertiseFrom)
	}
}

// Memory that is not registered, and takes long to reach, is advertised from a larger size on.
func TestPrivateReceivesAreAdvertisedLater(t *testing.T) {
	t.Parallel()
	p := sampling.Defaults("shm")
	var err error
	p.R, err = logp.NewCurve([]logp.Point{{NS: 100}})
	require.NoError(t, err)
	bounds := func() (registered, private int) {
		a, _ := pair(t, simLinks(sim.Options{}), 64, Options{Params: &p}, Options{Params: &p})
		return a.ch.advertiseFrom, a.ch.advertisePrivate
	}
	before, soon := bounds()
	p.R, err = logp.NewCurve([]logp.Point{{NS: 2000}, {Size: 1 << 20, NS: 60_000}})
	require.NoError(t, err)
	after, late := bounds()
	require.Equal(t, before, after)
	require.Greater(t, late, soon)
	require.Greater(t, late, after)

	a, b := pair(t, simLinks(sim.Options{}), 1<<20, Options{Params: &p}, Options{Params: &p})
	b.ch.advertised.outcomes.always = true
	var got [2]note
	own := make([]byte, after)
	b.ch.Recv(&In{Buf: own, Tag: 1, Done: &got[0]})
	require.Zero(t, b.ch.advertised.waiting)
	b.recv(0, after, 2, &got[1])
	require.Equal(t, 1, b.ch.advertised.waiting)
	var sent [2]note
	copy(a.send(0, after, 1, &sent[0]), own)
	a.send(after, after, 2, &sent[1])
	testutil.Eventually(t, testutil.Limit, func() bool {
		require.NoError(t, a.turn())
		require.NoError(t, b.turn())
		return got[0].n+got[1].n+sent[0].n+sent[1].n == 4
	}, "both messages there")
}

// What is decided without a plan under a table is what the planner decides for a message alone.
func TestBoundsFollowTables(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, simLinks(sim.Options{}), 64, Options{}, Options{})
	rng := rand.New(rand.NewPCG(5, 6))
	size := func() int64 { return 1 + rng.Int64N(1<<(1+rng.IntN(14))) }
	var alone, written int
	for range 300 {
		var p logp.Policy
		for range 1 + rng.IntN(4) {
			r := logp.Rule{MaxSize: size(), MaxCount: rng.IntN(3), First: rng.IntN(2), Mode: logp.Mode(rng.IntN(logp.NumModes))}
			if rng.IntN(4) == 0 {
				r.MaxSize = 0
			}
			p.Table = append(p.Table, r)
		}
		require.NoError(t, a.ch.SetPolicy(p))
		m := &a.ch.model
		for range 200 {
			n := size()
			x, err := m.planner.Plan(&logp.Batch{Messages: []logp.Message{{Size: n, Flags: logp.Registered | logp.DestRegistered}}, Limits: m.limits})
			require.NoError(t, err)
			only := x.Parts[0].Mode
			byTable := false
			for _, r := range p.Table {
				byTable = byTable || r.MaxSize == 0 || n <= r.MaxSize
			}
			if !byTable {
				continue // the model decides, by octaves
			}
			if int(n) <= m.alone {
				alone++
				require.Equal(t, logp.Eager, only, "%d bytes, %+v", n, p.Table)
			}
			if int(n) >= m.writeFrom {
				written++
				require.Equal(t, logp.Scatter, only, "%d bytes, %+v", n, p.Table)
			}
		}
	}
	require.Positive(t, alone)
	require.Positive(t, written)
}

// firstPair joins two channels that advertise receives of 100 bytes and more,
// and write what is as long.
func firstPair(t *testing.T, o sim.Options) (a, b *side) {
	a, b = pair(t, simLinks(o), 1<<16, Options{}, Options{})
	for _, s := range []*side{a, b} {
		s.ch.advertiseFrom, s.ch.advertisePrivate, s.ch.model.writeFrom, s.ch.advertised.outcomes.always, s.ch.model.alone = 100, 100, 100, true, 99
	}
	return a, b
}

func (s *side) recv(at, n int, tag uint32, k *note) []byte {
	buf := s.reg.Bytes()[at:][:n]
	s.ch.Recv(&In{Buf: buf, LKey: s.reg.LKey(), RKey: s.reg.Key().RKey, Registered: true, Remote: true, Tag: tag, Any: tag == 0, Done: k})
	return buf
}

func (s *side) send(at, n int, tag uint32, k *note) []byte {
	data := s.reg.Bytes()[at:][:n]
	testutil.Fill(data, uint64(tag), uint64(at))
	s.ch.Send(&Out{Data: data, LKey: s.reg.LKey(), RKey: s.reg.Key().RKey, Registered: true, Tag: tag, Done: k})
	return data
}

func turns(t *testing.T, n int, sides ...*side) {
	for range n {
		for _, s := range sides {
			require.NoError(t, s.turn())
		}
	}
}

// Receives for two tags and for any, messages of all kinds: each lands where
// matching puts it, and what could be written was.
func TestReceiverFirst(t *testing.T) {
	t.Parallel()
	a, b := firstPair(t, sim.Options{})
	var got [6]note
	bufs := [][]byte{
		b.recv(0, 1000, 1, &got[0]),
		b.recv(1000, 500, 2, &got[1]),
		b.recv(2000, 2000, 2, &got[2]),
		b.recv(4000, 1000, 0, &got[3]),
		b.recv(5000, 1000, 1, &got[4]),
		b.recv(6000, 1000, 0, &got[5]),
	}
	turns(t, 4, b, a)
	require.Equal(t, uint64(6), b.ch.Stats().Adverts)
	require.Len(t, a.ch.dests.open, 6)
	x, err := a.ch.Explain([]Out{
		{Data: make([]byte, 800), Tag: 2}, {Data: make([]byte, 50), Tag: 1},
		{Data: make([]byte, 1000), Tag: 7}, {Data: make([]byte, 1000), Tag: 2},
	})
	require.NoError(t, err)
	require.Equal(t, 1, x.Messages)
	require.Equal(t, 3, x.Written.Messages)
	require.Contains(t, x.String(), "3 messages, 2800 bytes, written")
	require.Len(t, a.ch.dests.open, 6)
	var sent note
	m1 := a.send(0, 800, 2, &sent)     // too long for receive 1, which ends: written to 2
	m2 := a.send(1000, 50, 1, &sent)   // short: through the ring, to receive 0
	m3 := a.send(2000, 1000, 7, &sent) // written to 3
	m4 := a.send(3000, 999, 1, &sent)  // written to 4
	m5 := a.send(4000, 100, 1, &sent)  // written to 5
	turns(t, 20, a, b)
	require.Equal(t, 5, sent.n)
	require.ErrorIs(t, got[1].err, ErrShortBuffer)
	for i, want := range map[int][]byte{2: m1, 0: m2, 3: m3, 4: m4, 5: m5} {
		require.Equal(t, 1, got[i].n, i)
		require.NoError(t, got[i].err)
		require.Equal(t, want, bufs[i][:got[i].size], i)
	}
	require.Equal(t, uint32(7), got[3].tag)
	require.Equal(t, uint64(4), a.ch.Stats().Written)
	require.Zero(t, b.ch.Stats().LateAdverts)
}

// An advert that crosses the message comes too late; the receive behind it, which
// the message does not take, is advertised again when that is known.
func TestAdvertCrossesMessage(t *testing.T) {
	t.Parallel()
	for size, name := range map[int]string{50: "ring", 30000: "announced"} {
		t.Run(name, func(t *testing.T) {
			a, b := firstPair(t, sim.Options{})
			var sent, first, second note
			m1 := a.send(0, size, 3, &sent)
			require.NoError(t, a.turn()) // on its way
			buf := b.recv(0, 30000, 3, &first)
			b.recv(30000, 30000, 3, &second)
			b.ch.advertise() // before what came is looked at
			require.Equal(t, uint64(2), b.ch.Stats().Adverts)
			turns(t, 20, b, a)
			require.Equal(t, 1, first.n)
			require.Equal(t, m1, buf[:first.size])
			require.Zero(t, second.n)
			require.GreaterOrEqual(t, b.ch.Stats().LateAdverts, uint64(2))
			require.Zero(t, a.ch.Stats().Written)

			m2 := a.send(0, 30000, 3, &sent)
			turns(t, 20, a, b)
			require.Equal(t, uint64(1), a.ch.Stats().Written)
			require.Equal(t, 1, second.n)
			require.Equal(t, m2, b.reg.Bytes()[30000:60000])
		})
	}
}

// A receive whose message has come is not over before its advert is answered:
// until then the peer may write there.
func TestReceiveWaitsForAnswer(t *testing.T) {
	t.Parallel()
	a, b := firstPair(t, sim.Options{})
	var sent, got note
	a.send(0, 50, 3, &sent)
	require.NoError(t, a.turn())
	b.recv(0, 1000, 3, &got)
	b.ch.advertise()
	turns(t, 5, b) // the peer does nothing meanwhile
	require.Equal(t, uint64(1), b.ch.Stats().Adverts)
	require.Zero(t, got.n)
	turns(t, 5, a, b)
	require.Equal(t, 1, got.n)
	require.NoError(t, got.err)
	require.Equal(t, 50, got.size)
}

// A receive is not advertised while earlier ones from any peer wait for the end of another
// peer's messages: when that peer dies, they return to their places, and the next messages are
// theirs. Without them it is advertised, and both sides count receives alike.
func TestAdvertBehindReceivesThatReturn(t *testing.T) {
	t.Parallel()
	shared := &Shared{}
	shared.Again = shared.Post
	with := func(from int) (a, b *side) {
		a, b = pair(t, simLinks(sim.Options{Seed: 1, MaxDelay: 60}), 1<<16, Options{Policy: policies["table"]}, Options{From: from, Shared: shared})
		for _, s := range []*side{a, b} {
			s.ch.advertiseFrom, s.ch.advertisePrivate, s.ch.model.writeFrom, s.ch.advertised.outcomes.always, s.ch.model.alone = 100, 100, 100, true, 99
		}
		return a, b
	}
	a1, b1 := with(1)
	a2, b2 := with(2)
	var sent, gotOne note
	var gotAny [2]note
	var bufs [3][]byte
	for i := range gotAny {
		bufs[i] = make([]byte, 1<<15)
		in := &In{Buf: bufs[i], Tag: 5, Done: &gotAny[i], Order: shared.Order()}
		require.False(t, b1.ch.Offer(in))
		require.False(t, b2.ch.Offer(in))
		shared.Post(in)
	}
	a2.send(0, 1<<15, 5, &sent) // announced: the first one fetches it
	a2.send(1<<15, 50, 5, &sent)
	for b2.ch.next < 3 {
		turns(t, 1, a2, b2)
	}
	require.Zero(t, shared.Len())
	require.Zero(t, gotAny[0].n+gotAny[1].n, "the first one is being fetched, the second one waits for it")

	bufs[2] = b1.reg.Bytes()[:1000]
	b1.ch.Recv(&In{
		Buf: bufs[2], LKey: b1.reg.LKey(), RKey: b1.reg.Key().RKey, Registered: true, Remote: true,
		Tag: 5, Done: &gotOne, Order: shared.Order(),
	})
	turns(t, 100, b1, a1)
	require.Zero(t, b1.ch.Stats().Adverts)

	require.NoError(t, a2.ep.Close())
	for range 200 {
		_ = b2.turn()
	}
	require.NoError(t, b2.ep.Close())
	for range 50 {
		b2.poll()
	}
	b2.ch.Sever(fabric.ErrPeerGone)
	require.Zero(t, gotAny[0].n+gotAny[1].n)
	require.Equal(t, 2, shared.Len())

	for i, got := range []*note{&gotAny[0], &gotAny[1], &gotOne} {
		msg := a1.send(i*1000, 1000, 5, &sent)
		for range 10_000 {
			if got.n > 0 {
				break
			}
			turns(t, 1, a1, b1)
		}
		require.Equal(t, 1, got.n, "%d", i)
		require.NoError(t, got.err, "%d", i)
		require.Equal(t, msg, bufs[i][:got.size], "%d", i)
		turns(t, 200, b1, a1)
	}
	require.EqualValues(t, 1, b1.ch.Stats().Adverts)
	require.EqualValues(t, 1, a1.ch.Stats().Written)
	require.Zero(t, shared.away.n)
}

// A receive from any peer that is withdrawn while its message is on its way ends if that is
// lost. The others return to their places.
func TestWithdrawnReceiveDoesNotReturn(t *testing.T) {
	t.Parallel()
	shared := &Shared{}
	shared.Again = shared.Post
	a, b := pair(t, simLinks(sim.Options{Seed: 1, MaxDelay: 60}), 1<<16, Options{Policy: policies["table"]}, Options{From: 1, Shared: shared})
	var sent note
	var got [2]note
	var ins [2]*In
	for i := range ins {
		ins[i] = &In{Buf: make([]byte, 1<<15), Tag: 5, Done: &got[i], Order: shared.Order()}
		require.False(t, b.ch.Offer(ins[i]))
		shared.Post(ins[i])
	}
	a.send(0, 1<<15, 5, &sent) // announced: the first one fetches it
	a.send(1<<15, 50, 5, &sent)
	for b.ch.next < 3 {
		turns(t, 1, a, b)
	}
	require.Zero(t, shared.Len())
	require.False(t, shared.Cancel(ins[0]))
	require.Zero(t, got[0].n+got[1].n)
	require.NoError(t, a.ep.Close())
	for range 200 {
		_ = b.turn()
	}
	require.NoError(t, b.ep.Close())
	for range 50 {
		b.poll()
	}
	b.ch.Sever(fabric.ErrPeerGone)
	require.Equal(t, 1, got[0].n)
	require.ErrorIs(t, got[0].err, ErrCanceled)
	require.Zero(t, got[1].n)
	require.Equal(t, 1, shared.Len())
	require.Zero(t, shared.away.n)
}

// Nor when the channel ends: only when the peer cannot reach the memory.
func TestFailureKeepsAdvertised(t *testing.T) {
	t.Parallel()
	a, b := firstPair(t, sim.Options{})
	var open, plain note
	b.recv(0, 1000, 3, &open)
	b.recv(2000, 50, 4, &plain)
	turns(t, 3, b, a)
	b.ch.fail(ErrPeer)
	b.ch.finish()
	require.Equal(t, 1, plain.n)
	require.Zero(t, open.n)
	require.NoError(t, b.ep.Close())
	b.poll()
	b.ch.Sever(nil)
	require.Equal(t, 1, open.n)
	require.ErrorIs(t, open.err, ErrPeer)
}

// A peer may keep a receive that ends for as long as a write to it may take besides the limit,
// whyever it ends.
func TestAnswerIsOverdue(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, a, b *side, in *In){
		"withdrawn": func(_ *testing.T, _, b *side, in *In) { b.ch.Cancel(in) },
		"message": func(t *testing.T, a, b *side, _ *In) {
			var sent note
			a.ch.dests.open = nil // as if the advert had not come yet
			a.send(0, 50, 3, &sent)
			require.NoError(t, a.turn())
			turns(t, 3, b)
		},
		"memory": func(_ *testing.T, _, b *side, _ *In) { b.ch.advertised.recall() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n, limit = 1 << 15, time.Second
			a, b := firstPair(t, sim.Options{})
			var got note
			in := &In{Buf: b.reg.Bytes()[:n], LKey: b.reg.LKey(), RKey: b.reg.Key().RKey, Registered: true, Remote: true, Tag: 3, Done: &got}
			b.ch.Recv(in)
			turns(t, 3, b, a)
			require.Equal(t, uint64(1), b.ch.Stats().Adverts)
			require.False(t, b.ch.Overdue(time.Hour, limit), "nothing is owed")
			end(t, a, b, in)
			require.Zero(t, got.n)
			require.False(t, b.ch.Overdue(limit, limit), "a write may take longer")
			require.True(t, b.ch.Overdue(n*time.Second/answerRate+1, limit))
			if name == "message" {
				return // this peer cannot answer any longer
			}
			turns(t, 20, a, b)
			require.False(t, b.ch.Overdue(time.Hour, limit), "answered")
			if name == "memory" {
				b.ch.Cancel(in)
				turns(t, 20, a, b)
			}
			require.Equal(t, 1, got.n)
		})
	}
}

// A message that was written before its turn holds no registration while it waits: messages before
// it may need that, and nothing would return it.
func TestWrittenHoldsNoRegistration(t *testing.T) {
	t.Parallel()
	a, b := firstPair(t, sim.Options{})
	var got [2]note
	own := make([]byte, 1000)
	b.ch.Recv(&In{Buf: own, Tag: 1, Done: &got[0]})
	b.recv(0, 1000, 2, &got[1])
	turns(t, 3, b, a)
	ads := append([]destination(nil), a.ch.dests.open...)
	require.Len(t, ads, 2)
	require.Equal(t, 1, b.ch.pins.cache.Stats().Leases)
	testutil.Fill(a.reg.Bytes()[:100], 3, 4)
	a.lie(t, ads[0].id, 2, 1) // as if message 1 were announced
	testutil.Eventually(t, testutil.Limit, func() bool { turns(t, 1, a, b); return len(b.ch.advertised.written) == 1 }, "written")
	require.Zero(t, got[0].n)
	require.Zero(t, b.ch.pins.cache.Stats().Leases)
	a.lie(t, ads[1].id, 1, 2)
	testutil.Eventually(t, testutil.Limit, func() bool { turns(t, 1, a, b); return got[0].n+got[1].n == 2 }, "in order")
	require.NoError(t, got[0].err)
	require.Equal(t, 100, got[0].size)
	require.NoError(t, testutil.Verify(own[:100], 3, 4))
}

// What a peer may lie about adverts ends the channel with a typed error, and
// nothing is delivered where it does not belong.
func TestAdvertLies(t *testing.T) {
	t.Parallel()
	for name, lie := range map[string]func(t *testing.T, liar, victim *side, ads []destination){
		"number of the past": func(t *testing.T, liar, _ *side, ads []destination) { liar.lie(t, ads[0].id, 0, 1) },
		"wrong tag":          func(t *testing.T, liar, _ *side, ads []destination) { liar.lie(t, ads[0].id, 1, 9) },
		"the second first":   func(t *testing.T, liar, _ *side, ads []destination) { liar.lie(t, ads[1].id, 1, 1) },
		"a number twice": func(t *testing.T, liar, _ *side, ads []destination) {
			liar.lie(t, ads[0].id, 1, 1)
			liar.lie(t, ads[1].id, 1, 1)
		},
		"a number twice, later": func(t *testing.T, liar, _ *side, ads []destination) {
			liar.lie(t, ads[0].id, 2, 1)
			liar.lie(t, ads[1].id, 2, 1)
			var n note
			liar.ch.Send(&Out{Data: []byte{1}, Tag: 5, Done: &n}) // number 1
			liar.ch.dests.open = nil
		},
		"sent and written": func(t *testing.T, liar, victim *side, ads []destination) {
			liar.ch.dests.open = nil
			var n note
			liar.ch.Send(&Out{Data: []byte{1}, Tag: 1, Done: &n})
			turns(t, 2, liar, victim)
			liar.lie(t, ads[0].id, 2, 1)
		},
		"declined for no reason": func(t *testing.T, liar, _ *side, ads []destination) {
			require.NoError(t, liar.ch.rendezvous.Decline(ads[0].id, 5))
		},
		"advert of the future": func(t *testing.T, liar, _ *side, _ []destination) { liar.advert(t, rdv.Want{Pos: 2, Tag: 1}) },
		"advert of nothing":    func(t *testing.T, liar, _ *side, _ []destination) { liar.advert(t, rdv.Want{Tag: 1}) },
		"any and a tag": func(t *testing.T, liar, _ *side, _ []destination) {
			liar.advert(t, rdv.Want{Pos: 1, Tag: 1, Note: noteAny})
		},
		"answers of the future": func(t *testing.T, liar, _ *side, _ []destination) {
			liar.advert(t, rdv.Want{Pos: 1, Tag: 1, Note: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			liar, victim := firstPair(t, sim.Options{})
			var got [2]note
			victim.recv(0, 1000, 1, &got[0])
			victim.recv(1000, 1000, 1, &got[1])
			turns(t, 3, victim, liar)
			ads := append([]destination(nil), liar.ch.dests.open...)
			require.Len(t, ads, 2)
			lie(t, liar, victim, ads)
			for range 10 {
				_, _ = liar.turn(), victim.turn()
			}
			require.ErrorIs(t, victim.ch.Err(), ErrPeer)
			require.NoError(t, victim.ep.Err(), "only the channel ends")
			victim.ch.Sever(nil)
			for i := range got {
				require.Equal(t, 1, got[i].n)
			}
		})
	}
}

// lie writes to an advert what matching would not.
func (s *side) lie(t *testing.T, id rdv.ID, pos uint64, tag uint32) {
	_, err := s.ch.rendezvous.Write(id, pos, tag, []fabric.SGE{fabric.NewSGE(s.reg.Bytes()[:100], s.reg.LKey())}, s.ch.groups.put(nil))
	require.NoError(t, err)
}

func (s *side) advert(t *testing.T, w rdv.Want) rdv.ID {
	id, _, err := s.ch.rendezvous.Advertise(w, s.reg.Key(), s.ch.advertised.put(&In{}))
	require.NoError(t, err)
	return id
}
