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
	var out []Plot
	for _, t := range []bench.Test{bench.Lat, bench.BW} {
		for _, op := range ops {
			ss := split(r.Results, t, op, h, cs)
			if !curved(ss) {
				continue
			}
			title, y := fmt.Sprintf("Bandwidth of %s", op), "MB/s (1e6 bytes)"
			value, upper := func(r bench.Result) float64 { return r.MBs }, (func(bench.Result) float64)(nil)
			if t == bench.Lat {
				title, y = fmt.Sprintf("Latency of %s, %s: median, shaded up to p99", op, direction(op)), "µs"
				value = func(r bench.Result) float64 { return r.LatUS.P50 }
				upper = func(r bench.Result) float64 { return r.LatUS.P99 }
			}
			p, ok, err := curve(title, y, ss, value, upper)
			if err != nil {
				return nil, err
			}
			if !ok {
				continue
			}
			b, err := svg(p)
			if err != nil {
				return nil, err
			}
			out = append(out, Plot{fmt.Sprintf("%s-%s", t, op), b})
		}
	}
	byOp := map[bench.Op][]series{}
	var names []string
	for _, op := range ops {
		byOp[op] = split(r.Results, bench.Rate, op, h, cs)
		for _, s := range byOp[op] {
			if !slices.Contains(names, s.name) {
				names = append(names, s.name)
			}
		}
	}
	slices.Sort(names)
	if p, ok := rates("Message rate of 8-byte operations", ops, byOp, names, cs); ok {
		b, err := svg(p)
		if err != nil {
			return nil, err
		}
		out = append(out, Plot{"rate", b})
	}
	return out, nil
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
	for _, res := range r.Results {
		m := res.Machine
		m.TimerNS = 0 // it differs from run to run
		i := slices.IndexFunc(out, func(x machine) bool { y := x.Machine; y.TimerNS = 0; return y == m })
		if i < 0 {
			i = len(out)
			out = append(out, machine{Machine: res.Machine})
		}
		if n := seriesName(res, h); !slices.Contains(out[i].Series, n) {
			out[i].Series = append(out[i].Series, n)
		}
	}
	return out
}

// WriteHTML writes the page.
func (r *Report) WriteHTML(w io.Writer) error {
	plots, err := r.Plots()
	if err != nil {
		return err
	}
	params, err := PlogpPlots(r.Plogp)
	if err != nil {
		return err
	}
	curves, err := newCurveSection(r.Curves)
	if err != nil {
		return err
	}
	overlaps, err := OverlapPlots(r.Overlaps)
	if err != nil {
		return err
	}
	beside, err := BesidePlots(r.Overlaps)
	if err != nil {
		return err
	}
	overlapText, err := overlapTable(r.Overlaps)
	if err != nil {
		return err
	}
	hidden, err := HiddenPlots(r.Hidden)
	if err != nil {
		return err
	}
	hiddenText, err := hiddenTable(r.Hidden)
	if err != nil {
		return err
	}
	texts := func(n int, write func(i int, w io.Writer) error) (out []string, err error) {
		for i := range n {
			var b bytes.Buffer
			err = errors.Join(err, write(i, &b))
			out = append(out, b.String())
		}
		return out, err
	}
	tables, err := texts(len(r.Plogp), func(i int, w io.Writer) error { return r.Plogp[i].WriteText(w) })
	if err != nil {
		return err
	}
	explained, err := texts(len(r.Explained), func(i int, w io.Writer) error { return r.Explained[i].WriteText(w) })
	if err != nil {
		return err
	}
	return page.Execute(w, map[string]any{
		"When": r.When.UTC().Format("2006-01-02 15:04 MST"), "Notes": r.Notes, "Figures": figures(plots),
		"Tables": r.tables(), "Machines": r.machines(), "Points": len(r.Results),
		"Params": figures(params), "ParamTables": tables, "Choice": choiceSections(r.Cells, r.Summaries), "Curves": curves, "Explained": explained,
		"Overlaps": figures(overlaps), "Beside": figures(beside), "OverlapText": overlapText, "Hidden": figures(hidden), "HiddenText": hiddenText,
	})
}

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
