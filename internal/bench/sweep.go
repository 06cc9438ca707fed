package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// Request describes a measurement over one fabric. Only rank 0's request counts.
type Request struct {
	Fabric string `json:"fabric"`
	Plans  []Plan `json:"plans"`
	Label  string `json:"label,omitempty"`

	// Pin keeps each rank on a processor of its own, if two are available.
	Pin bool `json:"pin,omitempty"`

	// Ranks is the number of measuring processes on each host, including those of this
	// request. With more of them than processors, waits yield sooner. Zero means those
	// of this request alone.
	Ranks int `json:"ranks,omitempty"`

	// Gate is the Gate.Path at which rank 0 waits before every point; empty: none.
	Gate string `json:"gate,omitempty"`

	// Interleave is for series that are compared with each other: it measures a size of
	// all series before the next size, and all sizes before the next round, each round in
	// the opposite order of the previous one. All series must have the same number of
	// sizes and rounds.
	Interleave bool `json:"interleave,omitempty"`

	// Sampling and Calibration are the time budgets for measuring the model's parameters,
	// used if a series of Send leaves the choice to the model. Zero means DefaultSampling
	// and DefaultCalibration; negative skips the step, and the model uses a guess.
	Sampling    time.Duration `json:"sampling,omitempty"`
	Calibration time.Duration `json:"calibration,omitempty"`
}

// Bounds of the request, which rank 1 receives from the wire.
const (
	maxPlans = 64
	maxRanks = 4096
)

// Check fills in defaults and reports why the request cannot be measured.
func (r *Request) Check() error {
	if len(r.Plans) == 0 || len(r.Plans) > maxPlans {
		return fmt.Errorf("%w: %d series, want 1 to %d", ErrPlan, len(r.Plans), maxPlans)
	}
	for i := range r.Plans {
		r.Plans[i] = r.Plans[i].WithDefaults()
		p := &r.Plans[i]
		if err := p.Check(); err != nil {
			return err
		}
		if q := &r.Plans[0]; r.Interleave && (p.Count != q.Count || len(p.Size) != len(q.Size)) {
			return fmt.Errorf("%w: alternating series have %d × %d and %d × %d points", ErrPlan, q.Count, len(q.Size), p.Count, len(p.Size))
		}
	}
	if r.Ranks < 0 || r.Ranks > maxRanks {
		return fmt.Errorf("%w: %d ranks, want up to %d", ErrPlan, r.Ranks, maxRanks)
	}
	if len(r.Label) > maxText || !utf8.ValidString(r.Label) {
		return fmt.Errorf("%w: label of %d bytes, want up to %d bytes of UTF-8", ErrPlan, len(r.Label), maxText)
	}
	if r.Sampling == 0 {
		r.Sampling = DefaultSampling
	}
	if r.Calibration == 0 {
		r.Calibration = DefaultCalibration
	}
	if r.Sampling > maxTime || r.Calibration > maxTime {
		return fmt.Errorf("%w: sampling for %v, calibration for %v", ErrPlan, r.Sampling, r.Calibration)
	}
	return nil
}

// step is one point of a run.
type step struct{ plan, round, size int }

// steps returns the points in the order of measurement.
func (r *Request) steps() (out []step) {
	if !r.Interleave {
		for i := range r.Plans {
			for round := range r.Plans[i].Count {
				for _, n := range r.Plans[i].Size {
					out = append(out, step{i, round, n})
				}
			}
		}
		return out
	}
	for round := range r.Plans[0].Count {
		from := len(out)
		for k := range r.Plans[0].Size {
			for i := range r.Plans {
				out = append(out, step{i, round, r.Plans[i].Size[k]})
			}
		}
		if round%2 == 1 {
			slices.Reverse(out[from:])
		}
	}
	return out
}

// Points returns the number of results of the request.
func (r *Request) Points() int {
	n := 0
	for i := range r.Plans {
		n += r.Plans[i].points()
	}
	return n
}

// depth returns the queue depth that the request needs.
func (r *Request) depth() int {
	n := 0
	for i := range r.Plans {
		n = max(n, r.Plans[i].Window)
	}
	if r.hasOp(Eager) {
		n = max(n, eagerDepth)
	}
	if r.hasOp(Send) {
		n = max(n, fabric.DefaultDepth)
	}
	return n + 2 // a stop, and the flag after a ball
}

// Opener connects the calling rank with the other one. Both ranks call it with the same
// fabric; depth is the needed queue depth. done releases everything and may be called
// more than once.
type Opener func(ctx context.Context, fabric string, depth int) (c Conn, done func() error, err error)

// Run measures. Both ranks call it: rank 0 with the request and emit, which gets every
// result as it arrives; rank 1 with a zero Request and nil. It returns an error on both
// sides if either fails. The garbage collector is off meanwhile.
func Run(ctx context.Context, ctl Control, open Opener, req Request, emit func(Result) error) (err error) {
	if err = Share(ctx, ctl, &req, req.Check); err != nil {
		return err
	}
	meter, err := newMeter(ctx, ctl)
	if err != nil {
		return err
	}
	if req.Pin {
		defer pin(ctl.Rank())()
	}
	conn, closeConn, err := open(ctx, req.Fabric, req.depth())
	if err = agree(ctx, ctl, wrap("open "+req.Fabric, err)); err != nil {
		if closeConn != nil {
			err = errors.Join(err, closeConn())
		}
		return err
	}
	defer func() { err = errors.Join(err, closeConn()) }()

	samples := req.chooses() && req.Sampling > 0
	if !samples && req.large() { // sampling includes it
		if err := agree(ctx, ctl, wrap("copies", tuneCopies(ctx, ctl, conn))); err != nil {
			return err
		}
	}
	var params *logp.Params // nil: a guess
	if samples {
		r, err := sampleOnce(ctx, ctl, conn, PlogpRequest{Budget: req.Sampling, MaxSize: sampling.DefaultMaxSize, Pin: req.Pin})
		if err != nil {
			return wrap("sample "+req.Fabric, err)
		}
		params = &r.Both
	}
	span, stall := req.needs()
	s, err := newSide(ctx, ctl, conn, span, stall, req.spinner())
	if err != nil {
		return wrap("prepare "+req.Fabric, err)
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if req.hasOp(Eager) {
		if err := openRing(ctx, s); err != nil {
			return err
		}
	}

	// A collection inside a timing loop would distort it. Loops do not allocate, and the
	// allocations between points are small.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))

	if req.hasOp(Send) {
		calibration := req.Calibration
		if !req.chooses() {
			calibration = 0
		}
		if err := openMessages(ctx, s, params, calibration, stall, req.Pin); err != nil {
			return err
		}
	}
	if err := s.points(ctx, &req, conn.Fabric, meter, emit); err != nil {
		return err
	}
	return agree(ctx, s, nil)
}

// needs returns the memory in bytes that the largest point needs on each side, and the longest stall.
func (r *Request) needs() (span int, stall time.Duration) {
	span = 4096
	for i := range r.Plans {
		p := &r.Plans[i]
		stall = max(stall, p.Stall)
		for _, n := range p.Size {
			pt := point{Plan: p, size: n}
			span = max(span, pt.span())
		}
	}
	return span, stall
}

// points measures all points in the order of the request's steps. Rank 0 emits the results.
func (s *side) points(ctx context.Context, req *Request, fabric string, meter *meter, emit func(Result) error) error {
	rank, machine := s.Rank(), ThisMachine()
	rec := newRecorder()
	rec.meter = meter
	pt := point{}
	for _, st := range req.steps() {
		pt.Plan, pt.size = &req.Plans[st.plan], st.size
		pt.epoch++
		res := Result{Test: pt.Test, Fabric: fabric, Op: pt.Op, Size: pt.size,
			Round: st.round, Validated: pt.Validate, Label: req.Label, Machine: machine, Mode: pt.Mode}
		if rank == 0 && req.Gate != "" {
			if err := pass(ctx, req.Gate); err != nil {
				return err
			}
		}
		if err := s.point(ctx, &pt, rec, &res); err != nil {
			return fmt.Errorf("%s %s %s %d bytes: %w", fabric, pt.Test, pt.Op, pt.size, err)
		}
		if rank == 0 {
			if err := emit(res); err != nil {
				return err
			}
		}
	}
	return nil
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// point measures one point. Both ranks call it for the same point.
func (s *side) point(ctx context.Context, p *point, rec *recorder, res *Result) error {
	rank := s.Rank()
	rec.reset()
	var (
		msgs int64
		took time.Duration
		in   *inbox
	)
	if p.Op == Send {
		if err := s.msg.setMode(p); err != nil {
			return err
		}
		if rank == 0 {
			res.Ways = new(Ways)
		}
		if rank == 1 && p.Test != Lat {
			in = s.msg.openInbox(p)
		}
	}
	err := s.ready(ctx, p)
	if err != nil {
		return err
	}
	half := 1.0
	switch {
	case p.Op == Send && rank == 1 && p.Test == Lat:
		err = s.msg.pong(p)
	case p.Op == Send && rank == 1:
		err = s.msg.sink(p, in)
	case p.Op == Send && p.Test == Lat:
		half = 2
		err = s.msg.ping(p, rec, res.Ways)
	case p.Op == Send:
		msgs, took, err = s.msg.flood(p, rec, res.Ways)
	case p.Op == Eager && rank == 1:
		err = s.ring.echo(p)
	case p.Op == Eager && p.Test == Lat:
		half = 2
		err = s.ring.ping(p, rec)
	case p.Op == Eager:
		msgs, took, err = s.ring.flood(p, rec)
	case p.Test != Lat && p.Validate && (p.Op == Put || p.Op == Get):
		msgs, took, err = s.floodChecked(ctx, p, rec)
	case p.Test != Lat && rank == 0:
		msgs, took, err = s.flood(p, rec)
	case p.Test != Lat:
		err = s.serve(p.epoch)
	case p.Op == Put && rank == 0:
		half = 2
		err = s.ping(p, rec)
	case p.Op == Put:
		err = s.pong(p)
	case rank == 0:
		err = s.roundTrip(p, rec)
	default:
		err = s.serve(p.epoch)
	}
	used, known := rec.meter.spent()
	if rank == 0 && errors.Is(err, ErrValidate) {
		_ = s.stop(p.epoch) // the link works: end the point on rank 1, too
	}
	if err != nil {
		err = s.Because(err)
	}
	if err = agree(ctx, s, err); err != nil {
		return err
	}
	if rank != 0 {
		return nil
	}
	res.LatUS = rec.latency(half)
	if p.Test == Lat {
		msgs = rec.count
		took = time.Duration(res.LatUS.Mean * float64(msgs) * 1000)
		res.fill(msgs, took)
		res.Seconds *= half
	} else {
		res.Window = p.window()
		res.fill(msgs, took)
		half = 1
	}
	if known && !p.Validate && msgs > 0 {
		res.CPUNS = float64(used) / (float64(msgs) * half)
	}
	return nil
}

// ready prepares both sides' memory for a point.
func (s *side) ready(ctx context.Context, p *point) error {
	if err := s.Drain(); err != nil {
		return err
	}
	cellAt(s.mem, offFlag).store(0)
	cellAt(s.mem, offAtomic).store(0)
	in := s.in((p.size + 7) &^ 7)
	clear(in)
	if p.Validate && p.Op == Get && s.Rank() == 1 {
		fill(in[:p.size], p.seed(1, 0))
	}
	return agree(ctx, s, nil)
}
