package ibv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/verbs"
)

// fixedCQ is the size of a completion queue that cannot be resized: for some hundred
// endpoints of default depth.
const fixedCQ = 1 << 18

// leastInline is what protocols post inline on any link.
const leastInline = 8

// createCQ creates the completion queue, which grows with the endpoints, or if the device
// cannot resize it, is as large as it will ever be.
func (l *adapter) createCQ() (err error) {
	if l.cq, err = l.ctx.CreateCQ(min(firstCQ, l.dev.MaxCQE), l.ch); err != nil {
		return err
	}
	if l.cq.Cap() >= l.dev.MaxCQE || l.cq.Resize(l.cq.Cap()+1) == nil {
		return nil
	}
	fixed, err := l.ctx.CreateCQ(min(fixedCQ, l.dev.MaxCQE), l.ch)
	if err != nil {
		return nil //nolint:nilerr // the small one serves some endpoints
	}
	err = l.cq.Close()
	l.cq = fixed
	return err
}

// probe determines the limits of endpoints by creating queue pairs: devices report neither
// the bytes that a request may carry inline nor the pieces that it may have beside them.
func (l *adapter) probe() error {
	sge := min(l.dev.MaxSGE, maxSGE)
	if l.dev.MaxSGERead > 0 {
		sge = min(sge, l.dev.MaxSGERead)
	}
	create := func(inline int) error {
		qp, err := l.pd.CreateQP(verbs.QPOptions{SendCQ: l.cq, MaxSendWR: chainMax, MaxRecvWR: chainMax, MaxSendSGE: sge, MaxInline: inline})
		if err != nil {
			return err
		}
		c := qp.Cap()
		l.caps.MaxSGE, l.caps.MaxInline = min(c.MaxSendSGE, sge), min(c.MaxInline, inline)
		return qp.Close()
	}
	for err := create(0); err != nil; err = create(0) {
		if sge <= 1 {
			return err
		}
		sge /= 2
	}
	takes := wantInline
	if create(takes) != nil {
		// Between what the device takes and what it refuses, in steps of 4 bytes.
		takes = 0
		for refuses := wantInline; refuses-takes > 4; {
			if try := (takes + refuses) / 8 * 4; create(try) == nil {
				takes = try
			} else {
				refuses = try
			}
		}
		if err := create(takes); err != nil {
			return err
		}
	}
	if l.inline = l.caps.MaxInline; l.inline < leastInline {
		l.noInline, l.caps.MaxInline = true, letterSize
	}
	return nil
}

// setCaps fills in the capabilities, of which probe has set the limits.
func (l *adapter) setCaps() {
	l.caps.MaxMessage = uint64(l.attr.MaxMessage)
	l.caps.MaxReads = l.opt.MaxReads
	l.caps.LastByteLast = l.opt.lastByteLast(l.dev.VendorID)
	l.caps.AtomicCPU = l.dev.AtomicCap == verbs.AtomicGlobal || l.noAtomics
	l.caps.TargetProgress = l.noAtomics
	l.caps.ConnectsAlone = true
}

const (
	// loopTimeout is the device's time-out for a packet to this port, 4 ms, and with its
	// repetitions 28 ms.
	loopTimeout = 10

	// loopLimit bounds the test of one GID, and gidLimit that of all.
	loopLimit = 200 * time.Millisecond
	gidLimit  = 800 * time.Millisecond
)

// chooseGID finds the first of the candidates, the best first, from which this port reaches
// itself. Some entries of real tables lead nowhere, which nothing else tells: those of
// VLANs, of other containers, and of protocols that the network does not carry. If there is
// no such entry, the first stays: the device may be unable to send to itself.
func (l *adapter) chooseGID() {
	var why []string
	end := time.Now().Add(gidLimit)
	for i, g := range l.candidates {
		if i > 0 && time.Now().After(end) {
			why = append(why, "no time for the other entries")
			break
		}
		err := l.loop(g)
		if err == nil {
			if i > 0 {
				l.choice = fmt.Sprintf("device %s port %d, GID %d: %v; %s", l.ctx.Name(), l.port, g.Index, g.Type, strings.Join(why, "; "))
			}
			l.gid = g
			return
		}
		why = append(why, fmt.Sprintf("GID %d is not used: %v", g.Index, err))
	}
	l.choice += "; not tested: " + strings.Join(why, "; ")
}

// errLoop says that a port did not reach itself.
var errLoop = errors.New("this port does not reach itself from it")

// loop connects a queue pair with itself by g, and writes to it. It finds out as well
// whether the device has writes with immediate.
func (l *adapter) loop(g verbs.GIDEntry) (err error) {
	cq, err := l.ctx.CreateCQ(4, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cq.Close()) }()
	qp, err := l.pd.CreateQP(verbs.QPOptions{SendCQ: cq, MaxSendWR: 2, MaxRecvWR: 2})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, qp.Close()) }()
	if err := qp.ToInit(l.port, 0, verbs.AccessRemoteWrite|verbs.AccessLocalWrite); err != nil {
		return err
	}
	if _, err := qp.PostRecv([]verbs.RecvWR{{}}); err != nil {
		return err
	}
	first := rand.Uint32() & psnMask
	attr := &verbs.QPAttr{
		PathMTU: l.mtu, DestQPN: qp.Num(), SQPSN: first, RQPSN: first, MaxReadsDest: 1, MaxReads: 1, MinRNRTimer: rnrTimer(0), Timeout: loopTimeout, RetryCount: maxRetries,
		AH: l.route(g, g.GID, l.attr.LID),
	}
	if err := qp.ToRTR(attr); err != nil {
		return fmt.Errorf("%w: %w", errLoop, err)
	}
	if err := qp.ToRTS(attr); err != nil {
		return err
	}
	w := []verbs.SendWR{{ID: 1, Op: verbs.OpWriteWithImm, Flags: verbs.SendSignaled}}
	if _, err := qp.PostSend(w); err != nil {
		l.noImm = true
		w[0].Op = verbs.OpWrite
		if _, err := qp.PostSend(w); err != nil {
			return err
		}
	}
	var wcs [4]verbs.WC
	var sp cpu.Spinner
	for end := time.Now().Add(loopLimit); time.Now().Before(end); sp.Wait() {
		n, err := cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(wcs[:n], func(c verbs.WC) bool { return c.ID == 1 }); i >= 0 {
			if err := wcs[i].Err(); err != nil {
				return fmt.Errorf("%w: %w", errLoop, err)
			}
			trust(l, qp, first+1)
			return nil
		}
	}
	return fmt.Errorf("%w: no answer within %v", errLoop, loopLimit)
}

// Port returns the port that the link uses.
func (l *adapter) Port() Port {
	return Port{l.ctx.Name(), l.port, l.attr, l.gid, l.mtu, l.inline}
}

// Route returns the path from the link's port to a port of the peer.
func (l *adapter) Route(gid verbs.GID, lid uint16) verbs.AHAttr { return l.route(l.gid, gid, lid) }

// source returns a GID of the port, at the place that it has in the table now: an address that was removed
// and put back may have another one.
func source(l *adapter, gid verbs.GIDEntry) (verbs.GIDEntry, error) {
	table, err := l.ctx.GIDs(l.port)
	if err != nil {
		return gid, err
	}
	for _, g := range table {
		if g.GID == gid.GID && g.Type == gid.Type && g.Index <= 255 {
			return g, nil
		}
	}
	return gid, fmt.Errorf("%w: port %d of %s has lost the address %v: put it back", verbs.ErrNoGID, l.port, l.ctx.Name(), gid.GID)
}

// trust finds out whether the device tells the next packet that qp expects, which is known.
func trust(l *adapter, qp *verbs.QP, want uint32) {
	if !l.opt.Resume || qp.ToErr() != nil {
		return
	}
	psn, err := expected(qp)
	if l.tells = err == nil && psn == want&psnMask; l.tells {
		l.markers = 1
	}
}

// route is the address of gid or lid from GID from of this port.
func (l *adapter) route(from verbs.GIDEntry, gid verbs.GID, lid uint16) verbs.AHAttr {
	return verbs.AHAttr{DGID: gid, DLID: lid, SGIDIndex: uint8(from.Index), HopLimit: 64, Port: uint8(l.port),
		Global: l.attr.LinkLayer == verbs.LinkEthernet || lid == 0}
}
