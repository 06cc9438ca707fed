package session

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/jobenv"
	"github.com/seed33544411/rma/internal/launch"
	"github.com/seed33544411/rma/internal/links"
)

// EngineArg is ChildArg for EngineLocal; the program must call EngineChild then.
const EngineArg = "engine-rank"

// engineSampling is what an engine may spend on sampling before it measures: its
// own default, for a start, is less.
const engineSampling = 200 * time.Millisecond

// EngineLocal measures through package rma between pairs of processes that it
// starts on this host. The engine's mode is that of the first plan.
func EngineLocal(ctx context.Context, req bench.Request, pairs int, stderr io.Writer, emit Emit) error {
	if err := req.CheckEngine(); err != nil {
		return err
	}
	spec := launch.Spec{N: 2 * pairs, Args: []string{EngineArg}, Env: []string{"RMA_MODE=" + req.Plans[0].Mode}}
	if req.Fabric != "" && req.Fabric != "auto" {
		spec.Env = append(spec.Env, links.EnvFabric+"="+req.Fabric)
	}
	return localPoints(ctx, spec, req, stderr, emit)
}

// EngineChild is what a program started with EngineArg does.
func EngineChild(ctx context.Context, in io.Reader, out io.Writer) (shows bool, err error) {
	var req bench.Request
	return engineChild(ctx, in, &req, func(eng *rma.Engine) error {
		w, err := bench.NewWriter(out, "json")
		if err != nil {
			return err
		}
		return bench.RunEngine(ctx, eng, req, w.Write)
	})
}

// engineChild reads the request and runs the part of a rank with its engine. The model's
// figures are sampled anew, into a folder that is removed: those that the user has saved
// may be of a busier time, and are not touched. Each rank reports its errors: a rank that
// fails ends the others.
func engineChild(ctx context.Context, in io.Reader, req any, run func(*rma.Engine) error) (shows bool, err error) {
	cfg, err := jobenv.FromEnv()
	if err != nil {
		return true, err
	}
	if err := childRequest(in, req); err != nil {
		return true, err
	}
	dir, err := os.MkdirTemp("", "rmabench-")
	if err != nil {
		return true, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	eng, err := rma.Open(ctx, &rma.Config{Sampling: "force", SamplingBudget: engineSampling, Profiles: dir})
	if err != nil {
		return cfg.Rank == 0, err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	return true, run(eng)
}
