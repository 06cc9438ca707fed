package session

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/wireup"
)

// StartupArg is ChildArg for StartupLocal; the program must call StartupChild
// then.
const StartupArg = "starting-rank"

// StartupLocal measures starts of engines between two processes that it starts
// on this host.
func StartupLocal(ctx context.Context, req bench.StartupRequest, stderr io.Writer) (res *bench.Startup, err error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	err = local(ctx, StartupArg, req, stderr, func(b []byte) (bool, error) {
		var r bench.Startup
		if json.Unmarshal(b, &r) != nil || r.Fabric == "" {
			return false, nil //nolint:nilerr // a line that is no result is passed on
		}
		res = &r
		return true, nil
	})
	if err == nil && res == nil {
		err = errors.New("no result arrived")
	}
	return res, err
}

// StartupChild is the main function of a program started with StartupArg.
func StartupChild(ctx context.Context, in io.Reader, out io.Writer) (shows bool, err error) {
	var req bench.StartupRequest
	if err := childRequest(in, &req); err != nil {
		return true, err
	}
	return inJob(ctx, func(ctx context.Context, job *wireup.Job, _ links.Options) error {
		res, err := bench.MeasureStartup(ctx, bench.NewControl(job, job.Rank()), req)
		if err == nil && res != nil {
			err = json.NewEncoder(out).Encode(res)
		}
		return err
	})
}
