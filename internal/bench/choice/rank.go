package choice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/pingpong"
	"github.com/seed33544411/rma/logp"
)

// rank is one of the two ranks, with its link open and the model's parameters measured.
type rank struct {
	ctl     bench.Control
	req     *Request
	fabric  string
	side    *pingpong.Side
	polls   *pingpong.Rendezvous // used in place of side if not nil
	ref     *twoSided            // nil: not verbs
	sampled logp.Params          // before calibration
	params  logp.Params          // in use
	conn    bench.Conn

	close   func() error
	onClose func(func() error) // adds a step of close, to run before the steps added so far
}

// idTag is the first of the channel's work request tags.
const idTag = 8

// start prepares both ranks: it opens and samples the link, connects the channel and
// calibrates it. Both ranks call it.
func start(ctx context.Context, ctl bench.Control, open bench.Opener, req *Request) (k *rank, err error) {
	if err := bench.Share(ctx, ctl, req, req.Check); err != nil {
		return nil, err
	}
	k = &rank{ctl: ctl, req: req, close: func() error { return nil }}
	onClose := func(f func() error) {
		before := k.close
		k.close = func() error { return errors.Join(f(), before()) }
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.close())
		}
	}()
	if req.Pin {
		undo := bench.Pin(ctl.Rank())
		onClose(func() error { undo(); return nil })
	}
	conn, done, err := open(ctx, req.Fabric, fabric.DefaultDepth)
	if done != nil {
		onClose(done)
	}
	if err = bench.Agree(ctx, ctl, err); err != nil {
		return k, fmt.Errorf("open %s: %w", req.Fabric, err)
	}
	k.fabric = conn.Fabric
	if p := k.table(); req.Table != "" && p.Free() && !req.Ambient {
		return k, fmt.Errorf("%w: --table %q has no section for %s", ErrGrid, req.Table, k.fabric)
	}
	// A collection inside a timing loop would distort it.
	gc := debug.SetGCPercent(-1)
	onClose(func() error { debug.SetGCPercent(gc); return nil })

	sampled, err := bench.Sample(ctx, ctl, conn, req.Sampling)
	if err != nil {
		return k, err
	}
	k.sampled = sampled.Both
	k.params = k.sampled

	k.conn, k.onClose = conn, onClose
	if req.Ablate { // it opens channels of its own
		return k, nil
	}
	span := pingpong.CalibrationSpan + 64<<10
	if req.Pieces() {
		k.side, err = k.open(ctx, span, message.Options{IDTag: idTag}, false)
		if err == nil && !req.Bare {
			err = k.calibrate(ctx)
		}
		return k, err
	}
	for _, c := range req.Cells() {
		sizes, err := c.Sizes(c.Seed)
		if err != nil {
			return k, err
		}
		span = max(span, pingpong.Need(sizes))
	}
	span = max(span, pingpong.Need(req.Batch))
	for _, n := range req.Curves {
		span = max(span, pingpong.Need(slices.Repeat([]int{req.curveMax(n)}, n)))
	}
	if k.side, err = k.open(ctx, span, message.Options{IDTag: idTag}, false); err != nil {
		return k, err
	}
	if !req.Bare {
		if err := k.calibrate(ctx); err != nil {
			return k, err
		}
	}
	if len(req.Curves) == 0 {
		if k.ref, err = openTwoSided(ctx, k, span); err != nil {
			return k, fmt.Errorf("send/recv: %w", err)
		}
	}
	return k, nil
}

// calibrate fits the sampled parameters to batches.
func (k *rank) calibrate(ctx context.Context) error {
	p, _, err := k.side.Calibrate(ctx, k.sampled, k.req.Calibration)
	if err = bench.Agree(ctx, k.polling(), err); err != nil {
		return fmt.Errorf("calibrate: %w", err)
	}
	k.params = p
	return nil
}

// open opens another channel on the endpoint and connects it. unregistered is that of
// pingpong.Options.
func (k *rank) open(ctx context.Context, span int, o message.Options, unregistered bool) (*pingpong.Side, error) {
	o.Params = &k.params
	side, err := pingpong.Open(ctx, k.conn.Link, k.conn.EP, pingpong.Options{
		First: k.ctl.Rank() == 0, Span: span, Stall: k.req.Stall, Wait: bench.Waiter(k.req.Pin), Channel: o, Unregistered: unregistered,
	})
	if side != nil {
		k.onClose(side.Close)
	}
	if err = bench.Agree(ctx, k.polling(), err); err != nil {
		return nil, fmt.Errorf("open the channel: %w", err)
	}
	theirs, err := k.exchange(ctx, side.Setup())
	if err == nil {
		err = side.Connect(theirs)
	}
	if err = bench.Agree(ctx, k.polling(), err); err != nil {
		return nil, fmt.Errorf("connect the channel: %w", err)
	}
	return side, nil
}

// control is the control channel for times in which the link needs polls.
type control struct{ k *rank }

func (k *rank) polling() bench.Control { return control{k} }

func (c control) Rank() int { return c.k.ctl.Rank() }

func (c control) Exchange(ctx context.Context, mine []byte) ([]byte, error) {
	f := func(ctx context.Context) ([]byte, error) { return c.k.ctl.Exchange(ctx, mine) }
	switch {
	case c.k.polls != nil:
		return c.k.polls.Exchange(ctx, f)
	case c.k.side != nil:
		return c.k.side.Exchange(ctx, f)
	}
	return f(ctx)
}

func (k *rank) exchange(ctx context.Context, mine []byte) ([]byte, error) {
	return control{k}.Exchange(ctx, mine)
}

// Emit gets results on rank 0 as they arrive. Functions for results that the request does
// not ask for may be nil.
type Emit struct {
	Cell     func(Result) error
	Pieces   func(PiecesResult) error
	Explain  func(Explanation) error
	Ablation func(Ablation) error
	Curve    func(Curve) error
}

// Run executes the request: it compares, explains a batch, or measures design choices.
// Both ranks call it: rank 0 with the request and emit, rank 1 with a zero Request and
// Emit.
func Run(ctx context.Context, ctl bench.Control, open bench.Opener, req Request, emit Emit) (err error) {
	k, err := start(ctx, ctl, open, &req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	switch {
	case req.Ablate:
		return k.ablations(ctx, emit.Ablation)
	case len(req.Curves) > 0:
		return k.curves(ctx, emit.Curve)
	case req.Pieces():
		return k.pieces(ctx, emit)
	case len(req.Batch) > 0:
		x, err := k.explain(ctx)
		if err == nil && x != nil {
			err = emit.Explain(*x)
		}
		return errors.Join(err, bench.Agree(ctx, k.polling(), err))
	}
	began := time.Now()
	for i, c := range req.Cells() {
		sizes, err := c.Sizes(c.Seed)
		if err != nil {
			return err
		}
		if n := req.Recalibrate; n > 0 && i > 0 && i%n == 0 && !req.Bare {
			if err := k.calibrate(ctx); err != nil {
				return err
			}
		}
		res := Result{Fabric: k.fabric, N: c.N, Mix: c.Mix, Seed: c.Seed, Bytes: sum(sizes)}
		late := req.Budget > 0 && time.Since(began) > req.Budget
		more, err := k.cell(ctx, sizes, late, &res)
		if err != nil {
			return fmt.Errorf("%s, %d × %s: %w", k.fabric, c.N, c.Mix, err)
		}
		if !more {
			break
		}
		if ctl.Rank() == 0 {
			if err := emit.Cell(res); err != nil {
				return err
			}
		}
	}
	return bench.Agree(ctx, k.polling(), nil)
}

// Series of a cell: the modes, the automatic choice, the fastest mode of the pilot a
// second time, a table of thresholds if requested, and two-sided messages over verbs.
const (
	auto       = logp.NumModes
	again      = auto + 1
	thresholds = again + 1
	reference  = thresholds + 1
	series     = reference + 1
)

// policy returns the policy of a series.
func (k *rank) policy(series, best int) logp.Policy {
	switch series {
	case again:
		series = best
	case auto:
		return logp.Policy{}
	case thresholds:
		return k.table()
	}
	return logp.Policy{Forced: true, Mode: logp.Mode(series)}
}

// table returns the requested table, for Mixing by default that of fixed thresholds. Without
// a table for this link the model chooses.
func (k *rank) table() (p logp.Policy) {
	if k.req.Table == "" && k.req.Mixing {
		return fixedThresholds(k.fabric)
	}
	t, _ := links.ModeTables(k.req.Table) // Check has accepted it
	p.Table = t.For(k.fabric)
	return p
}

// played returns the series that alternate.
func (k *rank) played(twoSided bool) []int {
	all := []int{0, 1, 2, auto, again}
	if p := k.table(); !p.Free() {
		all = append(all, thresholds)
	}
	if twoSided {
		all = append(all, reference)
	}
	return all
}

// orders is rank 0's message after the pilot.
type orders struct {
	Err   string `json:"err,omitempty"`
	Trips int    `json:"trips"` // 0: end of the run
	Best  int    `json:"best"`
}

// cell measures one batch. Both ranks call it for the same cell. more is false if rank 0
// was late.
func (k *rank) cell(ctx context.Context, sizes []int, late bool, res *Result) (more bool, err error) {
	if err = k.side.Load(sizes); err != nil {
		return false, err
	}
	var o orders
	pilot, failed := k.pilot(ctx)
	twoSided, took := k.ref != nil && k.ref.load(sizes), 0.0
	if twoSided && failed == nil {
		took, failed = k.pilotTwoSided(ctx)
	}
	if failed != nil {
		o.Err = failed.Error()
	} else if k.ctl.Rank() == 0 && !late {
		total := took
		for s := range pilot {
			total += 2 * pilot[s]
			if s < auto && pilot[s] < pilot[o.Best] {
				o.Best = s
			}
		}
		total += 2 * pilot[o.Best]
		o.Trips = min(max(int(float64(k.req.Time)/float64(k.req.Rounds)/total)-1, minTrips), maxTrips)
	}
	if o, err = k.order(ctx, o, failed); err != nil || o.Trips == 0 {
		return false, err
	}
	us, err := k.rounds(ctx, o, k.played(twoSided))
	if err != nil || k.ctl.Rank() != 0 {
		return true, err
	}
	res.Rounds, res.Trips = k.req.Rounds, o.Trips
	res.Series = Series{us[logp.Eager], us[logp.Gather], us[logp.Scatter], us[auto], us[again], logp.Mode(o.Best).String(), us[thresholds], us[reference]}
	if err := k.predict(res); err != nil {
		return true, err
	}
	res.fill()
	return true, nil
}

// pilot plays each series briefly, checks the received data, and returns the least time of
// each in ns.
func (k *rank) pilot(ctx context.Context) (ns [auto + 1]float64, err error) {
	var times [3]int64
	for s := range ns {
		if err := k.side.Channel().SetPolicy(k.policy(s, 0)); err != nil {
			return ns, err
		}
		k.side.Forget()
		if err := k.side.Play(ctx, times[:]); err != nil {
			return ns, err
		}
		if err := k.side.Check(); err != nil {
			return ns, fmt.Errorf("%v: %w", k.policy(s, 0), err)
		}
		ns[s] = max(float64(slices.Min(times[1:]))*cpu.NsPerTick(), 1)
	}
	return ns, nil
}

// pilotTwoSided is pilot for the reference: it returns the time of a whole transfer.
func (k *rank) pilotTwoSided(ctx context.Context) (ns float64, err error) {
	if err := k.ref.check(ctx); err != nil {
		return 0, err
	}
	var times [2]int64
	err = k.ref.Play(ctx, times[:])
	return float64(slices.Min(times[:])) * cpu.NsPerTick(), err
}

// order sends rank 0's orders to rank 1; failed is this rank's error.
func (k *rank) order(ctx context.Context, o orders, failed error) (orders, error) {
	if failed != nil {
		return o, bench.Agree(ctx, k.polling(), failed)
	}
	if err := bench.Agree(ctx, k.polling(), nil); err != nil {
		return o, err
	}
	mine, err := json.Marshal(o)
	if err != nil {
		return o, err
	}
	theirs, err := k.exchange(ctx, mine)
	if err != nil || k.ctl.Rank() == 0 {
		return o, err
	}
	if err = json.Unmarshal(theirs, &o); err == nil && (o.Trips < 0 || o.Trips > maxTrips || o.Best < 0 || o.Best >= logp.NumModes) {
		err = fmt.Errorf("%w: orders %+v", ErrGrid, o)
	}
	return o, err
}

// rounds plays all series in alternation, each round beginning with another one, and
// returns the lower quartile of each one's trips in every round, in µs.
func (k *rank) rounds(ctx context.Context, o orders, played []int) (us [series][]float64, err error) {
	times := make([]int64, o.Trips+1)
	trips := make([]float64, o.Trips)
	for r := range k.req.Rounds {
		for i := range played {
			s := played[(i+r)%len(played)]
			if s == reference {
				err = k.ref.Play(ctx, times)
			} else if err = k.side.Channel().SetPolicy(k.policy(s, o.Best)); err == nil {
				err = k.side.Play(ctx, times)
			}
			if err != nil {
				return us, err
			}
			for i, t := range times[1:] { // the first trip includes planning
				trips[i] = float64(t) * cpu.NsPerTick() / 1e3
			}
			us[s] = append(us[s], max(Quantile(trips, 0.25), 1e-3))
		}
	}
	return us, k.side.Channel().SetPolicy(logp.Policy{})
}

// predict fills in the model's predictions for the loaded batch.
func (k *rank) predict(res *Result) error {
	b := k.side.Batch()
	var p [logp.NumModes]float64
	for s := range auto + 1 {
		pl, err := logp.NewPlanner(&k.params, &logp.PlannerConfig{Policy: k.policy(s, 0), Shapes: -1})
		if err != nil {
			return err
		}
		plan, err := pl.Plan(b)
		if err != nil {
			return err
		}
		if s == auto {
			res.Plan, res.PredictedAuto = planText(plan), plan.Total/1e3
			modes := plan.Modes()
			res.PlanMixes = modes&(modes-1) != 0
			if m, err := pl.Single(b); err == nil {
				res.Single = m.String()
			}
			break
		}
		p[s], res.plans[s] = plan.Total/1e3, planText(plan)
		if plan.Modes() != logp.ModeSet(0).With(logp.Mode(s)) {
			res.Mixed = append(res.Mixed, logp.Mode(s).String())
		}
	}
	if len(res.Series.SendRecv) > 0 {
		c := k.params.SendRecv(&b.Limits, b.Messages)
		res.PredictedSendRecv = c.Total() / 1e3
	}
	res.Predicted = modesOf(p)
	return nil
}
