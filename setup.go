package rma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/trace"
	"slices"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/bubble"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/internal/settings"
	"github.com/seed33544411/rma/internal/wireup"
	"github.com/seed33544411/rma/mr"
)

// Open joins the job and returns when all ranks have joined. It makes no connections: the
// first operation with a peer makes the engines on both sides connect, in the background.
// cfg may be nil. If ctx has no deadline, Config.SetupTimeout bounds the call. The error
// joins all invalid settings, or says why the job could not be joined: it may wrap
// ErrNoToken, ErrNoConnection, ErrAborted, ErrPeerGone, ErrResources, or ErrGivenUp if a rank
// does not join in time.
func Open(ctx context.Context, cfg *Config) (*Engine, error) {
	defer trace.StartRegion(ctx, regionOpen).End()
	if bubble.Inside() {
		return nil, fmt.Errorf("rma: open: %w", errBubble)
	}
	c, o, w, err := cfg.effective()
	if err != nil {
		return nil, fmt.Errorf("rma: open: %w", err)
	}
	w.Timeout = cmp.Or(w.Timeout, wireup.DefaultTimeout)
	if _, has := ctx.Deadline(); !has && w.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.Timeout)
		defer cancel()
	}
	e := &Engine{cfg: c, tasks: bringup.NewTasks(), ended: make(chan struct{}), proto: new(proto)}
	e.barrier.eng, e.barrier.turn = e, make(chan struct{}, 1)
	e.proto.init(c.PeerTimeout)
	if e.job, err = wireup.Join(ctx, w); err == nil {
		e.opened.add(e.job.Close)
		if err = setup(ctx, e, c.bringup(o)); err == nil {
			return e, nil
		}
		if e.job.Serves() { // report the reason to the other ranks, and do not wait for them
			e.job.Abort("rma: open: " + err.Error())
		}
		err = errors.Join(e.jobError("open", err), e.Close())
	} else {
		err = fabric.Shortage(err) // of this process, for which the job may take the server for gone
	}
	e.tasks.End()
	return nil, fmt.Errorf("rma: open: %w", err)
}

// errBubble rejects a bubble of testing/synctest: its clock would stand still while the
// engine's goroutines wait for peers, and these would wait for the clock.
var errBubble = errors.New("inside a testing/synctest bubble: open the engine before synctest.Test; the documentation of package rma says what may be used inside")

// setup opens the links that the job needs, and measures them. Connections are made later,
// at the first operation with a peer, except between the pairs that measure. Every step
// that exchanges data is taken by all ranks or by none. Engine.Close closes everything that
// was opened, also if setup fails.
func setup(ctx context.Context, e *Engine, o bringup.Config) (err error) {
	if e.bringup, err = bringup.Open(ctx, e.job, o); err != nil {
		return err
	}
	e.opened.add(e.bringup.Close)
	e.links = e.bringup.All()
	if err := openMemory(e); err != nil {
		return err
	}
	addPeers(e)
	load, _ := e.bringup.Load(e.Rank())
	if e.prog, err = progress.New(e.links, e.proto, e.bringup.SpinPolicy(), e.bringup.Home(), load); err != nil {
		return err
	}
	e.opened.add(func() error { return dismiss(e) })
	e.opened.add(e.prog.Close)
	e.opened.add(e.leave)
	e.proto.one.Start(e.prog, e.memory)
	e.proto.hub.Start(e.prog)
	ends := make([]bringup.Peer, len(e.peers))
	for rank, p := range e.peers {
		ends[rank] = (*connectionEnd)(p)
	}
	dialer := bringup.NewDialer(e.bringup, e.prog, e.tasks, e.numbers, ends)
	for rank, p := range e.peers {
		p.conn = dialer.Connector(rank)
	}
	if err := startProgress(e, dialer); err != nil {
		return err
	}
	e.opened.add(func() error { e.tasks.End(); return nil }) // ends first, so that no new connection comes up
	e.opened.add(func() error { return settle(e) })          // before, because tasks resume connections
	e.job.NotifyGone(e.lost)
	e.job.NotifyReceived(e.told)
	if err := e.bringup.Calibrate(ctx, dialer, e.proto); err != nil {
		return err
	}
	e.prog.Do(func() {
		for _, p := range e.peers {
			(*oneSidedHost)(p).plan()
		}
	})
	if e.cfg.HangTimeout > 0 && e.Size() > 1 {
		e.tasks.Go(func() { e.proto.attend(e) })
	}
	return meetServer(ctx, e)
}

const (
	envProgressCPU = "RMA_PROGRESS_CPU" // the processor of the progress goroutine's thread
	envExtraP      = "RMA_EXTRA_P"      // whether the engine may add a P
)

// startProgress starts the progress goroutine as the environment says. A rank that has one P and shares
// its processor with others has no more than that while it computes: a second one takes the processor from those.
func startProgress(e *Engine, d *bringup.Dialer) error {
	v, err := settings.Environment()
	if err != nil {
		return err
	}
	d.SpareP, _ = v.Switch(envExtraP)
	if v.Text(envProgressCPU) == "" {
		load, _ := e.bringup.Load(e.Rank())
		e.prog.Start(d.SpareP && (load <= cpu.OneEach || runtime.GOMAXPROCS(0) > 1))
		return nil
	}
	if err := progress.StartOn(e.prog, cpu.Of(int(v.Int(envProgressCPU)))); err != nil {
		return fmt.Errorf("%s: %w", envProgressCPU, err)
	}
	return nil
}

// defaultRingMemory bounds the rings that have grown if Config.RingMemory is not set: four peers at
// the default of Config.RingLimit, a ring and a copy of one each.
const defaultRingMemory = 128 << 20

// openMemory allocates the engine's memory on each link.
func openMemory(e *Engine) (err error) {
	var rails []mr.Rail
	e.rings = eager.NewBudget(int64(cmp.Or(e.cfg.RingMemory, defaultRingMemory)))
	e.rings.Short = e.proto.hub.Short
	e.opened.add(e.proto.heart.close)
	for _, l := range e.links {
		if e.cfg.HangTimeout > 0 {
			if err := e.proto.heart.open(l, e.Size()); err != nil {
				return err
			}
		}
		pins, err := message.NewPins(l, int64(e.cfg.PinnedLimit))
		if err != nil {
			return fmt.Errorf("memory kept registered on %s: %w", l.Name(), err)
		}
		e.opened.add(pins.Close)
		e.pins = append(e.pins, pins)
		e.numbers = append(e.numbers, linkNumber[l.Name()])
	}
	numberRails(e)
	for i, l := range e.links {
		rails = append(rails, mr.Rail{Link: l, Number: e.numbers[i]})
	}
	if e.memory, err = mr.NewDomain(rails...); err != nil {
		return err
	}
	e.opened.add(e.memory.Close)
	e.opened.add(e.proto.one.Close)
	for i, l := range e.links {
		if err := e.proto.one.AddLink(l, e.pins[i]); err != nil {
			return err
		}
	}
	return nil
}

// numberRails gives the rails the numbers in keys of kinds of links that the job does not
// use: all ranks know the same.
func numberRails(e *Engine) {
	var free []uint8
	for kind, number := range linkNumber {
		if !e.bringup.Kinds()[kind] {
			free = append(free, number)
		}
	}
	slices.Sort(free)
	for _, r := range e.bringup.AllRails() {
		e.numbers[r.Index] = free[r.Number-1]
	}
}

// libraryOutstanding is the least bound of the incomplete messages and signals of libraries with one
// peer. Their own protocols bound those with peers that keep them; this one bounds the memory
// that others can make them use.
const libraryOutstanding = 1 << 18

// addPeers creates a Peer for each rank.
func addPeers(e *Engine) {
	e.opened.add(e.remains.close)
	e.opened.add(e.proto.hub.Close)
	for rank := range e.Size() {
		i := e.bringup.To(rank)
		p := &Peer{
			eng: e, rank: rank, id: uint32(rank), own: rank == e.Rank(), link: i, num: e.numbers[i],
		}
		for _, r := range e.bringup.Rails(rank) {
			p.rails[r.Number], p.railed = railEnd{has: true, link: r.Index, num: e.numbers[r.Index]}, true
		}
		if n := e.cfg.Outstanding; n > 0 {
			p.budget.Bound(n, &e.outstanding, 4*n)
			n = max(n, libraryOutstanding)
			p.library.Bound(n, &e.libraries, 4*n)
		}
		e.proto.one.AddQueue(&p.one, i, p.own, (*oneSidedHost)(p))
		e.proto.hub.Add(&p.msg, p.own, e.links[i].Caps(), (*messageHost)(p), (*initiator.Order)(&p.one))
		e.peers = append(e.peers, p)
	}
	t := e.proto
	t.peers = e.peers
	t.heart.every = max(e.cfg.HangTimeout, 0) / hangBeats
}

// meetServer waits until all ranks have joined, and records which of them runs the job's
// server.
func meetServer(ctx context.Context, e *Engine) error {
	mine := []byte{}
	if e.job.Serves() {
		mine = []byte{1}
	}
	all, err := e.job.AllGather(ctx, "rma/open", mine)
	for r, b := range all {
		if len(b) > 0 {
			e.server.Store(int32(r) + 1)
		}
	}
	return err
}
