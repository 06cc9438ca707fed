package choice

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/logp"
)

// Point is one size of a curve. Its time is half a round trip of the whole batch, the
// lower quartile of all trips.
type Point struct {
	Size        int     `json:"size"` // bytes of each message
	US          float64 `json:"us"`
	MBs         float64 `json:"mb_s"` // of the batch
	Step        float64 `json:"step"` // mb_s over that of the next smaller size, less 1
	Plan        string  `json:"plan"`
	PredictedUS float64 `json:"predicted_us"`
}

// Step is a size at which the model's choice changes; Size is the first size of To. The
// sides are up to three sizes below and up to four from Size on.
type Step struct {
	Size  int     `json:"size"`
	From  string  `json:"from"`
	To    string  `json:"to"`
	Below float64 `json:"below_mb_s"` // median of the points of a side
	Above float64 `json:"above_mb_s"`
	// Step is the median over the rounds of above/below − 1, both of the same round.
	// Noise is its uncertainty: the greater of twice its standard error and the difference
	// in the same direction between the two ends of one side.
	Step  float64 `json:"step"`
	Noise float64 `json:"noise"`
	Down  bool    `json:"down"` // a step down beyond noise and StepTolerance
}

// Curve is bandwidth over size for batches of N equal messages: every octave, and every
// size within 3 bytes of a change of the model's choice. Its JSON form is one line;
// fields are only ever added.
type Curve struct {
	Fabric string  `json:"fabric"`
	N      int     `json:"n"`
	Points []Point `json:"points"`
	Steps  []Step  `json:"steps"`
	Rounds int     `json:"rounds"`
}

// Down reports whether bandwidth steps down anywhere.
func (c *Curve) Down() bool {
	return slices.ContainsFunc(c.Steps, func(s Step) bool { return s.Down })
}

const (
	// StepTolerance is the least step down that counts. A switch lies where the model
	// predicts equal times, and smaller steps cannot be told from equality.
	StepTolerance = 0.02

	around    = 3        // bytes on either side of a switch
	curveSpan = 16 << 20 // bytes of the largest batch
	maxPoints = 256
)

// DefaultCurves are the batch sizes of the curves that are measured by default.
var DefaultCurves = []int{1, 4, 16, 64}

// curvePlan carries the sizes from rank 0 to rank 1, or the end of the curves.
type curvePlan struct {
	Sizes    []int         `json:"sizes"`
	Switches []logp.Switch `json:"switches"`
}

// curveMax is the largest message of the curve of batches of n.
func (r *Request) curveMax(n int) int { return min(r.Most, curveSpan/n) }

// planCurve chooses the sizes of the curve of batches of n.
func (k *rank) planCurve(n int) curvePlan {
	most := k.req.curveMax(n)
	limits := k.side.Channel().Limits()
	p := curvePlan{Switches: k.params.Switches(&limits, n, logp.Registered|logp.DestRegistered, int64(most))}
	for m := 8; m <= most; m *= 2 {
		p.Sizes = append(p.Sizes, m)
	}
	for _, s := range p.Switches {
		for m := int(s.Size) - around; m <= int(s.Size)+around; m++ {
			if m >= 1 && m <= most {
				p.Sizes = append(p.Sizes, m)
			}
		}
	}
	slices.Sort(p.Sizes)
	p.Sizes = slices.Compact(p.Sizes)
	p.Sizes = p.Sizes[:min(len(p.Sizes), maxPoints)]
	return p
}

// check validates the plan, which rank 1 receives from the wire.
func (p *curvePlan) check(most int) error {
	if len(p.Sizes) == 0 || len(p.Sizes) > maxPoints {
		return fmt.Errorf("%w: curve of %d sizes", ErrGrid, len(p.Sizes))
	}
	for _, m := range p.Sizes {
		if m < 1 || m > most {
			return fmt.Errorf("%w: curve with messages of %d bytes", ErrGrid, m)
		}
	}
	return nil
}

// curves measures the curve of every requested batch size. Both ranks call it.
func (k *rank) curves(ctx context.Context, emit func(Curve) error) error {
	for _, n := range k.req.Curves {
		c, err := k.curve(ctx, n)
		if err != nil {
			return fmt.Errorf("%s, batches of %d: %w", k.fabric, n, err)
		}
		if k.ctl.Rank() == 0 {
			if err := emit(*c); err != nil {
				return err
			}
		}
	}
	return bench.Agree(ctx, k.polling(), nil)
}

// share sends rank 0's v to rank 1, into its v.
func (k *rank) share(ctx context.Context, v any) error {
	mine, err := json.Marshal(v)
	if err != nil {
		return err
	}
	theirs, err := k.exchange(ctx, mine)
	if err == nil && k.ctl.Rank() == 1 {
		err = json.Unmarshal(theirs, v)
	}
	return err
}

// curve measures one curve. It returns nil on rank 1.
func (k *rank) curve(ctx context.Context, n int) (*Curve, error) {
	var p curvePlan
	first := k.ctl.Rank() == 0
	if first {
		p = k.planCurve(n)
	}
	err := k.share(ctx, &p)
	if err == nil {
		err = p.check(k.req.curveMax(n))
	}
	if err = bench.Agree(ctx, k.polling(), err); err != nil {
		return nil, err
	}
	if err := k.side.Channel().SetPolicy(logp.Policy{}); err != nil {
		return nil, err
	}
	c := &Curve{Fabric: k.fabric, N: n, Rounds: k.req.Rounds}
	trips, err := k.curvePilot(ctx, n, &p, c)
	if err != nil {
		return nil, err
	}
	ns := make([][]float64, len(p.Sizes)) // [point][round] lower quartile
	all := make([][]float64, len(p.Sizes))
	times := make([]int64, slices.Max(trips)+1)
	for r := range k.req.Rounds {
		for i := range p.Sizes {
			i = (i + r*len(p.Sizes)/k.req.Rounds) % len(p.Sizes) // each round begins with another size
			if r%2 == 1 {
				i = len(p.Sizes) - 1 - i
			}
			if err := k.side.Load(slices.Repeat([]int{p.Sizes[i]}, n)); err != nil {
				return nil, err
			}
			if err := k.side.Play(ctx, times[:trips[i]+1]); err != nil {
				return nil, err
			}
			var round []float64
			for _, t := range times[1 : trips[i]+1] { // the first trip includes planning
				round = append(round, max(float64(t)*cpu.NsPerTick(), 1))
			}
			ns[i], all[i] = append(ns[i], Quantile(round, 0.25)), append(all[i], round...)
		}
	}
	if !first {
		return nil, nil
	}
	for i, m := range p.Sizes {
		c.Points[i].US = Quantile(all[i], 0.25) / 1e3
		c.Points[i].MBs = float64(n*m) / c.Points[i].US
		if i > 0 {
			c.Points[i].Step = c.Points[i].MBs/c.Points[i-1].MBs - 1
		}
	}
	for _, s := range p.Switches {
		c.Steps = append(c.Steps, stepAt(s, n, p.Sizes, ns))
	}
	return c, nil
}

// curvePilot plays every size briefly, checks the received data, fills in the model's
// predictions, and agrees on the number of trips of each size in a round.
func (k *rank) curvePilot(ctx context.Context, n int, p *curvePlan, c *Curve) (trips []int, err error) {
	var times [3]int64
	pl, err := logp.NewPlanner(&k.params, &logp.PlannerConfig{Shapes: -1})
	if err != nil {
		return nil, err
	}
	for _, m := range p.Sizes {
		if err = k.side.Load(slices.Repeat([]int{m}, n)); err != nil {
			break
		}
		k.side.Forget()
		if err = k.side.Play(ctx, times[:]); err != nil {
			break
		}
		if err = k.side.Check(); err != nil {
			break
		}
		plan, failed := pl.Plan(k.side.Batch())
		if err = failed; err != nil {
			break
		}
		c.Points = append(c.Points, Point{Size: m, Plan: planText(plan), PredictedUS: plan.Total / 1e3})
		least := max(float64(slices.Min(times[1:]))*cpu.NsPerTick(), 1)
		trips = append(trips, min(max(int(float64(k.req.Time)/float64(k.req.Rounds)/(2*least)), minTrips), maxTrips))
	}
	if err = bench.Agree(ctx, k.polling(), err); err != nil {
		return nil, err
	}
	err = k.share(ctx, &trips)
	if err == nil && (len(trips) != len(p.Sizes) || slices.Min(trips) < minTrips || slices.Max(trips) > maxTrips) {
		err = fmt.Errorf("%w: trips %v", ErrGrid, trips)
	}
	return trips, bench.Agree(ctx, k.polling(), err)
}

// stepAt evaluates the rounds at one switch of batches of n. ns are times by point and
// round.
func stepAt(s logp.Switch, n int, sizes []int, ns [][]float64) Step {
	out := Step{Size: int(s.Size), From: s.From.String(), To: s.To.String()}
	var below, above []int // indices of points
	for i, m := range sizes {
		switch at := m - out.Size; {
		case at >= -around && at < 0:
			below = append(below, i)
		case at >= 0 && at <= around:
			above = append(above, i)
		}
	}
	if len(below) == 0 || len(above) == 0 {
		return out
	}
	rate := func(i, r int) float64 { return 1e3 * float64(n*sizes[i]) / ns[i][r] } // MB/s
	side := func(points []int, r int) float64 {
		var v []float64
		for _, i := range points {
			v = append(v, rate(i, r))
		}
		return bench.Median(v)
	}
	var lo, hi, steps, nullLo, nullHi []float64
	for r := range ns[below[0]] {
		a, b := side(below, r), side(above, r)
		lo, hi, steps = append(lo, a), append(hi, b), append(steps, b/a-1)
		nullLo = append(nullLo, ns[below[len(below)-1]][r]/ns[below[0]][r]-1)
		nullHi = append(nullHi, ns[above[len(above)-1]][r]/ns[above[0]][r]-1)
	}
	out.Below, out.Above, out.Step = bench.Median(lo), bench.Median(hi), bench.Median(steps)
	out.Noise = max(2*standardError(steps), math.Abs(bench.Median(nullLo)), math.Abs(bench.Median(nullHi)))
	out.Down = out.Step < -StepTolerance && out.Step < -out.Noise
	return out
}

// standardError returns the standard error of the median of v, from the median absolute
// deviation, on which a few disturbed rounds have little effect.
func standardError(v []float64) float64 {
	m := bench.Median(v)
	var d []float64
	for _, x := range v {
		d = append(d, math.Abs(x-m))
	}
	return 1.4826 * bench.Median(d) * math.Sqrt(math.Pi/2/float64(len(v)))
}

// WriteCurves writes curves as tables.
func WriteCurves(w io.Writer, cs []Curve) error {
	for i := range cs {
		c := &cs[i]
		fmt.Fprintf(w, "%s, batches of %d\n", c.Fabric, c.N)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "size\tµs\tMB/s\tstep\tpredicted µs\tplan\t\t")
		for _, p := range c.Points {
			mark := ""
			if slices.ContainsFunc(c.Steps, func(s Step) bool { return s.Size == p.Size }) {
				mark = "switch"
			}
			fmt.Fprintf(t, "%d\t%.3f\t%.4g\t%+.1f %%\t%.3f\t%s\t%s\t\n", p.Size, p.US, p.MBs, 100*p.Step, p.PredictedUS, p.Plan, mark)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, s := range c.Steps {
			verdict := "no step down"
			if s.Down {
				verdict = "STEP DOWN"
			}
			fmt.Fprintf(w, "%s to %s at %d: %.4g to %.4g MB/s, %+.1f %%, noise %.1f %%: %s\n", s.From, s.To, s.Size, s.Below, s.Above, 100*s.Step, 100*s.Noise, verdict)
		}
		if len(c.Steps) == 0 {
			fmt.Fprintln(w, "one mode for all sizes")
		}
		if i < len(cs)-1 {
			fmt.Fprintln(w)
		}
	}
	return nil
}

// ReadCurves reads curves as JSON lines.
func ReadCurves(r io.Reader) ([]Curve, error) {
	return bench.ReadLines(r, func(c *Curve) error {
		if c.Fabric == "" || c.N < 1 || len(c.Points) == 0 || len(c.Points) > maxPoints {
			return fmt.Errorf("%w: no curve", ErrGrid)
		}
		for _, p := range c.Points {
			if p.Size < 1 || p.Size > curveSpan {
				return fmt.Errorf("%w: curve with messages of %d bytes", ErrGrid, p.Size)
			}
		}
		return nil
	})
}
