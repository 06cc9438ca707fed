package report

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"slices"
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

// drawing is a plot in the making. Its first error is kept for render.
type drawing struct {
	*plot.Plot
	name string
	err  error
}

// newDrawing returns an empty plot in the report's style.
func newDrawing(name, title, x, y string) *drawing {
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
	return &drawing{Plot: p, name: name}
}

// render returns the drawings that are not nil.
func render(ds ...*drawing) (out []Plot, err error) {
	for _, d := range ds {
		if d == nil {
			continue
		}
		b, err := d.svg()
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", d.name, err)
		}
		out = append(out, Plot{d.name, b})
	}
	return out, nil
}

// svg draws the plot; the result starts with the svg element, for use inside a page.
func (d *drawing) svg() ([]byte, error) {
	if d.err != nil {
		return nil, d.err
	}
	c := vgsvg.New(plotWidth, plotHeight)
	d.Draw(draw.Crop(draw.New(c), 5, -8, 4, -5))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	out := b.Bytes()
	i := bytes.Index(out, []byte("<svg"))
	if i < 0 {
		return nil, errors.New("no svg element")
	}
	return out[i:], nil
}

// legend puts the legend into the upper left corner.
func legend(p *plot.Plot) {
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs = 6, -4
}

// labels are ticks at 0, 1, 2 and so on.
func labels[T any](of []T, text func(T) string) (ts plot.ConstantTicks) {
	for i, x := range of {
		ts = append(ts, plot.Tick{Value: float64(i), Label: text(x)})
	}
	return ts
}

// named makes the X axis one of names below bars.
func named(p *plot.Plot, names []string) {
	p.X.Tick.Marker, p.X.Tick.Length = labels(names, func(s string) string { return s }), 0
	p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4
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

// trace is one curve of a drawing.
type trace struct {
	name          string
	color         color.NRGBA
	points        plotter.XYs
	width, radius vg.Length // of the line and its dots

	// Each of these may be empty: an area between two edges, the second drawn backward, with
	// its opacity; another line; points that are marked.
	top, bottom plotter.XYs
	shade       uint8
	dashed      plotter.XYs
	rings       plotter.XYs
}

// add draws t, and names it in the legend. A trace without points is not drawn.
func (d *drawing) add(t trace) {
	if len(t.points) == 0 {
		return
	}
	line, dots, err := plotter.NewLinePoints(t.points)
	if err != nil {
		d.err = err
		return
	}
	if len(t.top) > 1 {
		slices.Reverse(t.bottom)
		area, err := plotter.NewPolygon(slices.Concat(t.top, t.bottom))
		if err != nil {
			d.err = err
			return
		}
		shade := t.color
		shade.A = t.shade
		area.Color, area.LineStyle.Width = shade, 0
		d.Add(clipped{area})
	}
	line.Color, line.Width = t.color, t.width
	dots.Color, dots.Shape, dots.Radius = t.color, draw.CircleGlyph{}, t.radius
	d.Add(line, dots)
	d.Legend.Add(t.name, line, dots)
	if len(t.dashed) > 0 {
		l := d.dashed(t.dashed, t.color)
		l.Width = 0.8
	}
	if len(t.rings) > 0 {
		at, err := plotter.NewScatter(t.rings)
		if err != nil {
			d.err = err
			return
		}
		at.Color, at.Shape, at.Radius = t.color, draw.RingGlyph{}, 5
		d.Add(at)
	}
}

// dashed draws a line without dots.
func (d *drawing) dashed(points plotter.XYs, c color.NRGBA) *plotter.Line {
	l, err := plotter.NewLine(points)
	if err != nil {
		d.err = err
		return &plotter.Line{}
	}
	l.Color, l.Dashes = c, []vg.Length{3, 3}
	d.Add(l)
	return l
}

// curve plots value over size for every series on logarithmic axes, with a shaded band up
// to upper if upper is not nil. It returns nil if there is nothing to draw.
func curve(name, title, y string, ss []series, value, upper func(bench.Result) float64) *drawing {
	d := newDrawing(name, title, "message size (bytes)", y)
	logAxes(d.Plot)
	ext := newExtent()
	for _, s := range ss {
		t := trace{name: s.name, color: s.color, width: 1.5, radius: 2, shade: 0x22}
		for _, r := range s.rs {
			v := value(r)
			if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
				continue
			}
			q := plotter.XY{X: float64(r.Size), Y: v}
			t.points = append(t.points, q)
			ext.add(q)
			if upper != nil {
				u := min(max(upper(r), v), 1e9)
				t.bottom, t.top = append(t.bottom, q), append(t.top, plotter.XY{X: q.X, Y: u})
				ext.add(plotter.XY{X: q.X, Y: min(u, 20*v)}) // one outlier must not flatten all curves
			}
		}
		d.add(t)
	}
	if !ext.set(d.Plot) {
		return nil
	}
	return d
}

// clipped clips a polygon, which may exceed the axes, to the axes.
type clipped struct{ *plotter.Polygon }

func (k clipped) Plot(c draw.Canvas, p *plot.Plot) {
	inside := *k.Polygon
	inside.XYs = nil
	for _, ring := range k.XYs {
		var in plotter.XYs
		for _, q := range ring {
			q.Y = min(max(q.Y, p.Y.Min), p.Y.Max)
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

// rates plots the message rates of all operations side by side. It returns nil if there are none.
func rates(byOp map[bench.Op][]series, names []string, cs map[string]color.NRGBA) *drawing {
	p := newDrawing("rate", "Message rate of 8-byte operations", "", "million messages a second")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}
	b := bars{width: 0.8}
	lo, hi := math.Inf(1), 0.0
	var drawn []string
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
			drawn = append(drawn, string(op))
			b.groups = append(b.groups, group)
		}
	}
	if len(b.groups) == 0 {
		return nil
	}
	p.Add(lines{}, b)
	for _, n := range names {
		p.Legend.Add(n, swatch{cs[n]})
	}
	named(p.Plot, drawn)
	p.Y.Min, p.Y.Max = math.Pow10(int(math.Floor(math.Log10(lo/1.5)))), hi*4
	legend(p.Plot)
	return p
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
	legend(p)
	return true
}
