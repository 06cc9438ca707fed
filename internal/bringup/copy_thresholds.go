package bringup

import (
	"context"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bulk"
	"github.com/seed33544411/rma/sampling"
)

// copyThresholds are the sizes from which each method of copying large blocks is used.
type copyThresholds struct {
	Plan   bulk.Plan `json:"plan"`
	Source string    `json:"source"`
}

// validate checks the thresholds that another rank has published; nil is valid.
func (c *copyThresholds) validate() error {
	if c != nil && (c.Plan.Stream < bulk.MinStream || c.Plan.String < bulk.MinString || len(c.Source) > 32) {
		return fmt.Errorf("copies %+v", *c)
	}
	return nil
}

// findCopies loads or measures the thresholds for copies to a peer of that class; nil for
// links that do not copy, or whose thresholds the user has set. One rank of a host does so
// for all while the others wait: two that measure at once would disturb each other.
func (l *Links) findCopies(link int, class sampling.Class) *copyThresholds {
	t, ok := l.open[link].(fabric.CopyTuner)
	if !ok || t.Copies().Source == "forced" {
		return nil
	}
	store, _ := l.Profile(link, class)
	m, source, err := sampling.Copies(store, class, l.Sampling, min(sampling.CopiesBudget, l.Budget/2))
	if err != nil {
		l.Log.Warn("rma: copy thresholds not measured", "source", source, "err", err)
	}
	return &copyThresholds{m.Plan, source}
}

// useCopies passes the thresholds found by a pair of that class to the link.
func (l *Links) useCopies(link int, found *copyThresholds, class sampling.Class) {
	t, ok := l.open[link].(fabric.CopyTuner)
	if !ok || found == nil {
		return
	}
	t.SetCopies(found.Plan, found.Source)
	c := t.Copies()
	l.Log.Debug("rma: copy thresholds", "link", l.open[link].Name(), "class", class, "source", c.Source,
		"string", c.Plan.String, "stream", c.Plan.Stream, "kernel", c.Kernel, "cache", c.Cache, "users", c.Users)
}

// hearCopies gets the thresholds on the rank that has measured together with the publishing
// one.
func (l *Links) hearCopies(ctx context.Context, link, from int, topic string) error {
	if _, ok := l.open[link].(fabric.CopyTuner); !ok {
		return nil
	}
	b, err := l.job.Get(ctx, from, topic)
	if err != nil {
		return err
	}
	// No figures: the measurement has failed there, and this was logged.
	if p, err := parsePublished(b); err == nil {
		l.useCopies(link, p.Copies, p.Class)
	}
	return nil
}
