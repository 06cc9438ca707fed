package rma

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/pending"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/mr"
)

// SignalOp is the operation by which a signal changes its word.
type SignalOp uint8

// Operations of signals.
const (
	SignalSet SignalOp = iota // the word becomes the value
	SignalAdd                 // the value is added to it, atomically as FetchAdd does
)

// Cond is a comparison of a word with a value, for WaitSignal and WaitUntil. WaitSignal
// compares unsigned numbers.
type Cond uint8

// Conditions.
const (
	EQ = Cond(onesided.EQ) // equal
	NE = Cond(onesided.NE) // not equal
	GE = Cond(onesided.GE) // greater or equal
	GT = Cond(onesided.GT) // greater
	LE = Cond(onesided.LE) // less or equal
	LT = Cond(onesided.LT) // less
)

// PutSignal copies src to dst, and then changes the 8-byte word at sig, which must be
// aligned to 8 bytes (ErrAlign), by op with value. A goroutine of the target that sees the
// change by WaitSignal also sees the data, and is woken if it sleeps there. The request is
// complete when both have taken place. PutSignal posts data and signal to the link
// together. With a zero Buffer there is no data. It does not allocate or block.
// Hot path.
func (p *Peer) PutSignal(dst Remote, src Buffer, sig Remote, op SignalOp, value uint64) Request {
	if r := trySignal(p, dst, src, sig, op, value); r.eng != nil {
		return r
	}
	o := initiator.New(&p.one, initiator.PutSignal)
	if src != (Buffer{}) {
		if err := p.data(o, dst, src); err != nil {
			return p.drop(o, err)
		}
	}
	if err := p.flag(o, sig, op, value); err != nil {
		return p.drop(o, err)
	}
	return p.post(o)
}

// trySignal executes a PutSignal of few bytes, if the link can do so at once. Otherwise the
// request is zero, and the signal has not been given.
// Hot path.
func trySignal(p *Peer, dst Remote, src Buffer, sig Remote, op SignalOp, value uint64) Request {
	if uint(src.n) > initiator.InlineMax || op > SignalAdd || !p.tries() {
		return Request{}
	}
	if src.n == 0 && src != (Buffer{}) {
		return Request{} // PutSignal checks both ends of an empty range
	}
	var local *mr.Registration
	var sge fabric.SGE
	var addr uint64
	var rkey uint32
	var err error
	if src.n > 0 {
		if sge, err = src.sge(p.eng, p.link); err == nil {
			addr, rkey, err = p.reach(dst, uint64(src.n), fabric.AccessRemoteWrite)
		}
		if err != nil {
			return Request{}
		}
		local = src.region.reg
	}
	need := fabric.AccessRemoteWrite
	if op == SignalAdd {
		need = fabric.AccessRemoteAtomic
	}
	flag, flagKey, err := p.reach(sig, 8, need)
	if err != nil || flag%8 != 0 {
		return Request{}
	}
	n := initiator.TrySignal(&p.one, local, sge, addr, rkey, flag, flagKey, op == SignalAdd, value)
	if n == 0 {
		return Request{}
	}
	return newReceipt(p.eng, n)
}

// data checks the data of a PutSignal, and sets it unless it is empty.
func (p *Peer) data(o *initiator.Op, dst Remote, src Buffer) error {
	if uint64(src.n) > p.one.Max() {
		return p.long(o, dst, src)
	}
	sge, err := src.sge(p.eng, p.link)
	if err != nil {
		return err
	}
	addr, rkey, err := p.reach(dst, uint64(src.n), fabric.AccessRemoteWrite)
	if err != nil {
		return err
	}
	if src.n > 0 {
		o.Needs(src.region.reg)
		o.Local(sge)
		o.Remote(addr, rkey)
	}
	return nil
}

// Signal changes the word at sig as PutSignal does, after all operations posted for the
// peer before. It transfers no data. It does not allocate or block.
// Hot path.
func (p *Peer) Signal(sig Remote, op SignalOp, value uint64) Request {
	return signalWithin(p, sig, op, value, &p.budget)
}

// LibrarySignal is Peer.Signal for libraries built on this package: it counts with their
// messages, apart from the application's operations (see LibraryTags).
// Hot path.
func LibrarySignal(p *Peer, sig Remote, op SignalOp, value uint64) Request {
	return signalWithin(p, sig, op, value, &p.library)
}

// noBound is a budget that is never used up.
var noBound pending.Budget

// tell is Signal for the engine itself, with SignalSet. Config.Outstanding does not count it:
// the caller bounds how many are in flight.
func tell(p *Peer, sig Remote, value uint64) Request {
	return signalWithin(p, sig, SignalSet, value, &noBound)
}

// signalWithin is Signal, which counts in b.
// Hot path.
func signalWithin(p *Peer, sig Remote, op SignalOp, value uint64, b *pending.Budget) Request {
	if r := trySignal(p, Remote{}, Buffer{}, sig, op, value); r.eng != nil {
		return r
	}
	o := initiator.New(&p.one, initiator.PutSignal)
	if err := p.flag(o, sig, op, value); err != nil {
		return p.drop(o, err)
	}
	return postWithin(p, o, b)
}

// flag checks the signal of o, and sets it.
func (p *Peer) flag(o *initiator.Op, sig Remote, op SignalOp, value uint64) error {
	need := fabric.AccessRemoteWrite
	if op == SignalAdd {
		need = fabric.AccessRemoteAtomic
	}
	addr, rkey, err := p.reach(sig, 8, need)
	switch {
	case err != nil:
	case addr%8 != 0:
		err = ErrAlign
	case op > SignalAdd:
		err = fmt.Errorf("%w: no signal operation %d: want SignalSet or SignalAdd", ErrInvalid, op)
	case op == SignalAdd && apart(p):
		err = errApart
	}
	if err == nil {
		o.Flag(addr, rkey, op == SignalAdd, value)
	}
	return err
}

// WaitSignal waits until the 8-byte word w, which must be aligned to 8 bytes, meets cond
// with value, and returns its value. The data of all PutSignals that have changed the word
// so far may then be read. WaitSignal spins for some microseconds and then sleeps.
// PutSignal and Signal wake it, on every link, and so do this rank's operations on itself;
// stores of this process are noticed within 4 ms, other operations of peers within 1 s.
// The error is that of ctx, ErrClosed, or a *PeerError if the buffer is not a valid word.
// WaitSignal does not notice the death of the rank that should change the word: see
// Peer.WaitSignal. It does not allocate.
// Hot path.
func (e *Engine) WaitSignal(ctx context.Context, w Buffer, cond Cond, value uint64) (uint64, error) {
	return e.Peer(e.Rank()).waitWord(ctx, w, onesided.Uint64, cond, value, nil)
}

// WaitSignal is Engine.WaitSignal for a word that this peer changes: if the peer is lost
// and the word does not meet the condition, the error is a *PeerError with the reason.
func (p *Peer) WaitSignal(ctx context.Context, w Buffer, cond Cond, value uint64) (uint64, error) {
	return p.waitWord(ctx, w, onesided.Uint64, cond, value, p)
}

// AwaitSignal is WaitSignal as a request, for WaitAny: its Wait returns the value of the
// word that met the condition. The request stays in flight until the condition is met or
// the engine is closed, also if the rank that should change the word dies. Until then Region.Close of the word's region returns ErrInUse; the
// region is released when the request is complete.
func (e *Engine) AwaitSignal(w Buffer, cond Cond, value uint64) AtomicRequest {
	return AtomicRequest{Request: e.Peer(e.Rank()).awaitWord(w, onesided.Uint64, cond, value, nil)}
}

// WaitUntil is Engine.WaitSignal for a word of 4 or 8 bytes, aligned to its size, which is
// compared as a number of type T, so signed if T is. Atomics, accumulates and puts of
// peers are noticed at once, except over RDMA, where only signals, whose words have 8
// bytes, wake a goroutine that sleeps. Like Engine.WaitSignal, it does not notice the death
// of a peer.
// Hot path.
func WaitUntil[T Integer](ctx context.Context, e *Engine, w Buffer, cond Cond, value T) (T, error) {
	v, err := e.Peer(e.Rank()).waitWord(ctx, w, typeOf[T](), cond, bitsOf(value), nil)
	return ofBits[T](v), err
}

// AwaitUntil is WaitUntil as a request: see Engine.AwaitSignal.
func AwaitUntil[T Integer](e *Engine, w Buffer, cond Cond, value T) FetchRequest[T] {
	return FetchRequest[T]{Request: e.Peer(e.Rank()).awaitWord(w, typeOf[T](), cond, bitsOf(value), nil)}
}

// Integer is the set of types of words that WaitUntil compares.
type Integer interface {
	~int32 | ~int64 | ~uint32 | ~uint64
}

func (p *Peer) waitWord(ctx context.Context, w Buffer, t onesided.Type, cond Cond, value uint64, from *Peer) (uint64, error) {
	r := p.awaitWord(w, t, cond, value, from)
	v, err := r.wait(ctx, nil)
	if err != nil && r.waitable() { // the wait ended, not the operation
		p.eng.proto.one.CancelAwait(r.op.Work().(*initiator.Op))
	}
	return v, err
}

func (p *Peer) awaitWord(w Buffer, t onesided.Type, cond Cond, value uint64, from *Peer) Request {
	s, err := w.sge(p.eng, p.link)
	switch {
	case err != nil:
	case w.n != t.Size():
		err = ErrLength
	case s.Addr%uint64(w.n) != 0:
		err = ErrAlign
	case !onesided.Cond(cond).Known():
		err = fmt.Errorf("%w: no condition %d", ErrInvalid, cond)
	case !w.region.reg.Hold():
		err = ErrForeign
	}
	if err != nil {
		return p.refuse(initiator.Await.String(), err)
	}
	var q *initiator.Queue
	if from != nil {
		q = &from.one
	}
	reg := w.region.reg
	o := initiator.New(&p.one, initiator.Await)
	o.Word(reg, reg.Bytes()[w.off:w.off+w.n], t, onesided.Cond(cond), value, q)
	r := p.post(o)
	if r.refused() {
		_ = reg.Release()
	}
	return r
}

// Flush returns a request that is complete when all one-sided operations posted for the
// peer before, by any goroutine, are complete: puts, atomics and accumulates have taken
// place in the target's memory, and the data of gets is in local memory. It fails with the
// first error among them and among operations released with Forget since the last Flush,
// and if the connection is lost. Messages are not included.
func (p *Peer) Flush() Request { return p.post(initiator.New(&p.one, initiator.Flush)) }

// Fence orders operations without waiting: one-sided operations posted for the peer after
// it take place after all those posted before it, gets and emulated atomics included.
// Among puts, FetchAdd and CompareSwap alone no fence is needed.
func (p *Peer) Fence() {
	if o := initiator.New(&p.one, initiator.Fence); o.Detach() {
		p.post(o)
	}
}

// FlushAll flushes all peers and waits for the flushes. It returns their joined errors, the
// error of ctx, or ErrClosed. If ctx ends first, no error is lost: the next flush of the peer
// returns it.
func (e *Engine) FlushAll(ctx context.Context) error { return flush(ctx, e, e.peers, WaitAll) }

// flush posts a flush of each of the peers that has something to wait for or to report, and
// calls wait. The errors of flushes that wait does not use up go to the next ones.
func flush(ctx context.Context, e *Engine, peers []*Peer, wait func(context.Context, ...Request) error) error {
	if e.closed.Load() {
		return ErrClosed
	}
	var reqs []Request
	for _, p := range having(e, peers, (*initiator.Queue).Unflushed) {
		reqs = append(reqs, p.Flush())
	}
	err := wait(ctx, reqs...)
	for _, r := range reqs {
		if r.waitable() {
			r.Forget()
		}
	}
	return err
}

// having returns those of the peers for whose operations has returns true.
func having(e *Engine, peers []*Peer, has func(*initiator.Queue) bool) (ps []*Peer) {
	e.prog.Do(func() {
		e.proto.inbox.TakeOver()
		for _, p := range peers {
			if has(&p.one) {
				ps = append(ps, p)
			}
		}
	})
	return ps
}

// FenceAll calls Fence for every peer. It does not order operations with different peers
// among each other: wait for those. Unlike Fence, it must not be called by a callback.
func (e *Engine) FenceAll() {
	for _, p := range having(e, e.peers, (*initiator.Queue).Busy) {
		p.Fence()
	}
}

// Event lets one goroutine wait for a condition that a handler, a Receiver or another
// goroutine establishes. It waits as requests do: the goroutine polls the links itself if
// no other goroutine does, so that there is no hand-over between goroutines on the path of
// a message to its reader; then it sleeps. The waiter calls Reset, checks the condition,
// and calls Wait; the other side establishes the condition, and then calls Set.
type Event struct {
	eng   *Engine
	w     progress.Waiter
	state atomic.Uint32
}

// States of an Event.
const (
	eventSet     uint32 = iota // since the last Reset, if there was one
	eventArmed                 // Set has an effect
	eventSetting               // a goroutine is in Set
)

// NewEvent returns an event that is not set.
func (e *Engine) NewEvent() *Event {
	ev := &Event{eng: e}
	ev.Reset()
	return ev
}

// Reset clears the event: later calls of Wait wait for a Set after this call. Only the
// waiter may call it.
func (ev *Event) Reset() {
	for {
		switch ev.state.Load() {
		case eventArmed:
			return // not set since the last Reset
		case eventSet:
			ev.w.Init()
			ev.state.Store(eventArmed)
			return
		}
		runtime.Gosched() // Set is about to finish: it waits for nothing
	}
}

// Set sets the event, which ends a Wait. It may be called from any goroutine, any number
// of times; it does not wait or allocate.
func (ev *Event) Set() {
	if ev.state.CompareAndSwap(eventArmed, eventSetting) {
		ev.eng.prog.Finish(&ev.w)
		ev.state.Store(eventSet)
	}
}

// Wait waits until the event is set and returns nil, or returns the error of ctx, or
// ErrClosed. Only one goroutine at a time may call it.
func (ev *Event) Wait(ctx context.Context) error {
	if err := ev.eng.prog.Wait(ctx, &ev.w); err != nil {
		if errors.Is(err, progress.ErrClosed) {
			return ErrClosed
		}
		return fmt.Errorf("rma: wait: %w", err)
	}
	return nil
}
