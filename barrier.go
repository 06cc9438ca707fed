package rma

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"runtime/trace"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/wireup"
)

// seldom is how many barriers go through the job's server, which connects nobody with
// anybody: programs that meet when they begin and end need no more. The next one
// exchanges keys, and those behind it go from rank to rank.
const seldom = 3

// broken marks the word of a barrier that cannot end, because a rank is gone; the rank
// is in the low bits.
const broken = 1 << 63

// barrier is a rank's part in the barriers of its job. In round k of ⌈log2 n⌉ a rank
// tells the one 2^k above it that it is there, and waits for the word of the one 2^k
// below: after the last round it has heard of everybody (Hensgen, Finkel, Manber:
// "Two algorithms for barrier synchronization", 1988). The words count barriers, so
// that nobody has to clear them: who is ahead writes a larger number.
type barrier struct {
	turn  chan struct{} // held by the goroutine whose turn it is
	count uint64        // barriers that have ended, of those through the server
	words *Window       // word k: of round k
	seq   uint64        // of the barrier under way, or of the last one
	under bool          // there is one under way: it goes on if its context ended
	round int           // that it has come to
	told  []Request     // words that are on their way to others
	err   error         // why there are no more barriers

	crowded bool // more ranks than processors somewhere: the server is faster
	insist  bool // for tests: whatever crowd there is
}

// Barrier returns when all ranks have called it, as often as this rank has. It says
// nothing about operations under way: flush first, or wait for their requests.
//
// The first few go through the job's server. Those later go from rank to rank, in
// ⌈log2 n⌉ rounds of signals of a microsecond or so, unless a host has more ranks than
// processors, where that would be slower. If ctx ends, or
// Config.SetupTimeout where it has no deadline, Barrier may be called again and goes
// on with the same barrier. A rank that is gone, or that another cannot reach any
// more, ends this one and all that follow, on all ranks, with an error that wraps
// ErrPeerGone or what took the connection down.
func (e *Engine) Barrier(ctx context.Context) error {
	defer trace.StartRegion(ctx, regionBarrier).End()
	b := &e.barrier
	if d := e.cfg.SetupTimeout; d > 0 {
		if _, has := ctx.Deadline(); !has {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, d)
			defer cancel()
		}
	}
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("rma: barrier: %w", ctx.Err())
	}
	defer func() { <-b.turn }()
	if e.closed.Load() {
		return ErrClosed
	}
	if err := e.meet(ctx); err != nil {
		return fmt.Errorf("rma: barrier: %w", err)
	}
	return nil
}

// meet makes one barrier.
func (e *Engine) meet(ctx context.Context) error {
	b := &e.barrier
	switch {
	case b.err != nil:
		return b.err
	case b.count == seldom-1:
		return e.census(ctx)
	case b.count < seldom || b.crowded:
		if err := e.job.Barrier(ctx, "rma/barrier"); err != nil {
			return gone(err)
		}
		b.count++
		return nil
	case b.words == nil:
		w, err := e.Window(ctx, 8*bits.UintSize)
		if err == nil {
			b.words = w // nobody has it before all have called
		}
		return err
	}
	if !b.under {
		b.under, b.round = true, 0
		b.seq++
	}
	n, me := e.Size(), e.Rank()
	for ; 1<<b.round < n; b.round++ {
		k := b.round
		up, down := (me+1<<k)%n, (me-1<<k%n+n)%n
		b.told = append(b.told, e.Peer(up).Signal(b.words.At(up, uint64(8*k)), SignalSet, b.seq))
		v, err := e.Peer(down).WaitSignal(ctx, b.words.Slice(8*k, 8), GE, b.seq)
		if v >= broken {
			r := int(v &^ broken)
			err = &PeerError{Rank: r, Op: "barrier", Err: ErrPeerGone}
		}
		if err != nil {
			return e.breakBarrier(err)
		}
	}
	b.under = false
	// All have been here. Those above must have the word before this rank goes away;
	// if one does not want it any more, it has it.
	for _, r := range b.told {
		if err := r.Wait(ctx); err != nil && ctx.Err() != nil {
			r.Then(func(error) {})
		}
	}
	b.told = b.told[:0]
	return nil
}

// census is a barrier in which all learn, alike, whether a host has more ranks than
// processors. Waiting for each other's words takes a turn of the scheduler a round
// then: 4 ranks on 2 processors need 200 µs, and 60 through the server, which has to
// wake each of them only once; 2 ranks need 1 µs, and 45 through the server
// (BenchmarkBarrier).
func (e *Engine) census(ctx context.Context) error {
	mine := fmt.Appendf(nil, "%d %s", runtime.GOMAXPROCS(0), links.HostID())
	all, err := e.job.AllGather(ctx, "rma/census", mine)
	if err != nil {
		return gone(err)
	}
	e.barrier.count++
	ranks := map[string]int{}
	for _, b := range all {
		cpus, host, _ := strings.Cut(string(b), " ")
		ranks[host]++
		if n, err := strconv.Atoi(cpus); err != nil || ranks[host] > n {
			e.barrier.crowded = !e.barrier.insist
		}
	}
	return nil
}

// gone makes an error of the job one of this package.
func gone(err error) error {
	if errors.Is(err, wireup.ErrPeerGone) {
		return fmt.Errorf("%w: %w", ErrPeerGone, err)
	}
	return err
}

// breakBarrier tells the others that a rank is gone, if that is what err says: each
// waits for a word of somebody who may be waiting as well.
func (e *Engine) breakBarrier(err error) error {
	var pe *PeerError
	if !errors.As(err, &pe) {
		return err // this rank's own, and not for good
	}
	b := &e.barrier
	b.err = err
	n, me := e.Size(), e.Rank()
	for k := 0; 1<<k < n; k++ {
		up := (me + 1<<k) % n
		e.Peer(up).Signal(b.words.At(up, uint64(8*k)), SignalSet, broken|uint64(pe.Rank)).Then(func(error) {})
	}
	return err
}
