package report

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

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
	var figs []overlapFigure
	var names []string
	for i := range rs {
		if rs[i].What != "overlap" {
			continue
		}
		if f := (overlapFigure{rs[i].Op, rs[i].Size, rs[i].Who}); !slices.Contains(figs, f) {
			figs = append(figs, f)
		}
		if n := overlapSeries(&rs[i]); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	var out []Plot
	for _, f := range figs {
		b, err := f.draw(rs, names)
		if err != nil {
			return nil, err
		}
		out = append(out, Plot{f.name(), b})
	}
	return out, nil
}

// overlapColor returns the colour of series i, the same in all figures.
func overlapColor(i int, name string) color.NRGBA {
	if c, ok := fabricColors[name]; ok {
		return c
	}
	return spareColors[i%len(spareColors)]
}

func (f overlapFigure) draw(rs []overlap.Result, names []string) ([]byte, error) {
	who := map[string]string{"sender": "rank 0 computes", "receiver": "rank 1 computes", "both": "both ranks compute"}[f.who]
	p := newPlot(fmt.Sprintf("%s of %s, %s", f.op, bench.FormatSize(f.size), who), "computation / communication", "time for both / sum")
	p.Add(lines{})
	p.Y.Min, p.Y.Max = 0, 1.2
	var perfect plotter.XYs
	for i, name := range names {
		ratios := map[float64][]float64{}
		var factors []float64
		for k := range rs {
			r := &rs[k]
			if r.What != "overlap" || (overlapFigure{r.Op, r.Size, r.Who}) != f || overlapSeries(r) != name {
				continue
			}
			if ratios[r.Factor] == nil {
				factors = append(factors, r.Factor)
			}
			ratios[r.Factor] = append(ratios[r.Factor], r.Ratio)
		}
		slices.Sort(factors)
		var pts plotter.XYs
		for _, x := range factors {
			pts = append(pts, plotter.XY{X: x, Y: bench.Median(ratios[x])})
			perfect = append(perfect, plotter.XY{X: x, Y: max(1, x) / (1 + x)})
			p.Y.Max = max(p.Y.Max, pts[len(pts)-1].Y)
		}
		if len(pts) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(pts)
		if err != nil {
			return nil, err
		}
		c := overlapColor(i, name)
		line.Color, line.Width = c, 1.5
		dots.Color, dots.Shape, dots.Radius = c, draw.CircleGlyph{}, 2
		p.Add(line, dots)
		p.Legend.Add(name, line, dots)
	}
	slices.SortFunc(perfect, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	least, err := plotter.NewLine(perfect)
	if err != nil {
		return nil, err
	}
	least.Color, least.Dashes = ink, []vg.Length{3, 3}
	p.Add(least)
	p.Legend.Add("all is hidden", least)
	return svg(p)
}

// overlapTable returns the figures as text, "" if there are none.
func overlapTable(rs []overlap.Result) (string, error) {
	if len(rs) == 0 {
		return "", nil
	}
	var b bytes.Buffer
	err := overlap.Write(&b, "table", rs)
	return b.String(), err
}
