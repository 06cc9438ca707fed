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

// railsChild is the child of RailsLocal.
func railsChild(ctx context.Context, in io.Reader, out io.Writer) (shows bool, err error) {
	var req bench.RailsRequest
	if err := childRequest(in, &req); err != nil {
		return true, err
	}
	return inJob(ctx, func(ctx context.Context, job *wireup.Job, _ links.Options) error {
		return bench.MeasureRails(ctx, bench.NewControl(job, job.Rank()), req, lineTo[bench.RailsResult](out))
	})
}
