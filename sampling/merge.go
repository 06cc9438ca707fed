package sampling

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/seed33544411/rma/logp"
)

// Tables are the parameters of a link between two peers. Both peers hold the
// same.
type Tables struct {
	Forward  logp.Params `json:"forward"`  // from the first side to the second
	Backward logp.Params `json:"backward"` // from the second to the first
	// Both is for decisions that both sides must take alike, whoever sends:
	// the middle of the two directions.
	Both logp.Params `json:"both"`
	// Conf is how far the figures that are no curves are to be believed: the
	// lower of both sides'.
	Conf Conf `json:"conf"`
	// Fit is where Extra of the parameters comes from.
	Fit Fit `json:"fit"`
}

// Fit tells of whole batches, played in every mode, that Extra was fitted to. Zero:
// none were.
type Fit struct {
	Probes int                    `json:"probes"` // batches
	Error  [logp.NumModes]float64 `json:"error"`  // mean, of batches that were not fitted, as a fraction of what was measured
}

// maxProbes bounds Fit.Probes.
const maxProbes = 1 << 16

// SetExtra takes over what whole batches say beyond the figures of single
// operations. It is that of both directions: batches go to and fro.
func (t *Tables) SetExtra(e [logp.NumModes]logp.Extra, f Fit) {
	t.Forward.Extra, t.Backward.Extra, t.Both.Extra, t.Fit = e, e, e, f
}

func (f *Fit) validate() error {
	if f.Probes < 0 || f.Probes > maxProbes {
		return fmt.Errorf("a fit to %d batches", f.Probes)
	}
	for _, e := range f.Error {
		if !(e >= 0 && e <= 1) {
			return fmt.Errorf("a fit with an error of %v", e)
		}
	}
	return nil
}

// known says that something was measured: tables of defaults, after a budget that
// others used up, are not worth keeping.
func (t *Tables) known() bool {
	return (t.Conf.Ls > 0 || t.Conf.CPU > 0) && t.Both.Os.Confidence(64) > 0
}

// Digest tells tables apart.
type Digest [16]byte

// digestOf returns the digest of marshalled tables, never zero.
func digestOf(tables []byte) (d Digest) {
	sum := sha256.Sum256(tables)
	copy(d[:], sum[:])
	d[0] |= 1
	return d
}

func (t *Tables) validate() error {
	for i, p := range []*logp.Params{&t.Forward, &t.Backward, &t.Both} {
		if err := p.Validate(); err != nil {
			return err
		}
		if !p.Os.Known() || !p.Or.Known() || !p.C.Known() {
			return fmt.Errorf("table %d lacks a curve", i)
		}
	}
	if err := t.Fit.validate(); err != nil {
		return err
	}
	return t.Conf.validate()
}

// same are the tables of a link that is alike in both directions.
func same(p logp.Params) Tables { return Tables{Forward: p, Backward: p, Both: p} }

// Source says where tables come from.
type Source uint8

// Sources.
const (
	FromDefaults Source = iota
	FromProfile
	FromMeasurement
)

var sourceNames = [...]string{"defaults", "profile", "measurement"}

// String returns the name of the source.
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return fmt.Sprintf("source(%d)", uint8(s))
}

// Result is what Run brings.
type Result struct {
	Tables
	Source Source
	Made   time.Time // of the measurement; zero for defaults

	// Halves are what the first and the second side measured; nil unless
	// Source is FromMeasurement.
	Halves [2]*Half

	// SaveErr is why the profile was not saved. The tables are good all the
	// same.
	SaveErr error

	// Budget is what both sides agreed on, Posts how many requests this side has
	// posted.
	Budget time.Duration
	Posts  int

	first bool
}

// Out returns the parameters for what this side sends.
func (r *Result) Out() logp.Params {
	if r.first {
		return r.Forward
	}
	return r.Backward
}

// In returns the parameters for what the peer sends.
func (r *Result) In() logp.Params {
	if r.first {
		return r.Backward
	}
	return r.Forward
}

// Spent is how long both sides measured, in turn.
func (r *Result) Spent() (d time.Duration) {
	for _, h := range r.Halves {
		if h != nil {
			d += time.Duration(h.Spent)
		}
	}
	return d
}

// merge makes the tables of the first side's half a and the second's, b. Both
// sides call it with the same halves in the same order, so that even the last
// bit agrees. What happens at either end is the middle of both ends'.
func merge(a, b *Half) (t Tables, err error) {
	m, err := middleParams(a, b)
	if err != nil {
		return t, err
	}
	t.Forward, t.Backward, t.Both = a.Params, b.Params, m
	if t.Forward.Os, err = extend(a.Params.Os, b.Params.Os); err != nil {
		return t, err
	}
	if t.Backward.Os, err = extend(b.Params.Os, a.Params.Os); err != nil {
		return t, err
	}
	t.Forward.Or, t.Backward.Or = b.Params.Or, a.Params.Or // of the receiver
	for _, p := range []*logp.Params{&t.Forward, &t.Backward} {
		p.C, p.R = m.C, m.R // one curve stands for both ends
	}
	// Now that the directions are known as well as they will be, tell what an
	// operation takes from what its bytes take beyond the caches.
	for _, p := range []*logp.Params{&t.Forward, &t.Backward, &t.Both} {
		if p.Os, p.Memory, err = p.Os.Split(p.G + p.CPU.B + p.Or.At(0)); err != nil {
			return t, err
		}
	}
	x, y := a.Conf, b.Conf
	t.Conf = Conf{G: min(x.G, y.G), Ls: min(x.Ls, y.Ls), Lh: min(x.Lh, y.Lh), CPU: min(x.CPU, y.CPU)}
	return t, t.validate()
}

// middleParams is between what both halves say, nearer to what is believed.
func middleParams(a, b *Half) (m logp.Params, err error) {
	p, q := &a.Params, &b.Params
	for _, c := range []struct {
		to   *logp.Curve
		a, b logp.Curve
	}{{&m.Os, p.Os, q.Os}, {&m.Or, p.Or, q.Or}, {&m.C, p.C, q.C}, {&m.R, p.R, q.R}} {
		if *c.to, err = middleCurve(c.a, c.b); err != nil {
			return m, err
		}
	}
	m.G = between(p.G, q.G, a.Conf.G, b.Conf.G)
	m.Ls = between(p.Ls, q.Ls, a.Conf.Ls, b.Conf.Ls)
	m.Lh = between(p.Lh, q.Lh, a.Conf.Lh, b.Conf.Lh)
	m.CPU.A = between(p.CPU.A, q.CPU.A, a.Conf.CPU, b.Conf.CPU)
	m.CPU.B = between(p.CPU.B, q.CPU.B, a.Conf.CPU, b.Conf.CPU)
	for i := range m.Extra {
		x, y := p.Extra[i], q.Extra[i]
		a, b := x.Terms(), y.Terms()
		for k := range a {
			a[k] = mid(a[k], b[k])
		}
		m.Extra[i] = logp.ExtraOf(a)
	}
	return m, nil
}

func mid(a, b float64) float64 { return (a + b) / 2 }

// between is the mean of x and y, weighted by their confidence.
func between(x, y, cx, cy float64) float64 {
	const least = 1e-3
	cx, cy = max(cx, least), max(cy, least)
	return (x*cx + y*cy) / (cx + cy)
}

// middleCurve is between a and b at the sizes that either has, nearer to the
// one that is believed there. A side that knows nothing does not count.
func middleCurve(a, b logp.Curve) (logp.Curve, error) {
	if !a.Known() {
		return b, nil
	}
	if !b.Known() {
		return a, nil
	}
	a, err := extend(a, b)
	if err == nil {
		b, err = extend(b, a)
	}
	if err != nil {
		return a, err
	}
	var out []logp.Point
	pa, pb := a.Points(), b.Points()
	for i, j := 0, 0; i < len(pa) || j < len(pb); {
		var x int64
		switch {
		case j == len(pb) || i < len(pa) && pa[i].Size < pb[j].Size:
			x = pa[i].Size
			i++
		case i == len(pa) || pb[j].Size < pa[i].Size:
			x = pb[j].Size
			j++
		default:
			x = pa[i].Size
			i, j = i+1, j+1
		}
		if len(out) < logp.MaxPoints {
			ca, cb := a.Confidence(x), b.Confidence(x)
			out = append(out, logp.Point{Size: x, NS: between(a.At(x), b.At(x), ca, cb), Conf: mid(ca, cb)})
		}
	}
	return logp.FitMonotone(out)
}

// extend continues c, where it ends before o does, in parallel to o: how the
// other direction goes on is a better guess than the last two points of this
// one. With half the confidence.
func extend(c, o logp.Curve) (logp.Curve, error) {
	if !c.Known() || !o.Known() {
		return c, nil
	}
	ps := c.Points()
	last := ps[len(ps)-1]
	for _, p := range o.Points() {
		if p.Size > last.Size && len(ps) < logp.MaxPoints {
			ps = append(ps, logp.Point{
				Size: p.Size, NS: min(last.NS+max(0, p.NS-o.At(last.Size)), logp.MaxNS), Conf: p.Conf / 2,
			})
		}
	}
	return logp.NewCurve(ps)
}
