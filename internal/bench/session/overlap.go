package session

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/bench/overlap"
	"github.com/seed33544411/rma/internal/jobenv"
	"github.com/seed33544411/rma/internal/launch"
	"github.com/seed33544411/rma/internal/links"
)

// OverlapArg is ChildArg for OverlapLocal; the program must call OverlapChild then.
const OverlapArg = "computing-rank"

// OverlapLocal measures communication during computation between two processes that it starts
// on this host. The ranks are not pinned: the link may use an idle processor.
func OverlapLocal(ctx context.Context, req overlap.Request, stderr io.Writer, emit func(overlap.Result) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	spec := launch.Spec{N: 2, Args: []string{OverlapArg}}
	if req.Fabric != "" && req.Fabric != "auto" {
		spec.Env = append(spec.Env, links.EnvFabric+"="+req.Fabric)
	}
	n := 0
	err := localRanks(ctx, spec, req, stderr, func(b []byte) (bool, error) {
		var r overlap.Result
		if json.Unmarshal(b, &r) != nil || r.What != req.What {
			return false, nil //nolint:nilerr // a line that is no result is passed on
		}
		n++
		return true, emit(r)
	})
	if err == nil && n == 0 {
		err = errors.New("no result arrived")
	}
	return err
}

// OverlapInJob is OverlapLocal for the two ranks of the job that the environment describes.
func OverlapInJob(ctx context.Context, req overlap.Request, emit func(overlap.Result) error) (shows bool, err error) {
	cfg, err := jobenv.FromEnv()
	if err != nil {
		return true, err
	}
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return cfg.Rank == 0, err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	return cfg.Rank == 0, overlap.Run(ctx, eng, req, emit)
}

// OverlapChild is the main function of a program started with OverlapArg.
func OverlapChild(ctx context.Context, in io.Reader, out io.Writer) (shows bool, err error) {
	var req overlap.Request
	return engineChild(ctx, in, &req, func(eng *rma.Engine) error {
		enc := json.NewEncoder(out)
		return overlap.Run(ctx, eng, req, func(r overlap.Result) error { return enc.Encode(r) })
	})
}
