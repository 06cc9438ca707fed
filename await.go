package rma

import (
	"context"
	"slices"
	"time"

	"github.com/seed33544411/rma/mr"
)

// word is a word of this rank that somebody waits for.
type word struct {
	reg  *mr.Registration // held
	mem  []byte
	cond Cond
	from *Peer // who is to change it, nil if anybody
}

// WaitSignal waits until the 8-byte word, which must lie on a multiple of 8, meets
// cond with value, and returns what it holds then. All data of PutSignals that
// changed the word so far may be read. It spins for some microseconds and then
// sleeps; PutSignal and Signal wake it, on every link, and so do this rank's operations
// on itself. Its own stores are seen within 4 ms, other operations of peers after a
// while at the latest (1 s). The error is the context's,
// ErrClosed, or about the buffer. It does not allocate.
// Hot path.
func (e *Engine) WaitSignal(ctx context.Context, w Buffer, cond Cond, value uint64) (uint64, error) {
	return e.Peer(e.Rank()).waitSignal(ctx, w, cond, value, nil)
}

// WaitSignal is Engine.WaitSignal for a word that this peer is to change: if the
// peer is gone and the word is not as it should be, the error is a *PeerError.
func (p *Peer) WaitSignal(ctx context.Context, w Buffer, cond Cond, value uint64) (uint64, error) {
	return p.waitSignal(ctx, w, cond, value, p)
}

// AwaitSignal is WaitSignal as a request, for WaitAny: its Wait returns what the
// word held when it was found to meet the condition. It lasts until then, or until
// Close. Meanwhile Close of the word's region fails, and takes effect afterwards.
func (e *Engine) AwaitSignal(w Buffer, cond Cond, value uint64) AtomicRequest {
	return AtomicRequest{Request: e.Peer(e.Rank()).awaitSignal(w, cond, value, nil)}
}

func (p *Peer) waitSignal(ctx context.Context, w Buffer, cond Cond, value uint64, from *Peer) (uint64, error) {
	r := p.awaitSignal(w, cond, value, from)
	v, err := r.wait(ctx, nil)
	if err != nil && r.waitable() { // the wait ended, not the operation
		p.eng.prog.Do(func() { p.eng.proto.one.cancelAwait(r.op.Work().(*op)) })
	}
	return v, err
}

func (p *Peer) awaitSignal(w Buffer, cond Cond, value uint64, from *Peer) Request {
	o := newOp(p, kindAwait)
	s, err := w.sge(p.eng, p.link)
	switch {
	case err != nil:
	case w.n != 8:
		err = ErrLength
	case s.Addr%8 != 0:
		err = ErrAlign
	case cond > LT:
		err = ErrInvalid
	case !w.region.reg.Hold():
		err = ErrForeign
	}
	if err != nil {
		return p.drop(o, err)
	}
	x := o.extend()
	x.word = word{reg: w.region.reg, mem: w.region.reg.Bytes()[w.off : w.off+8], cond: cond, from: from}
	o.operand = value
	r := p.handIn(o)
	if r.err != nil {
		_ = w.region.reg.Release()
	}
	return r
}

// await begins to wait for a word.
func (t *initiator) await(o *op) {
	if !t.meets(o) {
		t.awaits = append(t.awaits, o)
	}
}

// meets reports whether o has ended: its word is as it should be, or never will be.
func (t *initiator) meets(o *op) bool {
	x := o.more
	v := load64(x.word.mem)
	switch from := x.word.from; {
	case x.word.cond.holds(v, o.operand):
		o.Value = v
	case o.peer.eng.closed.Load():
		o.Err = ErrClosed
	case from != nil && from.down != nil:
		o.Err = &PeerError{Rank: from.rank, Op: kindAwait.String(), Err: from.down}
	default:
		return false
	}
	t.endAwait(o)
	return true
}

func (t *initiator) endAwait(o *op) {
	_ = o.more.word.reg.Release() // who closed the region meanwhile hears of failures
	if o.Err != nil {
		o.peer.counts.Failed++
	}
	o.Finish()
}

// look looks at all words that are waited for. It reports whether any wait ended.
func (t *initiator) look() bool {
	n := len(t.awaits)
	t.awaits = slices.DeleteFunc(t.awaits, t.meets)
	if len(t.awaits) == n {
		return false
	}
	t.doze.Reset()
	return true
}

// cancelAwait ends a wait that nobody waits for any more.
func (t *initiator) cancelAwait(o *op) {
	t.inbox.TakeOver()
	if i := slices.Index(t.awaits, o); i >= 0 {
		t.awaits = slices.Delete(t.awaits, i, i+1)
		_ = o.more.word.reg.Release()
	}
	o.Drop()
}

// ownNap bounds a sleep while a word is waited for that stores of this rank itself may
// change, of which nobody tells: short for who waits, and 250 looks a second cost little.
const ownNap = 4 * time.Millisecond

// napAwaits is how long a sleep may last for the words that are waited for, 0 for ever.
func (t *initiator) napAwaits() (d time.Duration) {
	if t.deaf() {
		d = t.doze.Next()
	}
	for _, o := range t.awaits {
		if from := o.more.word.from; (from == nil || from.own) && (d == 0 || d > ownNap) {
			return ownNap
		}
	}
	return d
}

// endAwaits looks again, because a peer is gone or the engine closes.
func (t *initiator) endAwaits() {
	if len(t.awaits) > 0 {
		t.look()
	}
}

// deaf reports whether there is a link on which plain writes do not wake this side.
func (t *initiator) deaf() bool {
	for _, p := range t.peers {
		if !p.wakes {
			return true
		}
	}
	return false
}
