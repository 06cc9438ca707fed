package main

import (
	"context"
	"errors"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/session"
)

// runStartup is plogp --startup: it measures how much a saved profile adds to an engine's start.
func (f *plogpFlags) runStartup(ctx context.Context, s streams, budgeted bool) error {
	req := bench.StartupRequest{Fabric: f.fabric, Rounds: f.rounds}
	if budgeted {
		req.Budget = f.budget
	}
	switch {
	case f.connect != "":
		return usage(errors.New("--startup starts its ranks itself, on this host: not with --connect"))
	case f.compare || f.save || f.format == "html" || f.fabric == "none":
		return usage(errors.New("--startup stands alone: with a fabric, --rounds, --budget, --format table or json, --out"))
	case f.rounds <= 0:
		return usage(errors.New("--rounds: want a positive value"))
	}
	if err := errors.Join(outside("--startup"), req.Check()); err != nil {
		return usage(err)
	}
	res, err := session.StartupLocal(ctx, req, s.err)
	if err != nil {
		return err
	}
	return f.writeOne(s, res, res.WriteText)
}
