package choice

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/sampling"
)

// Request describes a comparison. Only rank 0's request counts.
type Request struct {
	Fabric string `json:"fabric"`
	Op     string `json:"op,omitempty"` // OpMessage, OpPut or OpGet
	Grid   Grid   `json:"grid"`
	Seed   uint64 `json:"seed"`

	// Rounds is the number of rounds, in each of which every series of a cell plays once.
	// Zero means DefaultRounds.
	Rounds int `json:"rounds"`
	// Time is the time for a cell; each series makes at least minTrips round trips a round.
	// Zero means DefaultTime.
	Time time.Duration `json:"time"`
	// Budget ends the run before the first cell that would begin after it. Zero means no
	// limit.
	Budget time.Duration `json:"budget"`
	// Sampling and Calibration are the time budgets of these steps. Zero means
	// DefaultSampling and DefaultCalibration.
	Sampling    time.Duration `json:"sampling"`
	Calibration time.Duration `json:"calibration"`
	// Bare skips the calibration: the model predicts from the sampled parameters alone.
	Bare bool `json:"bare,omitempty"`
	// Recalibrate repeats the calibration before every Recalibrate cells. Zero means never:
	// the parameters of the start are used for all cells.
	Recalibrate int `json:"recalibrate,omitempty"`

	Pin   bool          `json:"pin,omitempty"`
	Stall time.Duration `json:"stall"`

	// Batch, if not empty, is a batch to explain instead of comparing a grid; Measure says
	// whether to play it as well.
	Batch   []int `json:"batch,omitempty"`
	Measure bool  `json:"measure,omitempty"`

	// Coll, if not empty, is a collective operation to explain instead: of Size bytes by Ranks
	// ranks, evenly on Hosts hosts, 0 for one.
	Coll  string `json:"coll,omitempty"`
	Size  int    `json:"size,omitempty"`
	Ranks int    `json:"ranks,omitempty"`
	Hosts int    `json:"hosts,omitempty"`
	// Between is the link between those hosts, which has default parameters, and Latency its
	// latency, one way; zero means that of the default.
	Between string        `json:"between,omitempty"`
	Latency time.Duration `json:"latency,omitempty"`

	// Curves, if not empty, are the batch sizes of curves to measure instead of a grid
	// (curve.go).
	Curves []int `json:"curves,omitempty"`
	// Most is the largest message of a curve, in bytes. Zero means DefaultMost.
	Most int `json:"most,omitempty"`

	// Table is the text of mode tables (links.ModeTables) that is measured in each cell as
	// well, or that the batch to explain is planned by.
	Table string `json:"table,omitempty"`

	// Ambient says that Table is a setting of the machine, which need not have a section for
	// the link that is measured.
	Ambient bool `json:"ambient,omitempty"`

	// Mixing measures fixed thresholds in each cell as well, those of Table if it is set, for
	// SummarizeMixing.
	Mixing bool `json:"mixing,omitempty"`
	// Seeds is how often the mixes of random sizes are drawn, with Seed and the following
	// seeds. Zero means once.
	Seeds int `json:"seeds,omitempty"`

	// Ablate runs the studies of ablate.go instead of a grid.
	Ablate bool `json:"ablate,omitempty"`
}

// Operations that are compared: batches of messages, and puts or gets of several pieces.
const (
	OpMessage = "message"
	OpPut     = "put"
	OpGet     = "get"
)

// Ops are the values of Request.Op.
var Ops = []string{OpMessage, OpPut, OpGet}

// Pieces reports whether the request compares puts or gets of pieces.
func (r *Request) Pieces() bool { return r.Op == OpPut || r.Op == OpGet }

// Defaults and bounds.
const (
	// DefaultRounds is odd, for a median; with seven rounds, the median tolerates two
	// disturbed rounds on either side.
	DefaultRounds = 7
	// DefaultTime gives a run over the default grid of half a minute.
	DefaultTime = 250 * time.Millisecond

	// DefaultSampling is more than an engine's budget at its start: on an overloaded machine
	// another process's time slice is as long as that budget, and the comparison is of the
	// choice, not of the luck of its sampling. DefaultCalibration is enough for all batches of
	// a slow link.
	DefaultSampling    = 200 * time.Millisecond
	DefaultCalibration = 500 * time.Millisecond

	// DefaultMost is larger than the size of every link's last change of mode.
	DefaultMost = 4 << 20

	maxRounds = 1000
	maxSeeds  = 100
	maxTime   = time.Hour
	maxTrips  = 2000
	minTrips  = 3 // the lower quartile of fewer depends on a single trip
)

// Check fills in defaults and reports why the request cannot be carried out. Both sides call it.
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
	if !slices.Contains(Ops, r.Op) || r.Pieces() && (r.Ablate || r.Mixing || len(r.Curves) > 0 || r.Table != "") {
		return fmt.Errorf("%w: %q: want %s, and puts and gets only in a grid or explained", ErrGrid, r.Op, strings.Join(Ops, ", "))
	}
	if _, err := links.ModeTables(r.Table); err != nil {
		return fmt.Errorf("%w: --table: %w", ErrGrid, err)
	}
	if r.Coll != "" {
		p := sampling.Defaults("")
		if _, err := r.predict(&p, false); err != nil {
			return fmt.Errorf("%w: %w", ErrGrid, err)
		}
		r.Batch = []int{r.Size}
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

// Drawn is a cell with the seed of its sizes.
type Drawn struct {
	Cell
	Seed uint64
}

// Cells returns the cells to measure: the grid, then the cells of random sizes with the
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
