package session

import (
	"context"
	"io"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/wireup"
)

// StartupLocal measures starts of engines between two processes that it starts
// on this host.
func StartupLocal(ctx context.Context, req bench.StartupRequest, stderr io.Writer) (res *bench.Startup, err error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	return localResult(ctx, startupArg, req, stderr, func(r *bench.Startup) bool { return r.Fabric != "" })
}

// startupRank is a rank of StartupLocal.
func startupRank(ctx context.Context, req bench.StartupRequest, emit func(*bench.Startup) error) (shows bool, err error) {
	return inJob(ctx, func(ctx context.Context, job *wireup.Job, _ links.Options) error {
		res, err := bench.MeasureStartup(ctx, bench.NewControl(job, job.Rank()), req)
		if err == nil && res != nil {
			err = emit(res)
		}
		return err
	})
}
