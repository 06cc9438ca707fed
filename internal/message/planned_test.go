package message

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/logp"
)

// strange is a link of random costs, on which any plan may be best: where bytes
// become dearer with size, gathers are cut.
func strange(t *testing.T, rng *rand.Rand) logp.Params {
	curve := func(base, perByte float64) logp.Curve {
		y := base * rng.Float64()
		ps := []logp.Point{{Size: 0, NS: y}}
		prev := int64(0)
		for x := int64(64); x <= 1<<20; x *= 4 {
			y += float64(x-prev) * perByte * 2 * math.Pow(rng.Float64(), 3)
			prev = x
			ps = append(ps, logp.Point{Size: x, NS: y})
		}
		c, err := logp.NewCurve(ps)
		require.NoError(t, err)
		return c
	}
	return logp.Params{
		Os: curve(100, 0.5), Or: curve(100, 0), C: curve(20, 0.1), R: curve(2000, 0.1),
		G: 300 * rng.Float64(), Ls: 500 * rng.Float64(), Lh: 200 * rng.Float64(),
		CPU: logp.Posting{A: 100 * rng.Float64(), B: 50 * rng.Float64()},
	}
}

// What Explain shows is what goes over the wire: as many gathers, descriptors and
// eager messages, and each message the way it says.
func TestThePlanIsCarriedOut(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 1))
	kinds := map[logp.ModeSet]int{}
	cut, runs := 0, 0
	rounds := 60
	if testutil.Race {
		rounds = 15
	}
	for range rounds {
		p := strange(t, rng)
		o := Options{Params: &p, Ring: eager.Options{Blocks: 1024, BlockSize: 1024, Every: 128}}
		a, b := pair(t, simLinks(sim.Options{}), 4<<20, o, o)
		mem, theirs := a.reg.Bytes(), b.reg.Bytes()
		for range 6 {
			n, at := 2+rng.IntN(60), 0
			outs, ins := make([]Out, n), make([]In, n)
			notes, got := make([]note, n), make([]note, n)
			for i := range outs {
				size := min(int(math.Exp2(15*rng.Float64())), 500<<10/n)
				o := &outs[i]
				o.Data, o.Done = mem[at:at+size:at+size], &notes[i]
				if rng.IntN(4) > 0 {
					o.LKey, o.RKey, o.Registered = a.reg.LKey(), a.reg.Key().RKey, true
				}
				o.Urgent = rng.IntN(30) == 0
				ins[i] = In{Buf: theirs[at : at+size], LKey: b.reg.LKey(), Registered: true, Done: &got[i]}
				at += size + 1 // no neighbours: they would share a read
			}
			testutil.Eventually(t, 10*time.Second, func() bool { // an empty ring
				require.NoError(t, a.turn())
				require.NoError(t, b.turn())
				l := a.ch.Limits()
				return a.ch.ring.Free(0) > int(l.Ring/l.EagerBlock)*3/4 && !a.ch.rendezvous.Full()
			}, "room in the rings")
			e, err := a.ch.Explain(outs)
			require.NoError(t, err)
			before := a.ch.Stats()
			for i := range outs {
				a.ch.Send(&outs[i])
			}
			_, _, err = a.ch.Progress()
			require.NoError(t, err)
			s := a.ch.Stats()
			require.Zero(t, s.Backlog, "all went at once")
			var parts [logp.NumModes]int
			var messages [logp.NumModes]uint64
			for _, q := range e.Plan().Parts {
				parts[q.Mode]++
				messages[q.Mode] += uint64(len(q.Messages))
				for _, k := range q.Messages {
					if e.Why == logp.WhyCoalesced || len(a.ch.batch.modes) == 0 {
						break // not planned, or gathered without a batch
					}
					require.Equal(t, q.Mode, a.ch.batch.modes[k], "message %d", k)
				}
			}
			require.EqualValues(t, parts[logp.Gather], s.Gathers-before.Gathers, "%s", e.Reason)
			require.EqualValues(t, parts[logp.Scatter], s.Descriptors-before.Descriptors, "%s", e.Reason)
			for m := range messages {
				require.Equal(t, messages[m], s.Messages[m]-before.Messages[m], "%v: %s", logp.Mode(m), e.Reason)
			}
			var used logp.ModeSet
			for m, k := range messages {
				if k > 0 {
					used = used.With(logp.Mode(m))
				}
			}
			kinds[used]++
			if e.Why == logp.WhyCoalesced {
				runs++
			}
			if parts[logp.Gather] > 1 {
				cut++
			}
			for i := range ins { // not before: known destinations need no plan
				b.ch.Recv(&ins[i])
			}
			testutil.Eventually(t, 10*time.Second, func() bool {
				require.NoError(t, a.turn())
				require.NoError(t, b.turn())
				return notes[n-1].n+got[n-1].n == 2
			}, "all messages there")
			for i := range got {
				require.NoError(t, got[i].err)
			}
		}
	}
	require.Greater(t, len(kinds), 3, "%v", kinds)
	require.Greater(t, cut, rounds/2)
	require.Positive(t, runs)
}

// A small message is not announced with large ones of other tags: it would need a descriptor to
// itself, and a read. Where receiving costs much, the plan would have one for all of them.
func TestSmallMessageApart(t *testing.T) {
	t.Parallel()
	costs := func(a, perByte float64) logp.Curve {
		c, err := logp.NewCurve([]logp.Point{{Size: 0, NS: a}, {Size: 1 << 20, NS: a + perByte*(1<<20)}})
		require.NoError(t, err)
		return c
	}
	p := logp.Params{Os: costs(100, 0.1), Or: costs(5000, 0), C: costs(20, 1), R: costs(0, 0), G: 100, Ls: 100, Lh: 100}
	for _, c := range []struct {
		tags        []uint32 // of the messages: 40 bytes first, then 64 KiB and 40 bytes in turn
		ring        int
		descriptors int
	}{
		{[]uint32{1, 2}, 1, 1},
		{[]uint32{1, 2, 1}, 2, 1},
		{[]uint32{1, 1}, 0, 1},
	} {
		a, _ := pair(t, simLinks(sim.Options{}), 1<<20, Options{Params: &p}, Options{Params: &p})
		outs, notes, at := make([]Out, len(c.tags)), make([]note, len(c.tags)), 0
		for i := range outs {
			size := [...]int{40, 64 << 10}[i%2]
			outs[i] = Out{Data: a.reg.Bytes()[at : at+size], Tag: c.tags[i], LKey: a.reg.LKey(), RKey: a.reg.Key().RKey, Registered: true, Done: &notes[i]}
			at += size + 1
		}
		e, err := a.ch.Explain(outs)
		require.NoError(t, err)
		for i := range outs {
			a.ch.Send(&outs[i])
		}
		_, _, err = a.ch.Progress()
		require.NoError(t, err)
		s := a.ch.Stats()
		require.EqualValues(t, c.ring, s.Messages[logp.Eager]+s.Messages[logp.Gather], "tags %v: %s", c.tags, e.Reason)
		require.EqualValues(t, c.descriptors, s.Descriptors, "tags %v: %s", c.tags, e.Reason)
		require.Len(t, e.Plan().Parts[0].Messages, len(c.tags)-c.ring, "%s", e.Reason)
	}
}

// Which backlogs go as runs depends on how many messages they have: what a gather saves is
// for each message, what it costs is once.
func TestRunsByNumber(t *testing.T) {
	t.Parallel()
	flat, err := logp.NewCurve([]logp.Point{{NS: 100}})
	require.NoError(t, err)
	// A gather costs 350 ns beyond an eager message, 0.1 a byte, and saves 150 a message.
	p := logp.Params{Os: flat, G: 50, Ls: 5000}
	p.Extra[logp.Gather] = logp.Extra{Fixed: 350, PerByte: 0.1}
	o := Options{Params: &p, Ring: eager.Options{Blocks: 64}, InPlace: 4 << 10}
	a, _ := pair(t, simLinks(sim.Options{}), 1<<20, o, o)
	for _, c := range []struct {
		n, size int
		run     bool
	}{
		{1, 8, false}, {2, 8, false}, {3, 8, false}, {4, 8, true}, {4, 128, true}, {4, 300, false}, {7, 128, true},
		{8, 512, true}, {8, 1000, false}, {64, 512, true},
	} {
		outs := make([]Out, c.n)
		for i := range outs {
			outs[i].Data = a.reg.Bytes()[:c.size]
		}
		e, err := a.ch.Explain(outs)
		require.NoError(t, err)
		require.Equal(t, c.run, e.Why == logp.WhyCoalesced, "%d of %d bytes: %v", c.n, c.size, e.Reason)
	}
	// Whatever goes as a run would be gathered, in any mixture of sizes.
	rng := rand.New(rand.NewPCG(6, 1))
	runs := 0
	for range 40 {
		p := strange(t, rng)
		require.NoError(t, a.ch.SetParams(&p))
		m := &a.ch.sender.model
		for n := 1; n <= 64; n += 1 + n/4 {
			most := m.runMax[runClass(n)]
			if most < 0 {
				continue
			}
			b := equal(&logp.Batch{Limits: m.limits}, n, 0)
			for i := range b.Messages {
				b.Messages[i].Size = int64(rng.IntN(most + 1))
			}
			require.True(t, m.isRun(b))
			gather, err := p.Cost(b, logp.Gather)
			require.NoError(t, err)
			best, err := p.Choose(b)
			require.NoError(t, err)
			require.LessOrEqual(t, gather.Total(), 1.1*best.Costs[best.Mode].Total(), "%d messages of up to %d bytes", n, most)
			runs++
		}
	}
	require.Greater(t, runs, 50)
}

// A backlog that is planned as one gather, as the one before, goes without a batch, and
// arrives; another one does not.
func TestGatheredAgain(t *testing.T) {
	t.Parallel()
	flat, err := logp.NewCurve([]logp.Point{{NS: 100}})
	require.NoError(t, err)
	// A gather costs 500 ns beyond an eager message and saves 150 a message: there are runs of
	// four messages and more, and none of three.
	p := logp.Params{Os: flat, G: 50, Ls: 5000}
	p.Extra[logp.Gather] = logp.Extra{Fixed: 350}
	o := Options{Params: &p, Ring: eager.Options{Blocks: 64}, InPlace: 2 << 10}
	a, b := pair(t, simLinks(sim.Options{}), 1<<20, o, o)
	for i, c := range []struct {
		sizes  []int
		sync   bool
		batch  bool // goes as a batch
		gather uint64
	}{
		{sizes: []int{900, 300, 20, 7, 1200}, batch: true, gather: 1}, // longer than messages of runs
		{sizes: []int{900, 300, 20, 7, 1200}, gather: 1},
		{sizes: []int{7, 1200, 0, 300, 20, 900}, gather: 1},
		{sizes: []int{7, 1200, 20, 300, 3000}, batch: true, gather: 1}, // one in place
		{sizes: []int{900, 300, 20, 7, 1200}, gather: 1},
		{sizes: []int{900, 300, 20, 7, 1200}, sync: true, batch: true, gather: 1},
	} {
		m := &a.ch.sender.model
		for class := range m.runMax {
			m.runMax[class] = min(m.runMax[class], 512)
		}
		outs, ins := make([]Out, len(c.sizes)), make([]In, len(c.sizes))
		notes, got := make([]note, len(outs)), make([]note, len(outs))
		at := 0
		for k, size := range c.sizes {
			outs[k] = Out{
				Data: a.reg.Bytes()[at : at+size : at+size], Tag: uint32(k % 3), Done: &notes[k],
				LKey: a.reg.LKey(), RKey: a.reg.Key().RKey, Registered: true, Sync: c.sync && k == 1,
			}
			for x := range outs[k].Data {
				outs[k].Data[x] = byte(i + k + x)
			}
			ins[k] = In{Buf: b.reg.Bytes()[at : at+size : at+size], Tag: uint32(k % 3), Done: &got[k]}
			at += size + 8
		}
		before := a.ch.Stats()
		for k := range outs {
			a.ch.Send(&outs[k])
		}
		_, _, err = a.ch.Progress()
		require.NoError(t, err)
		s := a.ch.Stats()
		require.Equal(t, c.batch, len(a.ch.batch.modes) > 0, "backlog %d", i)
		require.EqualValues(t, 1, s.Plans-before.Plans, "backlog %d", i)
		require.Equal(t, c.gather, s.Gathers-before.Gathers, "backlog %d", i)
		for k := range ins {
			b.ch.Recv(&ins[k])
		}
		testutil.Eventually(t, testutil.Limit, func() bool {
			require.NoError(t, a.turn())
			require.NoError(t, b.turn())
			for k := range got {
				if got[k].n+notes[k].n < 2 {
					return false
				}
			}
			return true
		}, "all messages there")
		for k, size := range c.sizes {
			require.NoError(t, got[k].err)
			require.Equal(t, size, got[k].size)
			for x, v := range ins[k].Buf {
				require.Equal(t, byte(i+k+x), v)
			}
		}
	}
}

// The limits that are known before there is a channel are those of one with a ring of that size.
func TestCommonLimits(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, simLinks(sim.Options{}), 1<<20, Options{}, Options{})
	got, want := CommonLimits(), a.ch.Limits()
	want.EagerInPlace, want.GatherCopy, want.MaxSGE = 0, 0, 0 // of registered memory
	require.Equal(t, want, got)
}
