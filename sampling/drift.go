package sampling

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed33544411/rma/logp"
)

// Change is the difference of one figure of a table between two measurements.
type Change struct {
	Name     string  `json:"name"` // os, or, copy, register, g, ls, lh, ocpu
	Size     int64   `json:"size"` // of a point of a curve, bytes; else 0
	Old      float64 `json:"old"`  // ns
	New      float64 `json:"new"`
	Relative float64 `json:"relative"` // New/Old − 1
	// Drift: the difference exceeds the limit and the granularity of a measurement, and
	// both figures have enough confidence.
	Drift bool `json:"drift"`
}

const (
	// DriftLimit is the relative change from which a figure has drifted: two measurements
	// of one idle link agree within a tenth, and decisions change with changes of about a
	// half.
	DriftLimit = 0.5
	// driftGrain in ns: a smaller difference influences no decision.
	driftGrain = 50
	// driftConf is the least confidence of a figure that can drift.
	driftConf = 0.5
)

// Compare lists every figure of Both of two tables: scalars, and curves at sizes of powers
// of eight that both contain.
func Compare(before, after *Tables) []Change {
	old, now, oldConf, nowConf := &before.Both, &after.Both, before.Conf, after.Conf
	var out []Change
	add := func(name string, size int64, a, b, ca, cb float64) {
		c := Change{Name: name, Size: size, Old: a, New: b}
		if a > 0 {
			c.Relative = b/a - 1
		}
		off := math.Abs(b-a) > driftGrain && math.Max(a, b) > (1+DriftLimit)*math.Min(a, b)
		c.Drift = off && ca >= driftConf && cb >= driftConf
		out = append(out, c)
	}
	add("g", 0, old.G, now.G, oldConf.G, nowConf.G)
	add("ls", 0, old.Ls, now.Ls, oldConf.Ls, nowConf.Ls)
	add("lh", 0, old.Lh, now.Lh, oldConf.Lh, nowConf.Lh)
	add("ocpu", 0, old.CPU.A+old.CPU.B, now.CPU.A+now.CPU.B, oldConf.CPU, nowConf.CPU)
	for _, c := range []struct {
		name string
		a, b logp.Curve
	}{{"os", old.Os, now.Os}, {"or", old.Or, now.Or}, {"copy", old.C, now.C}, {"register", old.R, now.R}} {
		if !c.a.Known() || !c.b.Known() {
			continue
		}
		pa, pb := c.a.Points(), c.b.Points()
		top := min(pa[len(pa)-1].Size, pb[len(pb)-1].Size)
		for m := int64(8); m <= max(top, 8); m *= 8 {
			add(c.name, m, c.a.At(m), c.b.At(m), c.a.Confidence(m), c.b.Confidence(m))
		}
	}
	return out
}

// Drifted reports whether any figure has drifted.
func Drifted(cs []Change) bool {
	return slices.ContainsFunc(cs, func(c Change) bool { return c.Drift })
}

// String returns the change in one line.
func (c Change) String() string {
	name := c.Name
	if c.Size > 0 {
		name = fmt.Sprintf("%s(%d)", c.Name, c.Size)
	}
	return fmt.Sprintf("%s %.0f ns, was %.0f (%+.0f %%)", name, c.New, c.Old, 100*c.Relative)
}
