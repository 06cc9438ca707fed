package report

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"slices"
	"time"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
	"github.com/seed33544411/rma/internal/bench/collective"
	"github.com/seed33544411/rma/internal/bench/overlap"
)

// Report is the content of a page.
type Report struct {
	Results []bench.Result
	When    time.Time
	Notes   []string // remarks for the reader, such as fabrics that failed

	// Parameters and choices of the cost model. Any may be empty.
	Plogp     []bench.PlogpResult
	Cells     []choice.Result
	Summaries []choice.Summary
	Curves    []choice.Curve
	Explained []choice.Explanation

	// Communication during computation or beside other goroutines and threads, and collective
	// operations during computation. Either may be empty.
	Overlaps []overlap.Result
	Hidden   []collective.Hidden
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"size": bench.FormatSize, "num": number,
}).Parse(pageText))

func init() {
	for _, text := range []string{choiceText, curveText} { // for the parts that they define
		template.Must(page.New("").Parse(text))
	}
}

// Plot is one figure as SVG.
type Plot struct {
	Name string // lat-put, bw-get, rate: unique in the report
	SVG  []byte
}

var (
	tests = []bench.Test{bench.Lat, bench.BW, bench.Rate}
	ops   = bench.Ops
)

// Plots draws all figures for which there are results.
func (r *Report) Plots() ([]Plot, error) {
	h, cs := home(r.Results), colors(r.Results)
	var out []*drawing
	for _, op := range ops {
		if ss := split(r.Results, bench.Lat, op, h, cs); curved(ss) {
			out = append(out, curve(fmt.Sprintf("lat-%s", op), fmt.Sprintf("Latency of %s, %s: median, shaded up to p99", op, direction(op)), "µs", ss,
				func(r bench.Result) float64 { return r.LatUS.P50 }, func(r bench.Result) float64 { return r.LatUS.P99 }))
		}
	}
	for _, op := range ops {
		if ss := split(r.Results, bench.BW, op, h, cs); curved(ss) {
			out = append(out, curve(fmt.Sprintf("bw-%s", op), fmt.Sprintf("Bandwidth of %s", op), "MB/s (1e6 bytes)", ss,
				func(r bench.Result) float64 { return r.MBs }, nil))
		}
	}
	byOp, names := byOperation(r.Results, bench.Rate, h, cs)
	return render(append(out, rates(byOp, names, cs))...)
}

// curved reports whether any series has more than one point; a single point is in the
// tables only.
func curved(ss []series) bool {
	return slices.ContainsFunc(ss, func(s series) bool { return len(s.rs) > 1 })
}

func direction(op bench.Op) string {
	if op == bench.Put || op == bench.Send || op == bench.Eager {
		return "half round trip"
	}
	return "full operation"
}

// table contains the figures of one test and operation.
type table struct {
	Title string
	Rows  []row
}

type row struct {
	Series string
	Color  template.CSS
	bench.Result
}

// machine is a row of the list of machines.
type machine struct {
	bench.Machine
	Series []string
}

func (r *Report) tables() []table {
	h, cs := home(r.Results), colors(r.Results)
	var out []table
	for _, t := range tests {
		for _, op := range ops {
			tb := table{Title: fmt.Sprintf("%s %s", t, op)}
			if t == bench.Lat {
				tb.Title += ", " + direction(op)
			}
			for _, s := range split(r.Results, t, op, h, cs) {
				for _, res := range s.rs {
					tb.Rows = append(tb.Rows, row{s.name, css(s.color), res})
				}
			}
			if len(tb.Rows) > 0 {
				out = append(out, tb)
			}
		}
	}
	return out
}

func css(c color.NRGBA) template.CSS {
	return template.CSS(fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B))
}

func (r *Report) machines() []machine {
	h := home(r.Results)
	var out []machine
	for _, own := range bench.GroupBy(r.Results, func(r *bench.Result) bench.Machine { return sameMachine(r.Machine) }) {
		m := machine{Machine: own[0].Machine}
		for n := range bench.GroupBy(own, func(r *bench.Result) string { return seriesName(*r, h) }) {
			m.Series = append(m.Series, n)
		}
		out = append(out, m)
	}
	return out
}

// sameMachine returns m without what differs from run to run.
func sameMachine(m bench.Machine) bench.Machine {
	m.TimerNS = 0
	return m
}

// WriteHTML writes the page.
func (r *Report) WriteHTML(w io.Writer) error {
	var failed error
	drawn := func(plots []Plot, err error) []figure {
		failed = errors.Join(failed, err)
		return figures(plots)
	}
	text := func(write func(io.Writer) error) string {
		var b bytes.Buffer
		failed = errors.Join(failed, write(&b))
		return b.String()
	}
	var tables, explained []string
	for i := range r.Plogp {
		tables = append(tables, text(r.Plogp[i].WriteText))
	}
	for i := range r.Explained {
		explained = append(explained, text(r.Explained[i].WriteText))
	}
	curves, err := newCurveSection(r.Curves)
	failed = errors.Join(failed, err)
	data := map[string]any{
		"When": when(r.When), "Notes": r.Notes, "Figures": drawn(r.Plots()),
		"Tables": r.tables(), "Machines": r.machines(), "Points": len(r.Results),
		"Params": drawn(PlogpPlots(r.Plogp)), "ParamTables": tables, "Choice": choiceSections(r.Cells, r.Summaries), "Curves": curves, "Explained": explained,
		"Overlaps": drawn(OverlapPlots(r.Overlaps)), "Beside": drawn(BesidePlots(r.Overlaps)), "Hidden": drawn(HiddenPlots(r.Hidden)),
	}
	if len(r.Overlaps) > 0 {
		data["OverlapText"] = text(func(w io.Writer) error { return overlap.WriteText(w, r.Overlaps) })
	}
	if len(r.Hidden) > 0 {
		data["HiddenText"] = text(func(w io.Writer) error { return collective.WriteHidden(w, r.Hidden) })
	}
	if failed != nil {
		return failed
	}
	return page.Execute(w, data)
}

// when returns the time of a page.
func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// figure is a plot inside a page.
type figure struct {
	Name string
	SVG  template.HTML
}

func figures(plots []Plot) (out []figure) {
	for _, p := range plots {
		out = append(out, figure{p.Name, template.HTML(p.SVG)}) // text in it was escaped by the SVG writer
	}
	return out
}
