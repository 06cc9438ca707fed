package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
)

//go:embed curve.html
var curveText string

var curvePage = template.Must(template.New("curve page").Parse(curveText))

// CurvePlots draws bandwidth over size for every fabric, with a series for each batch size
// and a hollow mark at each change of the model's choice.
func CurvePlots(cs []choice.Curve) ([]Plot, error) {
	var fabrics []string
	by := map[string][]choice.Curve{}
	for _, c := range cs {
		if by[c.Fabric] == nil {
			fabrics = append(fabrics, c.Fabric)
		}
		by[c.Fabric] = append(by[c.Fabric], c)
	}
	var out []Plot
	for _, f := range fabrics {
		p := newPlot("Bandwidth around the switches of the choice, "+f, "message size (bytes)", "MB/s")
		logAxes(p)
		ext := newExtent()
		for i, c := range by[f] {
			color := spareColors[i%len(spareColors)]
			if i == 0 {
				color = fabricColors["shm"]
			}
			var pts, marks plotter.XYs
			for _, q := range c.Points {
				xy := plotter.XY{X: float64(q.Size), Y: q.MBs}
				if q.MBs <= 0 {
					continue
				}
				pts = append(pts, xy)
				ext.add(xy)
				for _, s := range c.Steps {
					if s.Size == q.Size {
						marks = append(marks, xy)
					}
				}
			}
			if len(pts) == 0 {
				continue
			}
			line, dots, err := plotter.NewLinePoints(pts)
			if err != nil {
				return nil, err
			}
			line.Color, line.Width = color, 1.2
			dots.Color, dots.Shape, dots.Radius = color, draw.CircleGlyph{}, 1.2
			p.Add(line, dots)
			p.Legend.Add(fmt.Sprintf("batches of %d", c.N), line, dots)
			if len(marks) > 0 {
				at, err := plotter.NewScatter(marks)
				if err != nil {
					return nil, err
				}
				at.Color, at.Shape, at.Radius = color, draw.RingGlyph{}, 5
				p.Add(at)
			}
		}
		if !ext.set(p) {
			continue
		}
		b, err := svg(p)
		if err != nil {
			return nil, err
		}
		out = append(out, Plot{"switch-" + f, b})
	}
	return out, nil
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
	Plots []template.HTML
	Rows  []curveRow
}

func newCurveSection(cs []choice.Curve) (s curveSection, err error) {
	plots, err := CurvePlots(cs)
	if err != nil {
		return s, err
	}
	for _, p := range plots {
		s.Plots = append(s.Plots, template.HTML(p.SVG)) // text in it was escaped by the SVG writer
	}
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
func WriteCurves(w io.Writer, cs []choice.Curve, when time.Time) error {
	s, err := newCurveSection(cs)
	if err != nil {
		return err
	}
	return curvePage.Execute(w, map[string]any{"When": when.UTC().Format("2006-01-02 15:04 MST"), "Curves": s})
}
