package coll

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed33544411/rma/logp"
)

// figures are what algorithms are chosen by. The ranks of a team have the same figures, so that
// they make the same choices.
type figures struct {
	costs          // of the slowest path of the first rank
	near   *costs  // between ranks of a host, if there are several; nil: the same
	hosts  *hosts  // on which the ranks are; nil: see divide
	boards byBoard // what the ranks have boards for
	procs  int     // processors that the ranks have together; 0: one each
}

// costs are those of one message of 2^i bytes on a path, and of local work on as many, in ns.
type costs struct {
	Sender   [figureSizes]float64 // work of the sender
	Latency  [figureSizes]float64 // from the end of that work until the receiver can begin
	Receiver [figureSizes]float64 // work of the receiver
	Out      [figureSizes]float64 // time for which the sender's link is occupied while the receiver works
	Copy     [figureSizes]float64
	Fold     [figureSizes]float64 // a reduction
	Give     [figureSizes]float64 // work of the sender for data of a reduction, of at most foldMax bytes
	Take     [figureSizes]float64 // work of its receiver, besides the reduction
	Read     [figureSizes]float64 // a copy of the memory of another rank's call
}

// all returns the tables of c, in the order in which they are sent.
func (c *costs) all() []*[figureSizes]float64 {
	return []*[figureSizes]float64{&c.Sender, &c.Latency, &c.Receiver, &c.Out, &c.Copy, &c.Fold, &c.Give, &c.Take, &c.Read}
}

// costNumbers is the number of numbers in costs.
const costNumbers = 9 * figureSizes

// put writes c to numbers, as it is sent.
func (c *costs) put(numbers []float64) {
	for i, t := range c.all() {
		copy(numbers[i*figureSizes:], t[:])
	}
}

// maxFigure bounds the numbers of costs, in ns: a year.
const maxFigure = 1e9 * 365 * 24 * 3600

// parse is the inverse of put. It returns false if numbers are not times.
func (c *costs) parse(numbers []float64) bool {
	for _, ns := range numbers[:costNumbers] {
		if !(0 <= ns && ns <= maxFigure) { // or NaN
			return false
		}
	}
	for i, t := range c.all() {
		copy(t[:], numbers[i*figureSizes:])
	}
	return true
}

// longer reports whether c is of a slower path than d.
func (c *costs) longer(d *costs) bool {
	time := func(c *costs) float64 { return at(&c.Latency, 1) + at(&c.Receiver, 1<<20) }
	return time(c) > time(d)
}

const figureSizes = 31

// messageWork is the work for a message at each end, in ns, that is not in the parameters of
// a path: to make it, and to find its operation and step. It is about a quarter of the least
// time of BenchmarkWork, a barrier of two ranks by one goroutine: two messages. Without it, a
// fast path would make many small messages seem free.
const messageWork = 1000

// lineWork is the work for a line of a board at each end, in ns.
const lineWork = 100

// tellWork is the work for a store to another rank's line, lineLatency the time until it is
// seen there, a cache line from one processor to another, and turnWork that of a wait in which
// ranks that share processors take turns, in ns.
const tellWork, lineLatency, turnWork = 50, 200, 200

// Data that another processor has just written comes from there line by line, of lineBytes:
// linesAtOnce at a time, each for the latency of the path less what the processor hides, in ns. Two
// ranks on processors of their own took 25 ns more for a line of 1 MiB than for data of their
// own where the latency of the link was 177 ns, and 2 ns where it was 57. Ranks that take turns find
// much of it in the cache of their processor. That is so of areas, of messages with their header, which
// the sender has written, and of memory of a call that its rank has written in the operation.
const lineBytes, linesAtOnce, lineHidden = 64, 5, 45

// Of the first privateBytes, which are still in the cache of the processor that has written them, the
// reading one hides no more than privateHidden: two ranks on near processors, with a link of 48 ns, took 3
// ns more for each line of 64 KiB, and none for those of 1 MiB, which are in a cache that they share.
const privateBytes, privateHidden = 128 << 10, 30

// lines returns the time that n bytes take longer from the processor of another rank that has written
// them, in ns, if the ranks map each other's memory.
func (c *costs) lines(n int) float64 {
	lines := func(n int, hidden float64) float64 {
		return float64(n) / (lineBytes * linesAtOnce) * max(0, at(&c.Latency, 1)-hidden)
	}
	private := min(n, privateBytes)
	return lines(private, privateHidden) + lines(n-private, lineHidden)
}

// Messages of slicesFrom bytes or more between ranks that map each other's memory, and do not take turns,
// are copied by both ranks at the same time: each works for bothCopy of the time of the receiver alone.
// Two ranks took 0.65 to 0.75 of that for a bcast of 1 MiB, and 1.3 for an alltoall of two such blocks.
const slicesFrom, bothCopy = 256 << 10, 0.65

// tale is what a rank has told, and when it is heard.
type tale struct {
	count uint32
	ns    float64
}

// figuresOf derives figures from the parameters of a path, by the formulas of the modes that
// messages of operations use: eager up to inlineMax, and up to foldMax for data of reductions,
// rendezvous behind a header above. maps
// says that the receiver's processor copies from the sender's memory, which is the
// application's own: the link has not allocated it, and reads it by that much longer.
//
// The parameters are of memory that stays in the cache. More data than that is not copied or
// reduced faster than the rates of memory say.
func figuresOf(p *logp.Params, maps bool, m memoryRates) *figures {
	return &figures{costs: *costsOf(p, maps, m), boards: byBoard{maps, maps, maps}}
}

// costsOf is figuresOf for one of several paths.
func costsOf(p *logp.Params, maps bool, m memoryRates) *costs {
	f := &costs{}
	post := p.CPU.A + p.CPU.B
	for i := range figureSizes {
		n := int64(1) << i
		c := p.C.At(n)
		cold, fold := 0.0, 0.0
		if n >= coldFrom {
			cold, fold = m.copy*float64(n), m.fold*float64(n)
		}
		f.Copy[i] = max(c, cold)
		f.Fold[i] = max(foldCopies*c, fold)
		f.Give[i] = messageWork + post + c + p.Os.At(n+headerSize)
		f.Take[i] = messageWork + p.Or.At(n+headerSize)
		f.Read[i] = max(p.Os.At(n), cold) + p.R.At(n) // the system finds the pages, wherever the data is
		if n <= inlineMax {
			n += headerSize
			f.Sender[i] = messageWork + post + c + p.Os.At(n)
			f.Latency[i] = p.Ls
			f.Receiver[i] = messageWork + p.Or.At(n) + c
			continue
		}
		head := p.Os.At(headerSize)
		f.Sender[i] = 2*messageWork + 2*post + 2*head + p.G
		f.Latency[i] = p.Ls
		if !maps {
			f.Out[i] = p.Os.At(n)
		}
		move := p.Os.At(n)
		if maps {
			move = f.Read[i]
		}
		f.Latency[i] += p.Lh // the data is fetched; meanwhile the processor is free, and other messages come
		f.Receiver[i] = 2*messageWork + 2*p.Or.At(headerSize) + post + move
	}
	return f
}

// at interpolates between the sizes of figures.
func at(t *[figureSizes]float64, n int) float64 {
	if n <= 1 {
		return t[0]
	}
	i := bits.Len(uint(n)) - 1
	if i >= figureSizes-1 {
		return t[figureSizes-1] * float64(n) / float64(uint64(1)<<(figureSizes-1))
	}
	lo, hi := float64(uint64(1)<<i), float64(uint64(1)<<(i+1))
	return t[i] + (t[i+1]-t[i])*(float64(n)-lo)/(hi-lo)
}

// coldFrom is the size, in bytes, from which the data of an operation are taken to be in memory, or
// in a cache that is shared: with a copy of it they do not fit the fastest.
const coldFrom = 32 << 10

// memoryRates are times of work on data that are not in the fastest caches, in ns for a byte.
type memoryRates struct{ copy, fold float64 }

// rates measures the rates of this processor, once in a process. It takes some milliseconds.
var rates = sync.OnceValue(func() memoryRates {
	const size, piece = 4 << 20, 64 << 10
	dst, src := make([]float64, size/8), make([]float64, size/8)
	op := Sum[float64]()
	sum := foldOf(&op, reflect.Float64)
	least := func(work func(dst, src []float64)) float64 {
		best := math.Inf(1)
		for range 3 {
			began := time.Now()
			for at := 0; at < len(dst); at += piece / 8 {
				work(dst[at:at+piece/8], src[at:at+piece/8])
			}
			best = min(best, float64(time.Since(began)))
		}
		return best / size
	}
	clear(src) // the first access of a page takes longer
	return memoryRates{least(func(dst, src []float64) { copy(dst, src) }), least(func(dst, src []float64) { sum(bytesOf(dst), bytesOf(src), false) })}
})

// foldCopies is the time of a reduction of memory in copies: it reads twice as much.
const foldCopies = 2

// moment is a step that may begin.
type moment struct {
	ns   float64
	rank int32
	step int32
}

type moments []moment

func (m moments) Len() int           { return len(m) }
func (m moments) Less(i, j int) bool { return m[i].ns < m[j].ns }
func (m moments) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m *moments) Push(x any)        { *m = append(*m, x.(moment)) }
func (m *moments) Pop() any {
	last := len(*m) - 1
	x := (*m)[last]
	*m = (*m)[:last]
	return x
}

// crowded reports whether more than two of p ranks take turns on a processor. f may be nil.
func (f *figures) crowded(p int) bool { return f != nil && 0 < f.procs && 2*f.procs < p }

// takeTurns reports whether some of p ranks share a processor.
func (f *figures) takeTurns(p int) bool { return 0 < f.procs && f.procs < p }

// path returns the costs of messages between two ranks.
func (f *figures) path(a, b int32) *costs {
	if f.near != nil && f.hosts.of[a] == f.hosts.of[b] {
		return f.near
	}
	return &f.costs
}

// local returns the costs of work that needs no path.
func (f *figures) local() *costs {
	if f.near != nil {
		return f.near
	}
	return &f.costs
}

// processor is one on which ranks take turns.
type processor struct {
	free float64 // when it is
	rank int32   // that had it last; none at first
	turn float64 // how long it takes to pass to a rank that waits for a message
}

// take takes the processor for a step of a rank that may begin at ns. waits says that the step
// ends a wait for a message.
func (c *processor) take(rank int32, ns float64, waits bool) {
	c.free = max(c.free, ns)
	if waits && c.rank != none && c.rank != rank {
		c.free += c.turn
	}
	c.rank = rank
}

// processors returns, by rank, the processor on which the rank takes turns with others. Each host
// has processors in proportion to its ranks. A processor passes to a rank that waits for a message
// when the ranks that share it have polled and yielded in turn, each for as long as it takes to
// receive a byte.
func (f *figures) processors(p int) []*processor {
	of := make([]*processor, p)
	poll := at(&f.local().Receiver, 1)
	share := func(ranks []int) {
		n := len(ranks)
		if f.procs > 0 {
			n = min(n, (n*f.procs+p-1)/p)
		}
		procs := make([]processor, n)
		for i := range procs {
			procs[i] = processor{rank: none, turn: poll * float64(len(ranks)) / float64(n)}
		}
		for i, r := range ranks {
			of[r] = &procs[i%n]
		}
	}
	if f.hosts != nil {
		for _, ranks := range f.hosts.ranks {
			share(ranks)
		}
		return of
	}
	share(upTo(p))
	return of
}

// wires are the links on which large messages take turns: that of each rank and, between hosts,
// that of each host.
type wires struct {
	hosts *hosts
	free  []float64 // by rank, then by host: when it is
}

func (f *figures) wires(p int) *wires {
	w := &wires{hosts: f.hosts, free: make([]float64, p)}
	if w.hosts != nil {
		w.free = make([]float64, p+2*len(w.hosts.ranks))
	}
	return w
}

// between returns when the links that a message from a rank to another occupies are free: out of
// the sender or its host, and into the receiver's host.
func (w *wires) between(from, to int32) (out, in *float64) {
	if w.hosts == nil || w.hosts.of[from] == w.hosts.of[to] {
		return &w.free[from], &w.free[from]
	}
	p, n := len(w.hosts.of), len(w.hosts.ranks)
	return &w.free[p+w.hosts.of[from]], &w.free[p+n+w.hosts.of[to]]
}

// predict returns the time in ns until the last rank has performed its schedule, if all begin
// at once and take turns on the processors that they have.
func (f *figures) predict(ranks []*schedule) float64 {
	type state struct {
		waits []int32
		came  []float64 // by step that receives: when its message has come; NaN before
		open  []float64 // when it may receive
		from  []int32   // of large messages: the step of the sender, which ends with the receiver's
		told  [][]tale  // by rank that has told
		hears int32     // step that waits for it, or none
		wrote []mem     // in the operation
		dirty []bool    // by step that sends: what it sends is among that
	}
	st := make([]state, len(ranks))
	var q moments
	for r, s := range ranks {
		n := len(s.steps)
		st[r] = state{waits: make([]int32, n), came: make([]float64, n), open: make([]float64, n), from: make([]int32, n), hears: none, dirty: make([]bool, n)}
		if s.flags {
			st[r].told = make([][]tale, len(ranks))
		}
		for i := range s.steps {
			st[r].waits[i] = s.steps[i].waits
			st[r].came[i], st[r].open[i] = math.NaN(), math.NaN()
			if s.steps[i].waits == 0 {
				q = append(q, moment{0, int32(r), int32(i)})
			}
		}
	}
	heap.Init(&q)
	last := 0.0
	procs, links, local := f.processors(len(ranks)), f.wires(len(ranks)), f.local()
	takeTurns := f.takeTurns(len(ranks))
	apart := f.boards.flags && !takeTurns // the ranks map each other's memory, from processors of their own
	done := func(r, i int32, ns float64) {
		last = max(last, ns)
		if to := ranks[r].steps[i].to; to.n > 0 && apart {
			st[r].wrote = append(st[r].wrote, to)
		}
		for _, n := range ranks[r].steps[i].next {
			if st[r].waits[n]--; st[r].waits[n] == 0 {
				heap.Push(&q, moment{ns, r, n})
			}
		}
	}
	for len(q) > 0 {
		m := heap.Pop(&q).(moment)
		me, s := &st[m.rank], &ranks[m.rank].steps[m.step]
		cpu := procs[m.rank]
		flags := ranks[m.rank].flags
		switch s.kind {
		case stepSend:
			path := f.path(m.rank, s.peer)
			work, inline := &path.Sender, s.inline(s.from.n)
			if inline && s.from.n > inlineMax {
				work = &path.Give
			}
			cpu.take(m.rank, m.ns, false)
			if cpu.free += at(work, s.from.n); flags {
				cpu.free += lineWork - messageWork
			}
			to := ranks[s.peer].find(int(m.rank), s.slot)
			peer := &st[s.peer]
			peer.came[to] = cpu.free + at(&path.Latency, s.from.n)
			peer.from[to] = m.step
			me.dirty[m.step] = slices.ContainsFunc(me.wrote, s.from.meets)
			if !math.IsNaN(peer.open[to]) {
				heap.Push(&q, moment{max(peer.open[to], peer.came[to]), s.peer, to})
			}
			if inline {
				done(m.rank, m.step, cpu.free)
			}
		case stepRecv, stepTake:
			if math.IsNaN(me.open[m.step]) {
				if me.open[m.step] = m.ns; math.IsNaN(me.came[m.step]) {
					continue
				}
				if me.came[m.step] > m.ns {
					heap.Push(&q, moment{me.came[m.step], m.rank, m.step})
					continue
				}
			}
			cpu.take(m.rank, m.ns, !flags)
			start := cpu.free
			path := f.path(s.peer, m.rank)
			work, inline := &path.Receiver, s.inline(s.to.n)
			if inline && s.to.n > inlineMax {
				work = &path.Take
			}
			if !inline {
				out, in := links.between(s.peer, m.rank)
				start = max(start, *out, *in)
				*out = start + at(&path.Out, s.to.n)
				*in = *out
			}
			took := at(work, s.to.n)
			if apart && (inline || st[s.peer].dirty[me.from[m.step]]) {
				took += path.lines(s.to.n)
			}
			if apart && !inline && s.to.n >= slicesFrom {
				took *= bothCopy
				sender := procs[s.peer]
				start = max(start, sender.free)
				sender.take(s.peer, start, false)
				sender.free += took
			}
			if cpu.free = start + took; flags {
				cpu.free += lineWork - messageWork
			}
			if s.kind == stepTake {
				cpu.free += at(&local.Fold, s.to.n)
			}
			if !inline {
				done(s.peer, me.from[m.step], cpu.free+at(&path.Latency, 1))
			}
			done(m.rank, m.step, cpu.free)
		case stepTell:
			cpu.take(m.rank, m.ns, false)
			for r := range ranks {
				if r == int(m.rank) || s.peer >= 0 && r != int(s.peer) {
					continue
				}
				cpu.free += tellWork
				peer := &st[r]
				peer.told[m.rank] = append(peer.told[m.rank], tale{s.slot, cpu.free + lineLatency})
				if i := peer.hears; i != none && ranks[r].steps[i].peer == m.rank {
					peer.hears = none
					heap.Push(&q, moment{cpu.free + lineLatency, int32(r), i})
				}
			}
			done(m.rank, m.step, cpu.free)
		case stepWait:
			told := me.told[s.peer]
			i := slices.IndexFunc(told, func(t tale) bool { return t.count >= s.slot })
			if i < 0 {
				me.hears = m.step
				continue
			}
			if told[i].ns > m.ns {
				heap.Push(&q, moment{told[i].ns, m.rank, m.step})
				continue
			}
			if cpu.take(m.rank, m.ns, false); takeTurns && len(told) == i+1 {
				cpu.free += turnWork
			}
			done(m.rank, m.step, cpu.free)
		default:
			cost := &local.Copy
			switch s.kind {
			case stepFold:
				cost = &local.Fold
			case stepRead:
				cost = &local.Read
			}
			work := at(cost, s.to.n)
			if s.to.buf < 0 || s.from.buf < 0 { // of all the ranks, the areas do not fit the fastest cache
				work = max(work, at(cost, coldFrom)*float64(s.to.n)/coldFrom)
			}
			if s.to.n == 0 { // it joins others, and is done by whoever completes them
				done(m.rank, m.step, m.ns)
				continue
			}
			cpu.take(m.rank, m.ns, false)
			if owner := -1 - s.from.buf; s.from.buf < 0 && owner != m.rank {
				cpu.free += lineLatency
				if apart {
					cpu.free += f.path(owner, m.rank).lines(s.from.n)
				}
			} else if s.kind == stepRead && s.line == second && apart { // what the peer has made
				cpu.free += f.path(s.peer, m.rank).lines(s.from.n)
			}
			cpu.free += work
			done(m.rank, m.step, cpu.free)
		}
	}
	return last
}

// estimate is the predicted time of an algorithm.
type estimate struct {
	alg algorithm
	ns  float64
}

// estimates predicts the time of a call by each of the algorithms as, the fastest first. n is
// the number of elements, of a whole or of a block.
func (f *figures) estimates(c call, as []algorithm, p, n int) []estimate {
	var es []estimate
	for _, alg := range as {
		if alg == algCirculant && (f.takeTurns(p) || circulantDivision(p, n*int(c.size)) == 1) {
			continue // ranks are not busy in every round, or the rounds are those of a binomial tree
		}
		c.alg = alg
		es = append(es, estimate{alg, f.estimate(c, p, n)})
	}
	slices.SortStableFunc(es, func(a, b estimate) int { return cmp.Compare(a.ns, b.ns) })
	return es
}

// packGain is the predicted gain from which blocks are packed: with less, 8 and 16 ranks on two processors were slower, of
// which all but the leaders are done later than the root.
const packGain = 0.1

// packing chooses for an operation with records. Its blocks of at most so many bytes are packed: of blocks of
// that size, and all smaller ones, an operation takes less time so.
func (f *figures) packing(c call, p int) answer {
	best := answer{alg: algLinear}
	most := c.kind.records()
	for n := 8; best.most < most && f.packs(c, p, min(n, most)); n *= 2 {
		best = answer{algHierarchy, min(n, most)}
	}
	return best
}

// packs reports whether an operation with blocks of n bytes gains by records.
func (f *figures) packs(c call, p, n int) bool {
	time := func(a algorithm) float64 {
		c.alg = a
		return f.estimate(c, p, n)
	}
	return time(algHierarchy) <= (1-packGain)*time(algLinear)
}

// estimate predicts the time of a call by its algorithm. Many rounds by shared memory take the
// time of few in proportion.
func (f *figures) estimate(c call, p, n int) float64 {
	size := int(c.size)
	if rounds := sharedRounds(c.kind, p, n*size); c.alg == algShared && rounds > 4 {
		two, four := f.estimate(c, p, 2*n/rounds), f.estimate(c, p, 4*n/rounds)
		return two + (four-two)/2*float64(rounds-2)
	}
	ranks := make([]*schedule, p)
	for r := range ranks {
		pr := problemOf(c, r, p, n, f.hosts)
		pr.crowded = f.crowded(p)
		ranks[r] = build(pr)
	}
	return f.predict(ranks)
}

// problemOf returns the problem of a rank in a call of n elements that is not in place.
func problemOf(c call, rank, p, n int, on *hosts) *problem {
	size := int(c.size)
	blocks := func(buf int32) []mem {
		out := make([]mem, p)
		for r := range out {
			out[r] = mem{buf, r * n * size, n * size}
		}
		return out
	}
	pr := &problem{call: c, rank: rank, team: p, hosts: on, inOrder: c.op == opFuncInOrder, most: min(n*size, c.kind.records()), send: []mem{{1, 0, n * size}}, recv: []mem{{2, 0, n * size}}}
	switch c.kind {
	case kindReduceScatter, kindReduceScatterv, kindScatter, kindScatterv:
		pr.send = blocks(1)
	case kindGather, kindGatherv, kindAllgather, kindAllgatherv:
		pr.recv = blocks(2)
	case kindAlltoall, kindAlltoallv:
		pr.send, pr.recv = blocks(1), blocks(2)
	}
	return pr
}

// Prediction is the predicted time of an operation by one algorithm.
type Prediction struct {
	Algorithm string  // as for RMA_COLL_ALGORITHM
	NS        float64 // nanoseconds until the last rank has finished
}

// Predict returns the predicted times by which an algorithm is chosen, the fastest
// algorithm first: of an operation, such as "allreduce", by ranks that are connected by
// paths with the parameters p. bytes is the length of the smaller of the two buffers of a
// rank. maps says that the link maps memory, as rma.Place does. Errors wrap ErrInvalid.
func Predict(p *logp.Params, maps bool, op string, bytes, ranks int) ([]Prediction, error) {
	c, err := callOf(op, bytes, ranks)
	if err != nil {
		return nil, fmt.Errorf("coll: predict: %w", err)
	}
	return figuresOf(p, maps, memoryRates{}).predictions(c, ranks, bytes), nil
}

// PredictHosts is Predict for ranks on several hosts: p are the parameters of paths within a host,
// far those of paths between hosts, over links that do not map memory. The ranks are divided
// evenly among the hosts, in their order.
func PredictHosts(p *logp.Params, maps bool, far *logp.Params, op string, bytes, ranks, hosts int) ([]Prediction, error) {
	c, err := callOf(op, bytes, ranks)
	if err != nil {
		return nil, fmt.Errorf("coll: predict: %w", err)
	}
	if hosts < 1 || hosts > ranks {
		return nil, fmt.Errorf("coll: predict: %w: %d ranks on %d hosts", ErrInvalid, ranks, hosts)
	}
	numbers := make([]int, ranks)
	for r := range numbers {
		numbers[r] = r * hosts / ranks
	}
	f := figuresOf(p, maps, memoryRates{})
	if hosts > 1 {
		f = figuresOf(far, false, memoryRates{})
		if f.hosts = divide(numbers); f.hosts != nil {
			f.near = costsOf(p, maps, memoryRates{})
		}
	}
	return f.predictions(c, ranks, bytes), nil
}

// Choice returns the algorithm that the team uses for an operation of bytes of data by root
// 0, and the predictions, as Predict returns them, that it is chosen by. There are none, and
// an algorithm only if it does not depend on them, before the first operation of the team is
// complete for which there is a choice, such as an Allreduce. It does not communicate.
func (t *Team) Choice(op string, bytes int) (algorithm string, ps []Prediction, err error) {
	c, err := callOf(op, bytes, t.Size())
	if err != nil {
		return "", nil, fmt.Errorf("coll: choice: %w", err)
	}
	c.count = uint64(bytes)
	f := t.t.told.Load()
	pr := problem{call: c, team: t.Size()}
	if a, ok := t.t.chooseBy(f, &pr, t.ch.tag); ok {
		if c.kind.records() > 0 && bytes > pr.most {
			a = algLinear // by which longer blocks go
		}
		algorithm = a.String()
	}
	if f != nil {
		ps = f.predictions(c, t.Size(), bytes)
	}
	return algorithm, ps, nil
}

// callOf returns the call of an operation by its name, with elements of a byte.
func callOf(op string, bytes, ranks int) (call, error) {
	k := slices.IndexFunc(kindNames[:], func(n string) bool { return n != "" && strings.EqualFold(n, op) })
	if k < 0 || ranks < 1 || ranks > maxPredicted || bytes < 0 || bytes > 1<<30 {
		return call{}, fmt.Errorf("%q: %w: want an operation of package coll, up to 1 GiB and %d ranks", op, ErrInvalid, maxPredicted)
	}
	c := call{kind: kind(k), size: 1}
	switch c.kind {
	case kindReduce, kindAllreduce, kindReduceScatter, kindReduceScatterv, kindScan, kindExscan:
		c.op = opSum
	}
	return c, nil
}

// predictions are the estimates of a call of n elements by p ranks.
func (f *figures) predictions(c call, p, n int) (out []Prediction) {
	c.count = uint64(n)
	var boards byBoard
	if p > 1 {
		boards = byBoards(c, p).and(f.boards)
	}
	as := available(c, boards, f.hosts.serves(c))
	for _, e := range f.estimates(c, as, p, n) {
		out = append(out, Prediction{e.alg.String(), e.ns})
	}
	return out
}
