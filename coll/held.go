package coll

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/onesided"
)

// An operation by single copies that fails takes back the memory that it has shown to others (board.withdraw), and ends when
// none of them writes there any more. A rank that was stopped in the middle of a write may do so at any later time. Then the
// operation ends with an InUseError, and the board keeps the memory until that rank has finished, or has ended.

// InUseError says that an operation has failed while another rank was in the middle of a write to its memory, and has not
// finished it for a second: it was stopped, or has no processor; or while that rank has not taken, for a second, what was sent
// to it from there. Until Wait has returned nil, that rank may access the memory, which
// must not be used for anything else or be released; package coll keeps memory of the Go heap until then. It wraps rma.ErrInUse.
type InUseError struct {
	Rank int // that may access it, by its number in the job

	over chan struct{} // closed when nobody does, or nobody will know
	err  error         // why nobody will know, set before
	mem  [][]byte      // what is kept; the board's mu guards it
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("rank %d may be accessing the memory of the call: %v", e.Rank, rma.ErrInUse)
}

// Unwrap returns rma.ErrInUse.
func (e *InUseError) Unwrap() error { return rma.ErrInUse }

// Wait returns nil when no rank accesses the memory any more: it may be used again. If the engine was closed before, while
// a rank was writing, the error wraps rma.ErrClosed: nobody will know, and memory of the Go heap is kept for ever.
func (e *InUseError) Wait(ctx context.Context) error {
	select {
	case <-e.over:
		return e.err
	default:
	}
	select {
	case <-e.over:
		return e.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// writeLimit is how long a rank waits at once for others to finish a write; the call of the system mostly takes less.
// heldLimit is the time after which an operation ends while another rank may be writing to its memory, and the board looks
// more rarely, every heldPause.
const writeLimit, heldLimit, heldPause = 2 * time.Millisecond, time.Second, 50 * time.Millisecond

// lost are errors whose memory is kept for ever: their engine was closed.
var lost struct {
	mu   sync.Mutex
	errs []*InUseError
}

// settle waits, for at most limit, until no rank writes to memory that this one has withdrawn. It returns
// a rank of the team that may still do so, or none. b.mu is held, except between two looks.
func settle(b *board, limit time.Duration) (writer int32) {
	for began := cpu.Ticks(); ; {
		if writer = writerTo(b); writer == none || cpu.Duration(cpu.Ticks()-began) > limit {
			return writer
		}
		b.mu.Unlock()
		cpu.Yield()
		b.mu.Lock()
	}
}

// writerTo returns a rank of the team that may be writing to memory that this one has withdrawn, none if no rank is that has not ended:
// it is in one call of the system, or was stopped around it. b.mu is held.
func writerTo(b *board) int32 {
	if b.withdrawn == 0 || b.lost {
		return none
	}
	for r, at := range b.area.attached {
		if at != nil && onesided.Load64(b.came[b.area.lineOf(r, b.withdrawn)+writingAt:]) != 0 && !at.Ended() {
			return int32(r)
		}
	}
	return none
}

// hold returns the error that says that a rank of the team may be writing to memory of an operation, and keeps that memory. b.mu is held.
func hold(b *board, writer int32, o *operation) *InUseError {
	if b.held == nil {
		b.held = &InUseError{Rank: b.t.ranks[writer], over: make(chan struct{})}
	}
	if o != nil {
		b.held.mem = append(b.held.mem, o.bufs...)
	}
	return b.held
}

// letGo ends operations of a board that failed at a time in Ticks. The first of them, if others may be writing to its memory,
// ends when they do so no more, or after b.patience. letGo waits for that for at most limit, and is then called again.
func letGo(b *board, ops []*operation, failed int64, limit time.Duration) {
	b.mu.Lock()
	writer := settle(b, limit)
	waited := cpu.Duration(cpu.Ticks() - failed)
	var kept []*operation
	if len(ops) > 0 && ops[0].flag == b.withdrawn && (writer != none || b.lost) {
		if writer != none && waited < b.patience {
			kept, ops = ops[:1], ops[1:]
		} else {
			h := hold(b, writer, ops[0])
			ops[0].mu.Lock()
			ops[0].inUse = h
			ops[0].mu.Unlock()
		}
	}
	if writer == none {
		b.area.unmap()
		if b.held != nil && !b.lost {
			b.held.mem = nil
			close(b.held.over)
			b.held = nil
		}
	}
	closes := writer == none && b.closes
	b.mu.Unlock()
	if writer != none {
		pause := writeLimit
		if waited >= b.patience {
			pause = heldPause
		}
		time.AfterFunc(pause, func() { letGo(b, kept, failed, 0) })
	}
	for _, o := range ops {
		o.release()
	}
	if closes {
		b.t.closeBoard(b)
	}
}

// stop ends operations on the board, among them one that it does not know, as it has been begun by startFast. It waits until the memory
// of that one may change, and returns an error if it must not. waits says that its caller would wait for the operation.
func stop(b *board, o *operation, waits bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.dead.Swap(true) {
		b.withdraw()
	}
	limit := writeLimit
	if waits {
		limit = b.patience
	}
	if writer := settle(b, limit); writer != none || b.lost {
		failed := cpu.Ticks()
		time.AfterFunc(heldPause, func() { letGo(b, nil, failed, 0) })
		return hold(b, writer, o)
	}
	return nil
}

// leaveBoard waits, behind fail, until no goroutine looks for a flag: the memory of the board is released. It gives a rank that was
// stopped in the middle of a write writeLimit to finish: later nobody sees that it has.
func leaveBoard(b *board) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.spinning > 0 {
		b.mu.Unlock()
		runtime.Gosched()
		b.mu.Lock()
	}
	writer := settle(b, writeLimit)
	if writer == none {
		b.withdrawn = 0
		return
	}
	h := hold(b, writer, nil)
	h.err = fmt.Errorf("coll: %w: rank %d may write at any time", rma.ErrClosed, h.Rank)
	b.lost = true
	close(h.over)
	lost.mu.Lock()
	lost.errs = append(lost.errs, h)
	lost.mu.Unlock()
}
