package session

import (
	"context"
	"io"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/bench/collective"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/topo"
)

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
	spec := ranks(collectiveArg, req.Ranks, req.Fabric)
	if req.Copies {
		spec.Env = append(spec.Env, links.EnvDisableCMA+"=1")
	}
	if spec.BindProgress = placed; placed {
		req.Bind = topo.Scatter
	}
	spec.Bind = req.Bound()
	want := req.Cells()
	if req.NBC {
		want *= req.Rounds
	}
	return localResults(ctx, spec, req, stderr, want, is, emit)
}

// collectiveChild is the child of CollectiveLocal and the others.
func collectiveChild(ctx context.Context, in io.Reader, out io.Writer) (shows bool, err error) {
	var req collective.Request
	return withEngine(ctx, in, &req, func(eng *rma.Engine) error {
		return collective.Run(ctx, eng, req, collective.Emit{
			Latency: lineTo[collective.Result](out), Choice: lineTo[collective.ChoiceResult](out), Hidden: lineTo[collective.Hidden](out),
		})
	})
}
