package choice

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/logp"
)

// fixedThresholds is the policy of a library without a model on a fabric: messages up to the
// eager limit go through the ring, several at once, the others by rendezvous. The limits are
// those of Open MPI 4 (btl_vader_eager_limit, btl_tcp_eager_limit,
// btl_openib_eager_limit).
func fixedThresholds(fabric string) logp.Policy {
	limit := map[string]int64{"shm": 4 << 10, "tcp": 64 << 10}[fabric]
	if limit == 0 {
		limit = 12 << 10
	}
	return logp.Policy{Table: []logp.Rule{
		{MaxSize: limit, MaxCount: 1, Mode: logp.Eager}, {MaxSize: limit, Mode: logp.Gather}, {Mode: logp.Scatter},
	}}
}

// Mixing is the gain of the planner over simpler rules, for the cells of one mix: the time
// of the rule over that of the automatic choice, less 1.
type Mixing struct {
	Fabric string `json:"fabric"`
	Mix    string `json:"mix"` // "all": over all mixes
	Cells  int    `json:"cells"`
	Mixed  int    `json:"mixed"` // cells whose plan uses several modes

	// OverFixed is over the one mode that is the best for all these cells together
	// (FixedMode: RMA_MODE with a lucky hand), for all cells. OverSingle is over the single mode that the model predicts to be best, and OverBest
	// over the mode that was measured to be best, both for the mixed cells; OverThresholds
	// is over fixed thresholds (Request.Table, or the limits of fixedThresholds), for all cells.
	FixedMode      string `json:"fixed_mode"`
	OverFixed      Gain   `json:"over_fixed"`
	OverSingle     Gain   `json:"over_single"`
	OverBest       Gain   `json:"over_best"`
	OverThresholds Gain   `json:"over_thresholds"`
}

// Gain is a distribution of gains. It is zero without cells.
type Gain struct {
	Mean   float64 `json:"mean"` // geometric
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

func gainOf(ratios []float64) Gain {
	if len(ratios) == 0 {
		return Gain{}
	}
	log := 0.0
	for _, r := range ratios {
		log += math.Log(r)
	}
	return Gain{
		math.Exp(log/float64(len(ratios))) - 1, Quantile(ratios, 0.5) - 1, slices.Min(ratios) - 1, slices.Max(ratios) - 1,
	}
}

// String returns the gain in percent.
func (g Gain) String() string {
	return fmt.Sprintf("%+.1f %% (median %+.1f, %+.1f … %+.1f)", 100*g.Mean, 100*g.Median, 100*g.Least, 100*g.Most)
}

// SummarizeMixing combines the results of a Request with Mixing: mix by mix, then all.
func SummarizeMixing(rs []Result) (out []Mixing) {
	for mix, own := range bench.GroupBy(rs, func(r *Result) string { return r.Mix }) {
		out = append(out, mixingOf(mix, own))
	}
	return append(out, mixingOf("all", rs))
}

func mixingOf(mix string, rs []Result) Mixing {
	m := Mixing{Mix: mix, Cells: len(rs)}
	var single, best, fixed []float64
	var forced [logp.NumModes][]float64
	for i := range rs {
		r := &rs[i]
		m.Fabric = r.Fabric
		t := r.Modes.array()
		for i, us := range t {
			forced[i] = append(forced[i], us/r.AutoUS)
		}
		if len(r.Series.Thresholds) > 0 {
			fixed = append(fixed, timeOf(r.Series.Thresholds)/r.AutoUS)
		}
		if !r.PlanMixes {
			continue
		}
		m.Mixed++
		best = append(best, t[least(t[:])]/r.AutoUS)
		if one, err := logp.ParseMode(r.Single); err == nil {
			single = append(single, t[one]/r.AutoUS)
		}
	}
	for i := range forced {
		if g := gainOf(forced[i]); m.FixedMode == "" || g.Mean < m.OverFixed.Mean {
			m.FixedMode, m.OverFixed = logp.Mode(i).String(), g
		}
	}
	m.OverSingle, m.OverBest, m.OverThresholds = gainOf(single), gainOf(best), gainOf(fixed)
	return m
}

// WriteMixing writes ms as a table.
func WriteMixing(w io.Writer, ms []Mixing) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "fabric\tmix\tcells\tmixed\tover one mode\tover the model's single mode\tover the best single mode\tover fixed thresholds")
	for i := range ms {
		m := &ms[i]
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s %v\t%v\t%v\t%v\n", m.Fabric, m.Mix, m.Cells, m.Mixed, m.FixedMode, m.OverFixed, m.OverSingle, m.OverBest, m.OverThresholds)
	}
	return t.Flush()
}
