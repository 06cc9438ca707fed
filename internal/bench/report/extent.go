package report

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// logAxes makes both axes logarithmic: sizes across, any figure up.
func logAxes(p *plot.Plot) {
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = sizeTicks{}, decades{}
	p.Add(lines{})
}

// extent is where the points of a plot lie.
type extent struct{ xlo, xhi, ylo, yhi float64 }

func newExtent() extent { return extent{math.Inf(1), 0, math.Inf(1), 0} }

func (e *extent) add(q plotter.XY) {
	e.xlo, e.xhi, e.ylo, e.yhi = min(e.xlo, q.X), max(e.xhi, q.X), min(e.ylo, q.Y), max(e.yhi, q.Y)
}

// set makes the axes hold all points; false if there are none.
func (e *extent) set(p *plot.Plot) bool {
	if e.xhi == 0 {
		return false
	}
	p.X.Min, p.X.Max = e.xlo/1.15, max(e.xhi*1.15, e.xlo*2)
	p.Y.Min, p.Y.Max = e.ylo/1.5, max(e.yhi*1.5, e.ylo*2)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs = 6, -4
	return true
}
