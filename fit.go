package rma

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/pingpong"
	"github.com/seed33544411/rma/sampling"
)

const (
	// curveShare is the part of Config.SamplingBudget that single operations get;
	// batches have what is left of it then. Without curves a fit has nothing to
	// stand on: on links of a microsecond they need less, on slow ones all of it.
	curveShare = 0.6

	// fitID marks the endpoints that batches are played over. It is above all ranks.
	fitID = 1 << 30

	// fitStall ends a wait for a peer that plays no more.
	fitStall = 5 * time.Second
)

// fit plays batches with the peer, with what the budget has left, and adds what
// they say to res. It takes a connection of its own, which ends with it: nothing
// that is late or wrong can touch memory of the next one. Where only the fit fails,
// on either side, res stays as it is on both. Both sides call it.
func (e *Engine) fit(ctx context.Context, link, peer int, first bool, res *sampling.Result) error {
	e.fits++
	l := e.links[link]
	topic := "fit/" + l.Name() + "/"
	ep, err := links.Connect(ctx, e.job, l, peer, links.ConnectOptions{
		EndpointOptions: fabric.EndpointOptions{ID: uint32(fitID | peer), Depth: e.cfg.Depth, PeerTimeout: e.cfg.PeerTimeout},
		Tag:             "fit", Own: e.prog.Do,
	})
	if err != nil {
		return err // the peer waits for this one, and cannot be told in another way
	}
	side, failed := pingpong.Open(l, ep, pingpong.Options{
		First: first, Span: pingpong.CalibrationSpan, Stall: fitStall, EP: uint32(fitID | peer), Other: e.others(link),
		Channel: message.Options{IDTag: talkTag, Ring: eager.Options{Depth: e.cfg.Depth}, Params: &res.Both},
	})
	var setup []byte
	if failed == nil {
		setup = side.Setup()
		defer e.prog.Do(func() {
			if err := side.Close(); err != nil {
				e.cfg.Logger.Warn("rma: close of a measurement", "link", l.Name(), "err", err)
			}
		})
	} else {
		defer e.prog.Do(func() { _ = ep.Close() })
	}
	b, err := e.swap(ctx, peer, topic+"setup/", setup)
	if err != nil {
		return err
	}
	if failed == nil {
		failed = side.Connect(b) // of nothing where the peer has failed
	}
	p, out := res.Both, (*pingpong.Outcome)(nil)
	if failed == nil {
		left := max(time.Duration(float64(e.cfg.SamplingBudget))-res.Spent(), time.Millisecond)
		e.prog.Do(func() { p, out, failed = side.Calibrate(ctx, p, left) })
	}
	// Nobody leaves before the other is through.
	verdict := []byte("ok")
	if failed != nil {
		verdict = []byte(failed.Error())
	}
	if b, err = e.swap(ctx, peer, topic+"verdict/", verdict); err != nil {
		return err
	}
	switch {
	case failed != nil && (ctx.Err() != nil || errors.Is(failed, fabric.ErrPeerGone)):
		return fmt.Errorf("play batches: %w", failed)
	case failed != nil:
		e.cfg.Logger.Warn("rma: link not measured with batches", "link", l.Name(), "err", failed)
	case string(b) == "ok":
		res.SetExtra(p.Extra, sampling.Fit{Probes: out.Probes, Error: out.Error})
	}
	return nil
}
