package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/event"
	"github.com/seed33544411/rma/verbs"
)

// Work request IDs.
const (
	recvID = 1
	sendID = 2
)

// pingPong is one side: a queue pair with its memory.
type pingPong struct {
	o      options
	server bool

	ctx *verbs.Context
	ch  *verbs.CompChannel // with o.events
	pd  *verbs.PD
	mr  *verbs.MR
	cq  *verbs.CQ
	qp  *verbs.QP

	gid verbs.GIDChoice
	lid uint16
	psn uint32

	// The server receives into and sends from the same bytes, as
	// ibv_rc_pingpong does, and so echoes; the client keeps the two apart to
	// see what comes back.
	sendBuf, recvBuf []byte
	posted           int // receives
	wcs              [16]verbs.WC
}

func open(o options, server bool) (p *pingPong, err error) {
	p = &pingPong{o: o, server: server}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.ctx, err = verbs.Open(o.device); err != nil {
		return p, err
	}
	port, err := p.ctx.QueryPort(o.ibPort)
	if err != nil {
		return p, err
	}
	if port.State != verbs.PortActive {
		return p, fmt.Errorf("port %d of %s is %v, not active: is its network interface up?", o.ibPort, p.ctx.Name(), port.State)
	}
	p.lid = port.LID
	table, err := p.ctx.GIDs(o.ibPort)
	if err != nil {
		return p, err
	}
	if p.gid, err = verbs.ChooseGID(table, o.gidIndex); err != nil {
		return p, err
	}
	if p.pd, err = p.ctx.AllocPD(); err != nil {
		return p, err
	}

	// Memory of the Go heap, pinned as long as it is registered.
	mem := make([]byte, 2*o.size)
	p.recvBuf, p.sendBuf = mem[:o.size], mem[:o.size]
	if !server {
		p.sendBuf = mem[o.size:]
	}
	// Now: once connected, the server's memory may be the peer's to write.
	for i := range p.sendBuf {
		if p.sendBuf[i] = filler; o.check && i%pageSize == 0 {
			p.sendBuf[i] = 0
		}
	}
	if p.mr, err = p.pd.RegisterPinned(mem, verbs.AccessLocalWrite); err != nil {
		return p, err
	}
	if o.events {
		if p.ch, err = p.ctx.CreateCompChannel(); err != nil {
			return p, err
		}
	}
	if p.cq, err = p.ctx.CreateCQ(o.rxDepth+1, p.ch); err != nil {
		return p, err
	}
	if p.qp, err = p.pd.CreateQP(verbs.QPOptions{SendCQ: p.cq, MaxSendWR: 1, MaxRecvWR: o.rxDepth}); err != nil {
		return p, err
	}
	if err = p.qp.ToInit(o.ibPort, 0, 0); err != nil {
		return p, err
	}
	var r [4]byte
	_, _ = rand.Read(r[:]) // never fails
	p.psn = binary.LittleEndian.Uint32(r[:]) & 0xffffff
	return p, p.postRecv()
}

// close releases everything, children first.
func (p *pingPong) close() error {
	var errs []error
	if p.qp != nil {
		errs = append(errs, p.qp.Close())
	}
	if p.cq != nil {
		errs = append(errs, p.cq.Close())
	}
	if p.ch != nil {
		errs = append(errs, p.ch.Close())
	}
	if p.mr != nil {
		errs = append(errs, p.mr.Close())
	}
	if p.pd != nil {
		errs = append(errs, p.pd.Close())
	}
	if p.ctx != nil {
		errs = append(errs, p.ctx.Close())
	}
	return errors.Join(errs...)
}

func (p *pingPong) dest() dest {
	return dest{LID: p.lid, QPN: p.qp.Num(), PSN: p.psn, GID: p.gid.Chosen.GID}
}

// connect readies the queue pair to receive from and send to the peer.
func (p *pingPong) connect(peer dest) error {
	a := verbs.QPAttr{
		PathMTU:      p.o.mtu,
		DestQPN:      peer.QPN,
		RQPSN:        peer.PSN,
		SQPSN:        p.psn,
		MaxReads:     1,
		MaxReadsDest: 1,
		MinRNRTimer:  12, // 0.64 ms
		Timeout:      14, // 67 ms
		RetryCount:   6,  // 7 would be for ever on some devices: a dead peer must end the run
		RNRRetry:     7,
		AH: verbs.AHAttr{
			Port: uint8(p.o.ibPort), SL: uint8(p.o.sl), DLID: peer.LID,
			Global: !peer.GID.IsZero(), DGID: peer.GID, SGIDIndex: uint8(p.gid.Chosen.Index), HopLimit: 64,
		},
	}
	if err := p.qp.ToRTR(&a); err != nil {
		return err
	}
	return p.qp.ToRTS(&a)
}

// postRecv fills the receive queue up to its depth.
func (p *pingPong) postRecv() error {
	sgl := []verbs.SGE{p.mr.SGE(0, p.o.size)}
	wrs := make([]verbs.RecvWR, p.o.rxDepth-p.posted)
	for i := range wrs {
		wrs[i] = verbs.RecvWR{ID: recvID, SGL: sgl}
	}
	n, err := p.qp.PostRecv(wrs)
	p.posted += n
	if err == nil && n < len(wrs) {
		err = fmt.Errorf("post receives: only %d of %d fit", n, len(wrs))
	}
	return err
}

func (p *pingPong) postSend() error {
	off := 0
	if !p.server {
		off = p.o.size
	}
	n, err := p.qp.PostSend([]verbs.SendWR{{
		ID: sendID, Op: verbs.OpSend, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{p.mr.SGE(off, p.o.size)},
	}})
	if err == nil && n == 0 {
		err = errors.New("post send: queue full with nothing outstanding")
	}
	return err
}

// result is what a run measured.
type result struct {
	iters   int
	bytes   int64
	elapsed time.Duration
	events  int
}

// run exchanges o.iters messages. The queue pair is connected.
func (p *pingPong) run(ctx context.Context) (r result, err error) {
	if p.o.events {
		if err := p.cq.ReqNotify(false); err != nil {
			return r, err
		}
	}
	sent, received := 0, 0
	sendNext := func() error {
		if p.o.check && !p.server {
			fill(p.sendBuf, sent)
		}
		return p.postSend()
	}
	// What must complete before the next message may be sent.
	waitSend, waitRecv := false, true
	start := time.Now()
	if !p.server {
		waitSend = true
		if err := sendNext(); err != nil {
			return r, err
		}
	}
	for received < p.o.iters || sent < p.o.iters {
		n, err := p.wait(ctx, &r)
		if err != nil {
			return r, fmt.Errorf("after %d sent and %d received: %w", sent, received, err)
		}
		for i := range p.wcs[:n] {
			w := &p.wcs[i]
			if err := w.Err(); err != nil {
				return r, fmt.Errorf("after %d sent and %d received: %w", sent, received, err)
			}
			switch w.ID {
			case sendID:
				sent++
				waitSend = false
			case recvID:
				if int(w.ByteLen) != p.o.size {
					return r, fmt.Errorf("message %d has %d bytes, want %d: give both sides the same -s", received, w.ByteLen, p.o.size)
				}
				if err := p.check(received); err != nil {
					return r, err
				}
				received++
				waitRecv = false
				if p.posted--; p.posted <= 1 {
					if err := p.postRecv(); err != nil {
						return r, err
					}
				}
			}
			if sent < p.o.iters && !waitSend && !waitRecv {
				waitSend, waitRecv = true, true
				if err := sendNext(); err != nil {
					return r, err
				}
			}
		}
	}
	r.iters, r.bytes, r.elapsed = p.o.iters, 2*int64(p.o.size)*int64(p.o.iters), time.Since(start)
	return r, nil
}

func (p *pingPong) check(i int) error {
	switch {
	case !p.o.check:
		return nil
	case p.server:
		return checkClient(p.recvBuf, i)
	}
	return checkEcho(p.recvBuf, i)
}

// wait returns the next completions: by polling, or asleep on the channel.
func (p *pingPong) wait(ctx context.Context, r *result) (int, error) {
	var sp cpu.Spinner
	for {
		if n, err := p.cq.Poll(p.wcs[:]); n > 0 || err != nil {
			return n, err
		}
		if !p.o.events {
			if sp.Wait() > 0 && ctx.Err() != nil {
				return 0, context.Cause(ctx)
			}
			continue
		}
		if err := p.sleep(ctx, r); err != nil {
			return 0, err
		}
	}
}

// sleep waits for a completion event and asks for the next. The caller polls
// afterwards: what completed in between gives no event.
func (p *pingPong) sleep(ctx context.Context, r *result) error {
	nap := time.Second
	if t, ok := ctx.Deadline(); ok {
		nap = min(time.Until(t), nap)
	}
	if _, err := event.Wait(p.ch.FD(), nap); err != nil {
		return fmt.Errorf("sleep on the completion channel: %w", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	q, err := p.ch.Event()
	if q == nil || err != nil {
		return err
	}
	r.events++
	return q.ReqNotify(false)
}
