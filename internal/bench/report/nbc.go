package report

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/collective"
)

// HiddenPlots draws heat maps of how much of each collective operation a computation hides: a figure
// for each number of ranks, link and library, operations down, sizes across.
func HiddenPlots(hs []collective.Hidden) ([]Plot, error) {
	type figure struct {
		ranks          int
		fabric, series string
	}
	var out []*drawing
	for k, cells := range bench.GroupBy(collective.HiddenCells(hs), func(c *collective.HiddenCell) figure { return figure{c.Ranks, c.Fabric, c.Series()} }) {
		p := newDrawing(fmt.Sprintf("nbc-%d-%s-%d", k.ranks, k.fabric, len(out)),
			fmt.Sprintf("%s: hidden part of collective operations by %d ranks over %s, %%", k.series, k.ranks, k.fabric), "bytes", "")
		m := newHeat(cells)
		p.Add(m)
		p.X.Tick.Marker, p.Y.Tick.Marker = labels(m.sizes, bench.FormatSize), labels(m.ops, func(op string) string { return op })
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.5, float64(len(m.sizes))-0.5, -0.5, float64(len(m.ops))-0.5
		out = append(out, p)
	}
	return render(out...)
}

// heatCells is a heat map: a rectangle for each cell, with its value.
type heatCells struct {
	ops   []string // from the bottom
	sizes []int
	cells []collective.HiddenCell
}

func newHeat(cells []collective.HiddenCell) *heatCells {
	m := &heatCells{cells: cells}
	for _, c := range cells {
		if !slices.Contains(m.ops, c.Op) {
			m.ops = append(m.ops, c.Op)
		}
		if !slices.Contains(m.sizes, c.Size) {
			m.sizes = append(m.sizes, c.Size)
		}
	}
	slices.Reverse(m.ops)
	slices.Sort(m.sizes)
	return m
}

// Plot implements plot.Plotter.
func (m *heatCells) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := p.X.Tick.Label
	style.XAlign, style.YAlign = draw.XCenter, draw.YCenter
	for _, cell := range m.cells {
		i, j := float64(slices.Index(m.sizes, cell.Size)), float64(slices.Index(m.ops, cell.Op))
		box := []vg.Point{{X: x(i - 0.5), Y: y(j - 0.5)}, {X: x(i + 0.5), Y: y(j - 0.5)}, {X: x(i + 0.5), Y: y(j + 0.5)}, {X: x(i - 0.5), Y: y(j + 0.5)}}
		c.FillPolygon(heatColor(cell.Overlap/100), box)
		c.FillText(style, vg.Point{X: x(i), Y: y(j)}, fmt.Sprintf("%.0f", cell.Overlap))
	}
}

// heatColor returns a colour for x: red at 0, white at a half, green at 1.
func heatColor(x float64) color.Color {
	fade := func(x float64) uint8 { return 255 - uint8(130*min(max(x, 0), 1)) }
	if x < 0.5 {
		return color.NRGBA{255, fade(1 - 2*x), fade(1 - 2*x), 255}
	}
	return color.NRGBA{fade(2*x - 1), 255, fade(2*x - 1), 255}
}
