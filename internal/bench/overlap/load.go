package overlap

import (
	"context"
	"fmt"
	"runtime"
	"strconv"

	"github.com/seed33544411/rma"
)

// LoadOps are the operations of Load: half of a ping-pong of puts of 8 bytes with a signal, a
// barrier of the two ranks, and a get of 8 bytes by rank 0 from rank 1, which waits.
var LoadOps = []string{"put-signal", "barrier", "get"}

// SpinDefault is the entry of Request.Spins that leaves the wait policy to the engine.
const SpinDefault = "default"

// checkSpins reports why an entry of Request.Spins is not a value of RMA_SPIN.
func checkSpins(spins []string) error {
	for _, s := range spins {
		if n, err := strconv.Atoi(s); s != SpinDefault && (err != nil || n == 0) {
			return fmt.Errorf("%w: spin %q: want %s or a value of RMA_SPIN", ErrRequest, s, SpinDefault)
		}
	}
	if len(spins) == 0 {
		return fmt.Errorf("%w: no spin", ErrRequest)
	}
	return nil
}

// Busy computes on n threads of this process until the returned function is called: to the
// system they are like as many processes that compute.
func Busy(n int) (end func()) {
	was := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(was + n)
	h := startHog(n, runtime.LockOSThread) // a thread ends with its goroutine
	return func() {
		h.end()
		runtime.GOMAXPROCS(was)
	}
}

// load measures the operations of req. Who starts the ranks has chosen their wait policy, and
// runs the busy threads.
func (p *pair) load(ctx context.Context, req *Request, round int, emit func(Result) error) error {
	win, err := p.eng.Window(ctx, 4*wordStride)
	if err != nil {
		return err
	}
	for _, op := range req.Ops {
		r := Result{Round: round, Op: op}
		if err := p.loaded(ctx, req, &r, win); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
		if err := emit(r); err != nil {
			return err
		}
	}
	return win.Free(ctx)
}

// loaded measures r.Op. Rank 1 takes part until rank 0 ends the series.
func (p *pair) loaded(ctx context.Context, req *Request, r *Result, win *rma.Window) error {
	switch r.Op {
	case "put-signal":
		return p.pings(ctx, req, r, win, func(n uint64) rma.Request {
			at := 1 - p.eng.Rank()
			return p.peer.PutSignal(win.At(at, offOver), win.Slice(offMine, 8), win.At(at, offWord), rma.SignalSet, n)
		})
	case "barrier":
		for range 5 { // the first ones go through the job's server
			if err := p.eng.Barrier(ctx); err != nil {
				return err
			}
		}
		if err := p.meets(ctx, r, fewest); err != nil {
			return err
		}
		// As many on either side as take the time of a series on rank 0.
		n, err := share(ctx, p, min(max(fewest, int(float64(req.Time)/1e3/r.Mean)), mostSamples))
		if err != nil {
			return err
		}
		return p.meets(ctx, r, n)
	}
	if p.first {
		get := p.once(ctx, r.Op, win)
		if err := r.sample(req.Time, get); err != nil {
			return err
		}
	}
	_, err := swap(ctx, p, 0)
	return err
}

// meets samples n barriers.
func (p *pair) meets(ctx context.Context, r *Result, n int) error {
	return r.samples(n, n, 0, func() error { return p.eng.Barrier(ctx) })
}
