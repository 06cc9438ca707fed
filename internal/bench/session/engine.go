package session

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/jobenv"
	"github.com/seed33544411/rma/internal/tempdir"
)

// engineSampling is the engine's budget for sampling before it measures. The default
// budget is made for a fast start, and is less.
const engineSampling = 200 * time.Millisecond

// EngineLocal measures through package rma between pairs of processes that it starts on
// this host. The engine uses the mode of the first plan.
func EngineLocal(ctx context.Context, req bench.Request, pairs int, stderr io.Writer, emit Emit) error {
	if err := req.CheckEngine(); err != nil {
		return err
	}
	return localPoints(ctx, ranks(engineArg, 2*pairs, req.Fabric, "RMA_MODE="+req.Plans[0].Mode), req, stderr, emit)
}

// engineChild returns the entry of Children that runs run with an engine.
func engineChild[Q, R any](run func(context.Context, *rma.Engine, Q, func(R) error) error) func(context.Context, io.Reader, io.Writer) (bool, error) {
	return func(ctx context.Context, in io.Reader, out io.Writer) (shows bool, err error) {
		var req Q
		return withEngine(ctx, in, &req, func(eng *rma.Engine) error { return run(ctx, eng, req, lineTo[R](out)) })
	}
}

// hosted is a request for ranks that count as those of different hosts although they are on one.
type hosted interface{ HostOf(rank int) string }

// withEngine reads the request and calls run with an engine. It samples the link again into
// a temporary directory: the user's saved profiles may come from a busier time, and are left
// unchanged. Each rank reports its own error: a rank that fails ends the others.
func withEngine(ctx context.Context, in io.Reader, req any, run func(*rma.Engine) error) (shows bool, err error) {
	cfg, err := jobenv.FromEnv()
	if err != nil {
		return true, err
	}
	if err := childRequest(in, req); err != nil {
		return true, err
	}
	dir, err := tempdir.New("", "rmabench-")
	if err != nil {
		return true, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	c := &rma.Config{Sampling: "force", SamplingBudget: engineSampling, Profiles: dir.Path}
	if h, ok := req.(hosted); ok && h.HostOf(cfg.Rank) != "" {
		c.Settings, c.Bind = map[string]string{"host": h.HostOf(cfg.Rank)}, netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	eng, err := rma.Open(ctx, c)
	if err != nil {
		return cfg.Rank == 0, err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	return true, run(eng)
}
