package session

import (
	"context"
	"encoding/json"
	"io"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/bench/collective"
)

// CollectiveArg is ChildArg for CollectiveLocal; the program must call CollectiveChild then.
const CollectiveArg = "collective-rank"

// CollectiveLocal measures collective operations among processes that it starts on this host.
func CollectiveLocal(ctx context.Context, req collective.Request, stderr io.Writer, emit func(collective.Result) error) error {
	return collectiveLocal(ctx, req, stderr, func(r *collective.Result) bool { return r.Op != "" }, emit)
}

// CollectiveChoiceLocal compares the algorithms of collective operations among processes that
// it starts on this host.
func CollectiveChoiceLocal(ctx context.Context, req collective.Request, stderr io.Writer, emit func(collective.ChoiceResult) error) error {
	req.Choice = true
	return collectiveLocal(ctx, req, stderr, func(r *collective.ChoiceResult) bool { return r.Chosen != "" }, emit)
}

func collectiveLocal[T any](ctx context.Context, req collective.Request, stderr io.Writer, is func(*T) bool, emit func(T) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	return localResults(ctx, ranks(CollectiveArg, req.Ranks, req.Fabric), req, stderr, req.Cells(), is, emit)
}

// CollectiveChild is the main function of a program started with CollectiveArg.
func CollectiveChild(ctx context.Context, in io.Reader, out io.Writer) (shows bool, err error) {
	var req collective.Request
	return engineChild(ctx, in, &req, func(eng *rma.Engine) error {
		enc := json.NewEncoder(out)
		return collective.Run(ctx, eng, req, collective.Emit{
			Latency: func(r collective.Result) error { return enc.Encode(r) },
			Choice:  func(r collective.ChoiceResult) error { return enc.Encode(r) },
		})
	})
}
