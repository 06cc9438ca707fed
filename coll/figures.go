package coll

import (
	"math"
	"math/bits"
	"reflect"
	"sync"
	"time"

	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/offheap"
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
	lines  lineRates
}

// costs are those of one message of 2^i bytes on a path, and of local work on as many, in ns.
type costs struct {
	Fetch    float64              // bytes from which data behind its header is fetched
	Sender   [figureSizes]float64 // work of the sender, of data that is fetched if it is longer than inlineMax
	Latency  [figureSizes]float64 // from the end of that work until the receiver can begin
	Receiver [figureSizes]float64 // work of the receiver
	Out      [figureSizes]float64 // time for which the sender's link is occupied while the receiver works
	Copy     [figureSizes]float64
	Fold     [figureSizes]float64 // a reduction
	Give     [figureSizes]float64 // work of the sender for longer data that comes through a ring
	Take     [figureSizes]float64 // work of its receiver, besides a copy or reduction
	Read     [figureSizes]float64 // a copy of the memory of another rank's call

	// The same, where this rank has just used one side: see rankState.has.
	CopyNear, FoldNear, ReadNear [figureSizes]float64
}

// all returns the tables of c, in the order in which they are sent.
func (c *costs) all() []*[figureSizes]float64 {
	return []*[figureSizes]float64{&c.Sender, &c.Latency, &c.Receiver, &c.Out, &c.Copy, &c.Fold, &c.Give, &c.Take, &c.Read, &c.CopyNear, &c.FoldNear, &c.ReadNear}
}

// costNumbers is the number of numbers in costs.
const costNumbers = 12*figureSizes + 1

// put writes c to numbers, as it is sent.
func (c *costs) put(numbers []float64) {
	for i, t := range c.all() {
		copy(numbers[i*figureSizes:], t[:])
	}
	numbers[costNumbers-1] = c.Fetch
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
	c.Fetch = numbers[costNumbers-1]
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

// lineWork is the work for a line of a board at each end, besides a copy of its data, in ns. A line is stored, and nothing is posted.
const lineWork = 70

// tellWork is the work for a store to another rank's line, and hearWork that to find it there, in ns. Ranks that share
// processors do not look for it meanwhile: they find it when they have the processor, to which a switch takes switchWork.
// From 700 to 900, the predictions for 3, 4 and 8 ranks on two processors chose best.
const tellWork, hearWork, switchWork = 50, 70, 800

// Messages of slicesFrom bytes or more between ranks that map each other's memory, and do not take turns,
// are copied by both ranks at the same time: each works for bothCopy of the time of the receiver alone.
// Two ranks took 0.65 to 0.75 of that for a bcast of 1 MiB, and 1.3 for an alltoall of two such blocks.
const slicesFrom, bothCopy = 256 << 10, 0.65

// nearBytes is as much data as a rank has used last that is taken to be in a cache of its processor, in bytes.
const nearBytes = 256 << 10

// figuresOf derives figures from the parameters of a path, by the formulas of the modes that
// messages of operations use: eager up to inlineMax, and up to foldMax for data of reductions; above,
// behind a header, what the model chooses. maps
// says that the receiver's processor copies from the sender's memory, which is the
// application's own: the link has not allocated it, and reads it by that much longer.
//
// The parameters are of memory that stays in the cache. More data than that is not copied or
// reduced faster than the rates of memory say.
func figuresOf(p *logp.Params, maps bool, m memoryRates) *figures {
	f := &figures{costs: *costsOf(p, maps, m), boards: byBoard{maps, maps, maps}}
	if maps {
		f.lines = nearLines
	}
	return f
}

// costsOf is figuresOf for one of several paths.
func costsOf(p *logp.Params, maps bool, m memoryRates) *costs {
	f := &costs{Fetch: fetchFrom(p)}
	post := p.CPU.A + p.CPU.B
	for i := range figureSizes {
		n := int64(1) << i
		c := p.C.At(n)
		var cold memoryRates // times of n bytes
		if n >= coldFrom {
			cold = m.times(float64(n))
		}
		f.Copy[i], f.CopyNear[i] = max(c, cold.copy), max(c, cold.copyNear)
		f.Fold[i], f.FoldNear[i] = max(foldCopies*c, cold.fold), max(foldCopies*c, cold.foldNear)
		f.Give[i] = messageWork + post + c + p.Os.At(n+headerSize)
		f.Take[i] = messageWork + p.Or.At(n+headerSize)
		find := p.R.At(n) // the system finds the pages, wherever the data is
		f.Read[i], f.ReadNear[i] = max(p.Os.At(n), cold.copy)+find, max(p.Os.At(n), cold.copyNear)+find
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

// fetchFrom returns the size from which the model has data fetched that follows its header, in bytes,
// to the precision of powers of two; maxFigure if it never does. Header and data are sent one after the
// other, each alone.
func fetchFrom(p *logp.Params) float64 {
	pl, err := logp.NewPlanner(p, nil)
	if err != nil {
		return inlineMax + 1
	}
	b := logp.Batch{Limits: message.CommonLimits(), Messages: make([]logp.Message, 1)}
	for n := int64(2 * inlineMax); n < 1<<figureSizes; n *= 2 {
		b.Messages[0] = logp.Message{Size: n, Flags: logp.DestRegistered}
		if plan, err := pl.Plan(&b); err != nil || plan.Modes().Has(logp.Scatter) {
			return float64(n)
		}
	}
	return maxFigure
}

// messageCost is what a message takes, in ns.
type messageCost struct {
	send, latency, receive float64
	fetched                bool // by the receiver; the sender waits until it has
}

// message returns the cost of a message of n bytes of data, which is in one piece with its header or
// follows it. What is longer than inlineMax and in one piece is reduced, at a cost of its own.
func (c *costs) message(n int, inline bool) messageCost {
	switch {
	case n <= inlineMax || !inline && float64(n) >= c.Fetch:
		return messageCost{at(&c.Sender, n), at(&c.Latency, n), at(&c.Receiver, n), !inline}
	case inline:
		return messageCost{at(&c.Give, n), at(&c.Latency, n), at(&c.Take, n), false}
	}
	return messageCost{c.Sender[0] + at(&c.Give, n), c.Latency[0], c.Receiver[0] + at(&c.Take, n) + at(&c.Copy, n), false}
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

// memoryRates are times of work on data that are not in the fastest caches, in ns for a byte: on
// both sides or, near, on one, while the other has just been used.
type memoryRates struct{ copy, fold, copyNear, foldNear float64 }

// times returns the times of n bytes.
func (m memoryRates) times(n float64) memoryRates {
	return memoryRates{m.copy * n, m.fold * n, m.copyNear * n, m.foldNear * n}
}

// rates are the rates of this processor, measured once in a process.
var rates = sync.OnceValue(measureRates)

// measureRates measures them, as the least of some rounds, which are short: while a job starts, other threads
// of its ranks disturb most of those that take half a millisecond. It takes some milliseconds. Its memory is none of the
// heap's, whose first collection it would start. Without memory, data is taken to stay in the fastest caches.
func measureRates() memoryRates {
	const size, piece, rounds = 1 << 20, 64 << 10, 12
	mem, err := offheap.Alloc(2*size, offheap.Staging)
	if err != nil {
		return memoryRates{}
	}
	defer offheap.Free(mem, offheap.Staging)
	all, _ := elementsOf[float64](mem) // whole pages
	dst, src := all[:size/8], all[size/8:]
	offheap.Touch(mem) // the first access of a page takes longer
	// The source of a piece is distance elements behind that of the piece before.
	least := func(work func(dst, src []float64), distance int) float64 {
		best := math.Inf(1)
		for range rounds {
			began := time.Now()
			for from, to := 0, 0; to < len(dst); from, to = from+distance, to+piece/8 {
				work(dst[to:to+piece/8], src[from:from+piece/8])
			}
			best = min(best, float64(time.Since(began)))
		}
		return best / size
	}
	op := Sum[float64]()
	sum := foldOf(&op, reflect.Float64)
	copied := func(dst, src []float64) { copy(dst, src) }
	folded := func(dst, src []float64) { sum(bytesOf(dst), bytesOf(src), false) }
	return memoryRates{
		copy: least(copied, piece/8), copyNear: least(copied, 0),
		fold: least(folded, piece/8), foldNear: least(folded, 0),
	}
}

// foldCopies is the time of a reduction of memory in copies: it reads twice as much.
const foldCopies = 2

// crowded reports whether more than two of p ranks take turns on a processor. f may be nil.
func (f *figures) crowded(p int) bool { return f != nil && 0 < f.procs && 2*f.procs < p }

// apart reports whether p ranks map each other's memory, from processors of their own. f may be nil.
func (f *figures) apart(p int) bool { return f != nil && f.boards.flags && !f.takeTurns(p) }

// hopOf returns the time until one of p ranks sees what another one has stored, in ns; 0 if it does not look, because they take turns.
func (f *figures) hopOf(p int) float64 {
	switch {
	case !f.apart(p):
		return 0
	case f.lines.hop == 0: // not measured in time
		return nearLines.hop
	}
	return f.lines.hop
}

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
