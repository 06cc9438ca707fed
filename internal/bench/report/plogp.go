package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

//go:embed plogp.html
var plogpText string

var plogpPage = template.Must(template.New("plogp").Parse(plogpText))

// plogpColors gives every result a colour of its own; the first result of a fabric gets the
// fabric's.
func plogpColors(rs []bench.PlogpResult) (out []color.NRGBA) {
	p := newPalette()
	for _, r := range rs {
		out = append(out, p.next(r.Fabric))
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
	var out []*drawing
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
		d := newDrawing(c.name, c.title, "size (bytes)", "ns")
		logAxes(d.Plot)
		ext := newExtent()
		for i := range rs {
			k, base := c.curve(&rs[i])
			d.add(plogpTrace(plogpName(&rs[i]), colors[i], k.Points(), base, &ext))
		}
		if ext.set(d.Plot) {
			out = append(out, d)
		}
	}
	return render(out...)
}

// spread returns the standard error for a confidence, as a fraction of the measured value:
// the inverse of the definition in package sampling, for many samples and the default
// tolerance.
func spread(conf float64) float64 {
	conf = min(max(conf, 0.02), 1)
	return sampling.Tolerance * math.Sqrt(1/conf-1)
}

// plogpTrace is time over size, with a band of twice the standard error. base is added to a
// value as the basis of its confidence. A single point is not drawn.
func plogpTrace(name string, c color.NRGBA, points []logp.Point, base float64, ext *extent) trace {
	const floor = 1 // ns: the least time drawn
	points = slices.DeleteFunc(slices.Clone(points), func(q logp.Point) bool { return q.NS < floor || q.Size < 1 })
	t := trace{name: name, color: c, width: 1.5, radius: 2, shade: 0x28}
	if len(points) < 2 {
		return t
	}
	for _, q := range points {
		xy, e := plotter.XY{X: float64(q.Size), Y: q.NS}, 2*spread(q.Conf)*(q.NS+base)
		t.points = append(t.points, xy)
		t.top = append(t.top, plotter.XY{X: xy.X, Y: q.NS + e})
		t.bottom = append(t.bottom, plotter.XY{X: xy.X, Y: max(q.NS-e, floor/2.)})
		ext.add(xy)
	}
	return t
}

// WritePlogp writes a self-contained page of sampled parameters.
func WritePlogp(w io.Writer, rs []bench.PlogpResult, at time.Time) error {
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
	return plogpPage.Execute(w, map[string]any{"When": when(at), "Rows": rows, "Figures": figures(plots)})
}
