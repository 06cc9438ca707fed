package choice

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/logp"
)

// Ways holds a figure for each way of moving pieces.
type Ways struct {
	Chain float64 `json:"chain"`
	Group float64 `json:"group"`
}

func (w Ways) array() []float64 { return []float64{w.Chain, w.Group} }

// PiecesSeries is the Series of puts and gets of pieces.
type PiecesSeries struct {
	Chain   []float64 `json:"chain"`
	Group   []float64 `json:"group"`
	Auto    []float64 `json:"auto"`
	Again   []float64 `json:"again"`
	AgainOf string    `json:"again_of"`
	Each    []float64 `json:"each"`
}

func (s *PiecesSeries) sample() Sample {
	return Sample{s.Auto, [][]float64{s.Chain, s.Group}, timeShare}
}

// PiecesResult is one cell of puts or gets of several pieces, like Result with ways in the
// place of modes. Times are µs from the call to the end of the operation.
type PiecesResult struct {
	Fabric string `json:"fabric"`
	Op     string `json:"op"`
	N      int    `json:"n"`
	Size   string `json:"size"` // of the pieces, or their mix
	Layout string `json:"layout"`
	Seed   uint64 `json:"seed,omitempty"`
	Bytes  int    `json:"bytes"`

	Ways   Ways    `json:"ways"`    // forced; pieces too long for a group go as a chain
	EachUS float64 `json:"each_us"` // an operation for each piece, posted without waiting
	AutoUS float64 `json:"auto_us"`
	Best   string  `json:"best"`

	// Groups is the mean number of groups of an operation, forced and by automatic choice.
	Groups     float64 `json:"groups"`
	GroupsAuto float64 `json:"groups_auto"`

	Regret   float64  `json:"regret"`
	Regret95 Interval `json:"regret_95,omitzero"`
	Noise    float64  `json:"noise"`

	Predicted     Ways    `json:"predicted_us"`
	PredictedAuto float64 `json:"predicted_auto_us"`
	Error         Ways    `json:"prediction_error"`
	ErrorAuto     float64 `json:"prediction_error_auto"`

	Rounds int          `json:"rounds"`
	Trips  int          `json:"trips"` // operations of a series in a round
	Series PiecesSeries `json:"series_us,omitzero"`
}

// fill computes the figures derived from the series and the predictions.
func (r *PiecesResult) fill() {
	r.Ways = Ways{timeOf(r.Series.Chain), timeOf(r.Series.Group)}
	r.AutoUS, r.EachUS = timeOf(r.Series.Auto), timeOf(r.Series.Each)
	t := r.Ways.array()
	best := least(t)
	r.Best = logp.Way(best).String()
	r.Regret, r.Regret95 = r.AutoUS/t[best]-1, r.Series.sample().Regret95()
	for w, us := range t {
		if r.Series.AgainOf == logp.Way(w).String() {
			r.Noise = math.Abs(timeOf(r.Series.Again)/us - 1)
		}
	}
	r.Error, r.ErrorAuto = Ways{r.Predicted.Chain/t[logp.Chain] - 1, r.Predicted.Group/t[logp.Group] - 1}, r.PredictedAuto/r.AutoUS-1
}

// PiecesSummary is the last line of a comparison of pieces, like Summary.
type PiecesSummary struct {
	Summary bool   `json:"summary"`
	Fabric  string `json:"fabric"`
	Op      string `json:"op"`
	Cells   int    `json:"cells"`

	Regrets
	// MeanVsChain is the time of the automatic choice over that of a chain, less 1: the
	// geometric mean over the cells; MaxVsChain is the greatest.
	MeanVsChain float64 `json:"mean_vs_chain"`
	MaxVsChain  float64 `json:"max_vs_chain"`

	MedianAbsPredictionError float64 `json:"median_abs_prediction_error"`
	PerWay                   Ways    `json:"median_abs_prediction_error_ways"`
	Auto                     float64 `json:"median_abs_prediction_error_auto"`

	Seed uint64 `json:"seed"`
	Cut  bool   `json:"cut,omitempty"`
}

// SummarizePieces combines results. A prediction for groups counts if forced operations were
// sent in groups at all.
func SummarizePieces(rs []PiecesResult) (s PiecesSummary) {
	s.Summary, s.Cells = true, len(rs)
	if len(rs) == 0 {
		return s
	}
	s.Fabric, s.Op, s.MaxVsChain = rs[0].Fabric, rs[0].Op, math.Inf(-1)
	var regret, noise, chain, group, auto []float64
	var cells []Sample
	for i := range rs {
		r := &rs[i]
		regret, noise, cells = append(regret, r.Regret), append(noise, r.Noise), append(cells, r.Series.sample())
		chain, auto = append(chain, math.Abs(r.Error.Chain)), append(auto, math.Abs(r.ErrorAuto))
		if r.Groups > 0 {
			group = append(group, math.Abs(r.Error.Group))
		}
		vs := r.AutoUS / r.Ways.Chain
		s.MeanVsChain += math.Log(vs) / float64(len(rs))
		s.MaxVsChain = max(s.MaxVsChain, vs-1)
	}
	s.MeanVsChain = math.Exp(s.MeanVsChain) - 1
	s.Regrets = RegretsOf(regret, noise, cells)
	s.MedianAbsPredictionError = Quantile(slices.Concat(chain, group), 0.5)
	s.PerWay, s.Auto = Ways{Quantile(chain, 0.5), Quantile(group, 0.5)}, Quantile(auto, 0.5)
	return s
}

// kindOf returns the operation of Request.Op.
func (r *Request) kindOf() initiator.Kind {
	if r.Op == OpGet {
		return initiator.Get
	}
	return initiator.Put
}

// pieces compares, or explains, puts or gets of several pieces. Both ranks call it. Rank 1
// drives its engine, which would otherwise sleep at unpredictable moments.
func (k *rank) pieces(ctx context.Context, emit Emit) error {
	span := area(k.req.Batch)
	for _, c := range k.req.Cells() {
		sizes, err := c.Sizes(c.Seed)
		if err != nil {
			return err
		}
		span = max(span, area(sizes))
	}
	m, err := openMover(ctx, k, (span+4095)&^4095)
	if err != nil {
		return fmt.Errorf("one-sided operations: %w", err)
	}
	if k.ctl.Rank() == 0 {
		return bench.Agree(ctx, k.ctl, k.playPieces(ctx, m, emit))
	}
	over := make(chan error, 1)
	go func() { over <- bench.Agree(ctx, k.ctl, nil) }()
	wait := bench.Waiter(false)
	for idle := 1; ; idle++ {
		select {
		case err := <-over:
			return err
		default:
		}
		if m.Prog.Progress() {
			idle = 0
		}
		wait(max(idle, 1))
	}
}

func (k *rank) playPieces(ctx context.Context, m *mover, emit Emit) error {
	if len(k.req.Batch) > 0 {
		x, err := k.explainPieces(ctx, m)
		if err == nil {
			err = emit.Explain(*x)
		}
		return err
	}
	began := time.Now()
	for _, c := range k.req.Cells() {
		if k.req.Budget > 0 && time.Since(began) > k.req.Budget {
			break
		}
		sizes, err := c.Sizes(c.Seed)
		if err != nil {
			return err
		}
		res := PiecesResult{N: c.N, Size: c.Mix, Layout: c.Layout, Seed: c.Seed}
		if err = k.piecesCell(ctx, m, sizes, &res); err == nil {
			err = emit.Pieces(res)
		}
		if err != nil {
			return fmt.Errorf("%s, %s of %d × %s, %s: %w", k.fabric, k.req.Op, c.N, c.Mix, c.Layout, err)
		}
	}
	return nil
}

// Series of a cell of pieces: the ways, the automatic choice, pieces one by one, and the
// better way a second time.
const (
	piecesAuto   = logp.NumWays
	piecesEach   = piecesAuto + 1 // an operation for each piece
	piecesAgain  = piecesEach + 1
	piecesSeries = piecesAgain + 1
)

// set configures m for a series.
func (k *rank) set(m *mover, series, best int) {
	if series == piecesAgain {
		series = best
	}
	m.policy(&k.params, series < logp.NumWays, logp.Way(series%logp.NumWays))
}

// mover returns the function that moves the pieces in a series.
func (m *mover) mover(series int) func(context.Context, initiator.Kind) error {
	if series == piecesEach {
		return m.moveEach
	}
	return m.move
}

// piecesCell measures one cell.
func (k *rank) piecesCell(ctx context.Context, m *mover, sizes []int, res *PiecesResult) error {
	ctx, cancel := context.WithTimeout(ctx, k.req.Stall+4*k.req.Time)
	defer cancel()
	m.place(sizes, res.Layout, res.Seed)
	kind := k.req.kindOf()
	var pilot [piecesEach + 1]float64
	total := 0.0
	for s := range pilot {
		k.set(m, s, 0)
		if err := m.check(ctx, kind, m.mover(s), uint64(s)); err != nil {
			return fmt.Errorf("series %d: %w", s, err)
		}
		var times [3]int64
		if err := play(ctx, kind, m.mover(s), times[:]); err != nil {
			return err
		}
		pilot[s] = max(float64(slices.Min(times[:]))*cpu.NsPerTick(), 1)
		total += pilot[s]
	}
	best := least(pilot[:logp.NumWays])
	total += pilot[best]
	res.Fabric, res.Op, res.Bytes, res.Rounds = k.fabric, k.req.Op, sum(sizes), k.req.Rounds
	res.Trips = min(max(int(float64(k.req.Time)/float64(k.req.Rounds)/total), minTrips), maxTrips)
	times, trips := make([]int64, res.Trips+1), make([]float64, res.Trips)
	var us [piecesSeries][]float64
	var groups [piecesSeries]uint64
	for r := range k.req.Rounds {
		for i := range piecesSeries {
			s := (i + r) % piecesSeries
			k.set(m, s, best)
			before := m.groups()
			if err := play(ctx, kind, m.mover(s), times); err != nil {
				return err
			}
			groups[s] += m.groups() - before
			for i, t := range times[1:] { // the first trip has cold caches
				trips[i] = float64(t) * cpu.NsPerTick() / 1e3
			}
			us[s] = append(us[s], max(Quantile(trips, 0.25), 1e-3))
		}
	}
	each := float64(res.Rounds * len(times))
	res.Groups, res.GroupsAuto = float64(groups[logp.Group])/each, float64(groups[piecesAuto])/each
	res.Series = PiecesSeries{us[logp.Chain], us[logp.Group], us[piecesAuto], us[piecesAgain], logp.Way(best).String(), us[piecesEach]}
	pp := k.plan(m, sizes)
	res.Predicted = Ways{pp.Costs[logp.Chain].Total() / 1e3, pp.Costs[logp.Group].Total() / 1e3}
	res.PredictedAuto = min(res.Predicted.Chain, res.Predicted.Group)
	res.fill()
	return nil
}

// plan returns the model's plan for the pieces, without corrections learned from operations.
func (k *rank) plan(m *mover, sizes []int) (pp logp.PiecesPlan) {
	m.Prog.Do(func() {
		m.Queue.Plan(&k.params, false, 0)
		pp = m.Queue.Explain(k.req.kindOf(), m.requests(k.conn.Link.Caps().MaxSGE), sum(sizes))
	})
	for w := range pp.Costs { // without learned corrections
		pp.Costs[w].Terms[logp.TermLearned] = 0
	}
	return pp
}

// groups returns the number of groups sent.
func (m *mover) groups() (n uint64) {
	m.Prog.Do(func() { n = m.Queue.Counts().Groups })
	return n
}

// play moves the pieces len(times) times and stores each time in ticks.
func play(ctx context.Context, kind initiator.Kind, move func(context.Context, initiator.Kind) error, times []int64) error {
	for i := range times {
		since := cpu.Ticks()
		if err := move(ctx, kind); err != nil {
			return err
		}
		times[i] = cpu.Ticks() - since
	}
	return nil
}

// explainPieces is explain for a put or get of the pieces of the request's batch.
func (k *rank) explainPieces(ctx context.Context, m *mover) (x *Explanation, err error) {
	sizes := k.req.Batch
	res := PiecesResult{N: len(sizes), Layout: Scattered, Seed: k.req.Seed}
	if k.req.Measure {
		if err := k.piecesCell(ctx, m, sizes, &res); err != nil {
			return nil, err
		}
	}
	pp := k.plan(m, sizes)
	best := logp.Chain
	if pp.Costs[logp.Group].Total() < pp.Costs[logp.Chain].Total() {
		best = logp.Group
	}
	x = &Explanation{
		Fabric: k.fabric, Op: k.req.Op, Messages: len(sizes), Bytes: int64(sum(sizes)), Plan: best.String(),
		Reason: fmt.Sprintf("%v is the cheaper way of the whole; an operation is planned from a slot of 8 KiB to the next", best),
	}
	for w, us := range res.Ways.array() {
		x.Ways = append(x.Ways, wayOf(logp.Way(w).String(), &pp.Costs[w], us))
	}
	x.Ways = append(x.Ways, wayOf("plan", &pp.Costs[best], res.AutoUS))
	return x, nil
}
