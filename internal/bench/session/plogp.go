package session

import (
	"context"
	"io"

	"github.com/seed33544411/rma/internal/bench"
)

// plogpInput is the request to a child, including the fields that are not sent to
// rank 1.
type plogpInput struct {
	bench.PlogpRequest
	Profiles string `json:"profiles"`
	Save     bool   `json:"save"`
	Device   string `json:"device"`
}

// PlogpLocal samples the link between two processes that it starts on this host.
func PlogpLocal(ctx context.Context, req bench.PlogpRequest, stderr io.Writer) (res *bench.PlogpResult, err error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	in := plogpInput{PlogpRequest: req, Profiles: req.Profiles, Save: req.Save, Device: req.Device}
	return localResult(ctx, plogpArg, in, stderr, func(r *bench.PlogpResult) bool { return r.Fabric != "" })
}

// plogpRank is a rank of PlogpLocal.
func plogpRank(ctx context.Context, in plogpInput, emit func(*bench.PlogpResult) error) (shows bool, err error) {
	req := in.PlogpRequest
	req.Profiles, req.Save, req.Device = in.Profiles, in.Save, in.Device
	res, shows, err := PlogpInJob(ctx, req)
	if err == nil && res != nil {
		err = emit(res)
	}
	return shows, err
}

// PlogpInJob samples the link between ranks 0 and 1 of the job that the environment
// describes. Rank 0 gets the result, the others nil.
func PlogpInJob(ctx context.Context, req bench.PlogpRequest) (res *bench.PlogpResult, shows bool, err error) {
	shows, err = inJob(ctx, plogp(req, &res))
	return res, shows, err
}

// plogp is bench.Plogp in a job; rank 0 gets the result.
func plogp(req bench.PlogpRequest, res **bench.PlogpResult) part {
	return between(&req.Fabric, func(ctx context.Context, ctl bench.Control, open bench.Opener) (err error) {
		*res, err = bench.Plogp(ctx, ctl, open, req)
		return err
	})
}
