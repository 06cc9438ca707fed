package message

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/logp"
)

// paced is a link in a time of its own, which passes when something is posted: a
// latency a post, a gap and a length for each request.
type paced struct {
	fabric.Endpoint
	w *pace
}

type pace struct {
	t    float64
	slow map[logp.Mode]float64 // of posts that carry such
	post float64               // of the next post besides, once
}

const (
	paceLatency = 1500
	paceGap     = 1000
	paceByte    = 0.1
)

func (e *paced) Post(wrs []fabric.WR) (int, error) {
	ns, mode := paceLatency+float64(len(wrs)-1)*paceGap, logp.Eager
	for i := range wrs {
		ns += paceByte * float64(wrs[i].Len())
		switch {
		case wrs[i].Op == fabric.OpRead:
			mode = logp.Scatter
		case wrs[i].Len() > 120:
			mode = logp.Gather
		}
	}
	if f := e.w.slow[mode]; f > 0 {
		ns *= f
	}
	e.w.t += ns + e.w.post
	e.w.post = 0
	return e.Endpoint.Post(wrs)
}

// paceParams are those of such a link.
func paceParams(t testing.TB) *logp.Params {
	flat, err := logp.NewCurve([]logp.Point{{Size: 0, NS: 0, Conf: 1}, {Size: 1 << 20, NS: 1, Conf: 1}})
	require.NoError(t, err)
	os, err := logp.NewCurve([]logp.Point{{Size: 0, NS: 0, Conf: 1}, {Size: 1 << 20, NS: paceByte * (1 << 20), Conf: 1}})
	require.NoError(t, err)
	return &logp.Params{Os: os, Or: flat, C: flat, R: flat, G: paceGap, Ls: paceLatency, Lh: paceLatency}
}

// pacedPair joins two sides over a link in its own time.
func pacedPair(t testing.TB, o Options) (w *pace, a, b *side) {
	w = &pace{slow: map[logp.Mode]float64{}}
	o.Params, o.clock = paceParams(t), func() int64 { return int64(w.t) }
	la, lb := simLinks(sim.Options{})(t)
	ea, eb := linktest.Join(t, la, lb, fabric.EndpointOptions{ID: 7})
	for s, x := range map[**side]*side{&a: {link: la, ep: &paced{ea, w}}, &b: {link: lb, ep: eb}} {
		var err error
		x.reg, err = x.link.Alloc(1<<20, fabric.AccessAll)
		require.NoError(t, err)
		x.ch, err = Open(x.link, x.ep, o)
		require.NoError(t, err)
		*s = x
		t.Cleanup(func() {
			require.NoError(t, x.ep.Close())
			for range 64 {
				x.poll()
			}
			require.NoError(t, x.ch.Close())
			require.NoError(t, x.reg.Close())
		})
	}
	require.NoError(t, a.ch.Connect(b.ch.Setup()))
	require.NoError(t, b.ch.Connect(a.ch.Setup()))
	return w, a, b
}

// pair2 sends two messages of 64 bytes, and has them received.
type pair2 struct {
	a, b      *side
	outs      [2]Out
	ins       [2]In
	got, sent note
}

func (p *pair2) send(t testing.TB) {
	p.got.n, p.sent.n = 0, 0
	for i := range p.ins {
		in, out := &p.ins[i], &p.outs[i]
		in.Buf, in.Done = p.b.reg.Bytes()[64*i:][:64], &p.got
		p.b.ch.Recv(in)
		out.Data, out.Done = p.a.reg.Bytes()[128*i:][:64], &p.sent
		p.a.ch.Send(out)
	}
	for p.got.n < 2 || p.sent.n < 2 {
		if p.a.turn() != nil || p.b.turn() != nil {
			t.Fatal(p.a.ch.Err(), p.b.ch.Err())
		}
	}
	if err := p.a.turn(); err != nil { // the completion, where one was asked for
		t.Fatal(err)
	}
}

// choice is how the planner would have such a batch go.
func (p *pair2) choice(t testing.TB) logp.Mode {
	plan, err := p.a.ch.model.planner.Plan(&logp.Batch{Messages: []logp.Message{{Size: 64, Flags: logp.DestRegistered}, {Size: 64, Flags: logp.DestRegistered}}, Limits: p.a.ch.Limits()})
	require.NoError(t, err)
	require.Len(t, plan.Parts, 1)
	return plan.Parts[0].Mode
}

// A mode in which the link becomes four times as slow is left, and taken again
// when it has recovered, both after a bounded number of batches; whoever asked to
// hear of it hears once.
func TestPlansFollowTheLink(t *testing.T) {
	t.Parallel()
	var drifts []logp.ModeSet
	w, a, b := pacedPair(t, Options{Learn: 16 * learnPlanned, Drift: func(s logp.ModeSet) { drifts = append(drifts, s) }})
	p := &pair2{a: a, b: b}
	until := func(want logp.Mode, most int) (n int) {
		for ; p.choice(t) != want; n++ {
			require.Less(t, n, most, "%+v", a.ch.Stats().Learn)
			p.send(t)
		}
		return n
	}
	for range 1000 {
		p.send(t)
		require.Equal(t, logp.Gather, p.choice(t))
	}
	s := a.ch.Stats().Learn
	require.Greater(t, s.Timed, uint64(50))
	require.Zero(t, s.Told)
	require.Zero(t, s.Lost)
	require.InDelta(t, 1, s.Modes[logp.Gather].Factor, 0.01)

	w.slow[logp.Gather] = 4
	n := until(logp.Eager, 16*60)
	t.Logf("left after %d batches", n)
	for range 8000 {
		p.send(t)
	}
	s = a.ch.Stats().Learn
	require.Equal(t, logp.ModeSet(0).With(logp.Gather), s.Drift)
	require.Equal(t, []logp.ModeSet{s.Drift}, drifts)
	require.Positive(t, s.Tried)

	w.slow[logp.Gather] = 1
	n = until(logp.Gather, 16*150)
	t.Logf("taken again after %d batches", n)
	for range 3000 {
		p.send(t)
	}
	for range 500 {
		p.send(t)
		require.Equal(t, logp.Gather, p.choice(t))
	}
	s = a.ch.Stats().Learn
	require.Zero(t, s.Drift)
	require.Less(t, s.Told, s.Timed/learnPublish, "plans are not thrown away for every sample")
	t.Logf("%+v", s)
}

// A sample in five that says nonsense, as when the process is descheduled, moves
// nothing.
func TestPlansIgnoreOutliers(t *testing.T) {
	t.Parallel()
	w, a, b := pacedPair(t, Options{Learn: 4 * learnPlanned, Drift: func(logp.ModeSet) { t.Error("drift") }})
	p := &pair2{a: a, b: b}
	for i := range 10_000 {
		if i%5 == 0 {
			w.post = 1e7
		}
		p.send(t)
	}
	s := a.ch.Stats().Learn
	require.Greater(t, s.Timed, uint64(1000))
	require.Zero(t, s.Told)
	require.Equal(t, logp.Gather, p.choice(t))
}

func TestLearningIsOffUnlessAskedFor(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Learn: -1}, {Learn: 1, Policy: policies["gather"]}, {Learn: 1, Policy: policies["table"]}} {
		_, a, b := pacedPair(t, o)
		p := &pair2{a: a, b: b}
		for range 100 {
			p.send(t)
		}
		a.ch.learn.left = 1 // as after ever so many
		p.send(t)
		s := a.ch.Stats().Learn
		require.Zero(t, s.Timed+s.Lost+s.Busy)
		require.Equal(t, 1., s.Modes[logp.Gather].Factor)
	}
}

// Transfers that wait for a receive say nothing of the link; those that do not, do.
func TestLateReceiversAreNotTheLink(t *testing.T) {
	t.Parallel()
	_, a, b := pacedPair(t, Options{Learn: 1, Adverts: -1})
	var got, sent note
	send := func(receiveFirst bool) {
		got.n, sent.n = 0, 0
		in := In{Buf: b.reg.Bytes()[:256<<10], LKey: b.reg.LKey(), Registered: true, Done: &got}
		if receiveFirst {
			b.ch.Recv(&in)
		}
		a.ch.Send(&Out{Data: a.reg.Bytes()[:256<<10], LKey: a.reg.LKey(), RKey: a.reg.Key().RKey, Registered: true, Done: &sent})
		for i := 0; got.n == 0 || sent.n == 0; i++ {
			require.NoError(t, a.turn())
			require.NoError(t, b.turn())
			if i == 10 && !receiveFirst {
				b.ch.Recv(&in)
			}
			require.Less(t, i, 1000)
		}
	}
	for range 100 {
		send(false)
	}
	s := a.ch.Stats()
	require.Equal(t, uint64(100), s.Messages[logp.Scatter])
	require.Zero(t, s.Learn.Timed)
	require.Greater(t, s.Learn.Waited, uint64(20))
	for range 100 {
		send(true)
	}
	require.Greater(t, a.ch.Stats().Learn.Timed, uint64(20))
	require.Equal(t, s.Learn.Waited, a.ch.Stats().Learn.Waited)
}

// A link that has not completed the backlog before is not timed.
func TestABusyLinkIsNotTimed(t *testing.T) {
	t.Parallel()
	_, a, b := pacedPair(t, Options{Learn: 1})
	var got, sent note
	for i := range 20 {
		b.ch.Recv(&In{Buf: b.reg.Bytes()[64*i:][:64], Done: &got})
		a.ch.Send(&Out{Data: a.reg.Bytes()[:64], Done: &sent})
		_, _, err := a.ch.Progress() // no poll: nothing completes
		require.NoError(t, err)
	}
	s := a.ch.Stats().Learn
	require.Zero(t, s.Timed)
	require.Positive(t, s.Busy)
	for got.n < 20 {
		require.NoError(t, a.turn())
		require.NoError(t, b.turn())
	}
}

// In a stream the link is busy at each attempt, so that there are fewer and fewer; the first time
// that it is not, they are as frequent as before.
func TestABusyLinkIsAskedSeldom(t *testing.T) {
	t.Parallel()
	const every = 64
	_, a, _ := pacedPair(t, Options{Learn: every})
	l := &a.ch.learn
	busy := func() int {
		require.True(t, l.timeNext(0), "the backlog before is signalled")
		require.False(t, l.timeNext(1))
		return l.left
	}
	for range 2 {
		for n := every / learnRetry; n < learnPatience*every; n *= 2 {
			require.Equal(t, n, busy())
		}
		for range 3 {
			require.Equal(t, learnPatience*every, busy())
		}
		require.True(t, l.timeNext(0))
		require.True(t, l.timeNext(0))
		require.Equal(t, timing, l.step)
		l.step = resting
	}
}

func TestLearningAllocatesNothing(t *testing.T) {
	_, a, b := pacedPair(t, Options{Learn: 1})
	p := &pair2{a: a, b: b}
	for range 200 {
		p.send(t)
	}
	before := a.ch.Stats().Learn.Timed
	require.Zero(t, testutil.AllocsPerRun(200, func() { p.send(t) }))
	require.Greater(t, a.ch.Stats().Learn.Timed, before+50)
}

// What learning costs the hot path, a message at a time: without, when nothing is
// timed, and with the default interval. The three take turns, and the least of many short
// runs counts: on a shared machine everything else is somebody else's.
func BenchmarkLearning(b *testing.B) {
	type run struct {
		s, r      *side
		got, sent note
		out       Out
		in        In
		least     time.Duration
	}
	runs := map[string]*run{"off": nil, "idle": nil, "on": nil}
	for name := range runs {
		s, r := pair(b, realLinks["shm"], 4096, Options{Learn: map[string]int{"idle": math.MaxInt, "on": DefaultLearn}[name]}, Options{})
		runs[name] = &run{s: s, r: r, least: math.MaxInt64}
	}
	const each = 2000
	for b.Loop() {
		for _, x := range runs {
			t := time.Now()
			for range each {
				x.got.n = 0
				x.in.Buf, x.in.Done = x.r.reg.Bytes()[:8], &x.got
				x.r.ch.Recv(&x.in)
				x.out.Data, x.out.Done = x.s.reg.Bytes()[:8], &x.sent
				x.s.ch.Send(&x.out)
				for x.got.n == 0 {
					if x.s.turn() != nil || x.r.turn() != nil {
						b.Fatal(x.s.ch.Err(), x.r.ch.Err())
					}
				}
			}
			x.least = min(x.least, time.Since(t))
		}
	}
	for name, x := range runs {
		b.ReportMetric(float64(x.least)/each, name+"-ns/msg")
	}
	if runs["on"].s.ch.Stats().Learn.Timed == 0 {
		b.Fatal("nothing was timed")
	}
}
