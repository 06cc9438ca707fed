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
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

//go:embed plogp.html
var plogpText string

var plogpPage = template.Must(template.New("plogp").Parse(plogpText))

// plogpSeries is one curve of a plot.
type plogpSeries struct {
	name   string
	color  color.NRGBA
	points []logp.Point
	base   float64 // added to the value as the basis of the confidence
}

// plogpColors gives every result a colour of its own; the first result of a fabric gets the
// fabric's.
func plogpColors(rs []bench.PlogpResult) []color.NRGBA {
	used := map[string]bool{}
	out := make([]color.NRGBA, len(rs))
	spare := 0
	for i, r := range rs {
		c, ok := fabricColors[r.Fabric]
		if !ok || used[r.Fabric] {
			c = spareColors[spare%len(spareColors)]
			spare++
		}
		used[r.Fabric] = true
		out[i] = c
	}
	return out
}

func plogpName(r *bench.PlogpResult) string {
	name := r.Fabric
	for _, s := range []string{r.Label, r.Machine.Virtual} {
		if s != "" {
			name += ", " + s
		}
	}
	return name
}

// PlogpPlots draws the curves of sampled parameters, every result a series.
func PlogpPlots(rs []bench.PlogpResult) ([]Plot, error) {
	colors := plogpColors(rs)
	var out []Plot
	for _, c := range []struct {
		name, title string
		curve       func(r *bench.PlogpResult) (logp.Curve, float64)
	}{
		{"os", "Os: what one more write occupies the sender", func(r *bench.PlogpResult) (logp.Curve, float64) {
			return r.Tables.Both.Os, r.Tables.Both.G + r.Tables.Both.CPU.B
		}},
		{"memory", "Memory: what a batch of that many bytes takes beyond the caches", func(r *bench.PlogpResult) (logp.Curve, float64) { return r.Tables.Both.Memory, 0 }},
		{"complete", "A single write, from posting to completion", func(r *bench.PlogpResult) (logp.Curve, float64) { return r.Halves[0].Complete, 0 }},
		{"copy", "C: a local copy", func(r *bench.PlogpResult) (logp.Curve, float64) { return r.Tables.Both.C, 0 }},
		{"register", "R: registering and giving back", func(r *bench.PlogpResult) (logp.Curve, float64) { return r.Tables.Both.R, 0 }},
	} {
		var ss []plogpSeries
		for i := range rs {
			k, base := c.curve(&rs[i])
			ss = append(ss, plogpSeries{plogpName(&rs[i]), colors[i], k.Points(), base})
		}
		p, ok, err := plogpPlot(c.title, ss)
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
		out = append(out, Plot{c.name, b})
	}
	return out, nil
}

// spread returns the standard error for a confidence, as a fraction of the measured value:
// the inverse of the definition in package sampling, for many samples and the default
// tolerance.
func spread(conf float64) float64 {
	conf = min(max(conf, 0.02), 1)
	return sampling.DefaultTolerance * math.Sqrt(1/conf-1)
}

// plogpPlot draws time over size on logarithmic axes, each series with a band of twice the
// standard error. ok is false if there is nothing to draw.
func plogpPlot(title string, ss []plogpSeries) (p *plot.Plot, ok bool, err error) {
	const floor = 1 // ns: the least time drawn
	p = newPlot(title, "size (bytes)", "ns")
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = sizeTicks{}, decades{}
	p.Add(lines{})
	lo, hi, xlo, xhi := math.Inf(1), 0.0, math.Inf(1), 0.0
	for _, s := range ss {
		var pts, top, bottom plotter.XYs
		for _, q := range s.points {
			if q.NS < floor || q.Size < 1 {
				continue
			}
			x, e := float64(q.Size), 2*spread(q.Conf)*(q.NS+s.base)
			pts = append(pts, plotter.XY{X: x, Y: q.NS})
			top = append(top, plotter.XY{X: x, Y: q.NS + e})
			bottom = append(bottom, plotter.XY{X: x, Y: max(q.NS-e, floor/2.)})
			lo, hi, xlo, xhi = min(lo, q.NS), max(hi, q.NS), min(xlo, x), max(xhi, x)
		}
		if len(pts) < 2 {
			continue
		}
		ok = true
		for i := len(bottom) - 1; i >= 0; i-- {
			top = append(top, bottom[i])
		}
		band, err := plotter.NewPolygon(top)
		if err != nil {
			return nil, false, err
		}
		shade := s.color
		shade.A = 0x28
		band.Color, band.LineStyle.Width = shade, 0
		line, dots, err := plotter.NewLinePoints(pts)
		if err != nil {
			return nil, false, err
		}
		line.Color, line.Width = s.color, 1.5
		dots.Color, dots.Shape, dots.Radius = s.color, draw.CircleGlyph{}, 2
		p.Add(boxed{band}, line, dots)
		p.Legend.Add(s.name, line, dots)
	}
	if !ok {
		return nil, false, nil
	}
	p.X.Min, p.X.Max = xlo/1.15, max(xhi*1.15, xlo*2)
	p.Y.Min, p.Y.Max = lo/1.5, max(hi*1.5, lo*2)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs = 6, -4
	return p, true, nil
}

// boxed clips a band to the axes.
type boxed struct{ *plotter.Polygon }

func (k boxed) Plot(c draw.Canvas, p *plot.Plot) {
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
func (k boxed) DataRange() (xmin, xmax, ymin, ymax float64) {
	return math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
}

// WritePlogp writes a self-contained page of sampled parameters.
func WritePlogp(w io.Writer, rs []bench.PlogpResult, when time.Time) error {
	plots, err := PlogpPlots(rs)
	if err != nil {
		return err
	}
	type row struct {
		Name                       string
		Color                      template.CSS
		G, Ls, Lh, A, B, Or        string
		ConfG, ConfLs, ConfLh, CPU string
		Budget                     time.Duration
		Spent                      string
		Cut                        bool
		Drift                      []string
		Compared                   bool
	}
	var rows []row
	colors := plogpColors(rs)
	for i := range rs {
		r := &rs[i]
		p, c := &r.Tables.Both, &r.Tables.Conf
		two := func(x float64) string { return fmt.Sprintf("%.2f", x) }
		x := row{
			Name: plogpName(r), Color: css(colors[i]), G: number(p.G), Ls: number(p.Ls), Lh: number(p.Lh), A: number(p.CPU.A), B: number(p.CPU.B), Or: number(p.Or.At(0)),
			ConfG: two(c.G), ConfLs: two(c.Ls), ConfLh: two(c.Lh), CPU: two(c.CPU),
			Budget: r.Budget, Spent: fmt.Sprintf("%.1f + %.1f", r.Halves[0].Spent/1e6, r.Halves[1].Spent/1e6),
			Cut: r.Halves[0].Cut || r.Halves[1].Cut, Compared: r.Changes != nil,
		}
		for _, ch := range r.Changes {
			if ch.Drift {
				x.Drift = append(x.Drift, ch.String())
			}
		}
		rows = append(rows, x)
	}
	return plogpPage.Execute(w, map[string]any{"When": when.UTC().Format("2006-01-02 15:04 MST"), "Rows": rows, "Figures": figures(plots)})
}
