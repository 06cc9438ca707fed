package report

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/overlap"
)

// besideFigure is a plot of the latency of an operation over the number of goroutines, streams
// or threads that run meanwhile.
type besideFigure struct {
	what, op, beside string
	size             int
}

// besideAxes says for each kind of result what its number counts.
var besideAxes = map[string]string{
	"reactivity": "computing goroutines for each processor of the target",
	"threads":    "other goroutines of each rank",
	"concurrent": "streams of rank 0",
	"load":       "computing threads of another process",
}

func (f besideFigure) name() string {
	s := f.what + "-" + f.op
	if f.beside != "" {
		s += "-" + f.beside
	}
	if f.size > 0 {
		s += "-" + strconv.Itoa(f.size)
	}
	return s
}

func (f besideFigure) title() string {
	s := f.what + ": " + f.op
	if f.beside != "" {
		s += " beside " + f.beside
	}
	if f.size > 0 {
		s += " of " + bench.FormatSize(f.size)
	}
	return s
}

// besidePoint is one number of a curve, with medians over the rounds in µs.
type besidePoint struct {
	count    int
	mid, p99 float64 // mid is the mean of load, otherwise the median
}

// besideCurve is a link of a library, with load also a value of RMA_SPIN, and with reactivity a
// gap between operations.
type besideCurve struct {
	name   string
	points []besidePoint // by count
}

// curves returns the curves of f in the order of their first results.
func (f besideFigure) curves(rs []overlap.Result) (out []besideCurve) {
	type rounds struct{ mid, p99 []float64 }
	of := map[string]map[int]rounds{}
	for i := range rs {
		r := &rs[i]
		if f != figureOf(r) {
			continue
		}
		name, mid := overlapSeries(r), r.P50
		if r.What == "load" {
			name, mid = name+", RMA_SPIN: "+r.Spin, r.Mean
		}
		if r.Gap > 0 {
			name += ", gap: " + time.Duration(r.Gap*1e3).String()
		}
		if of[name] == nil {
			of[name] = map[int]rounds{}
			out = append(out, besideCurve{name: name})
		}
		at := of[name][r.Count]
		of[name][r.Count] = rounds{append(at.mid, mid), append(at.p99, r.P99)}
	}
	for i := range out {
		for n, at := range of[out[i].name] {
			out[i].points = append(out[i].points, besidePoint{n, bench.Median(at.mid), bench.Median(at.p99)})
		}
		slices.SortFunc(out[i].points, func(a, b besidePoint) int { return cmp.Compare(a.count, b.count) })
	}
	return out
}

func figureOf(r *overlap.Result) besideFigure { return besideFigure{r.What, r.Op, r.Beside, r.Size} }

// BesidePlots draws the latencies of operations on ranks that compute, wait or send meanwhile:
// a figure for each operation and kind of other work, with a solid curve for each link of
// a library and a dashed one of its 99th percentiles. Results of transfers beside computation,
// see [OverlapPlots], are skipped, as are figures without a positive time.
func BesidePlots(rs []overlap.Result) ([]Plot, error) {
	var figs []besideFigure
	var names []string
	for i := range rs {
		if f := figureOf(&rs[i]); besideAxes[f.what] != "" && !slices.Contains(figs, f) {
			figs = append(figs, f)
		}
	}
	for _, f := range figs {
		for _, c := range f.curves(rs) {
			if !slices.Contains(names, c.name) {
				names = append(names, c.name)
			}
		}
	}
	var out []*drawing
	for _, f := range figs {
		out = append(out, f.draw(f.curves(rs), names))
	}
	return render(out...)
}

// draw returns nil if there is nothing to draw.
func (f besideFigure) draw(curves []besideCurve, names []string) *drawing {
	middle := "median"
	if f.what == "load" {
		middle = "mean"
	}
	p := newDrawing(f.name(), f.title(), besideAxes[f.what], "µs: "+middle+"; dashed: p99")
	var counts []int // labels at equal distances: they are such as 0, 1, 16, 128
	for _, c := range curves {
		for _, q := range c.points {
			counts = append(counts, q.count)
		}
	}
	slices.Sort(counts)
	counts = slices.Compact(counts)
	p.X.Tick.Marker, p.Y.Scale, p.Y.Tick.Marker = labels(counts, strconv.Itoa), plot.LogScale{}, decades{}
	p.Add(lines{})
	lo, hi := math.Inf(1), 0.0
	for _, c := range curves {
		t := trace{name: c.name, color: overlapColor(slices.Index(names, c.name), c.name), width: 1.5, radius: 2}
		for _, q := range c.points {
			if x := float64(slices.Index(counts, q.count)); q.mid > 0 {
				t.points = append(t.points, plotter.XY{X: x, Y: q.mid})
				t.dashed = append(t.dashed, plotter.XY{X: x, Y: max(q.mid, q.p99)}) // a mean may exceed it
				lo, hi = min(lo, q.mid), max(hi, q.mid, q.p99)
			}
		}
		p.add(t)
	}
	if hi == 0 {
		return nil
	}
	p.X.Min, p.X.Max = -0.3, float64(len(counts))-0.7
	p.Y.Min, p.Y.Max = lo/1.5, hi*4
	legend(p.Plot)
	return p
}
