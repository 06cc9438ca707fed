package choice

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed33544411/rma/logp"
)

// Modes holds a figure for each mode.
type Modes struct {
	Eager   float64 `json:"eager"`
	Gather  float64 `json:"gather"`
	Scatter float64 `json:"scatter"`
}

func modesOf(x [logp.NumModes]float64) Modes { return Modes{x[0], x[1], x[2]} }

func (m Modes) array() [logp.NumModes]float64 {
	return [logp.NumModes]float64{m.Eager, m.Gather, m.Scatter}
}

// Result is one cell. Times are µs of half a round trip; the time of a series is the lower
// quartile of its rounds.
type Result struct {
	Fabric string `json:"fabric"`
	N      int    `json:"n"`
	Mix    string `json:"mix"`
	Seed   uint64 `json:"seed,omitempty"`
	Bytes  int    `json:"bytes"`

	Modes  Modes   `json:"modes"` // forced; messages that a mode cannot carry go the cheapest other way
	AutoUS float64 `json:"auto_us"`
	Plan   string  `json:"plan"` // of the automatic choice
	Best   string  `json:"best"` // fastest forced mode

	PlanMixes bool   `json:"plan_mixes,omitempty"` // Plan uses several modes
	Single    string `json:"single,omitempty"`     // predicted best mode if the whole batch had to use one

	// Regret is auto_us over the least of modes, less 1; Regret95 is its interval.
	Regret   float64  `json:"regret"`
	Regret95 Interval `json:"regret_95,omitzero"`
	// Choosing is the part of the regret that is the cost of choosing: auto_us over the time
	// of the forced mode with the same plan, less 1. Nil if no forced mode has that plan.
	Choosing *float64 `json:"choosing,omitempty"`
	// Noise is the difference between two series of one forced mode, which alternate with the others.
	Noise float64 `json:"noise"`

	// The model's predictions, and predicted/measured − 1.
	Predicted     Modes    `json:"predicted_us"`
	PredictedAuto float64  `json:"predicted_auto_us"`
	Error         Modes    `json:"prediction_error"`
	ErrorAuto     float64  `json:"prediction_error_auto"`
	Mixed         []string `json:"mixed,omitempty"` // modes that cannot carry all messages

	// TableUS is the time by the table of thresholds, if requested; OverTable is that over
	// auto_us, less 1: the gain of the automatic choice.
	TableUS   float64 `json:"table_us,omitempty"`
	OverTable float64 `json:"over_table,omitempty"`

	// SendRecvUS is the time of two-sided messages over verbs, the reference, which is no mode;
	// OverSendRecv is that over auto_us, less 1, and ErrorSendRecv its prediction error.
	SendRecvUS        float64 `json:"send_recv_us,omitempty"`
	PredictedSendRecv float64 `json:"predicted_send_recv_us,omitempty"`
	ErrorSendRecv     float64 `json:"prediction_error_send_recv,omitempty"`
	OverSendRecv      float64 `json:"over_send_recv,omitempty"`

	Rounds int    `json:"rounds"`
	Trips  int    `json:"trips"` // round trips of a series in a round
	Series Series `json:"series_us,omitzero"`

	plans [logp.NumModes]string // of the forced modes
}

// fill computes the figures derived from the series and the predictions.
func (r *Result) fill() {
	s := r.Series.forced()
	var t, e [logp.NumModes]float64
	for m := range t {
		t[m] = timeOf(s[m])
		e[m] = r.Predicted.array()[m]/t[m] - 1
	}
	r.Modes, r.AutoUS = modesOf(t), timeOf(r.Series.Auto)
	best := least(t[:])
	r.Best = logp.Mode(best).String()
	r.Regret = r.AutoUS/t[best] - 1
	r.Regret95 = r.Series.sample().Regret95()
	for m := range t {
		if r.plans[m] != "" && r.plans[m] == r.Plan {
			c := r.AutoUS/t[m] - 1
			r.Choosing = &c
			break
		}
	}
	if len(r.Series.Thresholds) > 0 {
		r.TableUS = timeOf(r.Series.Thresholds)
		r.OverTable = r.TableUS/r.AutoUS - 1
	}
	if len(r.Series.SendRecv) > 0 {
		r.SendRecvUS = timeOf(r.Series.SendRecv)
		r.OverSendRecv, r.ErrorSendRecv = r.SendRecvUS/r.AutoUS-1, r.PredictedSendRecv/r.SendRecvUS-1
	}
	if m, err := logp.ParseMode(r.Series.AgainOf); err == nil {
		r.Noise = math.Abs(timeOf(r.Series.Again)/t[m] - 1)
	}
	r.Error, r.ErrorAuto = modesOf(e), r.PredictedAuto/r.AutoUS-1
}

// planText formats a plan briefly: mode×messages, "in k" gathers or descriptors.
func planText(p *logp.Plan) string {
	var out []string
	for i := 0; i < len(p.Parts); {
		m, n, k := p.Parts[i].Mode, 0, 0
		for ; i < len(p.Parts) && p.Parts[i].Mode == m; i++ {
			n += len(p.Parts[i].Messages)
			k++
		}
		s := fmt.Sprintf("%v×%d", m, n)
		if k > 1 && m != logp.Eager {
			s += fmt.Sprintf(" in %d", k)
		}
		out = append(out, s)
	}
	return strings.Join(out, " + ")
}

// VsEager is the time of the automatic choice over that of eager, less 1.
func (r *Result) VsEager() float64 { return r.AutoUS/r.Modes.Eager - 1 }

// Summary is the last line of a comparison.
type Summary struct {
	Summary bool   `json:"summary"` // true: distinguishes the line from a cell
	Fabric  string `json:"fabric"`
	Cells   int    `json:"cells"`

	Regrets
	// MeanChoosing and MaxChoosing are over the cells that have a Choosing.
	MeanChoosing float64 `json:"mean_choosing"`
	MaxChoosing  float64 `json:"max_choosing"`
	MaxVsEager   float64 `json:"max_vs_eager"` // maximum of VsEager

	// OverTable is the gain over the table of thresholds, if requested.
	OverTable *Gain `json:"over_table,omitempty"`

	// OverSendRecv is the gain over two-sided messages, over verbs, and SendRecv the median of
	// the magnitude of their prediction errors.
	OverSendRecv *Gain   `json:"over_send_recv,omitempty"`
	SendRecv     float64 `json:"median_abs_prediction_error_send_recv,omitempty"`

	// Over all cells and the modes that can carry them.
	MedianAbsPredictionError float64 `json:"median_abs_prediction_error"`
	PerMode                  Modes   `json:"median_abs_prediction_error_modes"`
	Auto                     float64 `json:"median_abs_prediction_error_auto"`

	Seed uint64 `json:"seed"`
	Cut  bool   `json:"cut,omitempty"` // the budget was used up before all cells
}

// Regrets is the part of a summary about the regrets of all cells.
type Regrets struct {
	MeanRegret   float64  `json:"mean_regret"`
	MeanRegret95 Interval `json:"mean_regret_95,omitzero"`
	P95Regret    float64  `json:"p95_regret"`
	MaxRegret    float64  `json:"max_regret"`
	// Within10pct is the share of cells whose regret is at most 0.1. Noise is not subtracted
	// from a regret.
	Within10pct   float64  `json:"within10pct"`
	Within10pct95 Interval `json:"within10pct_95,omitzero"`
	MedianNoise   float64  `json:"median_noise"`
}

// RegretsOf combines the regret and the noise of each cell; cells are their series.
func RegretsOf(regret, noise []float64, cells []Sample) (s Regrets) {
	s.MeanRegret, s.Within10pct = meanAndWithin(regret)
	s.P95Regret, s.MaxRegret, s.MedianNoise = Quantile(regret, 0.95), Quantile(regret, 1), Quantile(noise, 0.5)
	s.MeanRegret95, s.Within10pct95 = summary95(cells)
	return s
}

// Summarize combines results.
func Summarize(rs []Result) (s Summary) {
	s.Summary, s.Cells = true, len(rs)
	if len(rs) == 0 {
		return s
	}
	s.Fabric = rs[0].Fabric
	var regret, choosing, noise, all, auto, overTable, twoSided, twoSidedError []float64
	var cells []Sample
	var per [logp.NumModes][]float64
	s.MaxVsEager = math.Inf(-1)
	for i := range rs {
		r := &rs[i]
		regret, noise, cells = append(regret, r.Regret), append(noise, r.Noise), append(cells, r.Series.sample())
		if r.Choosing != nil {
			choosing = append(choosing, *r.Choosing)
		}
		s.MaxVsEager = max(s.MaxVsEager, r.VsEager())
		if r.TableUS > 0 {
			overTable = append(overTable, r.TableUS/r.AutoUS)
		}
		if r.SendRecvUS > 0 {
			twoSided, twoSidedError = append(twoSided, r.SendRecvUS/r.AutoUS), append(twoSidedError, math.Abs(r.ErrorSendRecv))
		}
		auto = append(auto, math.Abs(r.ErrorAuto))
		for m, e := range r.Error.array() {
			if !slices.Contains(r.Mixed, logp.Mode(m).String()) {
				all, per[m] = append(all, math.Abs(e)), append(per[m], math.Abs(e))
			}
		}
	}
	s.Regrets = RegretsOf(regret, noise, cells)
	s.MeanChoosing, _ = meanAndWithin(choosing)
	s.MaxChoosing = Quantile(choosing, 1)
	if len(overTable) > 0 {
		g := gainOf(overTable)
		s.OverTable = &g
	}
	if len(twoSided) > 0 {
		g := gainOf(twoSided)
		s.OverSendRecv, s.SendRecv = &g, Quantile(twoSidedError, 0.5)
	}
	s.MedianAbsPredictionError, s.Auto = Quantile(all, 0.5), Quantile(auto, 0.5)
	s.PerMode = Modes{Quantile(per[0], 0.5), Quantile(per[1], 0.5), Quantile(per[2], 0.5)}
	return s
}

// Quantile returns the least value that is not below a share q of x, and for an even median
// the mean of the two middle values; 0 if x is empty.
func Quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Clone(x)
	slices.Sort(x)
	n := len(x)
	if q == 0.5 && n%2 == 0 {
		return (x[n/2-1] + x[n/2]) / 2
	}
	return x[min(max(int(math.Ceil(q*float64(n)-1e-9))-1, 0), n-1)]
}
