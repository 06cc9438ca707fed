package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
)

//go:embed choice.html
var choiceText string

var choicePage = template.Must(template.New("choice page").Parse(choiceText))

// heatMap is one figure of all cells of a fabric: mixes down, batch sizes across.
type heatMap struct {
	Title string
	N     []int
	Rows  []heatRow
}

type heatRow struct {
	Mix   string
	Cells []heatCell
}

type heatCell struct {
	Text, Tip string
	Color     template.CSS
}

// WriteChoice writes a page with heat maps of every fabric in rs, and of every run of a fabric.
func WriteChoice(w io.Writer, rs []choice.Result, ss []choice.Summary, at time.Time) error {
	return choicePage.Execute(w, map[string]any{"When": when(at), "Sections": choiceSections(rs, ss)})
}

// choiceSection is the part of a page about one run over one fabric.
type choiceSection struct {
	Title string
	Lines []string
	Maps  []heatMap
}

// runsOf splits the cells of a fabric, whose summaries are ss, by runs: each has as many cells as its
// summary says, and none twice.
func runsOf(cells []choice.Result, ss []choice.Summary) (runs [][]choice.Result) {
	for _, r := range cells {
		k := len(runs) - 1
		if k < 0 || k < len(ss) && len(runs[k]) == ss[k].Cells || slices.ContainsFunc(runs[k], func(x choice.Result) bool { return x.N == r.N && x.Mix == r.Mix }) {
			runs, k = append(runs, nil), k+1
		}
		runs[k] = append(runs[k], r)
	}
	return runs
}

func choiceSections(rs []choice.Result, ss []choice.Summary) (out []choiceSection) {
	for fabric, cells := range bench.GroupBy(rs, func(r *choice.Result) string { return r.Fabric }) {
		sums := slices.DeleteFunc(slices.Clone(ss), func(x choice.Summary) bool { return x.Fabric != fabric || x.Cells == 0 })
		runs := runsOf(cells, sums)
		for i, own := range runs {
			s := choiceSection{Title: fabric}
			if len(runs) > 1 {
				s.Title = fmt.Sprintf("%s, run %d", fabric, i+1)
			}
			if i < len(sums) {
				x := sums[i]
				s.Lines = append(s.Lines, fmt.Sprintf("%d cells: regret %.1f %% in the mean (95 %%: %v), p95 %.1f %%, max %.1f %%; %.1f %% of the cells within 10 %% (95 %%: %v); choosing %.1f %% in the mean; prediction error %.1f %% in the median",
					x.Cells, 100*x.MeanRegret, x.MeanRegret95, 100*x.P95Regret, 100*x.MaxRegret, 100*x.Within10pct, x.Within10pct95, 100*x.MeanChoosing, 100*x.MedianAbsPredictionError))
			}
			s.Maps = heatMaps(own)
			out = append(out, s)
		}
	}
	return out
}

func heatMaps(own []choice.Result) []heatMap {
	return []heatMap{
		heat("Regret, %", own, func(r *choice.Result) (string, template.CSS) {
			return fmt.Sprintf("%.0f", 100*r.Regret), shade(r.Regret/0.3, false)
		}),
		heat("Prediction error of the plan, %", own, func(r *choice.Result) (string, template.CSS) {
			return fmt.Sprintf("%+.0f", 100*r.ErrorAuto), shade(r.ErrorAuto, true)
		}),
		heat("Cost of choosing, %", own, func(r *choice.Result) (string, template.CSS) {
			if r.Choosing == nil {
				return "–", ""
			}
			return fmt.Sprintf("%.0f", 100**r.Choosing), shade(*r.Choosing/0.3, false)
		}),
		heat("Noise, %", own, func(r *choice.Result) (string, template.CSS) {
			return fmt.Sprintf("%.0f", 100*r.Noise), shade(r.Noise/0.3, false)
		}),
		heat("Plan, and best single mode", own, func(r *choice.Result) (string, template.CSS) {
			return r.Plan + " / " + r.Best, modeColors[r.Best]
		}),
	}
}

var modeColors = map[string]template.CSS{"eager": "#d6e8f5", "gather": "#dcefd9", "scatter": "#fbe3cc"}

// shade returns a colour for x: white at 0 or below, red at 1; with sign, blue at -1.
func shade(x float64, sign bool) template.CSS {
	k := func(x float64) int { return 255 - int(150*min(max(x, 0), 1)) }
	if sign && x < 0 {
		return template.CSS(fmt.Sprintf("#%02x%02xff", k(-x), k(-x)))
	}
	return template.CSS(fmt.Sprintf("#ff%02x%02x", k(x), k(x)))
}

func heat(title string, rs []choice.Result, show func(*choice.Result) (string, template.CSS)) heatMap {
	h := heatMap{Title: title}
	for _, r := range rs {
		if !slices.Contains(h.N, r.N) {
			h.N = append(h.N, r.N)
		}
	}
	slices.Sort(h.N)
	for i := range rs {
		r := &rs[i]
		k := slices.IndexFunc(h.Rows, func(x heatRow) bool { return x.Mix == r.Mix })
		if k < 0 {
			k = len(h.Rows)
			h.Rows = append(h.Rows, heatRow{r.Mix, make([]heatCell, len(h.N))})
		}
		text, color := show(r)
		h.Rows[k].Cells[slices.Index(h.N, r.N)] = heatCell{text, fmt.Sprintf("%d × %s: eager %.2f, gather %.2f, scatter %.2f, auto %.2f µs (predicted %.2f); plan %s; regret %.1f %% (95 %%: %v), noise %.1f %%",
			r.N, r.Mix, r.Modes.Eager, r.Modes.Gather, r.Modes.Scatter, r.AutoUS, r.PredictedAuto, r.Plan, 100*r.Regret, r.Regret95, 100*r.Noise), color}
	}
	return h
}
