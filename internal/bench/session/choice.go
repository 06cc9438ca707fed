package session

import (
	"context"
	"encoding/json"
	"io"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/wireup"
)

// ChoiceArg is ChildArg for ChoiceLocal, PiecesLocal, ExplainLocal, AblateLocal and
// CurvesLocal; the program must call ChoiceChild then.
const ChoiceArg = "comparing-rank"

// choiceLocal executes the request between two processes that it starts on this host. Lines
// of their output that is accepts as results go to emit; want is the expected number of
// results, 0 if unknown.
func choiceLocal[T any](ctx context.Context, req choice.Request, stderr io.Writer, want int, is func(*T) bool, emit func(T) error) error {
	return localResults(ctx, ranks(ChoiceArg, 2, ""), req, stderr, want, is, emit)
}

// cells returns the number of cells, 0 if the budget decides it.
func cells(req *choice.Request) int {
	if req.Budget > 0 {
		return 0
	}
	return len(req.Cells())
}

// ChoiceLocal compares modes between two processes that it starts on this host.
func ChoiceLocal(ctx context.Context, req choice.Request, stderr io.Writer, emit func(choice.Result) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	return choiceLocal(ctx, req, stderr, cells(&req), func(r *choice.Result) bool { return r.Fabric != "" }, emit)
}

// PiecesLocal compares ways of puts or gets of pieces between two processes that it starts.
func PiecesLocal(ctx context.Context, req choice.Request, stderr io.Writer, emit func(choice.PiecesResult) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	return choiceLocal(ctx, req, stderr, cells(&req), func(r *choice.PiecesResult) bool { return r.Op != "" }, emit)
}

// ExplainLocal explains a batch between two processes that it starts.
func ExplainLocal(ctx context.Context, req choice.Request, stderr io.Writer) (x *choice.Explanation, err error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	err = choiceLocal(ctx, req, stderr, 1, func(y *choice.Explanation) bool { return y.Fabric != "" }, func(y choice.Explanation) error {
		x = &y
		return nil
	})
	return x, err
}

// AblateLocal measures design choices between two processes that it starts.
func AblateLocal(ctx context.Context, req choice.Request, stderr io.Writer, emit func(choice.Ablation) error) error {
	req.Ablate = true
	if err := req.Check(); err != nil {
		return err
	}
	return choiceLocal(ctx, req, stderr, choice.AblationRows(), func(a *choice.Ablation) bool { return a.Study != "" }, emit)
}

// CurvesLocal measures curves between two processes that it starts.
func CurvesLocal(ctx context.Context, req choice.Request, stderr io.Writer, emit func(choice.Curve) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	return choiceLocal(ctx, req, stderr, len(req.Curves), func(c *choice.Curve) bool { return len(c.Points) > 0 }, emit)
}

// ChoiceChild is the main function of a program started with ChoiceArg.
func ChoiceChild(ctx context.Context, in io.Reader, out io.Writer) (shows bool, err error) {
	var req choice.Request
	if err := childRequest(in, &req); err != nil {
		return true, err
	}
	enc := json.NewEncoder(out)
	return ChoiceInJob(ctx, req, choice.Emit{
		Cell:     func(r choice.Result) error { return enc.Encode(r) },
		Pieces:   func(r choice.PiecesResult) error { return enc.Encode(r) },
		Explain:  func(x choice.Explanation) error { return enc.Encode(x) },
		Ablation: func(a choice.Ablation) error { return enc.Encode(a) },
		Curve:    func(c choice.Curve) error { return enc.Encode(c) },
	})
}

// ChoiceInJob executes the request between ranks 0 and 1 of the job that the environment
// describes.
func ChoiceInJob(ctx context.Context, req choice.Request, emit choice.Emit) (shows bool, err error) {
	return inJob(ctx, func(ctx context.Context, job *wireup.Job, o links.Options) error {
		return choiceBetween(ctx, job, o, req, emit)
	})
}

// choiceBetween executes the request between ranks 0 and 1 of a job.
func choiceBetween(ctx context.Context, job *wireup.Job, o links.Options, req choice.Request, emit choice.Emit) error {
	return between(ctx, job, o, &req.Fabric, func(ctx context.Context, ctl bench.Control, open bench.Opener) error {
		return choice.Run(ctx, ctl, open, req, emit)
	})
}
