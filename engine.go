package rma

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/trace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/internal/wireup"
	"github.com/seed33544411/rma/mr"
)

// Engine is this process's membership in a job: its memory, its peers, and the links to
// them. Its methods may be called from any goroutine. After Close, operations fail with
// ErrClosed.
type Engine struct {
	cfg         Config
	job         *wireup.Job
	bringup     *bringup.Links
	links       []fabric.Link
	numbers     []uint8 // linkNumber of each link
	peers       []*Peer
	proto       *proto
	prog        *progress.Engine
	memory      *mr.Domain // all registered memory, on all links
	barrier     barrier
	windows     doubt        // calls of Window and WindowOf without a known outcome
	gathers     doubt        // the same of AllGatherKeys
	server      atomic.Int32 // the rank that runs the job's wire-up server, plus 1; 0 if it is no rank
	watches     peerFeed
	railWatches railFeed
	// attention counts the waits for any peer, during which all connected peers are polled.
	attention   atomic.Int32
	outstanding atomic.Int64    // see pending.Budget
	libraries   atomic.Int64    // the same of messages and signals of libraries
	remains     closers         // resources left by connections that are over; the owner's
	rings       *eager.Budget   // memory of rings that follow the traffic; nil: they do not
	pins        []*message.Pins // by link: memory that messages use and the application did not register

	mu       sync.Mutex     // guards the setting of closed, against lost; taken within the lock of job, which is not called under it
	tasks    *bringup.Tasks // goroutines of the engine other than the progress goroutine
	closed   atomic.Bool
	handlers []*Handler    // whose workers end with the engine
	parting  sync.Once     // of the functions in before
	before   []func()      // functions registered by BeforeClose
	parted   bool          // Close has begun
	opened   closers       // resources that Close releases; after Open only the goroutine that has set closed uses it
	ended    chan struct{} // closed when Close has finished
	err      error         // of Close
}

// Rank returns this process's number in the job, from 0.
func (e *Engine) Rank() int { return e.job.Rank() }

// Size returns the number of ranks in the job.
func (e *Engine) Size() int { return e.job.Size() }

// Progress polls the links once and reports whether anything happened. It is for
// goroutines that spin on memory that a peer writes to.
func (e *Engine) Progress() bool { return e.prog.Progress() }

// Stats returns the engine's counters, as they were at one moment. Operations do not pay
// for them: the progress engine counts. A call takes well under a microsecond for each
// peer, during which nothing is posted or polled: call it every second, not for every
// operation.
func (e *Engine) Stats() Stats {
	s := Stats{Rank: e.Rank(), Size: e.Size(), Regions: e.memory.Live()}
	done := e.bringup.Surveys()
	s.PathsMeasured, s.PathsTime, s.PathsBytes = done.Paths, done.Time, uint64(done.Bytes)
	rings := e.rings.Stats()
	s.Rings = RingStats{Memory: rings.Used, Limit: rings.Limit, Grown: rings.Grown, Shrunk: rings.Shrunk, Refused: rings.Refused}
	e.prog.Do(func() {
		for _, p := range e.pins {
			one := p.Stats()
			s.Pinned += int(one.Bytes)
			s.PinHits += one.Hits
			s.PinMisses += one.Misses
		}
		for _, p := range e.peers {
			one := p.stats()
			s.Counts.add(&one.Counts)
			s.Messages.add(&one.Messages)
			s.InFlight += one.InFlight
			s.Queued += one.Queued
			s.Outstanding += one.Outstanding
			if one.Connected {
				s.PeersConnected++
			}
			if one.Messaging {
				s.PeersMessaging++
			}
			if one.Err != nil {
				s.PeersDown++
			}
		}
	})
	return s
}

// Watch yields the states of this rank's peers: first the present state of each peer that
// has had an event, then each change, until ctx ends, the loop is left, or the engine is
// closed. It needs no operations in flight: while a Watch runs, the engine checks all
// connected peers as if operations waited for them. Watch also reports that an unconnected
// peer is gone, which the job's server detects. It does not report that an unconnected
// peer hangs: only an operation with that peer detects it.
//
// Any number of goroutines may watch. A slow one misses states that later ones have
// replaced, but never the last state of a rank, and does not delay the others.
//
//	for ev := range eng.Watch(ctx) {
//		if ev.State >= rma.PeerHung {
//			log.Printf("rank %d is %v: %v", ev.Rank, ev.State, ev.Err)
//		}
//	}
func (e *Engine) Watch(ctx context.Context) iter.Seq[PeerEvent] {
	return func(yield func(PeerEvent) bool) {
		e.attention.Add(1)
		defer e.attention.Add(-1)
		e.watches.watch(ctx, e.tasks.Life(), yield)
	}
}

// WatchRails yields the changes of rails, from the present ones on, until ctx ends or the engine
// is closed. Several goroutines may watch; a slow one misses changes that later ones of the same
// rail have replaced.
func WatchRails(ctx context.Context, e *Engine) iter.Seq[RailEvent] {
	return func(yield func(RailEvent) bool) { e.railWatches.watch(ctx, e.tasks.Life(), yield) }
}

// Barrier returns when all ranks have called it: the n-th call of each rank belongs to the
// same barrier. Goroutines of a rank that call it concurrently take turns, each with a
// barrier of its own. Barrier does not wait for operations in flight: flush first, or wait
// for their requests.
//
// If ctx ends (or, without a deadline, Config.SetupTimeout), this rank has entered the
// barrier all the same, and the barrier may complete on other ranks: the next call of
// Barrier continues it. If a rank is gone, or has lost the connection with another rank,
// this barrier and all later ones fail on all ranks, with a *PeerError that names that
// rank and wraps ErrPeerGone, ErrPeerHung or ErrFlushed. If nevertheless all ranks are
// alive, the next call continues the same barrier; on a rank that has lost a connection,
// it does so after Peer.Reset has restored the connection.
//
// The first few barriers use the job's server. Later ones run from rank to rank, in ⌈log2
// n⌉ rounds of signals of about a microsecond each, unless a host has more ranks than
// processors, where that would be slower.
func (e *Engine) Barrier(ctx context.Context) error {
	defer trace.StartRegion(ctx, regionBarrier).End()
	b := &e.barrier
	ctx, cancel := withSetupTimeout(ctx, e)
	defer cancel()
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("rma: barrier: %w", ctx.Err())
	}
	defer func() { <-b.turn }()
	if e.closed.Load() {
		return ErrClosed
	}
	if err := b.meet(ctx); err != nil {
		return fmt.Errorf("rma: %w", err)
	}
	return nil
}

// withSetupTimeout returns ctx with a deadline, of Config.SetupTimeout if it has none.
func withSetupTimeout(ctx context.Context, e *Engine) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has || e.cfg.SetupTimeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, e.cfg.SetupTimeout)
}

// BeforeClose registers a function that Close calls first, while the engine still works. f
// must not call Close, which waits for it.
// It is for libraries that have data left to deliver. Close, and concurrent calls of it,
// wait until f has returned. If Close has begun already, f is not called, and BeforeClose
// returns false.
func (e *Engine) BeforeClose(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.parted {
		e.before = append(e.before, f)
	}
	return !e.parted
}

// Close leaves the job and releases all resources. Operations in flight fail with
// ErrClosed, and peers lose access to this process's memory: call Barrier first if they
// still need it. Messages whose sends are complete are still delivered: Close waits until
// they are placed at their peers, where receives take them now or later, or until these
// have left the job. For each other peer that does not acknowledge them within 5 s, or
// Config.PeerTimeout if that is longer, the error wraps a *PeerError with ErrUnconfirmed.
// Close returns when all goroutines of the engine have stopped, workers of handlers included:
// a handler or another callback that calls Close waits for itself, for ever, and one that
// waits for something else delays Close without limit. To close the engine because of a
// message, let the handler tell another goroutine. Close may be called several times; each
// call returns the same error.
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

// settle waits until the messages whose sends are complete are placed at their peers. It does not
// wait for peers that have left: a link may report that only after PeerTimeout.
func settle(e *Engine) error {
	e.prog.Do(func() { e.proto.one.End(ErrClosed) })
	var late []int
	if await(e.prog, closeLimit(e), func() bool {
		late = slices.DeleteFunc(e.proto.hub.Settle(), func(rank int) bool { return e.job.GoneReason(rank) != "" })
		return len(late) == 0
	}) {
		return nil
	}
	var errs []error
	for _, rank := range late {
		errs = append(errs, peerError("last messages", rank, ErrUnconfirmed))
	}
	return errors.Join(errs...)
}

// closeLimit is how long Close waits for peers, and then for links.
func closeLimit(e *Engine) time.Duration { return max(closeTime, e.cfg.PeerTimeout) }

// leave ends all connections, and the operations that wait for them. It returns when the
// links have returned all requests.
func (e *Engine) leave() error {
	e.prog.Do(e.disconnect)
	inflight := 0
	if !await(e.prog, closeLimit(e), func() bool {
		inflight = 0
		for _, p := range e.peers {
			inflight += p.one.InFlight()
		}
		return inflight == 0
	}) {
		return fmt.Errorf("%d requests have not completed", inflight)
	}
	return nil
}

// dismiss ends the workers of handlers. It follows the end of the progress engine, which ends
// what they wait for, and precedes the release of memory that they may use.
func dismiss(e *Engine) error {
	e.job.End() // they may wait for all ranks
	e.mu.Lock()
	handlers := e.handlers
	e.handlers = nil // from here on Handler.Close removes nothing
	e.mu.Unlock()
	for _, h := range handlers {
		h.stop()
	}
	return nil
}

// part calls the functions registered with BeforeClose.
func (e *Engine) part() {
	e.mu.Lock()
	before := e.before
	e.before, e.parted = nil, true
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

// lastWords gives the link of a peer that is gone time to deliver the data that it had
// sent, and to report the end itself: the wire-up server may be faster than the link, and
// some links do not detect the end at all.
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

// told handles a value that a peer publishes through the job. It runs in the goroutine that
// reads from the job, and must not wait.
func (e *Engine) told(from int, key string, val []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// A connection that is lost while Close waits for acknowledgements is resumed.
	if e.closed.Load() && key != bringup.KeyResume || from == e.Rank() {
		return
	}
	p := e.peers[from]
	switch key {
	case keyChannel:
		if p.conn.Now().IsNumbered(val) {
			p.msg.Told()
		}
		return
	case bringup.KeyRequest, bringup.KeyReady, bringup.KeyRefuse, bringup.KeyPath, bringup.KeyRail, bringup.KeyResume:
		if p.conn.Told(key, val) {
			return
		}
	}
	e.cfg.Logger.Warn("rma: unexpected message from a peer ignored", "rank", from, "key", key)
}

// keyChannel is the key under which the two ranks of a connection publish the set-up of
// their message channels, and under which a rank notifies the other that it has done so,
// with the number of their connection (4 bytes).
const keyChannel = "talk"

// jobError translates an error of the job to one of this package, about a rank if one is at
// fault.
func (e *Engine) jobError(op string, err error) error {
	var gone *wireup.PeerGoneError
	var up *wireup.GivenUpError
	switch {
	case errors.As(err, &gone) && len(gone.Ranks) > 0:
		return &PeerError{Rank: gone.Ranks[0], Op: op, Err: e.jobCause(gone.Ranks[0], err)}
	case errors.As(err, &up) && up.Err != nil:
		return &PeerError{Rank: up.Rank, Op: op, Err: fmt.Errorf("%w: %w", ErrGivenUp, up.Err)}
	case errors.As(err, &up):
		return &PeerError{Rank: up.Rank, Op: op, Err: fmt.Errorf("%w: %s", ErrGivenUp, up.Detail)}
	case errors.Is(err, wireup.ErrUndecided):
		return fmt.Errorf("%w: %w", ErrUndecided, err)
	case errors.Is(err, wireup.ErrServerGone) && e.server.Load() > 0:
		r := int(e.server.Load()) - 1
		return &PeerError{Rank: r, Op: op, Err: e.jobCause(r, err)}
	}
	return e.jobCause(AnyRank, err)
}

// jobCause translates an error of the job to the cause of the failure of an operation with
// the rank.
func (e *Engine) jobCause(rank int, err error) error {
	var gone *wireup.PeerGoneError
	switch {
	case errors.As(err, &gone):
		return fmt.Errorf("%w (%s)", ErrPeerGone, gone.Detail)
	case errors.Is(err, wireup.ErrServerGone) && rank >= 0 && rank == int(e.server.Load())-1:
		return fmt.Errorf("%w: %w", ErrServerGone, ErrPeerGone)
	case errors.Is(err, wireup.ErrServerGone):
		return ErrServerGone
	case errors.Is(err, wireup.ErrClosed):
		return ErrClosed
	}
	return err
}

// Regions of execution traces; docs/observability.md lists them. Without a trace the cost
// is one load and one branch.
const (
	regionOpen     = "rma.open"
	regionBarrier  = "rma.barrier"
	regionRegister = "rma.register"
	regionWait     = "rma.wait." // and the operation's name, signal, all or any
)
