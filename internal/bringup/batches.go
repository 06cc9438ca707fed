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
	// curveShare is the part of Config.Budget that single operations get;
	// batches have what is left of it then. Without curves a fit has nothing to
	// stand on: on links of a microsecond they need less, on slow ones all of it.
	curveShare = 0.6

	// batchID marks the endpoints that batches are played over. It is above all ranks.
	batchID = 1 << 30

	// batchStall ends a wait for a peer that plays no more.
	batchStall = 5 * time.Second
)

// playBatches plays batches with the peer, with what the budget has left, and adds what
// they say to res. It takes a connection of its own, which ends with it: nothing
// that is late or wrong can touch memory of the next one. Where only the fit fails,
// on either side, res stays as it is on both. Both sides call it.
func (m *measurement) playBatches(ctx context.Context, res *sampling.Result) error {
	m.Batches++
	l, own := m.link, m.own
	ep, err := links.Connect(ctx, m.job, l, m.peer, links.ConnectOptions{
		EndpointOptions: fabric.EndpointOptions{ID: uint32(batchID | m.peer), Depth: m.Depth, PeerTimeout: m.PeerTimeout},
		Tag:             "fit" + m.suffix, Own: own,
	})
	if err != nil {
		return err // the peer waits for this one, and cannot be told in another way
	}
	side, failed := pingpong.Open(l, ep, pingpong.Options{
		First: m.first, Span: pingpong.CalibrationSpan, Stall: batchStall, EP: uint32(batchID | m.peer), Other: m.others,
		MaxBytes: int64((1 - curveShare) * float64(m.bytes)), Wait: m.wait(),
		Channel: message.Options{IDTag: 1, Ring: eager.Options{Depth: m.Depth}, Params: &res.Both},
	})
	var setup []byte
	if failed == nil {
		setup = side.Setup()
		defer own(func() {
			if err := side.Close(); err != nil {
				m.Log.Warn("rma: close of a measurement", "link", l.Name(), "err", err)
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
		failed = side.Connect(b) // of nothing where the peer has failed
	}
	p, out := res.Both, (*pingpong.Outcome)(nil)
	if failed == nil {
		left := max(m.budget-res.Spent(), time.Millisecond)
		own(func() { p, out, failed = side.Calibrate(ctx, p, left) })
		if out != nil {
			m.moved += out.Bytes
		}
	}
	// Nobody leaves before the other is through.
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
	// A wait for a batch of a peer that is far away yields so often before it naps.
	yieldsBeforeNap = 64
	batchNap        = 100 * time.Microsecond
)

// wait is what a fruitless look does that waits for a batch.
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
