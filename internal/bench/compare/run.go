package compare

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/seed33544411/rma/internal/bench"
)

// Request is what to compare.
type Request struct {
	Fabric string // shm, tcp or verbs
	Peers  []*Peer
	Tests  []Test
	Rounds int           // zero means DefaultRounds
	Time   time.Duration // of one run of either; zero means DefaultTime
	Limit  time.Duration // of one run of a peer, see ErrStuck; zero means DefaultLimit
	Place  Place
}

// Defaults and bounds.
const (
	DefaultRounds = 5
	DefaultTime   = 300 * time.Millisecond
	// DefaultLimit is long against what a run takes and short against a reader's
	// patience: on one processor both sides of a program that spins can wait for each
	// other, a time slice for every message.
	DefaultLimit = 30 * time.Second

	maxRounds = 1000
	maxIters  = 50_000_000
)

// Ours measures t with this library, on the request's fabric.
type Ours func(ctx context.Context, t Test) (bench.Result, error)

// Check fills in defaults and says whether it can be carried out. A program that
// is not there is a *MissingError.
func (r *Request) Check() error {
	if r.Rounds == 0 {
		r.Rounds = DefaultRounds
	}
	if r.Time == 0 {
		r.Time = DefaultTime
	}
	if r.Limit == 0 {
		r.Limit = max(DefaultLimit, 20*r.Time)
	}
	if r.Place.Addr == "" {
		r.Place.Addr = "127.0.0.1"
	}
	switch {
	case len(r.Tests) == 0 || len(r.Peers) == 0:
		return fmt.Errorf("%w: nothing to compare", ErrTest)
	case r.Rounds < 1 || r.Rounds > maxRounds:
		return fmt.Errorf("%w: %d rounds, want 1 to %d", ErrTest, r.Rounds, maxRounds)
	case r.Time < time.Millisecond || r.Time > time.Hour:
		return fmt.Errorf("%w: time %v, want 1ms to 1h", ErrTest, r.Time)
	}
	for _, p := range r.Peers {
		if err := p.Check(); err != nil {
			return err
		}
		if _, err := p.Env(r.Fabric, r.Place); err != nil {
			return err
		}
	}
	return nil
}

// Run compares, test by test, and gives every row as it is done. Within a row the
// two sides take turns, and change who goes first from round to round. What a peer
// does not bring to an end is counted and told in the row; what fails of ours ends
// the run.
func Run(ctx context.Context, r Request, ours Ours, emit func(Row) error) error {
	if err := r.Check(); err != nil {
		return err
	}
	for _, peer := range r.Peers {
		env, err := peer.Env(r.Fabric, r.Place)
		if err != nil {
			return err
		}
		p := &program{Peer: peer, at: r.Place, env: env, limit: r.Limit}
		version := peer.version()
		for _, t := range r.Tests {
			row := Row{Peer: peer.Name, Fabric: r.Fabric, Version: version, Machine: bench.ThisMachine()}
			if err := r.row(ctx, p, t, ours, &row); err != nil {
				return err
			}
			if err := emit(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// row measures one test beside one peer.
func (r *Request) row(ctx context.Context, p *program, t Test, ours Ours, row *Row) error {
	var ps []pair
	failed := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		row.Failed++
		row.Why = err.Error()
		return nil
	}
	defer func() { row.fill(t, ps) }()
	pilot, err := p.once(ctx, t, p.Trial)
	if err != nil {
		return failed(err)
	}
	iters := iterations(t, pilot, r.Time)
	for round := range r.Rounds {
		var q pair
		var theirs error
		sides := []func() error{
			func() error {
				res, err := ours(ctx, t)
				q.ours, row.Mode, row.Ways = t.Figure(res), res.Mode, res.Ways
				return err
			},
			func() error { q.theirs, theirs = p.once(ctx, t, iters); return nil },
		}
		if round%2 == 1 {
			sides[0], sides[1] = sides[1], sides[0]
		}
		for _, f := range sides {
			if err := f(); err != nil {
				return err
			}
		}
		switch {
		case theirs != nil:
			if err := failed(theirs); err != nil {
				return err
			}
		case q.ours <= 0:
			return fmt.Errorf("%v: %w", t, errors.New("ours measured nothing"))
		default:
			ps = append(ps, q)
		}
	}
	return nil
}

// iterations is how many fill d, going by the figure of a trial.
func iterations(t Test, figure float64, d time.Duration) int {
	var us float64 // of one
	switch t.Kind {
	case bench.Lat:
		us = 2 * figure
	case bench.BW:
		us = float64(t.Size) / figure
	default:
		us = 1 / figure
	}
	n := float64(d.Microseconds()) / us
	return int(math.Ceil(min(max(n, 20), maxIters)))
}
