package session

import (
	"context"
	"encoding/json"
	"io"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/bench/collective"
	"github.com/seed33544411/rma/internal/launch"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/topo"
)

// CollectiveArg is ChildArg for CollectiveLocal; the program must call CollectiveChild then.
const CollectiveArg = "collective-rank"

// CollectiveLocal measures collective operations among processes that it starts on this host.
func CollectiveLocal(ctx context.Context, req collective.Request, stderr io.Writer, emit func(collective.Result) error) error {
	return collectiveLocal(ctx, req, stderr, func(r *collective.Result) bool { return r.Op != "" }, emit, false)
}

// CollectiveChoiceLocal compares the algorithms of collective operations among processes that
// it starts on this host.
func CollectiveChoiceLocal(ctx context.Context, req collective.Request, stderr io.Writer, emit func(collective.ChoiceResult) error) error {
	req.Choice = true
	return collectiveLocal(ctx, req, stderr, func(r *collective.ChoiceResult) bool { return r.Chosen != "" }, emit, false)
}

// CollectiveHiddenLocal measures how much of non-blocking operations a computation hides among
// processes that it starts on this host. If they are placed, each is bound to a core, and its
// progress thread to a free core of the same NUMA node, if there is one.
func CollectiveHiddenLocal(ctx context.Context, req collective.Request, placed bool, stderr io.Writer, emit func(collective.Hidden) error) error {
	req.NBC = true
	return collectiveLocal(ctx, req, stderr, func(r *collective.Hidden) bool { return r.What == collective.NBC }, emit, placed)
}

func collectiveLocal[T any](ctx context.Context, req collective.Request, stderr io.Writer, is func(*T) bool, emit func(T) error, placed bool) error {
	if err := req.Check(); err != nil {
		return err
	}
	spec := ranks(CollectiveArg, req.Ranks, req.Fabric)
	if req.Copies {
		spec.Env = append(spec.Env, links.EnvDisableCMA+"=1")
	}
	if placed {
		spec.Bind, _ = launch.Place(topo.Scatter, spec.N)
		spec.BindProgress = true
	}
	want := req.Cells()
	if req.NBC {
		want *= req.Rounds
	}
	return localResults(ctx, spec, req, stderr, want, is, emit)
}

// CollectiveChild is the main function of a program started with CollectiveArg.
func CollectiveChild(ctx context.Context, in io.Reader, out io.Writer) (shows bool, err error) {
	var req collective.Request
	return engineChild(ctx, in, &req, func(eng *rma.Engine) error {
		enc := json.NewEncoder(out)
		return collective.Run(ctx, eng, req, collective.Emit{
			Latency: func(r collective.Result) error { return enc.Encode(r) },
			Choice:  func(r collective.ChoiceResult) error { return enc.Encode(r) },
			Hidden:  func(h collective.Hidden) error { return enc.Encode(h) },
		})
	})
}
