package compare

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/tempdir"
)

// Request describes a comparison.
type Request struct {
	Fabric string // shm, tcp or verbs
	Peers  []*Peer
	Tests  []Test
	Rounds int           // zero means DefaultRounds
	Pairs  int           // of processes for either library, which run at once; zero means 1
	Time   time.Duration // of one run of either library; zero means DefaultTime
	Limit  time.Duration // on one run of a peer, see ErrStuck; zero means 20 times Time, at least LeastLimit
	Place  Place

	// AnyPeer skips peers that are not installed or cannot use the fabric. Tests that a peer
	// does not support are skipped in any case.
	AnyPeer bool
}

// Defaults and bounds.
const (
	DefaultRounds = 5
	DefaultTime   = 300 * time.Millisecond
	// LeastLimit is long compared with a run and short enough for a user to wait: on one
	// processor, two sides of a program that spins can wait for each other for a time slice
	// at every message.
	LeastLimit = 30 * time.Second

	// MaxPairs bounds Request.Pairs.
	MaxPairs = 64

	maxRounds = 1000
	maxIters  = 50_000_000

	minIters   = 20        // of any run: with fewer, the resolution of clocks of 1 µs shows
	trialBytes = 256 << 20 // of a trial, or minIters messages
)

// Ours measures t with this library on the request's fabric.
type Ours func(ctx context.Context, t Test) (bench.Result, error)

// Valid fills in defaults and reports why the request makes no sense on any host.
func (r *Request) Valid() error {
	if r.Rounds == 0 {
		r.Rounds = DefaultRounds
	}
	if r.Time == 0 {
		r.Time = DefaultTime
	}
	if r.Limit == 0 {
		r.Limit = max(LeastLimit, 20*r.Time)
	}
	if r.Pairs == 0 {
		r.Pairs = 1
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
	case r.Pairs < 1 || r.Pairs > MaxPairs:
		return fmt.Errorf("%w: %d pairs, want 1 to %d", ErrTest, r.Pairs, MaxPairs)
	}
	return nil
}

// Check fills in defaults and reports why the request cannot be carried out here. A missing
// program is a *MissingError. left contains the reasons for what is skipped; without any
// peer left, it is an error.
func (r *Request) Check() (left []error, err error) {
	if err := r.Valid(); err != nil {
		return nil, err
	}
	var peers []*Peer
	for _, p := range r.Peers {
		does, refused, err := r.checkPeer(p)
		if err != nil && !r.AnyPeer {
			return nil, err
		}
		if left = append(left, refused...); err != nil {
			left = append(left, err)
		} else if does {
			peers = append(peers, p)
		}
	}
	if len(peers) == 0 {
		return nil, errors.Join(append([]error{fmt.Errorf("%w: no peer is left", ErrTest)}, left...)...)
	}
	r.Peers = peers
	return left, nil
}

// checkPeer reports whether a peer can make any of the tests; refused are the errors of
// the skipped tests.
func (r *Request) checkPeer(p *Peer) (does bool, refused []error, err error) {
	var kinds []Kind
	for _, t := range r.Tests {
		err := p.Does(r.Fabric, t.Kind)
		does = does || err == nil
		if err != nil && !slices.Contains(kinds, t.Kind) {
			kinds, refused = append(kinds, t.Kind), append(refused, err)
		}
	}
	if _, has := p.Tests[r.Fabric]; !has {
		return false, nil, refused[0]
	}
	if !does {
		return false, refused, nil
	}
	if err := p.Missing(r.Fabric); err != nil {
		return true, nil, err
	}
	_, err = p.Plan(Job{Fabric: r.Fabric, Place: r.Place, Test: r.Tests[0], Iters: p.Trial, Port: 1, Limit: r.Limit})
	return true, refused, err
}

// Run compares, test by test, and emits every row when it is complete. Within a row the two
// libraries alternate, and the order alternates between rounds. Runs that a peer does not
// finish are counted and reported in the row; a failure of this library ends the run.
func Run(ctx context.Context, r Request, ours Ours, emit func(Row) error) error {
	if _, err := r.Check(); err != nil {
		return err
	}
	for _, peer := range r.Peers {
		if err := r.peer(ctx, peer, ours, emit); err != nil {
			return err
		}
	}
	return nil
}

// peer measures all tests of one peer.
func (r *Request) peer(ctx context.Context, peer *Peer, ours Ours, emit func(Row) error) (err error) {
	dir, err := tempdir.New("", "rmabench-"+peer.Name+"-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if peer.Prepare != nil {
		if err := peer.Prepare(ctx, dir.Path); err != nil {
			return fmt.Errorf("%s: %w", peer.Name, err)
		}
	}
	p := &program{Peer: peer, job: Job{Fabric: r.Fabric, Place: r.Place, Dir: dir.Path, Limit: r.Limit}, pairs: r.Pairs}
	version := peer.version(ctx, dir.Path)
	for _, t := range r.Tests {
		if peer.Does(r.Fabric, t.Kind) != nil {
			continue // reported by Check
		}
		row := Row{Peer: peer.Name, Fabric: r.Fabric, Ranks: 2 * r.Pairs, Version: version, Machine: bench.ThisMachine()}
		if err := r.row(ctx, p, t, ours, &row); err != nil {
			return err
		}
		if err := emit(row); err != nil {
			return err
		}
	}
	return nil
}

// row measures one test of one peer.
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
	c := &crowd{program: p}
	short, iters := t.trial(p.Trial), 0
	var err error
	if r.Pairs > 1 {
		short = fewIters
		iters, err = c.fit(ctx, t, r.Time)
	} else if c.first, err = p.once(ctx, t, short); err == nil {
		iters = iterations(t, c.first.Figure, r.Time)
	}
	if err != nil {
		return failed(err)
	}
	for round := range r.Rounds {
		var q pair
		var theirs error
		sides := []func() error{
			func() error {
				res, err := ours(ctx, t)
				q.ours, row.Mode, row.Ways = t.Figure(res), res.Mode, res.Ways
				q.oursCPU = res.CPUNS
				return err
			},
			func() error {
				var s Sample
				s, _, theirs = c.run(ctx, t, iters)
				q.theirs = s.Figure
				q.theirsCPU = p.cpu(t, short, c.first, iters, s)
				return nil
			},
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
			return fmt.Errorf("%v: %w", t, errors.New("rmabench measured nothing"))
		default:
			ps = append(ps, q)
		}
	}
	return nil
}

// trial reduces the n iterations of a trial for large messages.
func (t Test) trial(n int) int { return max(min(n, trialBytes/t.Size), min(n, minIters)) }

// iterations returns the number of iterations that fill d, from the figure of a trial.
func iterations(t Test, figure float64, d time.Duration) int {
	var us float64 // of one iteration
	switch t.Kind {
	case Lat, Put:
		us = 2 * figure
	case BW, PutBW:
		us = float64(t.Size) / figure
	default:
		us = 1 / figure
	}
	n := float64(d.Microseconds()) / us
	return int(math.Ceil(min(max(n, minIters), maxIters)))
}
