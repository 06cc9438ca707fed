package report

import (
	"cmp"
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot/plotter"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/overlap"
)

// overlapFigure identifies a plot of the overlap of communication and computation.
type overlapFigure struct {
	op   string
	size int
	who  string
}

func (f overlapFigure) name() string {
	return fmt.Sprintf("overlap-%s-%d-%s", f.op, f.size, f.who)
}

// overlapSeries is a curve: a link of a library.
func overlapSeries(r *overlap.Result) string {
	if r.Library == "" {
		return r.Fabric
	}
	return r.Library + ", " + r.Fabric
}

// OverlapPlots draws the time for communication and computation at once, relative to their
// sum, over the length of the computation: a figure for each operation, size and choice of
// computing ranks. Rounds are reduced to their medians. Results of other kinds, see
// [BesidePlots], are skipped.
func OverlapPlots(rs []overlap.Result) ([]Plot, error) {
	rs = slices.DeleteFunc(slices.Clone(rs), func(r overlap.Result) bool { return r.What != "overlap" })
	var names []string
	for name := range bench.GroupBy(rs, overlapSeries) {
		names = append(names, name)
	}
	var out []*drawing
	for f, own := range bench.GroupBy(rs, func(r *overlap.Result) overlapFigure { return overlapFigure{r.Op, r.Size, r.Who} }) {
		out = append(out, f.draw(own, names))
	}
	return render(out...)
}

// overlapColor returns the colour of series i, the same in all figures.
func overlapColor(i int, name string) color.NRGBA {
	if c, ok := fabricColors[name]; ok {
		return c
	}
	return spareColors[i%len(spareColors)]
}

func (f overlapFigure) draw(rs []overlap.Result, names []string) *drawing {
	who := map[string]string{"sender": "rank 0 computes", "receiver": "rank 1 computes", "both": "both ranks compute"}[f.who]
	p := newDrawing(f.name(), fmt.Sprintf("%s of %s, %s", f.op, bench.FormatSize(f.size), who), "computation / communication", "time for both / sum")
	p.Add(lines{})
	p.Y.Min, p.Y.Max = 0, 1.2
	var perfect plotter.XYs
	for i, name := range names {
		t := trace{name: name, color: overlapColor(i, name), width: 1.5, radius: 2}
		own := slices.DeleteFunc(slices.Clone(rs), func(r overlap.Result) bool { return overlapSeries(&r) != name })
		for x, rounds := range bench.GroupBy(own, func(r *overlap.Result) float64 { return r.Factor }) {
			y, _, _ := bench.Range(rounds, func(r *overlap.Result) float64 { return r.Ratio })
			t.points = append(t.points, plotter.XY{X: x, Y: y})
			perfect = append(perfect, plotter.XY{X: x, Y: max(1, x) / (1 + x)})
			p.Y.Max = max(p.Y.Max, y)
		}
		slices.SortFunc(t.points, byX)
		p.add(t)
	}
	slices.SortFunc(perfect, byX)
	p.Legend.Add("all is hidden", p.dashed(perfect, ink))
	return p
}

func byX(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) }
