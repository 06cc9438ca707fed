package choice

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/sampling"
)

// Request is what rank 0 wants compared.
type Request struct {
	Fabric string `json:"fabric"`
	Op     string `json:"op,omitempty"` // OpMessage, OpPut or OpGet
	Grid   Grid   `json:"grid"`
	Seed   uint64 `json:"seed"`

	// Rounds is how often every series of a cell takes its turn. Zero means
	// DefaultRounds.
	Rounds int `json:"rounds"`
	// Time is what a cell may take; every series has minTrips round trips a round in
	// any case. Zero means DefaultTime.
	Time time.Duration `json:"time"`
	// Budget ends the run before the first cell that would begin later. Zero
	// means none.
	Budget time.Duration `json:"budget"`
	// Sampling and Calibration are the budgets of either. Zero means DefaultSampling
	// and DefaultCalibration.
	Sampling    time.Duration `json:"sampling"`
	Calibration time.Duration `json:"calibration"`
	// Bare leaves calibration out: what the model says of itself.
	Bare bool `json:"bare,omitempty"`
	// Recalibrate calibrates again before every so many cells. Zero: never, the
	// parameters of the start hold for all.
	Recalibrate int `json:"recalibrate,omitempty"`

	Pin   bool          `json:"pin,omitempty"`
	Stall time.Duration `json:"stall"`

	// Batch, if not empty, is the one batch to explain instead of a grid;
	// Measure says whether to play it.
	Batch   []int `json:"batch,omitempty"`
	Measure bool  `json:"measure,omitempty"`

	// Curves, if not empty, asks for the curves of batches of so many messages
	// instead of a grid (curve.go).
	Curves []int `json:"curves,omitempty"`
	// Most is the largest message of a curve, in bytes. Zero means DefaultMost.
	Most int `json:"most,omitempty"`

	// Mixing measures fixed thresholds beside the rest of each cell: SummarizeMixing says
	// what plans of several modes gain.
	Mixing bool `json:"mixing,omitempty"`
	// Seeds is how often the mixes of random sizes are drawn, with Seed and the next
	// ones. Zero means once.
	Seeds int `json:"seeds,omitempty"`

	// Ablate asks for the studies of ablate.go instead of a grid.
	Ablate bool `json:"ablate,omitempty"`
}

// Operations that are compared: batches of messages, and puts or gets of several pieces.
const (
	OpMessage = "message"
	OpPut     = "put"
	OpGet     = "get"
)

// Ops are what Request.Op may be.
var Ops = []string{OpMessage, OpPut, OpGet}

// Pieces reports whether puts or gets of pieces are compared.
func (r *Request) Pieces() bool { return r.Op == OpPut || r.Op == OpGet }

// Defaults and bounds.
const (
	// DefaultRounds is odd, for a median; seven see through two that were
	// disturbed on either side.
	DefaultRounds = 7
	// DefaultTime makes a run over the default grid one of half a minute.
	DefaultTime = 250 * time.Millisecond

	// DefaultSampling is more than what an engine spends when it starts: on a
	// machine with more to do than processors a single turn of the others lasts as
	// long as that, and what is compared here is the choice, not the luck of its
	// sampling. DefaultCalibration is enough for all batches of a slow link.
	DefaultSampling    = 200 * time.Millisecond
	DefaultCalibration = 500 * time.Millisecond

	// DefaultMost is beyond where any link changes its mode.
	DefaultMost = 4 << 20

	maxRounds = 1000
	maxSeeds  = 100
	maxTime   = time.Hour
	maxTrips  = 2000
	minTrips  = 3 // a lower quartile of fewer is the luck of one
)

// Check fills in defaults and says whether it can be carried out, on both sides.
func (r *Request) Check() error {
	for _, n := range r.Curves {
		if n < 1 || n > maxN {
			return fmt.Errorf("%w: curve of batches of %d, want 1 to %d", ErrGrid, n, maxN)
		}
	}
	if r.Most == 0 {
		r.Most = DefaultMost
	}
	if r.Most < 8 || r.Most > curveSpan {
		return fmt.Errorf("%w: curve up to %d bytes, want 8 to %d", ErrGrid, r.Most, curveSpan)
	}
	if len(r.Curves) > maxN {
		return fmt.Errorf("%w: %d curves", ErrGrid, len(r.Curves))
	}
	if r.Op == "" {
		r.Op = OpMessage
	}
	if !slices.Contains(Ops, r.Op) || r.Pieces() && (r.Ablate || r.Mixing || len(r.Curves) > 0) {
		return fmt.Errorf("%w: %q: want %s, and puts and gets only in a grid or explained", ErrGrid, r.Op, strings.Join(Ops, ", "))
	}
	if len(r.Batch) > 0 || r.Ablate || len(r.Curves) > 0 {
		r.Grid = Grid{N: []int{1}, Mixes: []string{"8"}}
		if len(r.Batch) > maxN || sum(r.Batch) > maxBytes {
			return fmt.Errorf("%w: batch of %d messages, %d bytes: want at most %d, %d", ErrGrid, len(r.Batch), sum(r.Batch), maxN, maxBytes)
		}
		for _, n := range r.Batch {
			if n < 0 || n > maxBytes {
				return fmt.Errorf("%w: message of %d bytes", ErrGrid, n)
			}
		}
	}
	if r.Pieces() && len(r.Grid.Layouts) == 0 {
		r.Grid.Layouts = []string{Scattered}
	}
	if err := r.Grid.Check(); err != nil {
		return err
	}
	if !r.Pieces() && len(r.Grid.Layouts) > 0 {
		return fmt.Errorf("%w: messages have no layout", ErrGrid)
	}
	if r.Rounds == 0 {
		r.Rounds = DefaultRounds
	}
	if r.Time == 0 {
		r.Time = DefaultTime
	}
	if r.Sampling == 0 {
		r.Sampling = DefaultSampling
	}
	if r.Calibration == 0 {
		r.Calibration = DefaultCalibration
	}
	if r.Stall == 0 {
		r.Stall = bench.DefaultStall
	}
	switch {
	case r.Rounds < 1 || r.Rounds > maxRounds:
		return fmt.Errorf("%w: %d rounds, want 1 to %d", ErrGrid, r.Rounds, maxRounds)
	case r.Time < 0 || r.Time > maxTime || r.Budget < 0 || r.Budget > 24*time.Hour:
		return fmt.Errorf("%w: %v a cell, %v in all", ErrGrid, r.Time, r.Budget)
	case r.Sampling < time.Millisecond || r.Sampling > sampling.MaxBudget:
		return fmt.Errorf("%w: sampling budget %v, want 1ms to %v", ErrGrid, r.Sampling, sampling.MaxBudget)
	case r.Calibration < time.Millisecond || r.Calibration > maxTime:
		return fmt.Errorf("%w: calibration budget %v, want 1ms to %v", ErrGrid, r.Calibration, maxTime)
	case r.Seeds < 0 || r.Seeds > maxSeeds:
		return fmt.Errorf("%w: %d seeds, want 1 to %d", ErrGrid, r.Seeds, maxSeeds)
	case r.Recalibrate < 0:
		return fmt.Errorf("%w: calibrate every %d cells", ErrGrid, r.Recalibrate)
	case r.Stall < time.Millisecond || r.Stall > maxTime:
		return fmt.Errorf("%w: stall time %v, want 1ms to %v", ErrGrid, r.Stall, maxTime)
	}
	return nil
}

// Drawn is a cell whose sizes were drawn with a seed.
type Drawn struct {
	Cell
	Seed uint64
}

// Cells lists what will be measured: the grid, then the cells of random sizes with the
// other seeds.
func (r *Request) Cells() (out []Drawn) {
	for i := range uint64(max(r.Seeds, 1)) {
		seed := r.Seed + i
		for _, c := range r.Grid.Cells(seed) {
			if i == 0 || c.random() {
				out = append(out, Drawn{c, seed})
			}
		}
	}
	return out
}
