package rma

import (
	"context"
	"errors"
	"fmt"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/bubble"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/hub"
	"github.com/seed33544411/rma/internal/pending"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/internal/wireup"
	"github.com/seed33544411/rma/mr"
)

// Engine is this process's membership in a job: its memory, its peers, and the links to
// them.
//
// It has many methods because calls that concern the whole job, the engine's lifetime and
// the detection of failures begin here, each in a file of its own name.
type Engine struct {
	cfg     Config
	job     *wireup.Job
	bringup *bringup.Links
	links   []fabric.Link
	numbers []uint8 // linkNumber of each link
	peers   []*Peer
	proto   *proto
	prog    *progress.Engine
	memory  *mr.Domain // what is registered, with all links
	barrier barrier
	windows doubt        // calls of Window and WindowOf
	gathers doubt        // of AllGatherKeys
	server  atomic.Int32 // the rank that runs the job's wire-up server, plus 1; 0 if it is no rank
	watches watches
	// attention counts the waits for any peer, during which all connected peers are polled.
	attention   atomic.Int32
	outstanding atomic.Int64    // see pending.Budget
	remains     closers         // what connections that are over have left; the owner's
	pins        []*message.Pins // by link: what was not, and messages use

	mu       sync.Mutex     // guards the setting of closed, against lost; taken within the lock of job, which is not called under it
	tasks    *bringup.Tasks // goroutines of the engine beside the progress one
	closed   atomic.Bool
	handlers []*Handler    // whose workers end with the engine
	parting  sync.Once     // what Close does first
	before   []func()      // calls that it makes then
	opened   closers       // what Close ends; the setter of closed's
	ended    chan struct{} // closed when Close is through
	err      error         // of Close
}

// Open joins the job; it returns when all ranks have joined. The first operation with a
// peer makes the engines on both sides connect, in the background. cfg may be nil. If ctx
// has no deadline, Config.SetupTimeout bounds the call.
func Open(ctx context.Context, cfg *Config) (*Engine, error) {
	defer trace.StartRegion(ctx, regionOpen).End()
	if bubble.Inside() {
		return nil, fmt.Errorf("rma: open: %w", errBubble)
	}
	c, o, w, err := cfg.effective()
	if err != nil {
		return nil, fmt.Errorf("rma: open: %w", err)
	}
	if w.Timeout == 0 {
		w.Timeout = wireup.DefaultTimeout
	}
	if _, has := ctx.Deadline(); !has && w.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.Timeout)
		defer cancel()
	}
	e := &Engine{cfg: c, tasks: bringup.NewTasks(), ended: make(chan struct{}), proto: new(proto), barrier: barrier{turn: make(chan struct{}, 1)}}
	e.proto.init(c.PeerTimeout)
	if e.job, err = wireup.Join(ctx, w); err == nil {
		e.opened.add(e.job.Close)
		if err = e.setup(ctx, c.bringup(o)); err == nil {
			return e, nil
		}
		if e.job.Serves() { // the others are told why, and not waited for
			e.job.Abort("rma: open: " + err.Error())
		}
		err = errors.Join(e.jobError("open", err), e.Close())
	}
	e.tasks.End()
	return nil, fmt.Errorf("rma: open: %w", err)
}

// Rank is this process's number in the job, from 0.
func (e *Engine) Rank() int { return e.job.Rank() }

// Size is the number of ranks in the job.
func (e *Engine) Size() int { return e.job.Size() }

// Progress polls the links once, for goroutines that spin on memory which a peer writes. It
// reports whether anything happened.
func (e *Engine) Progress() bool { return e.prog.Progress() }

// errBubble rejects a bubble of testing/synctest: its clock would stand still while the
// engine's goroutines wait for peers, and these would wait for the clock.
var errBubble = errors.New("inside a testing/synctest bubble: open the engine before synctest.Test, and use it inside")

// BeforeClose registers f, which Close calls before it ends anything, for libraries that
// have data left to deliver. f must return; concurrent calls of Close wait for it. f is not
// called if Close has begun already.
func (e *Engine) BeforeClose(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.before = append(e.before, f)
}

// closeTime bounds how long Close waits for links to return requests.
const closeTime = 5 * time.Second

// Close leaves the job and releases everything. Operations in flight fail with ErrClosed,
// and peers lose access to this process's memory: call Barrier first if they still need it.
// Messages whose sends are complete arrive: Close waits until they are placed at their
// peers, where receives get them now or later; if a peer does not acknowledge them within 5
// s, the error names it. Close is idempotent and returns when all goroutines of the engine
// have stopped.
func (e *Engine) Close() error {
	e.parting.Do(e.part)
	e.mu.Lock()
	already := e.closed.Swap(true)
	e.mu.Unlock()
	if already {
		<-e.ended
		return e.err
	}
	defer close(e.ended)
	if e.err = e.opened.close(); e.err != nil {
		e.err = fmt.Errorf("rma: close: %w", e.err)
	}
	return e.err
}

// closers end what was opened.
type closers []func() error

// add has close call end before what was added earlier.
func (c *closers) add(end func() error) { *c = append(*c, end) }

// close calls what was added, each once, the last first.
func (c *closers) close() error {
	var errs []error
	for n := len(*c) - 1; n >= 0; n-- {
		end := (*c)[n]
		*c = (*c)[:n]
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// leave ends all connections, and what waits for them. It returns when the links have
// returned all requests.
func (e *Engine) leave() error {
	var errs []error
	e.prog.Do(func() { e.proto.one.End(ErrClosed) })
	var late []int
	if !await(e.prog, func() bool { late = e.proto.hub.Settle(); return len(late) == 0 }) {
		errs = append(errs, fmt.Errorf("no word in %v that the last messages arrived at ranks %v", closeTime, late))
	}
	e.prog.Do(e.disconnect)
	inflight := 0
	if !await(e.prog, func() bool {
		inflight = 0
		for _, p := range e.peers {
			inflight += p.one.InFlight()
		}
		return inflight == 0
	}) {
		errs = append(errs, fmt.Errorf("%d requests did not come back from the links", inflight))
	}
	e.mu.Lock()
	handlers := e.handlers
	e.handlers = nil // from here on Handler.Close has nothing to take away
	e.mu.Unlock()
	for _, h := range handlers {
		h.stop()
	}
	return errors.Join(errs...)
}

// await polls the links until what done says, which is called as their owner, closeTime at
// most. It returns the last answer.
func await(prog *progress.Engine, done func() bool) (ok bool) {
	for end := time.Now().Add(closeTime); ; {
		prog.Do(func() { ok = done() })
		switch {
		case ok || time.Now().After(end):
			return ok
		case !prog.Progress():
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// part calls the functions registered with BeforeClose.
func (e *Engine) part() {
	e.mu.Lock()
	before := e.before
	e.mu.Unlock()
	for _, f := range before {
		f()
	}
}

// disconnect closes all connections. Owner's.
func (e *Engine) disconnect() {
	e.prog.AssertOwned()
	e.proto.hub.End()
	for _, p := range e.peers {
		p.downWith(ErrClosed)
		p.close()
		p.msg.Sever()
	}
}

// close ends the connection; operations in flight are flushed. Owner's.
func (p *Peer) close() {
	p.eng.prog.AssertOwned()
	for _, ep := range []fabric.Endpoint{p.ep, p.self} {
		if ep != nil {
			_ = ep.Close() // it is the reports of the requests that count
		}
	}
}

// lost handles the report of the job's wire-up server that a rank has ended.
func (e *Engine) lost(rank int, why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if rank == e.Rank() || e.closed.Load() {
		return
	}
	e.cfg.Logger.Warn("rma: peer lost", "rank", rank, "why", why)
	p := e.peers[rank]
	gone := fmt.Errorf("%w (%s)", ErrPeerGone, why)
	p.conn.HangUp(gone)
	// In a goroutine: the caller must not wait for the owner of the links.
	e.tasks.Go(func() {
		e.lastWords(p)
		e.prog.Do(func() {
			p.downWith(gone)
			p.close()
		})
	})
}

// lastWait bounds how long the report that a rank is gone is held back for the data that
// the rank sent before.
const lastWait = 250 * time.Millisecond

// lastWords lets the link of a peer that is gone take in the data it had sent, and report
// the end itself: the wire-up server may be faster than the link, and some links do not
// detect the end at all.
func (e *Engine) lastWords(p *Peer) {
	noticed := make(chan struct{})
	e.prog.Do(func() {
		if p.ep == nil || p.down != nil {
			close(noticed)
			return
		}
		p.noticed = noticed
	})
	limit := time.NewTimer(min(lastWait, e.cfg.PeerTimeout))
	defer limit.Stop()
	select {
	case <-noticed:
	case <-limit.C:
	case <-e.tasks.Life().Done():
	}
}

// proto dispatches the traffic of an engine's links: one-sided operations, messages, and
// reads of heartbeats. Except for the inbox, and the redeeming of receipts, it belongs to
// the owner of the progress engine.
type proto struct {
	inbox    pending.Inbox
	receipts pending.Receipts
	peers    []*Peer // by rank
	one      initiator.Engine
	hub      hub.Hub
	heart    heartbeat
	steps    uint
}

// channelTag is set in the top bits of the request IDs of message channels, which take
// three bits; the IDs of one-sided operations are small numbers.
const (
	channelTag  = 1
	channelTags = 3
)

// init makes t ready. contention is initiator.Options.Contention.
func (t *proto) init(contention time.Duration) {
	t.hub.Init(hub.Options{Inbox: &t.inbox, Receipts: &t.receipts, Protocol: t, Error: peerError, Closed: ErrClosed})
	t.one.Init(initiator.Options{Inbox: &t.inbox, Receipts: &t.receipts, Protocol: t, Contention: contention})
}

// Pending implements progress.Protocol.
func (t *proto) Pending() bool { return t.inbox.Pending() }

// Step implements progress.Protocol.
func (t *proto) Step() bool {
	if t.steps++; t.steps%beatSteps == 0 {
		t.heart.beat()
	}
	took := t.inbox.TakeOver()
	did := t.one.Step()
	return t.hub.Step() || did || took
}

// Rest implements progress.Protocol.
func (t *proto) Rest(on bool) time.Duration {
	d := t.hub.Rest(on)
	if on {
		if n := t.one.Rest(); n != 0 && (d == 0 || n < d) {
			d = n
		}
	}
	return t.heart.nap(d)
}

// Complete implements progress.Protocol.
// Hot path.
func (t *proto) Complete(_ int, cs []fabric.Completion) {
	for i := range cs {
		c := &cs[i]
		if c.Op < fabric.OpNotify && c.ID>>48-channelTag >= channelTags && t.one.Complete(c) {
			continue
		}
		switch p := t.of(c.EP); {
		case p == nil:
		case initiator.IsNotification(c):
			p.one.Notified(c)
		case c.Op >= fabric.OpNotify || c.ID>>48-channelTag < channelTags:
			p.msg.Event(c)
		default:
			p.one.CompleteControl(c)
		}
	}
}

// of returns the peer that the endpoint of this ID connects with; nil if that connection is
// over, or for the passive end of the connection with this rank itself.
// Hot path.
func (t *proto) of(ep uint32) *Peer {
	if r := bringup.Rank(ep); r < len(t.peers) && t.peers[r].id == ep {
		return t.peers[r]
	}
	return nil
}
