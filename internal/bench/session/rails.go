package session

import (
	"context"
	"io"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/wireup"
)

// RailsLocal measures puts and gets over several links between two processes that it starts on
// this host.
func RailsLocal(ctx context.Context, req bench.RailsRequest, stderr io.Writer, emit func(bench.RailsResult) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	spec := ranks(railsArg, 2, "", links.EnvRails+"=", links.EnvBind+"=", links.EnvDevice+"=") // the request names the links
	return localResults(ctx, spec, req, stderr, len(req.Ops)*len(req.Sizes), func(r *bench.RailsResult) bool { return r.What == bench.RailsWhat }, emit)
}

// railsRank is a rank of RailsLocal.
func railsRank(ctx context.Context, req bench.RailsRequest, emit func(bench.RailsResult) error) (shows bool, err error) {
	return inJob(ctx, func(ctx context.Context, job *wireup.Job, _ links.Options) error {
		return bench.MeasureRails(ctx, bench.NewControl(job, job.Rank()), req, emit)
	})
}
