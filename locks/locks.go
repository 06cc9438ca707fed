package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/seed33544411/rma"
)

var (
	// ErrBroken says that a rank that held the lock for writing was lost: the memory that the
	// lock protects may be inconsistent. The error is a *rma.PeerError that names the rank.
	// Recover takes such a lock.
	ErrBroken = errors.New("the rank that held the lock for writing was lost: repair the protected data under Recover")

	// ErrTaken is the error of TryLock and TryRLock if the lock is held or others wait for
	// it.
	ErrTaken = errors.New("locks: taken")

	// ErrFull says that this rank has 4096 requests at the home: granted and waiting ones, and
	// locks that are broken since it lost its connection, together. So it is if the home has not
	// answered 4096 requests whose waits were given up.
	ErrFull = errors.New("too many locks of one home are held or waited for")

	// ErrNotHeld says that the lock was unlocked before, or was lost with the connection to
	// its home.
	ErrNotHeld = errors.New("locks: not held")
)

// ID is the name of a lock.
type ID struct {
	Home int    // the rank that grants it, preferably the one whose memory it protects
	Key  uint64 // any number
}

func (id ID) String() string { return fmt.Sprintf("%d/%d", id.Home, id.Key) }

// Locks is one rank's access to the locks of its job. Its methods may be called from any
// goroutine; goroutines of one rank exclude each other as ranks do. It ends with its
// engine.
type Locks struct {
	eng *rma.Engine

	mu     sync.Mutex // not held during calls of the engine
	table  table
	mine   map[uint64]*Held // requested and held, by serial
	serial uint64
	losses map[int]int        // by rank: the first connection whose requests count: those before are over, or abused
	late   map[int][]outgoing // by home: see keep
	left   map[int]int        // by home: requests in that state
	err    error              // the engine is closed
}

// Held is a lock that this rank holds. Its methods may be called from any goroutine.
type Held struct {
	l        *Locks
	id       ID
	serial   uint64
	epoch    int // losses of the home before the request
	answered *rma.Event
	state    state // guarded by l.mu, as is err
	err      error // the reason if it is over
}

// state is the state of a request.
type state uint8

const (
	asked state = iota
	left        // the wait was given up: release it if it is granted
	held
	over // refused, released or lost
)

var engines sync.Map // *rma.Engine that have Locks

// New makes this rank a home of locks, and returns its access to the locks of all homes.
// Every rank that is a home must call New; requests that arrive before wait for that. An
// engine has at most one Locks.
func New(eng *rma.Engine) (*Locks, error) {
	l := &Locks{eng: eng, table: newTable(), mine: map[uint64]*Held{}, losses: map[int]int{}, late: map[int][]outgoing{}, left: map[int]int{}}
	if _, has := engines.LoadOrStore(eng, l); has {
		return nil, fmt.Errorf("locks: %w: the engine has locks already", rma.ErrInvalid)
	}
	if !eng.BeforeClose(func() { engines.Delete(eng); l.close() }) {
		engines.Delete(eng)
		return nil, fmt.Errorf("locks: %w", rma.ErrClosed)
	}
	_, err := eng.HandleWith(rma.HandlerOptions{Tag: tag, MaxSize: frameSize}, l.take)
	if err == nil {
		_, err = eng.Receive(tag, 0, (*ends)(l))
	}
	if err != nil {
		engines.Delete(eng)
		return nil, fmt.Errorf("locks: %w", err)
	}
	return l, nil
}

// Lock waits until there is no other holder, and takes the lock for writing. The error is
// that of ctx, wraps ErrBroken or ErrFull, or is a *rma.PeerError about the home.
func (l *Locks) Lock(ctx context.Context, id ID) (*Held, error) { return l.ask(ctx, id, 0) }

// RLock waits until the lock is not held for writing, and takes it for reading. Errors are
// those of Lock.
func (l *Locks) RLock(ctx context.Context, id ID) (*Held, error) { return l.ask(ctx, id, modeShared) }

// TryLock takes the lock for writing if it is free, and fails with ErrTaken otherwise. It
// waits for the home's answer only. Other errors are those of Lock.
func (l *Locks) TryLock(ctx context.Context, id ID) (*Held, error) { return l.ask(ctx, id, modeTry) }

// TryRLock takes the lock for reading if RLock would not wait, and fails with ErrTaken
// otherwise. Other errors are those of Lock.
func (l *Locks) TryRLock(ctx context.Context, id ID) (*Held, error) {
	return l.ask(ctx, id, modeShared|modeTry)
}

// Recover is Lock that also takes a broken lock. The lock is no longer broken then: the
// caller repairs the protected memory before it unlocks.
func (l *Locks) Recover(ctx context.Context, id ID) (*Held, error) {
	return l.ask(ctx, id, modeRecover)
}

func (l *Locks) ask(ctx context.Context, id ID, m mode) (*Held, error) {
	if id.Home < 0 || id.Home >= l.eng.Size() {
		return nil, fmt.Errorf("locks: home of %v: %w: ranks are 0 to %d", id, rma.ErrInvalid, l.eng.Size()-1)
	}
	if err := ctx.Err(); err != nil {
		return nil, failed("lock", id, err)
	}
	h := &Held{l: l, id: id, answered: l.eng.NewEvent(), epoch: rma.StateOf(l.eng.Peer(id.Home)).Lost}
	l.mu.Lock()
	err := l.err
	if err == nil && l.left[id.Home] >= maxRequests {
		err = &rma.PeerError{Rank: id.Home, Op: "lock", Err: ErrFull}
	}
	if err != nil {
		defer l.mu.Unlock()
		return nil, failed("lock", id, err)
	}
	l.serial++
	h.serial = l.serial
	l.mine[h.serial] = h
	l.mu.Unlock()
	l.send([]outgoing{{id.Home, frame{kind: kindLock, mode: m, serial: h.serial, key: id.Key}}})

	err = h.answered.Wait(ctx)
	var out []outgoing
	l.mu.Lock()
	switch h.state {
	case held:
		err = nil
	case over:
		err = h.err
	default:
		h.state = left
		l.left[id.Home]++
		out = []outgoing{{id.Home, frame{kind: kindCancel, serial: h.serial}}}
	}
	l.mu.Unlock()
	l.send(out)
	if err != nil {
		return nil, failed("lock", id, err)
	}
	return h, nil
}

func failed(what string, id ID, err error) error {
	return fmt.Errorf("locks: %s %v: %w", what, id, err)
}

// ID returns the lock's name.
func (h *Held) ID() ID { return h.id }

// Unlock flushes the engine's one-sided operations, to all peers, and releases the lock.
// If one of these operations has failed, Unlock returns its error; the lock is released
// nevertheless. If ctx ends first, the lock remains held: call Unlock again. Unlock does
// not wait for the home.
func (h *Held) Unlock(ctx context.Context) error {
	l := h.l
	err := l.eng.FlushAll(ctx)
	var pe *rma.PeerError // of an operation: ctx may have ended since
	var out []outgoing
	l.mu.Lock()
	switch {
	case h.state == over:
		err = h.err
	case err != nil && ctx.Err() != nil && !errors.As(err, &pe):
		err = ctx.Err()
	default:
		l.end(h, ErrNotHeld)
		out = []outgoing{{h.id.Home, frame{kind: kindUnlock, serial: h.serial}}}
	}
	l.mu.Unlock()
	l.send(out)
	if err != nil {
		return failed("unlock", h.id, err)
	}
	return nil
}

// take is the engine's handler for messages of a peer.
func (l *Locks) take(m rma.Envelope, parts [][]byte) {
	b := make([]byte, 0, frameSize)
	for _, p := range parts {
		b = append(b, p...)
	}
	f, err := parse(b)
	epoch := l.epoch(m.From)
	var out []outgoing
	l.mu.Lock()
	switch {
	case f.kind > kindCancel && err == nil:
		out = l.answer(m.From, f)
	case epoch < l.losses[m.From], f.kind == kindLock && rma.StateOf(l.eng.Peer(m.From)).State >= rma.PeerDown: // it would be granted to nobody
	case err != nil:
		l.losses[m.From] = epoch + 1
		out = l.lose(m.From, math.MaxInt, err)
	default:
		out = l.table.handle(m.From, epoch, f, nil)
	}
	l.mu.Unlock()
	l.send(out)
}

// answer processes a home's answer. l.mu is held.
func (l *Locks) answer(from int, f frame) []outgoing {
	if f.kind == kindForgotten {
		return l.forgotten(from, func(h *Held) bool { return h.serial <= f.serial }, rma.ErrFlushed)
	}
	h := l.mine[f.serial]
	if h != nil && (h.id.Home != from || h.state == held) {
		return nil // a violation, without effect
	}
	if f.kind == kindGranted {
		if h != nil && h.state == asked {
			h.state = held
			h.answered.Set()
			return nil
		}
		if h != nil { // the cancellation has crossed the grant
			l.end(h, context.Canceled)
		}
		return []outgoing{{from, frame{kind: kindUnlock, serial: f.serial}}}
	}
	if h == nil {
		return nil
	}
	var err error
	switch f.kind {
	case kindTaken:
		err = ErrTaken
	case kindBroken:
		err = &rma.PeerError{Rank: int(min(f.rank, uint32(l.eng.Size()))), Op: "lock", Err: ErrBroken}
	case kindFull:
		err = &rma.PeerError{Rank: from, Op: "lock", Err: ErrFull}
	case kindCancelled:
		err = &rma.PeerError{Rank: from, Op: "lock", Err: ErrProtocol} // unless the wait was given up
	}
	l.end(h, err)
	return nil
}

// end removes h with the reason why. l.mu is held.
func (l *Locks) end(h *Held, why error) {
	delete(l.mine, h.serial)
	if h.state == left {
		l.left[h.id.Home]--
	}
	h.state, h.err = over, why
	h.answered.Set()
}

// forgotten ends those of the locks requested of rank and granted by it that are in what. The frames
// that it returns withdraw them: requests that were sent over the next connection. l.mu is held.
func (l *Locks) forgotten(rank int, what func(*Held) bool, why error) (out []outgoing) {
	for _, h := range l.mine {
		switch {
		case h.id.Home != rank || !what(h):
		case h.state == held:
			out = append(out, outgoing{rank, frame{kind: kindUnlock, serial: h.serial}})
			l.end(h, errors.Join(ErrNotHeld, why))
		default:
			out = append(out, outgoing{rank, frame{kind: kindCancel, serial: h.serial}})
			l.end(h, why)
		}
	}
	return out
}

// epoch returns how often the connection with rank had been lost when the one began over which a message
// came that is handled now. The engine reports a loss before it delivers the last messages of the connection.
func (l *Locks) epoch(rank int) int {
	now := rma.StateOf(l.eng.Peer(rank))
	if now.State >= rma.PeerDown {
		return now.Lost - 1
	}
	return now.Lost
}

// lose forgets what belongs to connections with rank before epoch, as a home and as a holder. l.mu is held.
func (l *Locks) lose(rank, epoch int, why error) []outgoing {
	return l.table.lost(rank, epoch, l.forgotten(rank, func(h *Held) bool { return h.epoch < epoch }, why))
}

// ends is a Locks that is told of the end of a connection behind its last message. The handler before it
// takes the messages.
type ends Locks

// Arriving implements rma.Receiver.
func (*ends) Arriving(rma.Envelope, bool) rma.Landing { return rma.Landing{Unwanted: true} }

// Arrived implements rma.Receiver.
func (*ends) Arrived(rma.Envelope, any, [][]byte, error) {}

// Gone implements rma.Receiver.
func (e *ends) Gone(rank int, err error) {
	l := (*Locks)(e)
	if rank == l.eng.Rank() {
		return // its losses are not counted; a frame that could not be sent has ended what was asked
	}
	over := l.epoch(rank) + 1
	l.mu.Lock()
	l.losses[rank] = over
	out := l.lose(rank, over, cmp.Or(err, rma.ErrFlushed))
	l.mu.Unlock()
	l.send(out)
}

// close fails all waits.
func (l *Locks) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = rma.ErrClosed
	for _, h := range l.mine {
		l.end(h, l.err)
	}
}

// send sends frames to their ranks. A frame that cannot be sent ends what was asked over the connection.
func (l *Locks) send(out []outgoing) {
	for _, a := range out {
		b := new([frameSize]byte)
		a.put(b)
		over := l.epoch(a.to) + 1
		l.eng.Peer(a.to).SendFunc(tag, b[:], func(err error) {
			if err == nil || a.kind == kindForgotten {
				return
			}
			l.mu.Lock()
			if h := l.mine[a.serial]; h != nil && a.kind == kindLock {
				l.end(h, err)
			}
			var out []outgoing
			if !errors.Is(err, rma.ErrBusy) || !l.keep(a) {
				out = l.lose(a.to, over, err)
			}
			l.mu.Unlock()
			l.send(out)
		})
	}
}

// latePause is the time after which refused frames are sent once more.
const latePause = 10 * time.Millisecond

// keep handles a frame of this rank to a home that takes so few messages that the engine has
// refused it. A request has no effect, and what gives up a lock is sent later: the home has
// granted it. keep returns false for other frames, and for more than a home that grants what
// was requested can cause. l.mu is held.
func (l *Locks) keep(a outgoing) bool {
	kept := l.late[a.to]
	switch {
	case a.kind == kindLock:
		return true
	case a.kind > kindCancel || len(kept) >= 2*maxRequests:
		return false
	}
	if l.late[a.to] = append(kept, a); len(kept) == 0 {
		time.AfterFunc(latePause, func() {
			l.mu.Lock()
			out := l.late[a.to]
			delete(l.late, a.to)
			l.mu.Unlock()
			l.send(out)
		})
	}
	return true
}
