package rma

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bulk"
	"github.com/seed33544411/rma/sampling"
)

// linkExtra is what the rank that measures a link publishes beside its figures.
type linkExtra struct {
	Class  sampling.Class `json:"class"`            // of the pair that measured
	Copies *foundCopies   `json:"copies,omitempty"` // of links that copy with the processor
}

// foundCopies says from which sizes on large blocks are copied in which way.
type foundCopies struct {
	Plan   bulk.Plan `json:"plan"`
	Source string    `json:"source"`
}

// parseExtra reads what another rank has published.
func parseExtra(b []byte) (x linkExtra, err error) {
	if err := json.Unmarshal(b, &x); err != nil {
		return linkExtra{}, fmt.Errorf("beside the figures: %w", err)
	}
	if c := x.Copies; c != nil && (c.Plan.Stream < bulk.MinStream || c.Plan.String < bulk.MinString || len(c.Source) > 32) {
		return linkExtra{}, fmt.Errorf("beside the figures: copies %+v", *c)
	}
	return x, nil
}

// findCopies loads or measures how large blocks are copied to a peer of that class;
// nil for links that do not copy, or have it from the user. One rank of a host does
// so for all while they wait: two that measure at once would measure each other.
func (e *Engine) findCopies(link int, mode sampling.Mode, class sampling.Class) *foundCopies {
	t, ok := e.links[link].(fabric.CopyTuner)
	if !ok || t.Copies().Source == "forced" {
		return nil
	}
	store, _ := e.profile(link)
	m, source, err := sampling.Copies(store, class, mode, min(sampling.CopiesBudget, e.cfg.SamplingBudget/2))
	if err != nil {
		e.cfg.Logger.Warn("rma: copies", "source", source, "err", err)
	}
	return &foundCopies{m.Plan, source}
}

// useCopies tells the link what was found.
func (e *Engine) useCopies(link int, x linkExtra) {
	t, ok := e.links[link].(fabric.CopyTuner)
	if !ok || x.Copies == nil {
		return
	}
	t.SetCopies(x.Copies.Plan, x.Copies.Source)
	c := t.Copies()
	e.cfg.Logger.Debug("rma: copies", "link", e.links[link].Name(), "class", x.Class, "source", c.Source,
		"string", c.Plan.String, "stream", c.Plan.Stream, "kernel", c.Kernel, "cache", c.Cache, "users", c.Users)
}

// hearCopies is for the rank that measured together with the one that publishes.
func (e *Engine) hearCopies(ctx context.Context, link, from int, topic string) error {
	if _, ok := e.links[link].(fabric.CopyTuner); !ok {
		return nil
	}
	b, err := e.job.Get(ctx, from, topic)
	if err != nil {
		return err
	}
	// No figures: the measurement has failed there, which the log has said.
	if extra, err := new(linkParams).parse(b); err == nil {
		e.useCopies(link, extra)
	}
	return nil
}
