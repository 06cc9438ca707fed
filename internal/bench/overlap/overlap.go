package overlap

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/links"
)

// Request describes a measurement. Only rank 0's request counts.
type Request struct {
	What   string        // overlap, reactivity, threads, concurrent or load
	Fabric string        // as in Config.Fabric; the ranks are started with it
	Ops    []string      // from OverlapOps, ReactivityOps or LoadOps
	Who    []string      // from OverlapWho: the computing ranks
	Sizes  []int         // bytes
	Ratios []float64     // computation over communication
	Counts []int         // goroutines: computing on each processor, beside a ping-pong, or one for each stream; busy threads of load
	Beside []string      // from ThreadsBeside or Streams
	Spins  []string      // values of RMA_SPIN, or SpinDefault
	Gap    time.Duration // reactivity: rank 0 sleeps so long before each operation
	Rounds int           // each round measures all points
	Time   time.Duration // for each series of a point
}

// OverlapOps are the operations of Overlap: a message from rank 0 to rank 1, a put by rank 0
// to rank 1, a get by rank 0 from rank 1. OverlapWho are the computing ranks: rank 0
// (sender), rank 1 (receiver), or both.
var (
	OverlapOps = []string{"message", "put", "get"}
	OverlapWho = []string{"sender", "receiver", "both"}
)

// mostGap bounds Request.Gap: a series has at least some tens of operations.
const mostGap = time.Second

// mostMemory bounds the buffers of all streams, in bytes.
const mostMemory = 1 << 30

// Check reports why the request cannot be measured.
func (r *Request) Check() error {
	if r.Rounds < 1 || r.Rounds > 1000 || r.Time <= 0 || r.Time > time.Minute {
		return fmt.Errorf("%w: %d rounds of %v: want 1 to 1000, up to 1m", ErrRequest, r.Rounds, r.Time)
	}
	var err error
	list := func(what string, got, known []string) {
		for _, s := range got {
			if !slices.Contains(known, s) && err == nil {
				err = fmt.Errorf("%w: %s %q: want %v", ErrRequest, what, s, known)
			}
		}
		if len(got) == 0 && err == nil {
			err = fmt.Errorf("%w: no %s", ErrRequest, what)
		}
	}
	switch r.What {
	case "overlap":
		list("op", r.Ops, OverlapOps)
		list("who", r.Who, OverlapWho)
		for _, x := range r.Ratios {
			if !(x > 0 && x <= 100) {
				err = fmt.Errorf("%w: ratio %v: want more than 0, up to 100", ErrRequest, x)
			}
		}
		if len(r.Ratios) == 0 {
			err = fmt.Errorf("%w: no ratio", ErrRequest)
		}
	case "reactivity":
		list("op", r.Ops, ReactivityOps)
		if r.Gap < 0 || r.Gap > mostGap {
			err = fmt.Errorf("%w: gap %v: want 0 to %v", ErrRequest, r.Gap, mostGap)
		}
	case "threads":
		list("goroutines beside", r.Beside, ThreadsBeside)
	case "concurrent":
		list("streams", r.Beside, Streams)
	case "load":
		list("op", r.Ops, LoadOps)
		if err == nil {
			err = checkSpins(r.Spins)
		}
	default:
		err = fmt.Errorf("%w: %q", ErrRequest, r.What)
	}
	if r.What == "overlap" || r.What == "concurrent" {
		for _, n := range r.Sizes {
			if n < 1 || n > 256<<20 {
				err = fmt.Errorf("%w: size %d", ErrRequest, n)
			}
		}
		if len(r.Sizes) == 0 {
			err = fmt.Errorf("%w: no size", ErrRequest)
		}
	}
	if r.What != "overlap" {
		for _, k := range r.Counts {
			if k < 0 || k > 1024 {
				err = fmt.Errorf("%w: %d goroutines or threads: want 0 to 1024", ErrRequest, k)
			}
		}
		if len(r.Counts) == 0 {
			err = fmt.Errorf("%w: no number of goroutines", ErrRequest)
		}
		if err == nil && r.What == "concurrent" && slices.Max(r.Sizes) > mostMemory/max(slices.Max(r.Counts), 1) {
			err = fmt.Errorf("%w: %d streams with buffers of %d bytes: want up to 1 GiB in all", ErrRequest, slices.Max(r.Counts), slices.Max(r.Sizes))
		}
	}
	return err
}

// Points returns the number of results.
func (r *Request) Points() int { return r.Rounds * len(r.Cells()) }

// Cells returns the points of a round in the order in which they are measured: results without
// figures.
func (r *Request) Cells() (out []Result) {
	cell := Result{What: r.What}
	switch r.What {
	case "overlap":
		each(r.Ops, &cell.Op, func() {
			each(r.Sizes, &cell.Size, func() {
				each(r.Who, &cell.Who, func() {
					each(r.Ratios, &cell.Factor, func() { out = append(out, cell) })
				})
			})
		})
	case "reactivity":
		cell.Gap = float64(r.Gap) / 1e3
		each(r.Ops, &cell.Op, func() {
			each(r.Counts, &cell.Count, func() { out = append(out, cell) })
		})
	case "threads":
		each(r.Beside, &cell.Beside, func() {
			each(r.Counts, &cell.Count, func() {
				each(besideOps, &cell.Op, func() { out = append(out, cell) })
			})
		})
	case "concurrent":
		each(r.Beside, &cell.Beside, func() {
			each(r.Sizes, &cell.Size, func() {
				each(r.Counts, &cell.Count, func() {
					each(besideOps, &cell.Op, func() { out = append(out, cell) })
				})
			})
		})
	case "load":
		each(r.Counts, &cell.Count, func() {
			each(r.Spins, &cell.Spin, func() {
				each(r.Ops, &cell.Op, func() { out = append(out, cell) })
			})
		})
	}
	return out
}

// each calls f with *at set to each of the values.
func each[T any](values []T, at *T, f func()) {
	for _, *at = range values {
		f()
	}
}

// Result is one point of one round; fields that its kind lacks are zero. Times are in µs.
type Result struct {
	What    string  `json:"what"`
	Fabric  string  `json:"fabric"`
	Library string  `json:"library,omitempty"` // "" is this one
	Round   int     `json:"round"`
	Op      string  `json:"op,omitempty"`
	Size    int     `json:"size,omitempty"`
	Who     string  `json:"who,omitempty"` // the computing ranks
	Factor  float64 `json:"factor,omitempty"`

	Comm    float64 `json:"comm_us,omitempty"`
	Compute float64 `json:"compute_us,omitempty"`
	Total   float64 `json:"total_us,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
	IMB     float64 `json:"imb_percent,omitempty"`
	Bound   float64 `json:"bound,omitempty"`

	Count   int     `json:"goroutines"`
	Beside  string  `json:"beside,omitempty"`
	Spin    string  `json:"spin,omitempty"`
	Gap     float64 `json:"gap_us,omitempty"` // between operations
	Mean    float64 `json:"mean_us,omitempty"`
	P50     float64 `json:"p50_us,omitempty"`
	P99     float64 `json:"p99_us,omitempty"`
	Max     float64 `json:"max_us,omitempty"`
	MBs     float64 `json:"stream_mb_s,omitempty"` // of all streams together, 1e6 bytes a second
	Samples int     `json:"samples,omitempty"`
	Slowed  float64 `json:"slowed_percent,omitempty"` // the computation of the target; of this library alone
}

// Run measures req between the two ranks of a job. Both call it; rank 0's request counts,
// and only rank 0 gets results. The garbage collector is off meanwhile.
func Run(ctx context.Context, eng *rma.Engine, req Request, emit func(Result) error) error {
	p, err := newPair(eng)
	if err != nil {
		return err
	}
	if req, err = share(ctx, p, req); err != nil {
		return err
	}
	if err := req.Check(); err != nil {
		return err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	out := func(r Result) error {
		r.What, r.Fabric = req.What, links.Kind(p.peer.Link())
		if p.first {
			return emit(r)
		}
		return nil
	}
	for round := range req.Rounds {
		runtime.GC()
		switch req.What {
		case "overlap":
			err = p.overlap(ctx, &req, round, out)
		case "reactivity":
			err = p.reactivity(ctx, &req, round, out)
		case "threads":
			err = p.threads(ctx, &req, round, out)
		case "concurrent":
			err = concurrent(ctx, p, &req, round, out)
		case "load":
			err = p.load(ctx, &req, round, out)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", req.What, err)
		}
	}
	return eng.Barrier(ctx)
}

// copies is the number of times that processors copy the data of a transfer.
var copies = map[string]int{"shm": 1, "tcp": 2}

func (p *pair) overlap(ctx context.Context, req *Request, round int, emit func(Result) error) error {
	cpus, err := p.processors(ctx)
	if err != nil {
		return err
	}
	for _, op := range req.Ops {
		for _, size := range req.Sizes {
			if err := p.overlapOf(ctx, req, op, size, round, cpus, emit); err != nil {
				return fmt.Errorf("%s of %d bytes: %w", op, size, err)
			}
		}
	}
	return nil
}

// overlapOf measures one operation with all kinds of computation. The ranks have cpus processors.
func (p *pair) overlapOf(ctx context.Context, req *Request, op string, size, round, cpus int, emit func(Result) error) (err error) {
	win, err := p.eng.Window(ctx, size)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil { // after an error the other rank may never reach Free
			err = win.Free(ctx)
		}
	}()
	start := p.start(op, win, size)
	comm := func() error { return start()(ctx) }
	n, err := p.count(ctx, req.Time, comm)
	if err != nil {
		return err
	}
	alone, err := p.series(ctx, n, comm)
	if err != nil {
		return err
	}
	c, err := share(ctx, p, bench.Median(alone))
	if err != nil {
		return err
	}
	copying := float64(copies[p.peer.Link()]) * float64(copyTime(size))
	if copying, err = share(ctx, p, copying); err != nil {
		return err
	}
	for _, who := range req.Who {
		computes := who == "both" || (who == "sender") == p.first
		for _, factor := range req.Ratios {
			turns := int64(0)
			if computes {
				turns = int64(factor * c * p.perNS)
			}
			m := min(n, max(3, int(float64(req.Time)/(c*(1+factor)))))
			computing, err := p.series(ctx, m, func() error { Work(turns); return nil })
			if err != nil {
				return err
			}
			both, err := p.series(ctx, m, func() error {
				wait := start()
				Work(turns)
				return wait(ctx)
			})
			if err != nil {
				return err
			}
			r := Result{Round: round, Op: op, Size: size, Who: who, Factor: factor, Samples: m}
			r.fill(c, bench.Median(computing), bench.Median(both), copying, cpus)
			if err := emit(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// start returns a function that begins this rank's part of the operation, and which returns
// a function that waits for its end.
func (p *pair) start(op string, win *rma.Window, size int) func() func(context.Context) error {
	mem, there := win.Slice(0, size), win.At(1-p.eng.Rank(), 0)
	switch {
	case op == "message" && p.first:
		return func() func(context.Context) error { return p.peer.SendBuffer(0, mem).Wait }
	case op == "message":
		return func() func(context.Context) error { return p.peer.RecvBuffer(0, mem).Request.Wait }
	case !p.first:
		return func() func(context.Context) error { return func(context.Context) error { return nil } }
	case op == "put":
		return func() func(context.Context) error { return p.peer.Put(there, mem).Wait }
	}
	return func() func(context.Context) error { return p.peer.Get(mem, there).Wait }
}

// count warms the operation up and returns the number of operations in a series of d.
func (p *pair) count(ctx context.Context, d time.Duration, f func() error) (int, error) {
	warm, err := p.series(ctx, 5, f)
	if err != nil {
		return 0, err
	}
	return share(ctx, p, min(max(5, int(float64(d)/max(bench.Median(warm), 1))), 2000))
}

// Derive sets the times, in µs, and computes the derived figures, for another library whose
// link copies as often as this one's.
func (r *Result) Derive(comm, compute, total float64) {
	r.fill(comm*1e3, compute*1e3, total*1e3, float64(copies[r.Fabric])*float64(copyTime(r.Size)), runtime.NumCPU())
}

// fill computes the derived figures. All times are in ns; both ranks together have cpus processors.
func (r *Result) fill(comm, compute, total, copying float64, cpus int) {
	serial, ranks := comm+compute, 1.0
	if r.Who == "both" {
		ranks = 2
	}
	least := max(comm, compute, (ranks*compute+copying)/float64(min(cpus, 2)))
	r.Comm, r.Compute, r.Total = comm/1e3, compute/1e3, total/1e3
	r.Ratio, r.Bound = total/serial, min(least/serial, 1)
	r.IMB = 100 * (serial - total) / min(comm, compute)
}
