package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/seed33544411/rma/internal/bench"
)

// Size of a plot, in points.
const (
	plotWidth  = 460
	plotHeight = 300
)

var (
	ink  = color.NRGBA{0x22, 0x22, 0x22, 0xff}
	grid = color.NRGBA{0xe3, 0xe3, 0xe3, 0xff}
	sans = font.Font{Typeface: "Liberation", Variant: "Sans"}
)

// newPlot returns an empty plot in the report's style.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.BackgroundColor = color.White
	set := func(s *text.Style, size font.Length) {
		s.Font = sans
		s.Font.Size = size
		s.Color = ink
	}
	set(&p.Title.TextStyle, 11)
	p.Title.Padding = 6
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		set(&a.Label.TextStyle, 9)
		set(&a.Tick.Label, 8)
		a.Color, a.LineStyle.Color, a.Tick.LineStyle.Color = ink, ink, ink
		a.LineStyle.Width, a.Tick.LineStyle.Width = 0.5, 0.5
		a.Tick.Length = 3
		a.Label.Padding = 3
	}
	set(&p.Legend.TextStyle, 8.5)
	p.Legend.ThumbnailWidth = 18
	p.Legend.Padding = 2
	return p
}

// svg draws the plot; the result starts with the svg element, for use inside a page.
func svg(p *plot.Plot) ([]byte, error) {
	c := vgsvg.New(plotWidth, plotHeight)
	p.Draw(draw.Crop(draw.New(c), 5, -8, 4, -5))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("draw %s: %w", p.Title.Text, err)
	}
	out := b.Bytes()
	i := bytes.Index(out, []byte("<svg"))
	if i < 0 {
		return nil, fmt.Errorf("draw %s: no svg element", p.Title.Text)
	}
	return out[i:], nil
}

// sizeTicks are at powers of two, with labels far enough apart.
type sizeTicks struct{}

func (sizeTicks) Ticks(lo, hi float64) []plot.Tick {
	a, b := int(math.Ceil(math.Log2(lo)-1e-9)), int(math.Floor(math.Log2(hi)+1e-9))
	step := max(1, int(math.Ceil(float64(b-a+1)/12)))
	var ts []plot.Tick
	for e := a; e <= b; e++ {
		t := plot.Tick{Value: math.Exp2(float64(e))}
		if (e-a)%step == 0 && e >= 0 && e < 62 {
			t.Label = bench.FormatSize(1 << e)
		}
		ts = append(ts, t)
	}
	return ts
}

// decades are ticks at 1, 2, 5 and so on, with labels at powers of ten and, on axes of few
// decades, also at 2 and 5.
type decades struct{}

func (decades) Ticks(lo, hi float64) []plot.Tick {
	a, b := int(math.Floor(math.Log10(lo))), int(math.Ceil(math.Log10(hi)))
	var ts []plot.Tick
	for e := a; e <= b; e++ {
		for m := 1; m < 10; m++ {
			v := float64(m) * math.Pow10(e)
			if v < lo*(1-1e-9) || v > hi*(1+1e-9) {
				continue
			}
			t := plot.Tick{Value: v}
			if m == 1 || b-a <= 2 && (m == 2 || m == 5) {
				t.Label = number(v)
			}
			ts = append(ts, t)
		}
	}
	return ts
}

// number formats a value with three digits and without an exponent.
func number(v float64) string {
	if v <= 0 {
		return "0"
	}
	prec := max(0, 2-int(math.Floor(math.Log10(v)+1e-9)))
	s := strconv.FormatFloat(v, 'f', prec, 64)
	if prec > 0 {
		for s[len(s)-1] == '0' {
			s = s[:len(s)-1]
		}
		if s[len(s)-1] == '.' {
			s = s[:len(s)-1]
		}
	}
	return s
}

// lines draws grid lines at the labelled ticks only.
type lines struct{}

func (lines) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	st := draw.LineStyle{Color: grid, Width: 0.5}
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		if x := tx(t.Value); t.Label != "" && c.ContainsX(x) {
			c.StrokeLine2(st, x, c.Min.Y, x, c.Max.Y)
		}
	}
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if y := ty(t.Value); t.Label != "" && c.ContainsY(y) {
			c.StrokeLine2(st, c.Min.X, y, c.Max.X, y)
		}
	}
}

// curve plots value over size for every series on logarithmic axes, with a shaded band up
// to upper if upper is not nil. ok is false if there is nothing to draw.
func curve(title, y string, ss []series, value, upper func(bench.Result) float64) (p *plot.Plot, ok bool, err error) {
	p = newPlot(title, "message size (bytes)", y)
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = sizeTicks{}, decades{}
	p.Add(lines{})
	lo, hi, xlo, xhi := math.Inf(1), 0.0, math.Inf(1), 0.0
	for _, s := range ss {
		var pts, top plotter.XYs
		for _, r := range s.rs {
			v := value(r)
			if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
				continue
			}
			x := float64(r.Size)
			pts = append(pts, plotter.XY{X: x, Y: v})
			lo, hi, xlo, xhi = min(lo, v), max(hi, v), min(xlo, x), max(xhi, x)
			if upper != nil {
				u := min(max(upper(r), v), 1e9)
				top = append(top, plotter.XY{X: x, Y: u})
				hi = max(hi, min(u, 20*v)) // one outlier must not flatten all curves
			}
		}
		if len(pts) == 0 {
			continue
		}
		ok = true
		if len(top) > 1 {
			band := append(plotter.XYs{}, pts...)
			for i := len(top) - 1; i >= 0; i-- {
				band = append(band, top[i])
			}
			poly, err := plotter.NewPolygon(band)
			if err != nil {
				return nil, false, err
			}
			shade := s.color
			shade.A = 0x22
			poly.Color, poly.LineStyle.Width = shade, 0
			p.Add(clipped{poly})
		}
		line, dots, err := plotter.NewLinePoints(pts)
		if err != nil {
			return nil, false, err
		}
		line.Color, line.Width = s.color, 1.5
		dots.Color, dots.Shape, dots.Radius = s.color, draw.CircleGlyph{}, 2
		p.Add(line, dots)
		p.Legend.Add(s.name, line, dots)
	}
	if !ok {
		return nil, false, nil
	}
	p.X.Min, p.X.Max = xlo/1.15, xhi*1.15
	p.Y.Min, p.Y.Max = lo/1.5, hi*1.5
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs = 6, -4
	return p, true, nil
}

// clipped clips a polygon, whose top may lie above the axes, to the axes.
type clipped struct{ *plotter.Polygon }

func (k clipped) Plot(c draw.Canvas, p *plot.Plot) {
	inside := *k.Polygon
	inside.XYs = nil
	for _, ring := range k.XYs {
		var in plotter.XYs
		for _, q := range ring {
			q.Y = min(q.Y, p.Y.Max)
			in = append(in, q)
		}
		inside.XYs = append(inside.XYs, in)
	}
	inside.Plot(c, p)
}

// DataRange returns an empty range: only the curves set the axes.
func (k clipped) DataRange() (xmin, xmax, ymin, ymax float64) {
	return math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
}

// bars draws groups of bars from the bottom of a logarithmic axis, each with its value
// above.
type bars struct {
	groups [][]bar // one for each label of the X axis
	width  float64 // of a group; at 1, groups touch
}

type bar struct {
	value float64 // 0: no bar
	color color.NRGBA
}

func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	label := p.X.Tick.Label
	label.Font.Size = 7.5
	label.XAlign, label.YAlign = draw.XCenter, draw.YBottom
	for g, group := range b.groups {
		w := b.width / float64(max(len(group), 1))
		for i, one := range group {
			if one.value <= 0 {
				continue
			}
			x := float64(g) - b.width/2 + float64(i)*w
			x0, x1, y0, y1 := tx(x+0.04*w), tx(x+0.96*w), c.Min.Y, ty(one.value)
			c.FillPolygon(one.color, []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
			c.FillText(label, vg.Point{X: (x0 + x1) / 2, Y: y1 + 2}, number(one.value))
		}
	}
}

// swatch is a bar's entry in the legend.
type swatch struct{ color.NRGBA }

func (s swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(s.NRGBA, []vg.Point{{X: c.Min.X, Y: c.Min.Y}, {X: c.Max.X, Y: c.Min.Y}, {X: c.Max.X, Y: c.Max.Y}, {X: c.Min.X, Y: c.Max.Y}})
}

// rates plots the message rates of all operations side by side.
func rates(title string, ops []bench.Op, byOp map[bench.Op][]series, names []string, cs map[string]color.NRGBA) (*plot.Plot, bool) {
	p := newPlot(title, "", "million messages a second")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}
	b := bars{width: 0.8}
	lo, hi := math.Inf(1), 0.0
	var labels []plot.Tick
	for _, op := range ops {
		group := make([]bar, len(names))
		some := false
		for _, s := range byOp[op] {
			for i, n := range names {
				if n == s.name && len(s.rs) > 0 && s.rs[0].Mmsgs > 0 {
					v := s.rs[0].Mmsgs // the smallest size
					group[i] = bar{v, s.color}
					lo, hi, some = min(lo, v), max(hi, v), true
				}
			}
		}
		if some {
			labels = append(labels, plot.Tick{Value: float64(len(b.groups)), Label: string(op)})
			b.groups = append(b.groups, group)
		}
	}
	if len(b.groups) == 0 {
		return nil, false
	}
	p.Add(lines{}, b)
	for _, n := range names {
		p.Legend.Add(n, swatch{cs[n]})
	}
	p.X.Tick.Marker = plot.ConstantTicks(labels)
	p.X.Tick.Length = 0
	p.X.Min, p.X.Max = -0.6, float64(len(b.groups))-0.4
	p.Y.Min, p.Y.Max = math.Pow10(int(math.Floor(math.Log10(lo/1.5)))), hi*4
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs = 6, -4
	return p, true
}

// logAxes makes both axes logarithmic: sizes across, any figure up.
func logAxes(p *plot.Plot) {
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = sizeTicks{}, decades{}
	p.Add(lines{})
}

// extent is the range of the points of a plot.
type extent struct{ xlo, xhi, ylo, yhi float64 }

func newExtent() extent { return extent{math.Inf(1), 0, math.Inf(1), 0} }

func (e *extent) add(q plotter.XY) {
	e.xlo, e.xhi, e.ylo, e.yhi = min(e.xlo, q.X), max(e.xhi, q.X), min(e.ylo, q.Y), max(e.yhi, q.Y)
}

// set extends the axes to all points; false if there are none.
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
