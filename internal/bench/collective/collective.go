// Package collective measures the latency of collective operations of package coll as the OSU
// micro-benchmarks do: all ranks call an operation many times, with a barrier between calls that
// is not timed, and the mean time of a call is averaged over the ranks. It compares the algorithm that is chosen for an
// operation with each that can be forced, and with the prediction of their times, and measures how much of a
// non-blocking operation a computation hides.
//
//	collective.go  Request, Run; the latency of operations
//	kernel.go      an operation with its memory, and what it must compute
//	bind.go        how the ranks are bound to cores
//	nbc.go         how much of a non-blocking operation a computation hides, as IMB-NBC does
//	beside.go      the results of several libraries in turn
//	choice.go      the automatic choice and each algorithm in turns
//	format.go      tables and JSON lines
//
// It imports the root package, coll, internal/bench, internal/bench/choice, internal/bench/overlap,
// internal/launch, internal/cpu and internal/topo.
package collective

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/coll"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/topo"
)

// ErrRequest says that a request cannot be carried out.
var ErrRequest = errors.New("collective: bad request")

const (
	// maxMemory bounds the bytes of the buffers of all ranks.
	maxMemory = 8 << 30
	maxRanks  = 256
	// maxPredicted is the largest team whose choices are predicted.
	maxPredicted = 64
)

// Request is what to measure.
type Request struct {
	Fabric string        `json:"fabric"`
	Ops    []string      `json:"ops"`
	Sizes  []int         `json:"sizes"`  // bytes of the smaller of the two buffers of a rank, multiples of 8
	Ranks  int           `json:"ranks"`  // of a job on this host
	Hosts  int           `json:"hosts"`  // as which this one counts, with adjacent ranks on each; 0: one
	Rounds int           `json:"rounds"` // of everything, in turn
	Time   time.Duration `json:"time"`   // of a series
	Choice bool          `json:"choice"` // compare the choice of the algorithm, instead of measuring latency
	NBC    bool          `json:"nbc"`    // measure what a computation hides, instead
	Copies bool          `json:"copies"` // shm copies private memory twice, through memory that ranks share, not once: RMA_DISABLE_CMA
	Call   string        `json:"call"`   // the form whose latency is measured, one of Calls; empty: the first
	Bind   topo.Policy   `json:"bind"`   // how ranks, of other libraries as well, are bound to cores
}

// Cells is the number of operations and sizes; a barrier has no size.
func (r *Request) Cells() (n int) {
	for _, op := range r.Ops {
		n += len(r.SizesOf(op))
	}
	return n
}

// SizesOf returns the sizes of an operation: of a barrier, only 0.
func (r *Request) SizesOf(op string) []int {
	if op == "barrier" {
		return []int{0}
	}
	return r.Sizes
}

// HostOf names the host that a rank counts as one of: see RMA_HOST. It is empty if all are on one.
func (r *Request) HostOf(rank int) string {
	if r.Hosts < 2 {
		return ""
	}
	return fmt.Sprint("host ", rank*r.Hosts/r.Ranks)
}

// Check reports why the request cannot be carried out.
func (r *Request) Check() error {
	if r.Ranks < 1 || r.Ranks > maxRanks { // before sizes, whose bound depends on it
		return fmt.Errorf("%w: %d ranks: want 1 to %d", ErrRequest, r.Ranks, maxRanks)
	}
	for _, op := range r.Ops {
		if !slices.Contains(Ops, op) {
			return fmt.Errorf("%w: operation %q: want %s", ErrRequest, op, strings.Join(Ops, ", "))
		}
	}
	for _, n := range r.Sizes {
		// Each rank has two buffers of n bytes, and two of n for each rank: see operation.
		if most := int64(maxMemory) / int64(2*r.Ranks*(r.Ranks+1)) &^ 7; n < 8 || n%8 != 0 || int64(n) > most {
			return fmt.Errorf("%w: size %d: want a multiple of 8, from 8 to %d: the buffers of %d ranks together have at most 8 GiB", ErrRequest, n, most, r.Ranks)
		}
	}
	switch {
	case len(r.Ops) == 0:
		return fmt.Errorf("%w: no operation: want %s", ErrRequest, strings.Join(Ops, ", "))
	case len(r.Sizes) == 0:
		return fmt.Errorf("%w: no size", ErrRequest)
	case r.Hosts < 0 || r.Hosts > r.Ranks:
		return fmt.Errorf("%w: %d ranks on %d hosts", ErrRequest, r.Ranks, r.Hosts)
	case r.Hosts > 1 && r.Fabric == "shm":
		return fmt.Errorf("%w: shm does not reach other hosts", ErrRequest)
	case r.Copies && r.Fabric != "shm":
		return fmt.Errorf("%w: copies over %s: want shm", ErrRequest, r.Fabric)
	case r.Choice && (r.Ranks < 2 || r.Ranks > maxPredicted):
		return fmt.Errorf("%w: %d ranks: the choice is predicted for 2 to %d", ErrRequest, r.Ranks, maxPredicted)
	case r.Call != "" && !slices.Contains(Calls, r.Call):
		return fmt.Errorf("%w: call %q: want %s", ErrRequest, r.Call, strings.Join(Calls, ", "))
	case r.Rounds < 1 || r.Rounds > 1000:
		return fmt.Errorf("%w: %d rounds: want 1 to 1000", ErrRequest, r.Rounds)
	case r.Time <= 0 || r.Time > time.Minute:
		return fmt.Errorf("%w: %v for a series: want more than 0, up to a minute", ErrRequest, r.Time)
	}
	return nil
}

// Result is one operation and size. Times are medians over the rounds.
type Result struct {
	Op     string  `json:"op"`
	Size   int     `json:"size"`
	Ranks  int     `json:"ranks"`
	Fabric string  `json:"fabric"`
	Bind   string  `json:"bind"`   // how the ranks are bound to cores, a name of topo.Policy
	US     float64 `json:"us"`     // µs of a call, averaged over the ranks
	MaxUS  float64 `json:"max_us"` // of the slowest rank

	// Of another library that was measured in turn: its name, and its time over ours, of
	// which the rounds have the median, the least and the greatest. Above 1: ours is ahead.
	Peer     string  `json:"peer,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"`
	RatioMin float64 `json:"ratio_min,omitempty"`
	RatioMax float64 `json:"ratio_max,omitempty"`
}

// TwoCopies is the Peer of results of this library with Request.Copies.
const TwoCopies = "two-copies"

// Emit takes results on rank 0: of the latency of operations, of the choice, or of what a
// computation hides.
type Emit struct {
	Latency func(Result) error
	Choice  func(ChoiceResult) error
	Hidden  func(Hidden) error
}

// Run measures; all ranks of the engine's job call it. Rank 0's request counts, and rank 0 emits the
// results.
func Run(ctx context.Context, eng *rma.Engine, req Request, emit Emit) error {
	t, err := coll.World(eng)
	if err != nil {
		return err
	}
	if err := share(ctx, t, &req); err != nil {
		return err
	}
	if err := req.Check(); err != nil {
		return err
	}
	switch {
	case req.Choice:
		err = runChoice(ctx, t, &req, emit.Choice)
	case req.NBC:
		err = runHidden(ctx, t, &req, emit.Hidden)
	default:
		err = runLatency(ctx, t, &req, emit.Latency)
	}
	if err != nil {
		return err
	}
	return coll.Barrier(ctx, t)
}

// runLatency measures the latency of each operation and size.
func runLatency(ctx context.Context, t *coll.Team, req *Request, emit func(Result) error) error {
	var rounds []Result
	for range req.Rounds {
		for _, op := range req.Ops {
			for _, n := range req.SizesOf(op) {
				k := Result{Op: op, Size: n, Ranks: t.Size(), Fabric: req.Fabric, Bind: req.Bind.String()}
				if req.Copies {
					k.Peer = TwoCopies
				}
				var err error
				if k.US, k.MaxUS, err = series(ctx, t, op, n, req); err != nil {
					return fmt.Errorf("%s of %d bytes: %w", op, n, err)
				}
				rounds = append(rounds, k)
			}
		}
	}
	if t.Rank() != 0 {
		return nil
	}
	for k, rs := range bench.GroupBy(rounds, (*Result).cell) {
		k.US, _, _ = bench.Range(rs, func(r *Result) float64 { return r.US })
		k.MaxUS, _, _ = bench.Range(rs, func(r *Result) float64 { return r.MaxUS })
		if err := emit(k); err != nil {
			return err
		}
	}
	return nil
}

// cell is the same for the results of all rounds of a library, operation and size.
func (r *Result) cell() Result {
	return Result{Op: r.Op, Size: r.Size, Ranks: r.Ranks, Fabric: r.Fabric, Bind: r.Bind, Peer: r.Peer}
}

// share gives all ranks the request of rank 0.
func share(ctx context.Context, t *coll.Team, req *Request) error {
	text, err := json.Marshal(req)
	if err != nil {
		return err
	}
	n := []int64{int64(len(text))}
	if err := coll.Bcast(ctx, t, 0, n); err != nil {
		return err
	}
	if t.Rank() != 0 {
		text = make([]byte, n[0])
	}
	if err := coll.Bcast(ctx, t, 0, text); err != nil || t.Rank() == 0 {
		return err
	}
	*req = Request{}
	return json.Unmarshal(text, req)
}

// timed calls an operation many times on all ranks, with a barrier between calls, and returns
// the time in the calls on this rank, and the time of everything.
func timed(ctx context.Context, t *coll.Team, op string, call func() error, calls int) (in, all time.Duration, err error) {
	if err := coll.Barrier(ctx, t); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	for range calls {
		at := time.Now()
		if err := call(); err != nil {
			return 0, 0, err
		}
		in += time.Since(at)
		if op == "barrier" {
			continue
		}
		if err := coll.Barrier(ctx, t); err != nil {
			return 0, 0, err
		}
	}
	return in, time.Since(began), nil
}

// warmUps is the number of calls before those that count: the first ones connect ranks, register
// memory, and may take a hundred times as long as later ones.
const warmUps = 5

// callsIn returns how many calls of an operation take about the time span, the same on all
// ranks: by the time on rank 0 of so many that they take at least a tenth of it. It warms
// the operation up.
func callsIn(ctx context.Context, t *coll.Team, op string, call func() error, span time.Duration) (int, error) {
	if _, _, err := timed(ctx, t, op, call, warmUps); err != nil {
		return 0, err
	}
	for n := warmUps; ; {
		_, took, err := timed(ctx, t, op, call, n)
		if err != nil {
			return 0, err
		}
		fit := int64(float64(n) * float64(span) / float64(max(took, 1)))
		found := []int64{max(3, fit), 1}
		if took < span/10 {
			found = []int64{min(fit/4, 10*int64(n)), 0} // at least 2.5 n
		}
		if err := coll.Bcast(ctx, t, 0, found); err != nil {
			return 0, err
		}
		if n = int(found[0]); found[1] == 1 {
			return n, nil
		}
	}
}

// series checks the result of an operation, and returns the mean time of a call in µs: over
// the ranks, and of the slowest.
func series(ctx context.Context, t *coll.Team, op string, n int, req *Request) (mean, most float64, err error) {
	k := newKernel(ctx, t, op, n)
	end, err := k.use(ctx, req.Call)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := k.check(); err != nil {
		return 0, 0, err
	}
	calls, err := callsIn(ctx, t, op, k.call, req.Time)
	if err != nil {
		return 0, 0, err
	}
	took, _, err := timed(ctx, t, op, k.call, calls)
	if err != nil {
		return 0, 0, err
	}
	us := []float64{float64(took) / 1e3 / float64(calls)}
	sum, top := make([]float64, 1), make([]float64, 1)
	if err := coll.Allreduce(ctx, t, us, sum, coll.Sum); err != nil {
		return 0, 0, err
	}
	if err := coll.Allreduce(ctx, t, us, top, coll.Max); err != nil {
		return 0, 0, err
	}
	return sum[0] / float64(t.Size()), top[0], nil
}
