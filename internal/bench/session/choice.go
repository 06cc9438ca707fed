package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/wireup"
)

// ChoiceArg is ChildArg for ChoiceLocal, ExplainLocal, AblateLocal and
// CurvesLocal; the program must call
// ChoiceChild then.
const ChoiceArg = "comparing-rank"

// ChoiceLocal compares modes between two processes that it starts on this host.
func ChoiceLocal(ctx context.Context, req choice.Request, stderr io.Writer, emit func(choice.Result) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	n := 0
	err := local(ctx, ChoiceArg, req, stderr, func(b []byte) (bool, error) {
		var r choice.Result
		if json.Unmarshal(b, &r) != nil || r.Fabric == "" {
			return false, nil //nolint:nilerr // a line that is no result is passed on
		}
		n++
		return true, emit(r)
	})
	if err == nil && n != len(req.Cells()) && req.Budget == 0 {
		err = fmt.Errorf("%d results arrived, want %d", n, len(req.Cells()))
	}
	return err
}

// ExplainLocal explains a batch between two processes that it starts.
func ExplainLocal(ctx context.Context, req choice.Request, stderr io.Writer) (x *choice.Explanation, err error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	err = local(ctx, ChoiceArg, req, stderr, func(b []byte) (bool, error) {
		var y choice.Explanation
		if json.Unmarshal(b, &y) != nil || y.Fabric == "" {
			return false, nil //nolint:nilerr // a line that is no result is passed on
		}
		x = &y
		return true, nil
	})
	if err == nil && x == nil {
		err = errors.New("no explanation arrived")
	}
	return x, err
}

// AblateLocal measures design choices between two processes that it starts.
func AblateLocal(ctx context.Context, req choice.Request, stderr io.Writer, emit func(choice.Ablation) error) error {
	req.Ablate = true
	if err := req.Check(); err != nil {
		return err
	}
	n := 0
	err := local(ctx, ChoiceArg, req, stderr, func(b []byte) (bool, error) {
		var a choice.Ablation
		if json.Unmarshal(b, &a) != nil || a.Study == "" {
			return false, nil //nolint:nilerr // a line that is no result is passed on
		}
		n++
		return true, emit(a)
	})
	if err == nil && n != choice.AblationRows() {
		err = fmt.Errorf("%d results arrived, want %d", n, choice.AblationRows())
	}
	return err
}

// CurvesLocal measures curves between two processes that it starts.
func CurvesLocal(ctx context.Context, req choice.Request, stderr io.Writer, emit func(choice.Curve) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	n := 0
	err := local(ctx, ChoiceArg, req, stderr, func(b []byte) (bool, error) {
		var c choice.Curve
		if json.Unmarshal(b, &c) != nil || len(c.Points) == 0 {
			return false, nil //nolint:nilerr // a line that is no result is passed on
		}
		n++
		return true, emit(c)
	})
	if err == nil && n != len(req.Curves) {
		err = fmt.Errorf("%d curves arrived, want %d", n, len(req.Curves))
	}
	return err
}

// ChoiceChild is what a program started with ChoiceArg does.
func ChoiceChild(ctx context.Context, in io.Reader, out io.Writer) (shows bool, err error) {
	var req choice.Request
	if err := childRequest(in, &req); err != nil {
		return true, err
	}
	enc := json.NewEncoder(out)
	return ChoiceInJob(ctx, req, choice.Emit{
		Cell:     func(r choice.Result) error { return enc.Encode(r) },
		Explain:  func(x choice.Explanation) error { return enc.Encode(x) },
		Ablation: func(a choice.Ablation) error { return enc.Encode(a) },
		Curve:    func(c choice.Curve) error { return enc.Encode(c) },
	})
}

// ChoiceInJob does what the request asks for in the job that the environment
// describes, between its ranks 0 and 1.
func ChoiceInJob(ctx context.Context, req choice.Request, emit choice.Emit) (shows bool, err error) {
	return inJob(ctx, func(ctx context.Context, job *wireup.Job, o links.Options) error {
		return choiceBetween(ctx, job, o, req, emit)
	})
}

// choiceBetween does it between ranks 0 and 1 of a job.
func choiceBetween(ctx context.Context, job *wireup.Job, o links.Options, req choice.Request, emit choice.Emit) error {
	return between(ctx, job, o, &req.Fabric, func(ctx context.Context, ctl bench.Control, open bench.Opener) error {
		return choice.Run(ctx, ctl, open, req, emit)
	})
}
