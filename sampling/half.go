package sampling

import (
	"fmt"
	"math"

	"github.com/seed33544411/rma/logp"
)

// Half is the measurement of one side: as the sender, and as the receiver (Or).
// Params.Extra holds the additional cost of reads compared with writes.
type Half struct {
	Params logp.Params `json:"params"`
	// Complete(m) is the time of a single write from posting to completion: the observation
	// behind Os. Os is less, because operations overlap.
	Complete logp.Curve `json:"complete"`

	RoundTrip float64 `json:"round_trip"` // of 8 bytes, ns
	Read      float64 `json:"read"`       // of 8 bytes, posting to completion, ns
	Conf      Conf    `json:"conf"`

	Spent   float64 `json:"spent"`   // ns
	Samples int     `json:"samples"` // timed operations
	Dropped int     `json:"dropped"` // outliers among the kept samples
	Cut     bool    `json:"cut"`     // the budget ended the measurement, not confidence
}

// Conf is the confidence of figures that are not curves.
type Conf struct {
	G   float64 `json:"g"`
	Ls  float64 `json:"ls"`
	Lh  float64 `json:"lh"`
	CPU float64 `json:"ocpu"`
}

func (c *Conf) validate() error {
	for _, v := range []float64{c.G, c.Ls, c.Lh, c.CPU} {
		if !(v >= 0 && v <= 1) {
			return fmt.Errorf("confidence of %v", v)
		}
	}
	return nil
}

// validate checks data from a peer or a file. Errors wrap logp's, or are plain.
func (h *Half) validate() error {
	if err := h.Params.Validate(); err != nil {
		return err
	}
	for _, c := range []logp.Curve{h.Params.Os, h.Params.Or, h.Params.C} {
		if !c.Known() {
			return fmt.Errorf("a curve without points")
		}
	}
	for _, v := range []float64{h.RoundTrip, h.Read, h.Spent} {
		if !(v >= 0 && v <= logp.MaxNS) {
			return fmt.Errorf("time of %v ns", v)
		}
	}
	if err := h.Conf.validate(); err != nil {
		return err
	}
	for _, s := range h.Params.Scale {
		if s != 0 {
			return fmt.Errorf("a learned factor in a measurement")
		}
	}
	return nil
}

// half derives the parameters from the series.
//
// A chain of k writes takes a + b·k + k·Os(m) + (k−1)·g and a latency that a single write
// has as well. Of the cost of one more write, P(m), b is processor time. The rest of the
// smallest write is the gap, since it has almost no bytes that could occupy the adapter.
// The cost of more bytes is Os:
//
//	P(m) = (T_k(m) − T_1(m)) / (k−1)
//	g = P(8) − b        Os(m) = P(m) − P(8), Os(0) = 0
//	Ls = round trip/2 − a − b
//	Lh = read − a − b − Ls
//
// Thus a single write is predicted as half a round trip, and n of them as a chain. Figures
// for which there was no budget are taken from Defaults, with confidence 0.
func (t *turn) half() (*Half, error) {
	def := Defaults(t.s.p.Link.Name())
	ball, read, empty := t.ball.estimate(), t.read.estimate(), t.marginal(t.empty)
	post1, postK := t.post1.estimate(), t.postK.estimate()
	h := &Half{RoundTrip: grain(ball.v), Read: grain(read.v), Samples: t.ops, Cut: t.cut}
	p := def
	h.Conf = Conf{G: grain(empty.conf()), CPU: grain(min(post1.conf(), postK.conf()))}
	if empty.n > 0 {
		p.CPU.B = min(max(0, postK.v-post1.v)/float64(t.empty.k-1), empty.v)
		p.CPU.A = max(0, post1.v-p.CPU.B)
		p.G = empty.v - p.CPU.B
	}
	for _, x := range []*float64{&p.G, &p.CPU.A, &p.CPU.B} {
		*x = grain(*x)
	}
	if ball.n > 0 {
		h.Conf.Ls = grain(ball.conf())
	}
	if read.n > 0 {
		h.Conf.Lh = grain(read.conf())
	}
	h.latencies(&p, h.RoundTrip)
	if err := t.occupancy(&p, empty, h); err != nil {
		return nil, err
	}
	t.back(&p)
	if idle := t.idle.estimate(); idle.n > 0 {
		or, err := logp.NewCurve(round([]logp.Point{{NS: idle.v, Conf: idle.conf()}}))
		if err != nil {
			return nil, err
		}
		p.Or = or
	}
	for _, c := range []struct {
		to *logp.Curve
		ps []*pointSeries
	}{{&p.C, t.copy}, {&p.R, t.reg}} {
		fitted, err := t.fit(c.ps)
		if err != nil {
			return nil, err
		}
		if fitted.Known() {
			*c.to = fitted
		}
	}
	h.Params = p
	h.Dropped = ball.dropped + read.dropped + empty.dropped
	for _, c := range t.sizes {
		h.Dropped += t.marginal(c).dropped
	}
	return h, h.validate()
}

// latencies derives the latencies in p from a round trip and the read of h, as far as these
// were measured.
func (h *Half) latencies(p *logp.Params, trip float64) {
	post := p.CPU.A + p.CPU.B
	if trip > 0 {
		p.Ls = grain(max(0, trip/2-post))
	}
	if h.Read > 0 {
		p.Lh = grain(max(0, h.Read-post-p.Ls))
	}
}

// occupancy fits Os and Complete. The confidence of Os is that of the whole cost of one
// more write: an Os that is negligible compared with the gap is well known if the sum is.
func (t *turn) occupancy(p *logp.Params, empty estimate, h *Half) (err error) {
	first := t.empty.one.estimate()
	os := []logp.Point{{Size: 0, Conf: empty.conf()}, {Size: least, Conf: empty.conf()}}
	all := []logp.Point{{Size: least, NS: first.v, Conf: first.conf()}}
	for _, c := range t.sizes {
		if m := t.marginal(c); m.n > 0 && empty.n > 0 {
			os = append(os, logp.Point{Size: int64(c.size), NS: max(0, m.v-empty.v), Conf: m.conf()})
		}
		if one := c.one.estimate(); one.n > 0 {
			all = append(all, logp.Point{Size: int64(c.size), NS: one.v, Conf: one.conf()})
		}
	}
	if len(os) > 2 { // otherwise the slope is that of Defaults
		if p.Os, err = logp.FitMonotone(round(believed(os))); err != nil {
			return err
		}
	}
	h.Complete, err = logp.FitMonotone(round(believed(all)))
	return err
}

// believed omits points of very low confidence between better ones. At the end of a curve
// such a point is better than none, because the last slope is used for all larger sizes.
func believed(ps []logp.Point) []logp.Point {
	const rumour = 0.05
	last := 0
	for i, p := range ps {
		if p.Conf >= rumour {
			last = i
		}
	}
	var out []logp.Point
	for i, p := range ps {
		if p.Conf >= rumour || p.Size <= least || i > last {
			out = append(out, p)
		}
	}
	return out
}

// back records the difference per byte between a read and Os.
func (t *turn) back(p *logp.Params) {
	a, b := t.reads[0].t.estimate(), t.reads[1].t.estimate()
	if a.n < minSamples || b.n < minSamples || t.reads[0].size == t.reads[1].size {
		return
	}
	x, y := int64(t.reads[0].size), int64(t.reads[1].size)
	more := (b.v - a.v) - (p.Os.At(y) - p.Os.At(x))
	// A difference within the noise is not a bandwidth.
	if math.Abs(more) > 3*math.Hypot(a.se, b.se) {
		p.Extra[logp.Scatter].PerByte = math.Round(more/float64(y-x)*1e6) / 1e6
	}
}

// fit returns a curve through the measured points.
func (t *turn) fit(ps []*pointSeries) (logp.Curve, error) {
	var out []logp.Point
	for _, p := range ps {
		if e := p.t.estimate(); e.n > 0 {
			out = append(out, logp.Point{Size: int64(p.size), NS: e.v, Conf: e.conf()})
		}
	}
	return logp.FitMonotone(round(believed(out)))
}

// round rounds figures that are saved: further digits are noise.
func round(ps []logp.Point) []logp.Point {
	for i := range ps {
		ps[i].NS, ps[i].Conf = grain(ps[i].NS), grain(ps[i].Conf)
	}
	return ps
}

func grain(x float64) float64 { return math.Round(x*1000) / 1000 }
