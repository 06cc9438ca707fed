package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
)

//go:embed curve.html
var curveText string

var curvePage = template.Must(template.New("curve page").Parse(curveText))

// CurvePlots draws bandwidth over size for every fabric, with a series for each batch size
// and a hollow mark at each change of the model's choice.
func CurvePlots(cs []choice.Curve) ([]Plot, error) {
	var out []*drawing
	for f, cs := range bench.GroupBy(cs, func(c *choice.Curve) string { return c.Fabric }) {
		d := newDrawing("switch-"+f, "Bandwidth around the switches of the choice, "+f, "message size (bytes)", "MB/s")
		logAxes(d.Plot)
		ext := newExtent()
		for i, c := range cs {
			t := trace{name: fmt.Sprintf("batches of %d", c.N), color: spareColors[i%len(spareColors)], width: 1.2, radius: 1.2}
			if i == 0 {
				t.color = fabricColors["shm"]
			}
			for _, q := range c.Points {
				if q.MBs <= 0 {
					continue
				}
				xy := plotter.XY{X: float64(q.Size), Y: q.MBs}
				t.points = append(t.points, xy)
				ext.add(xy)
				if slices.ContainsFunc(c.Steps, func(s choice.Step) bool { return s.Size == q.Size }) {
					t.rings = append(t.rings, xy)
				}
			}
			d.add(t)
		}
		if ext.set(d.Plot) {
			out = append(out, d)
		}
	}
	return render(out...)
}

// curveRow is one line of the table of switches.
type curveRow struct {
	Fabric                   string
	N                        int
	Size, From, To           string
	Below, Above, Step, Note string
	Down                     bool
}

// curveSection is the part of a page about curves.
type curveSection struct {
	Plots []figure
	Rows  []curveRow
}

func newCurveSection(cs []choice.Curve) (s curveSection, err error) {
	plots, err := CurvePlots(cs)
	if err != nil {
		return s, err
	}
	s.Plots = figures(plots)
	for _, c := range cs {
		for _, t := range c.Steps {
			s.Rows = append(s.Rows, curveRow{
				Fabric: c.Fabric, N: c.N, Size: bench.FormatSize(t.Size), From: t.From, To: t.To, Below: number(t.Below), Above: number(t.Above),
				Step: fmt.Sprintf("%+.1f %%", 100*t.Step), Note: fmt.Sprintf("%.1f %%", 100*t.Noise), Down: t.Down,
			})
		}
	}
	return s, nil
}

// WriteCurves writes a self-contained page of curves.
func WriteCurves(w io.Writer, cs []choice.Curve, at time.Time) error {
	s, err := newCurveSection(cs)
	if err != nil {
		return err
	}
	return curvePage.Execute(w, map[string]any{"When": when(at), "Curves": s})
}
