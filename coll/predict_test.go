package coll

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// The prediction of a barrier of two ranks is one message each way at once. If they share a
// processor, it does the work of both, and passes to a rank that waits when both have polled.
func TestPredictOneMessage(t *testing.T) {
	p := sampling.Defaults("tcp")
	got, err := Predict(&p, false, "barrier", 0, 2)
	require.NoError(t, err)
	f := figuresOf(&p, false, memoryRates{})
	require.Equal(t, "dissemination", got[0].Algorithm)
	send, latency, receive := at(&f.Sender, 0), at(&f.Latency, 0), at(&f.Receiver, 0)
	require.InDelta(t, send+latency+receive, got[0].NS, 1e-6)
	f.procs = 1
	shared := f.estimate(call{kind: kindBarrier, alg: algDissemination}, 2, 0)
	first, turn := max(2*send, send+latency)+receive, 2*receive
	require.InDelta(t, max(first, 2*send+latency)+turn+receive, shared, 1e-6)
}

// Predictions exist for every operation whose lengths are known, grow with the data, and
// prefer few rounds for small data and little data for large.
func TestPredict(t *testing.T) {
	for _, link := range []string{"shm", "tcp", "ibv"} {
		p := sampling.Defaults(link)
		for k := kindBarrier; k < numKinds; k++ {
			var before float64
			for _, n := range []int{8, 64 << 10, 4 << 20} {
				es, err := Predict(&p, link == "shm", k.String(), n, 7)
				require.NoError(t, err)
				maps := link == "shm"
				as := available(call{kind: k}, byBoards(call{kind: k, size: 1, count: uint64(n)}, 7).and(byBoard{maps, maps, maps}), false)
				if slices.Contains(as, algCirculant) && n < 64<<10 {
					as = as[1:]
				}
				require.Len(t, es, len(as))
				for i, e := range es {
					require.Positive(t, e.NS)
					require.True(t, i == 0 || e.NS >= es[i-1].NS)
				}
				require.True(t, es[0].NS > before || k == kindBarrier)
				before = es[0].NS
			}
		}
		first := func(op string, n int) string {
			es, err := Predict(&p, link == "shm", op, n, 16)
			require.NoError(t, err)
			return es[0].Algorithm
		}
		if small := first("allreduce", 8); link == "shm" {
			require.Equal(t, "flags", small)
			require.Equal(t, "flags", first("barrier", 0))
			require.Equal(t, "flags", first("bcast", 8))
			for _, op := range []string{"bcast", "reduce", "allreduce", "allgather", "alltoall"} { // the flag comes with the data
				es, err := Predict(&p, true, op, 8, 2)
				require.NoError(t, err)
				require.Equal(t, "flags", es[0].Algorithm, op)
			}
		} else {
			require.Equal(t, "doubling", small, link)
			require.Contains(t, first("bcast", 8), "nomial", link)
		}
		require.NotEqual(t, "doubling", first("Allreduce", 16<<20), link)
		large := 4 << 20
		if link == "shm" {
			large = 64 << 20
		}
		require.Equal(t, "circulant", first("bcast", large), link)
		require.NotEqual(t, "dissemination", first("alltoall", 1<<20), link)
		if link != "shm" {
			require.Contains(t, first("reduce", 4<<10), "nomial", "%s: few messages before little data", link)
		}
	}
	p := sampling.Defaults("shm")
	for _, bad := range []struct {
		op    string
		n, on int
	}{{"fold", 8, 2}, {"bcast", -1, 2}, {"bcast", 1, 0}, {"bcast", 1, 1 << 20}} {
		_, err := Predict(&p, true, bad.op, bad.n, bad.on)
		require.ErrorIs(t, err, ErrInvalid)
	}
}

// The size by which a class is decided is less than a quarter below every size of the class.
func TestClasses(t *testing.T) {
	for n := 8; n < 1<<21; n += 1 + n/50 {
		b := bytesOfClass(class(n))
		require.LessOrEqual(t, b, n)
		require.Less(t, n-8, b+b/4, "%d", n)
	}
}

// The predictions are known on a rank as soon as its first operation for which there is a
// choice is complete, even in what the end of that operation calls.
func TestChoiceAtFirst(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	es := job(t, 2, "shm")
	each(t, worlds(t, es), func(r int, _ *Team) error {
		for i := range 100 {
			team, err := New(ctx, es[r], []int{0, 1}, fmt.Sprint("team ", i))
			if err != nil {
				return err
			}
			over := make(chan error, 1)
			StartAllreduce(team, nil, []int64{1}, Sum).Then(func(err error) {
				if err == nil {
					if _, ps, wrong := team.Choice("allreduce", 8); wrong != nil || len(ps) < 2 {
						err = fmt.Errorf("rank %d, team %d: predictions %v, %v", r, i, ps, wrong)
					}
				}
				over <- err
			})
			select {
			case err = <-over:
			case <-ctx.Done():
				err = fmt.Errorf("rank %d, team %d: %w", r, i, ctx.Err())
			}
			if err != nil {
				return err
			}
			if err := team.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// A choice takes no lock, neither when it predicts nor when it knows the answer.
func TestChoiceWithoutLock(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, job(t, 2, "shm"))
	each(t, ts, func(_ int, team *Team) error { return Allreduce(ctx, team, nil, []int64{1}, Sum) })
	c := ts[0].t
	pr := &problem{call: call{kind: kindBcast, size: 8, count: 1 << 17}, team: 2}
	c.mu.Lock()
	defer c.mu.Unlock()
	testutil.Within(t, testutil.Limit, "a choice", func() {
		for range 2 {
			_, ok := c.choose(pr, 0)
			require.True(t, ok)
		}
	})
	require.Zero(t, testing.AllocsPerRun(10, func() { c.choose(pr, 0) }))

	// Larger operations are not predicted step by step.
	pr.count = mostBytes / 8
	c.choose(pr, 0)
	answers := len(*c.answers.Load())
	pr.count <<= 4
	c.choose(pr, 0)
	require.Len(t, *c.answers.Load(), answers)
}

// The prediction for a size does not depend on the call that asks for it first: all ranks keep the answer.
func TestPredictionIsThatOfAllCallsOfItsSize(t *testing.T) {
	p := sampling.Defaults("tcp")
	f := figuresOf(&p, false, memoryRates{})
	for k := kindBarrier; k < numKinds; k++ {
		for _, n := range []int{1 << 10, 128 << 10, 256 << 10} {
			estimates := func(count int) []estimate {
				c := call{kind: k, size: 1, count: uint64(count)}
				if k >= kindReduce && k <= kindReduceScatterv || k >= kindScan {
					c.op = opSum
				}
				return f.estimates(c, available(c, byBoard{}, false), 5, n)
			}
			require.Equal(t, estimates(n), estimates(n/8), "%v of %d bytes, of 1 and of 8 each", k, n)
		}
	}
}

// Ranks that share processors take turns: a tree, in which data is passed on, then has no
// advantage over the root's messages to and from each rank.
func TestPredictSharedProcessors(t *testing.T) {
	p := sampling.Defaults("shm")
	best := func(op string, n, ranks, procs int) (string, float64) {
		f := figuresOf(&p, true, memoryRates{copy: 0.2, fold: 0.3})
		f.procs, f.boards = procs, byBoard{flags: op == "reduce"} // without them, lines of other processors cost nothing
		c, err := callOf(op, n, ranks)
		require.NoError(t, err)
		es := f.predictions(c, ranks, n)
		return es[0].Algorithm, es[0].NS
	}
	for _, n := range []int{8, 4 << 10, 64 << 10} {
		alg, shared := best("gather", n, 16, 2)
		require.Equal(t, "linear", alg)
		_, own := best("gather", n, 16, 16)
		require.Greater(t, shared, own)
	}
	alg, _ := best("reduce", 8, 8, 2)
	require.Equal(t, "flags", alg)
	alg, _ = best("reduce", 1<<10, 8, 2)
	require.Contains(t, alg, "nomial")
	alg, _ = best("alltoall", 1<<20, 4, 2)
	require.Equal(t, "linear", alg)

	// Without boards, few messages and turns are better than few rounds, and not all ranks can be busy in each.
	p = sampling.Defaults("tcp")
	for procs, circulant := range map[int]bool{15: false, 16: true} {
		f := figuresOf(&p, false, memoryRates{copy: 0.2, fold: 0.3})
		f.procs = procs
		c, err := callOf("bcast", 64<<20, 16)
		require.NoError(t, err)
		ps := f.predictions(c, 16, 64<<20)
		require.Equal(t, circulant, ps[0].Algorithm == "circulant")
		require.Equal(t, circulant, slices.ContainsFunc(ps, func(p Prediction) bool { return p.Algorithm == "chain" }))
	}
	for _, n := range []int{8, 4 << 10} {
		for op, rounds := range map[string]string{"barrier": "dissemination", "allreduce": "doubling"} {
			for procs, want := range map[int]string{2: "linear", 8: rounds} {
				f := figuresOf(&p, false, memoryRates{copy: 0.2, fold: 0.3})
				f.procs = procs
				c, err := callOf(op, n, 8)
				require.NoError(t, err)
				require.Equal(t, want, f.predictions(c, 8, n)[0].Algorithm, "%s of %d bytes by 8 ranks on %d processors", op, n, procs)
			}
		}
	}
}

// Data that does not fit the caches takes the time that was measured.
func TestMemoryRates(t *testing.T) {
	rates()
	before := offheap.InUse(offheap.Staging)
	var stats [2]runtime.MemStats
	runtime.ReadMemStats(&stats[0])
	m := measureRates()
	runtime.ReadMemStats(&stats[1])
	require.Less(t, stats[1].TotalAlloc-stats[0].TotalAlloc, uint64(1<<20), "of the heap")
	require.Equal(t, before, offheap.InUse(offheap.Staging))
	require.Positive(t, m.copyNear)
	require.Positive(t, m.foldNear)
	testutil.Eventually(t, testutil.Limit, func() bool { // a busy machine disturbs a measurement
		m = measureRates()
		return m.copyNear < 1.5*m.copy && m.foldNear < 1.5*m.fold
	}, "what is in a cache is not slower than what is not")
	p := sampling.Defaults("shm")
	warm, cold := figuresOf(&p, true, memoryRates{}), figuresOf(&p, true, memoryRates{copy: 3, fold: 5})
	require.InDelta(t, at(&warm.Copy, coldFrom/2), at(&cold.Copy, coldFrom/2), 1e-9)
	require.InDelta(t, 3<<20, at(&cold.Copy, 1<<20), 1e-3)
	require.InDelta(t, 5<<20, at(&cold.Fold, 1<<20), 1e-3)
	require.Greater(t, at(&cold.Receiver, 1<<20), 3.0*(1<<20))
}

// Between hosts the fastest algorithm for small data is the one that crosses between them once.
// Messages within a host are cheap, whatever the algorithm, and a division into one host, or one
// for each rank, changes nothing.
func TestPredictHosts(t *testing.T) {
	near, far := sampling.Defaults("shm"), sampling.Defaults("tcp")
	for _, op := range []string{"barrier", "bcast", "reduce", "allreduce", "scan", "exscan"} {
		on := func(hosts int) map[string]float64 {
			ps, err := PredictHosts(&near, true, &far, op, 8, 15, hosts)
			require.NoError(t, err)
			if hosts == 3 {
				require.Equal(t, "hierarchy", ps[0].Algorithm, "%s on %d hosts", op, hosts)
			}
			times := map[string]float64{}
			for _, p := range ps {
				times[p.Algorithm] = p.NS
			}
			return times
		}
		all := func(p *logp.Params, maps bool) map[string]float64 {
			ps, err := Predict(p, maps, op, 8, 15)
			require.NoError(t, err)
			times := map[string]float64{}
			for _, p := range ps {
				times[p.Algorithm] = p.NS
			}
			return times
		}
		require.Equal(t, all(&near, true), on(1))
		require.Equal(t, all(&far, false), on(15))
		for alg, ns := range on(3) {
			if alg != "hierarchy" {
				require.Less(t, ns, on(15)[alg], "%s by %s", op, alg)
			}
		}
		require.Less(t, on(3)["hierarchy"], on(5)["hierarchy"], op)
	}
	for _, op := range []string{"gatherv", "scatterv", "alltoallv"} { // the fewer the hosts, the more records at once
		on := func(n, hosts int) string {
			ps, err := PredictHosts(&near, true, &far, op, n, 48, hosts)
			require.NoError(t, err)
			return ps[0].Algorithm
		}
		require.Equal(t, "hierarchy", on(8, 6), op)
		require.Equal(t, "linear", on(8, 48), op)
		require.Equal(t, "linear", on(recordMax+1, 6), op)
	}
	far.Ls, far.Lh, far.CPU.A = 1e6, 1e6, 50e3 // records of 8 ranks come through the ring, and wait for the link once
	f := figuresOf(&far, false, memoryRates{})
	f.hosts, f.near = divide([]int{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}), costsOf(&near, true, memoryRates{})
	for _, k := range []kind{kindScatterv, kindAlltoallv} {
		require.Equal(t, answer{algHierarchy, k.records()}, f.packing(call{kind: k, size: 1}, 16), "%v", k)
	}
	_, err := PredictHosts(&near, true, &far, "bcast", 8, 4, 5)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = PredictHosts(&near, true, &far, "bcast", 8, 4, 0)
	require.ErrorIs(t, err, ErrInvalid)
}

// Data that follows its header is fetched from the size on that the prediction takes it to be, to a
// factor of two, and the prediction takes its way.
func TestPredictFetched(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	for _, link := range []string{"shm", "tcp"} {
		es := job(t, 2, link)
		ts := worlds(t, es)
		each(t, ts, func(_ int, team *Team) error { return Allreduce(ctx, team, nil, []int64{1}, Sum) })
		p := rma.ParamsOf(es[0].Peer(1))
		f := costsOf(&p, link == "shm", memoryRates{})
		for _, n := range []int{int(f.Fetch) / 2, 2 * int(f.Fetch)} {
			require.Equal(t, n > int(f.Fetch), f.message(n, false).fetched)
			const calls = 20
			before := es[0].Stats().Messages
			each(t, ts, func(_ int, team *Team) error {
				if err := team.Force("bcast=binomial"); err != nil {
					return err
				}
				buf := make([]byte, n)
				for range calls {
					if err := Bcast(ctx, team, 0, buf); err != nil {
						return err
					}
				}
				return nil
			})
			after := es[0].Stats().Messages
			fetched := after.Fetched + after.Written - before.Fetched - before.Written
			// On a busy machine some that fit the ring find it full, and are fetched.
			require.Equal(t, n > int(f.Fetch), fetched > calls/2, "%s, %d bytes: %d of %d fetched", link, n, fetched, calls)
		}
	}
}

// Large messages from a host to another take turns, whichever ranks send and receive them; within a
// host they do not.
func TestPredictWires(t *testing.T) {
	f := &figures{hosts: divide([]int{0, 0, 1, 1})}
	w := f.wires(4)
	out, in := w.between(0, 2)
	same, too := w.between(1, 3)
	require.True(t, out == same && in == too && out != in)
	back, _ := w.between(2, 0)
	require.NotSame(t, out, back)
	own, here := w.between(0, 1)
	require.Same(t, own, here)
	require.NotSame(t, own, out)
	other, _ := w.between(1, 0)
	require.NotSame(t, own, other)
}

// Each host has processors in proportion to its ranks.
func TestPredictProcessorsOfHosts(t *testing.T) {
	f := &figures{hosts: divide([]int{0, 1, 0, 1, 0, 0}), procs: 3}
	free := f.processors(6)
	distinct := map[*processor]bool{}
	for r, p := range free {
		distinct[p] = true
		for s, q := range free {
			require.True(t, p != q || f.hosts.of[r] == f.hosts.of[s])
		}
	}
	require.Len(t, distinct, 3)
	f.procs = 0
	distinct = map[*processor]bool{}
	for _, p := range f.processors(6) {
		distinct[p] = true
	}
	require.Len(t, distinct, 6)
}

// What is sent of costs is read again, unless it is no time.
func TestParseCosts(t *testing.T) {
	p := sampling.Defaults("tcp")
	c := costsOf(&p, false, memoryRates{copy: 0.2, fold: 0.3})
	sent := make([]float64, costNumbers)
	c.put(sent)
	var got costs
	require.Len(t, got.all(), costNumbers/figureSizes)
	require.True(t, got.parse(sent))
	require.Equal(t, *c, got)
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e300} {
		for _, at := range []int{0, costNumbers - 1} {
			lie := slices.Clone(sent)
			lie[at] = bad
			require.False(t, got.parse(lie), "%v", bad)
		}
	}
}

// laterBy returns by how much later, in ns, an operation by 2 ranks is predicted to end with other rates of lines.
func laterBy(t *testing.T, op string, alg algorithm, n, procs int, from, to lineRates) float64 {
	return estimateBy(t, op, alg, n, procs, to) - estimateBy(t, op, alg, n, procs, from)
}

// estimateBy returns the predicted time, in ns, of an operation by 2 ranks.
func estimateBy(t *testing.T, op string, alg algorithm, n, procs int, lines lineRates) float64 {
	p := sampling.Defaults("shm")
	c, err := callOf(op, n, 2)
	require.NoError(t, err)
	c.alg = alg
	f := figuresOf(&p, true, memoryRates{})
	f.procs, f.lines = procs, lines
	return f.estimate(c, 2, n)
}

// What a rank reads that another one has written in the operation comes from that rank's processor, at
// the rates that were measured, unless ranks take turns on their processors: out of areas, in
// messages with their header, and in the memory of calls.
func TestPredictLinesOfOthers(t *testing.T) {
	for _, x := range []struct {
		op    string
		alg   algorithm
		n     int
		lines int // bytes
	}{
		{"bcast", algShared, 64 << 10, 64 << 10},
		{"bcast", algBinomial, 4 << 10, 4 << 10},
		{"bcast", algBinomial, 64 << 10, 0}, // the root's call has not written it
		{"reduce", algBinomial, 64 << 10, 64 << 10},
		{"allgather", algLinear, 64 << 10, 64 << 10}, // each rank has copied its block, and sends the copy
		{"allgather", algSingle, 64 << 10, 0},
		{"allreduce", algSingle, 1 << 20, 1 << 19}, // the share that the other has reduced
	} {
		for _, procs := range []int{0, 2, 1} {
			slow := lineRates{page: 30, private: 20, rest: 10}
			want := slow.time(x.lines)
			if procs == 1 {
				want = 0
			}
			later := laterBy(t, x.op, x.alg, x.n, procs, lineRates{}, slow)
			require.InDelta(t, want, later, want/4, "%+v, %d processors", x, procs)
		}
	}
}

// Both ranks copy a large message, if each has a processor: less time passes, but messages in both
// directions do not overlap.
func TestPredictSlices(t *testing.T) {
	p := sampling.Defaults("shm")
	const n = 1 << 20
	for _, x := range []struct {
		op   string
		alg  algorithm
		less float64 // of the time of the receiver's copy
	}{{"bcast", algBinomial, bothCopy}, {"alltoall", algLinear, 2 * bothCopy}} {
		c, err := callOf(x.op, n, 2)
		require.NoError(t, err)
		c.alg = x.alg
		both := figuresOf(&p, true, memoryRates{})
		one := figuresOf(&p, true, memoryRates{})
		one.boards = byBoard{}
		copied := at(&both.Receiver, n)
		require.InDelta(t, copied*(x.less-1), both.estimate(c, 2, n)-one.estimate(c, 2, n), copied/10, x.op)
	}
}

// The root of a bcast copies its share while the others read theirs, and who writes a block that it has just copied takes
// less time than who reads one, if each rank has a processor: these are chosen.
func TestPredictWritten(t *testing.T) {
	p := sampling.Defaults("shm")
	for _, x := range []struct {
		op           string
		n, ranks     int
		less, copied float64 // of the time of a read, and of that of a copy
	}{
		{"bcast", 1 << 20, 2, 0.5, 0}, {"bcast", 4 << 20, 4, 0.25, 0}, {"allgather", 256 << 10, 2, 0, 0.5},
		{"gather", 1 << 20, 2, 0, 1}, {"bcast", 8 << 10, 2, 0, 0}, {"allgather", 64 << 10, 2, 0, 0}, {"alltoall", 1 << 20, 2, 0, 0},
	} {
		c, err := callOf(x.op, x.n, x.ranks)
		require.NoError(t, err)
		c.alg = algSingle
		m := memoryRates{copy: 0.2, fold: 0.3, copyNear: 0.1, foldNear: 0.1}
		apart, near := figuresOf(&p, true, m), figuresOf(&p, true, m)
		near.boards = byBoard{}
		read := at(&apart.Read, x.n)
		want := x.less*read + x.copied*at(&apart.Copy, x.n)
		require.InDelta(t, want, near.estimate(c, x.ranks, x.n)-apart.estimate(c, x.ranks, x.n), read/10, "%+v", x)
		es, err := Predict(&p, true, x.op, x.n, x.ranks)
		require.NoError(t, err)
		best := "single"
		if x.n < sharedFrom {
			best = "shared"
		}
		require.Equal(t, best, es[0].Algorithm, "%+v", x)
	}
}

// What a rank has just used is near: a reduction of pieces that have just been read takes less time than one of memory. What it has used
// before the last nearBytes is not.
func TestPredictNear(t *testing.T) {
	p := sampling.Defaults("shm")
	const n = 1 << 20
	c, err := callOf("reduce", n, 2)
	require.NoError(t, err)
	c.alg = algSingle
	time := func(m memoryRates, ranks int) float64 { return figuresOf(&p, true, m).estimate(c, ranks, n) }
	all := memoryRates{copy: 3, fold: 5, copyNear: 3, foldNear: 5}
	folds, reads := all, all
	folds.foldNear, reads.copyNear = 4, 2
	require.InDelta(t, n/2, time(all, 2)-time(folds, 2), n/100, "a share is reduced where it was read to")
	require.InDelta(t, n/3-readPiece, time(all, 3)-time(reads, 3), n/50, "a share of the third rank is read, to the same piece again and again")

	var r rankState
	first, next := mem{1, 0, nearBytes / 2}, mem{2, 0, nearBytes / 2}
	r.use(first)
	r.use(next)
	require.True(t, r.has(first.part(8, 8)) && r.has(next))
	require.False(t, r.has(mem{3, 0, 8}) || r.has(mem{2, 8, nearBytes / 2}))
	r.use(mem{3, 0, 8})
	require.False(t, r.has(first))
	require.True(t, r.has(next))
	r.use(mem{3, 0, nearBytes + 1})
	require.Empty(t, r.used)
}

// The ranks of a team know the same times of data of other processors, if each has a processor.
func TestLinesMeasured(t *testing.T) {
	if cpu.Allowed().Len() < 2 {
		t.Skip("one processor")
	}
	ctx := testutil.Context(t, testutil.Limit)
	var all [2]lineRates
	var pair [2]*Team
	es := job(t, 2, "shm")
	each(t, worlds(t, es), func(r int, _ *Team) error {
		team, err := New(ctx, es[r], []int{0, 1}, "pair")
		if err != nil {
			return err
		}
		pair[r] = team
		err = Allreduce(ctx, team, nil, []int64{1}, Sum)
		if f := team.t.told.Load(); err == nil {
			all[r] = f.lines
		}
		return err
	})
	require.Equal(t, all[0], all[1])
	require.NotZero(t, all[0].page+all[0].private+all[0].rest)
	for i := range es { // the next team takes what all its ranks know, the longest
		known := lineTimes{uint32(100 * i), 50, uint32(9 - i), uint32(70 + i)}
		pair[i].t.s.lines.Store(&known)
	}
	each(t, worlds(t, es), func(_ int, team *Team) error {
		err := Allreduce(ctx, team, nil, []int64{1}, Sum)
		if f := team.t.told.Load(); err == nil && f.lines != lineRatesOf(lineTimes{100, 50, 9, 71}) {
			err = fmt.Errorf("%+v", f.lines)
		}
		return err
	})
	b := pair[0].t.board
	require.Less(t, lineRatesOf(b.area.measureLines(1)).time(1<<20), 1e9)
	write := func() {
		for _, team := range pair {
			require.True(t, team.t.board.area.writeLines(team.Rank()))
		}
	}
	write()
	require.Zero(t, b.area.measureHop(0, 1, time.Microsecond), "the other rank does not answer")
	write()
	other := make(chan uint32)
	go func() { other <- pair[1].t.board.area.measureHop(1, 0, testutil.Limit) }()
	require.NotZero(t, b.area.measureHop(0, 1, testutil.Limit))
	require.Zero(t, <-other, "the lower rank has it")
	require.NoError(t, pair[0].Close())
	require.False(t, b.area.writeLines(0))
	require.Zero(t, b.area.measureLines(1), "it has let go of the areas")
	require.Zero(t, b.area.measureHop(0, 1, testutil.Limit), "it has let go of the areas")
}

// A hop counts once for a message by flags, and for shared memory once when it is told and half as long again where
// it is read. To write lines that others have read, in an area or a ring, takes as many hops as takeBackAhead lines go in.
func TestPredictHops(t *testing.T) {
	const lines = 16 << 10 / 64.
	for _, x := range []struct {
		op   string
		alg  algorithm
		n    int
		hops float64
	}{
		{"barrier", algFlags, 0, 1},
		{"bcast", algFlags, 8, 1},
		{"allreduce", algFlags, 8, 1},
		{"bcast", algShared, 64, 1.5 + 1./takeBackAhead},
		{"allgather", algShared, 64, 1.5 + 1./takeBackAhead},
		{"bcast", algShared, 16 << 10, 1.5 + lines/takeBackAhead},
		{"reduce", algBinomial, 16 << 10, lines / takeBackAhead},
		{"bcast", algBinomial, 1 << 20, 0}, // it is fetched
	} {
		for _, procs := range []int{0, 2, 1} {
			want := 1000 * x.hops
			if procs == 1 {
				want = 0
			}
			later := laterBy(t, x.op, x.alg, x.n, procs, lineRates{hop: 100}, lineRates{hop: 1100})
			require.InDelta(t, want, later, 1e-6, "%+v, %d processors", x, procs)
		}
	}
}

// A rank that shares its processor and waits for a flag runs when the processor has been switched to it: once in each round
// of an operation of two ranks, and once for each of the pieces in which one passes data to the other.
func TestPredictSwitches(t *testing.T) {
	for _, x := range []struct {
		op       string
		alg      algorithm
		n        int
		switches int
	}{
		{"barrier", algFlags, 0, 1},
		{"barrier", algShared, 0, 1},
		{"allreduce", algFlags, 8, 1},
		{"allreduce", algShared, 8, 1},
		{"bcast", algShared, 64 << 10, 4},
	} {
		took := estimateBy(t, x.op, x.alg, x.n, 1, nearLines)
		work := 2 * estimateBy(t, x.op, x.alg, x.n, 0, lineRates{hop: 1e-9}) // at most: of both ranks, one after the other
		require.GreaterOrEqual(t, took, float64(x.switches)*switchWork, "%+v", x)
		require.Less(t, took, float64(x.switches+1)*switchWork+work+takeBackInTurns*float64(x.n), "%+v", x)
	}

	// The root of a scatter by areas writes what the other ranks have read; with single copies it writes nothing.
	const n = 256 << 10
	p := sampling.Defaults("shm")
	f := figuresOf(&p, true, memoryRates{})
	f.procs = 2
	c, err := callOf("scatter", n, 4)
	require.NoError(t, err)
	require.Equal(t, "single", f.predictions(c, 4, n)[0].Algorithm)
}
