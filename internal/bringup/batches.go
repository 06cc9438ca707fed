package bringup

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/pingpong"
	"github.com/seed33544411/rma/sampling"
)

const (
	// curveShare is the share of Config.Budget for measuring single operations; batches get
	// the time that is left. A fit to batches needs the curves of single operations: on
	// links of a microsecond these take less than their share, on slow links all of it.
	curveShare = 0.6

	// batchID marks the endpoints that batches are played over. It is above all ranks.
	batchID = 1 << 30

	// batchStall bounds a wait for a peer that has stopped playing.
	batchStall = 5 * time.Second
)

// playBatches plays batches with the peer for the rest of the budget, and adds the fitted
// terms to res. It uses a connection of its own, which it closes: late or wrong requests
// cannot reach the memory of the next one. If only the fit fails, on either side, res is
// unchanged on both. Both sides call it.
func (m *measurement) playBatches(ctx context.Context, res *sampling.Result) error {
	m.Batches++
	l, own := m.link, m.own
	ep, err := links.Connect(ctx, m.job, l, m.peer, links.ConnectOptions{
		EndpointOptions: fabric.EndpointOptions{ID: uint32(batchID | m.peer), Depth: m.Depth, PeerTimeout: m.PeerTimeout},
		Tag:             "fit" + m.suffix, Own: own,
	})
	if err != nil {
		return err // the peer, which waits for this side, cannot be notified without the connection
	}
	side, failed := pingpong.Open(ctx, l, ep, pingpong.Options{
		First: m.first, Span: pingpong.CalibrationSpan, Stall: batchStall, EP: uint32(batchID | m.peer), Other: m.others,
		MaxBytes: int64((1 - curveShare) * float64(m.bytes)), Wait: m.wait(),
		Channel: message.Options{IDTag: 1, Ring: eager.Options{Depth: m.Depth}, Params: &res.Both},
	})
	var setup []byte
	if failed == nil {
		setup = side.Setup()
		defer own(func() {
			if err := side.Close(); err != nil {
				m.Log.Warn("rma: connection of a measurement not closed", "link", l.Name(), "err", err)
			}
		})
	} else {
		defer own(func() { _ = ep.Close() })
	}
	b, err := m.swap(ctx, "fit/setup", setup)
	if err != nil {
		return err
	}
	if failed == nil {
		failed = side.Connect(b) // fails on an empty set-up, if the peer has failed
	}
	p, out := res.Both, (*pingpong.Outcome)(nil)
	if failed == nil {
		left := max(m.budget-res.Spent(), time.Millisecond)
		own(func() { p, out, failed = side.Calibrate(ctx, p, left) })
		if out != nil {
			m.moved += out.Bytes
		}
	}
	// Neither side closes before the other has finished.
	verdict := []byte("ok")
	if failed != nil {
		verdict = []byte(failed.Error())
	}
	if b, err = m.swap(ctx, "fit/verdict", verdict); err != nil {
		return err
	}
	switch {
	case failed != nil && (ctx.Err() != nil || errors.Is(failed, fabric.ErrPeerGone)):
		return fmt.Errorf("play batches: %w", failed)
	case failed != nil:
		m.Log.Warn("rma: link not measured with batches", "link", l.Name(), "err", failed)
	case string(b) == "ok":
		res.SetExtra(p.Extra, sampling.Fit{Probes: out.Probes, Error: out.Error})
	}
	return nil
}

const (
	// On a long path, a wait for a batch yields this many times before it sleeps.
	yieldsBeforeNap = 64
	batchNap        = 100 * time.Microsecond
)

// wait returns the function that a wait for a batch calls after each poll without result;
// nil means the default.
func (m *measurement) wait() func(n int) {
	if !m.naps {
		return nil
	}
	return func(n int) {
		if n > yieldsBeforeNap {
			time.Sleep(batchNap)
		} else {
			runtime.Gosched()
		}
	}
}
