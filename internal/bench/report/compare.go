package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/compare"
)

//go:embed compare.html
var compareText string

var comparePage = template.Must(template.New("compare page").Funcs(template.FuncMap{
	"size": bench.FormatSize, "num": number, "two": func(x float64) string { return fmt.Sprintf("%.2f", x) },
	"us": func(ns float64) string { return number(ns / 1000) },
}).Parse(compareText))

// Colours of bars above and below 1.
var (
	aheadColor  = fabricColors["shm"]
	behindColor = fabricColors["tcp"]
	spreadColor = color.NRGBA{0x22, 0x22, 0x22, 0xff}
)

// ComparePlots draws a figure for every test and fabric: a bar for each peer from 1 to its
// ratio, and over it a line from the least to the greatest ratio of the rounds. A second
// kind of figure shows the peers' processor time over ours.
func ComparePlots(rows []compare.Row) ([]Plot, error) {
	type test struct {
		fabric string
		kind   compare.Kind
		size   int
	}
	var out []*drawing
	for k, rows := range bench.GroupBy(rows, func(r *compare.Row) test { return test{r.Fabric, r.Test, r.Size} }) {
		name := fmt.Sprintf("%s, %s of %s", k.fabric, compareTitles[k.kind], bench.FormatSize(k.size))
		var speed, cpu ratioBars
		var labels []string
		for _, r := range rows {
			if r.Rounds == 0 || r.Ratio <= 0 {
				continue
			}
			labels = append(labels, r.Peer)
			speed = append(speed, ratioBar{r.Ratio, r.RatioMin, r.RatioMax})
			c := ratioBar{}
			if r.OursCPU > 0 && r.TheirsCPU > 0 {
				c.ratio = r.TheirsCPU / r.OursCPU
			}
			cpu = append(cpu, c)
		}
		id := fmt.Sprintf("%s-%s-%d", k.fabric, k.kind, k.size)
		out = append(out, speed.plot(id, name, "times as fast as theirs", labels),
			cpu.plot(id+"-cpu", name+": processor time", "theirs over ours", labels))
	}
	return render(out...)
}

// compareTitles are the titles of the kinds of tests.
var compareTitles = map[compare.Kind]string{
	compare.Lat: "latency of messages", compare.BW: "bandwidth of messages", compare.Rate: "rate of messages",
	compare.Put: "latency of puts", compare.PutBW: "bandwidth of puts",
}

// ratioBars are bars from 1 up or down on a logarithmic axis.
type ratioBars []ratioBar

// ratioBar is one bar; ratio 0: none; hi 0: without spread.
type ratioBar struct{ ratio, lo, hi float64 }

// plot returns a figure of bars with names below; nil if there are no bars.
func (b ratioBars) plot(id, title, y string, names []string) *drawing {
	lo, hi := 1/1.5, 1.5
	some := false
	for _, x := range b {
		if x.ratio <= 0 || math.IsInf(x.ratio, 0) || math.IsNaN(x.ratio) {
			continue
		}
		some = true
		lo, hi = min(lo, x.ratio), max(hi, x.ratio, x.hi)
		if x.lo > 0 {
			lo = min(lo, x.lo)
		}
	}
	if !some {
		return nil
	}
	p := newDrawing(id, title, "", y)
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}
	p.Y.Min, p.Y.Max = lo/1.4, hi*1.4 // room for the numbers
	named(p.Plot, names)
	p.Add(lines{}, b)
	return p
}

// Plot implements plot.Plotter.
func (b ratioBars) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	label := p.X.Tick.Label
	label.Font.Size = 7.5
	label.XAlign = draw.XCenter
	for i, x := range b {
		if x.ratio <= 0 || math.IsInf(x.ratio, 0) || math.IsNaN(x.ratio) {
			continue
		}
		x0, x1, mid := tx(float64(i)-0.3), tx(float64(i)+0.3), tx(float64(i))
		fill, tip := aheadColor, max(x.ratio, x.hi)
		label.YAlign = draw.YBottom
		if x.ratio < 1 {
			fill, tip = behindColor, x.ratio
			if x.lo > 0 {
				tip = min(tip, x.lo)
			}
			label.YAlign = draw.YTop
		}
		c.FillPolygon(fill, []vg.Point{{X: x0, Y: ty(1)}, {X: x1, Y: ty(1)}, {X: x1, Y: ty(x.ratio)}, {X: x0, Y: ty(x.ratio)}})
		if x.lo > 0 && x.hi > x.lo {
			c.StrokeLine2(draw.LineStyle{Color: spreadColor, Width: 1}, mid, ty(x.lo), mid, ty(x.hi))
		}
		at := vg.Point{X: mid, Y: ty(tip) + 2}
		if x.ratio < 1 {
			at.Y = ty(tip) - 2
		}
		c.FillText(label, at, number(x.ratio))
	}
	c.StrokeLine2(draw.LineStyle{Color: ink, Width: 0.8}, c.Min.X, ty(1), c.Max.X, ty(1))
}

// WriteCompare writes a page with figures and all rows.
func WriteCompare(w io.Writer, rows []compare.Row, at time.Time) error {
	plots, err := ComparePlots(rows)
	if err != nil {
		return err
	}
	var machines []bench.Machine
	for m := range bench.GroupBy(rows, func(r *compare.Row) bench.Machine { return sameMachine(r.Machine) }) {
		machines = append(machines, m)
	}
	return comparePage.Execute(w, map[string]any{
		"When": when(at), "Figures": figures(plots), "Rows": rows, "Machines": machines,
	})
}
