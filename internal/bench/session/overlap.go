package session

import (
	"context"
	"errors"
	"io"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/bench/overlap"
	"github.com/seed33544411/rma/internal/jobenv"
	"github.com/seed33544411/rma/internal/settings"
)

// OverlapLocal measures communication during computation between two processes that it starts
// on this host. The ranks are not pinned: the link may use an idle processor.
func OverlapLocal(ctx context.Context, req overlap.Request, stderr io.Writer, emit func(overlap.Result) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	if req.What == "load" {
		return loadLocal(ctx, req, stderr, emit)
	}
	return overlapRanks(ctx, req, nil, stderr, emit)
}

// loadLocal runs new ranks for each wait policy, round and number of busy threads, which are
// those of this process.
func loadLocal(ctx context.Context, req overlap.Request, stderr io.Writer, emit func(overlap.Result) error) error {
	one := req
	one.Rounds = 1
	for round := range req.Rounds {
		for _, busy := range req.Counts {
			for _, spin := range req.Spins {
				var env []string
				if spin != overlap.SpinDefault {
					env = []string{"RMA_SPIN=" + spin}
				}
				end := overlap.Busy(busy)
				err := overlapRanks(ctx, one, env, stderr, func(r overlap.Result) error {
					r.Round, r.Count, r.Spin = round, busy, spin
					return emit(r)
				})
				end()
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// overlapRanks measures req between two processes with env added to their environment.
func overlapRanks(ctx context.Context, req overlap.Request, env []string, stderr io.Writer, emit func(overlap.Result) error) error {
	return localResults(ctx, ranks(overlapArg, 2, req.Fabric, env...), req, stderr, -1, func(r *overlap.Result) bool { return r.What == req.What }, emit)
}

// OverlapInJob is OverlapLocal for the two ranks of the job that the environment describes.
func OverlapInJob(ctx context.Context, req overlap.Request, emit func(overlap.Result) error) (shows bool, err error) {
	cfg, err := jobenv.FromEnv()
	if err != nil {
		return true, err
	}
	eng, err := rma.Open(ctx, &rma.Config{Fabric: rma.Fabric(req.Fabric)})
	if err != nil {
		return cfg.Rank == 0 || errors.As(err, new(settings.Errors)), err // rank 0 only learns that this one is gone
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	return cfg.Rank == 0, overlap.Run(ctx, eng, req, emit)
}
