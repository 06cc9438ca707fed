package session

import (
	"context"
	"io"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
)

// ChoiceLocal executes the request between two processes that it starts on this host.
func ChoiceLocal(ctx context.Context, req choice.Request, stderr io.Writer, emit choice.Emit) error {
	if err := req.Check(); err != nil {
		return err
	}
	spec := ranks(choiceArg, 2, "")
	cells := len(req.Cells())
	if req.Budget > 0 { // which decides how many are measured
		cells = 0
	}
	switch {
	case req.Ablate:
		return localResults(ctx, spec, req, stderr, choice.AblationRows(), func(a *choice.Ablation) bool { return a.Study != "" }, emit.Ablation)
	case len(req.Curves) > 0:
		return localResults(ctx, spec, req, stderr, len(req.Curves), func(c *choice.Curve) bool { return len(c.Points) > 0 }, emit.Curve)
	case len(req.Batch) > 0:
		return localResults(ctx, spec, req, stderr, 1, func(x *choice.Explanation) bool { return x.Fabric != "" }, emit.Explain)
	case req.Pieces():
		return localResults(ctx, spec, req, stderr, cells, func(r *choice.PiecesResult) bool { return r.Op != "" }, emit.Pieces)
	}
	return localResults(ctx, spec, req, stderr, cells, func(r *choice.Result) bool { return r.Fabric != "" }, emit.Cell)
}

// choiceChild is the child of ChoiceLocal.
func choiceChild(ctx context.Context, in io.Reader, out io.Writer) (shows bool, err error) {
	var req choice.Request
	if err := childRequest(in, &req); err != nil {
		return true, err
	}
	return ChoiceInJob(ctx, req, choice.Emit{
		Cell: lineTo[choice.Result](out), Pieces: lineTo[choice.PiecesResult](out), Explain: lineTo[choice.Explanation](out),
		Ablation: lineTo[choice.Ablation](out), Curve: lineTo[choice.Curve](out),
	})
}

// ChoiceInJob executes the request between ranks 0 and 1 of the job that the environment
// describes.
func ChoiceInJob(ctx context.Context, req choice.Request, emit choice.Emit) (shows bool, err error) {
	return inJob(ctx, choices(req, emit))
}

// choices is choice.Run in a job.
func choices(req choice.Request, emit choice.Emit) part {
	return between(&req.Fabric, func(ctx context.Context, ctl bench.Control, open bench.Opener) error {
		return choice.Run(ctx, ctl, open, req, emit)
	})
}
