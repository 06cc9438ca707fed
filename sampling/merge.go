package sampling

import (
	"crypto/sha256"
	"fmt"
	"github.com/seed33544411/rma/internal/enum"
	"slices"
	"time"

	"github.com/seed33544411/rma/logp"
)

// Tables are the parameters of a link between two peers. Both peers hold the
// same.
type Tables struct {
	Forward  logp.Params `json:"forward"`  // from the first side to the second
	Backward logp.Params `json:"backward"` // from the second to the first
	// Both is for decisions that both sides must take alike, whichever sends: the mean of
	// the two directions.
	Both logp.Params `json:"both"`
	// Conf is the confidence of the figures that are not curves: the lower of both sides'.
	Conf Conf `json:"conf"`
	// Fit is the origin of Extra of the parameters.
	Fit Fit `json:"fit"`
}

// Fit describes the batches, measured in every mode, that Extra was fitted to. It is zero
// if there were none.
type Fit struct {
	Probes int                    `json:"probes"` // batches
	Error  [logp.NumModes]float64 `json:"error"`  // mean, of batches that were not fitted, as a fraction of the measured time
}

// maxProbes bounds Fit.Probes.
const maxProbes = 1 << 16

// SetExtra sets the costs found in whole batches in addition to the figures of single
// operations. They apply to both directions, because the batches are sent there and back.
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

// Known reports whether enough was measured for peers of class c: tables of defaults, after other
// load has used up the budget, are not worth saving. The confidence of any size counts: on a path
// of milliseconds the cost of small operations is lost in the jitter, but its latency must be
// measured, since the default is that of a path within a host.
func (t *Tables) Known(c Class) bool {
	return (t.Conf.Ls > 0 || t.Conf.CPU > 0 && !c.IsLong()) &&
		slices.ContainsFunc(t.Both.Os.Points(), func(p logp.Point) bool { return p.Conf > 0 })
}

// Digest identifies tables.
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

// same returns the tables of a link with equal directions.
func same(p logp.Params) Tables { return Tables{Forward: p, Backward: p, Both: p} }

// Source is the origin of tables.
type Source uint8

// Sources.
const (
	FromDefaults Source = iota
	FromProfile
	FromMeasurement
)

var sourceNames = [...]string{"defaults", "profile", "measurement"}

// String returns the name of the source.
func (s Source) String() string { return enum.Name("source", sourceNames[:], s) }

// Result is the result of Run.
type Result struct {
	Tables
	Source Source
	Made   time.Time // of the measurement; zero for defaults

	// Halves are the measurements of the first and the second side; nil unless Source is
	// FromMeasurement.
	Halves [2]*Half

	// SaveErr is the reason why the profile was not saved. The tables are valid
	// nevertheless.
	SaveErr error

	// Budget is the budget that both sides agreed on, Posts the number of requests that
	// this side has posted, Bytes the number of bytes that these have moved.
	Budget time.Duration
	Posts  int
	Bytes  int64

	first bool
}

// Out returns the parameters for messages that this side sends.
func (r *Result) Out() logp.Params {
	if r.first {
		return r.Forward
	}
	return r.Backward
}

// In returns the parameters for messages that the peer sends.
func (r *Result) In() logp.Params {
	if r.first {
		return r.Backward
	}
	return r.Forward
}

// Spent returns how long both sides measured, in turn.
func (r *Result) Spent() (d time.Duration) {
	for _, h := range r.Halves {
		if h != nil {
			d += time.Duration(h.Spent)
		}
	}
	return d
}

// merge computes the tables from the first side's half a and the second's, b. Both sides
// call it with the same halves in the same order, so that the results agree to the last
// bit. Figures that occur at either end are means of both ends'.
func merge(a, b *Half) (t Tables, err error) {
	a, b = oneTrip(*a, *b)
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
		p.C, p.R = m.C, m.R // one curve for both ends
	}
	// The curves of the directions are final: separate the time of an operation from the
	// time of its bytes beyond the caches.
	for _, p := range []*logp.Params{&t.Forward, &t.Backward, &t.Both} {
		if p.Os, p.Memory, err = p.Os.Split(p.G + p.CPU.B + p.Or.At(0)); err != nil {
			return t, err
		}
	}
	x, y := a.Conf, b.Conf
	t.Conf = Conf{G: min(x.G, y.G), Ls: min(x.Ls, y.Ls), Lh: min(x.Lh, y.Lh), CPU: min(x.CPU, y.CPU)}
	return t, t.validate()
}

// oneTrip gives both halves the lower round trip of the two. Both went the same way there and
// back, and other load only adds: while both processes share a processor, a trip lasts a hundred
// times as long. If that happened in one turn only, the latencies of the directions, and with
// them the modes that the two sides choose, would differ without a cause.
func oneTrip(a, b Half) (*Half, *Half) {
	trip, conf := a.RoundTrip, a.Conf.Ls
	if trip == 0 || b.RoundTrip > 0 && b.RoundTrip < trip {
		trip, conf = b.RoundTrip, b.Conf.Ls
	}
	if trip > 0 {
		a.latencies(&a.Params, trip)
		b.latencies(&b.Params, trip)
		a.Conf.Ls, b.Conf.Ls = conf, conf
	}
	return &a, &b
}

// middleParams returns the means of the parameters of both halves, weighted by confidence.
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

// between returns the mean of x and y, weighted by their confidence.
func between(x, y, cx, cy float64) float64 {
	const least = 1e-3
	cx, cy = max(cx, least), max(cy, least)
	return (x*cx + y*cy) / (cx + cy)
}

// middleCurve returns the mean of a and b at the sizes of either, weighted by their
// confidence there. An unknown curve does not count.
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

// extend continues c, if it ends before o does, in parallel to o, with half the confidence:
// the other direction is a better estimate than the last two points of this one.
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
