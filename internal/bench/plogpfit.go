package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/pingpong"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// maxCalibrate bounds PlogpRequest.Calibrate.
const maxCalibrate = time.Minute

// fitTag is the first request tag of the channel that plays the batches.
const fitTag = 16

// fitBatches plays whole batches for req.Calibrate and adds the fitted parameters to
// the tables, as an engine does at its first start. It closes the endpoint.
func fitBatches(ctx context.Context, ctl Control, conn Conn, req PlogpRequest, r *sampling.Result) (err error) {
	side, err := pingpong.Open(ctx, conn.Link, conn.EP, pingpong.Options{
		First: ctl.Rank() == 0, Span: pingpong.CalibrationSpan, Stall: DefaultStall, Wait: Waiter(req.Pin),
		Channel: message.Options{IDTag: fitTag, Params: &r.Both},
	})
	if side != nil {
		defer func() { err = errors.Join(err, side.Close()) }()
	}
	if err = agree(ctx, ctl, wrap("open the channel", err)); err != nil {
		return err
	}
	theirs, err := ctl.Exchange(ctx, side.Setup())
	if err == nil {
		err = side.Connect(theirs)
	}
	if err = agree(ctx, ctl, wrap("connect the channel", err)); err != nil {
		return err
	}
	p, out, err := side.Calibrate(ctx, r.Both, req.Calibrate)
	// The other side may still need polls by this one.
	_, e := side.Exchange(ctx, func(ctx context.Context) ([]byte, error) {
		return nil, agree(ctx, ctl, wrap("calibrate", err))
	})
	if err = errors.Join(err, e); err == nil {
		r.SetExtra(p.Extra, sampling.Fit{Probes: out.Probes, Error: out.Error})
	}
	return err
}

// writeFit writes the parameters fitted to batches.
func (r *PlogpResult) writeFit(b io.Writer) {
	t := &r.Tables
	fmt.Fprintf(b, "\nbeyond that, fitted to %d batches, ns:\n%-10s %10s %10s %10s %10s %10s %18s\n",
		t.Fit.Probes, "", "a plan", "operation", "message", "byte", "first 8K", "error of others")
	for m, e := range t.Both.Extra {
		fmt.Fprintf(b, "%-10v %10.0f %10.0f %10.0f %10.4f %10.4f %16.0f %%\n", logp.Mode(m), e.Fixed, e.PerOp, e.PerMessage, e.PerByte, e.PerFirst, 100*t.Fit.Error[m])
	}
}
