package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
)

// checkedBytes bounds the memory of a validating stream, in which each message has a
// place of its own.
const checkedBytes = 64 << 20

// line is the size of a cache line; messages of a stream do not share one.
const line = 64

// flow is the window of a stream: chains of requests. Each chain is posted as a whole,
// and its last request is signalled.
type flow struct {
	chains [][]fabric.WR
	t0     []int64 // when each chain was posted, in ticks
	free   []int   // circular: chains not outstanding, the longest free one first
	head   int     // of free
	nfree  int
	stride int
	places int // number of messages with a place of their own
}

// chainLen is how many requests are posted at once: a quarter of the window, so that the
// others are in flight meanwhile, and at most 32. The call into C is paid once a chain;
// beyond 32 its cost no longer shows.
func chainLen(window int) int { return min(max(window/4, 1), 32) }

// window is the plan's window, reduced to whole chains and, if every message needs a
// place of its own, to checkedBytes.
func (p *point) window() int {
	w := p.Window
	if p.Validate && p.Op != Eager {
		w = max(min(w, checkedBytes/stride(p.size)), 1)
	}
	c := chainLen(w)
	return w / c * c
}

func stride(size int) int { return (size + line - 1) &^ (line - 1) }

// span is the size of each data area that the point needs. Without validation, messages
// cycle through 4 KiB, as in perftest.
func (p *point) span() int {
	switch {
	case p.Test == Lat || p.Op == Eager:
		return p.size
	case p.Validate:
		return p.window() * stride(p.size)
	}
	return max(p.size, 4096)
}

func (s *side) newFlow(p *point) *flow {
	w := p.window()
	c := chainLen(w)
	f := &flow{stride: stride(p.size), places: max(p.span()/stride(p.size), 1)}
	for i := 0; i < w; i += c {
		chain := make([]fabric.WR, c)
		for j := range chain {
			chain[j] = s.request(p, f, i+j)
		}
		last := &chain[c-1]
		last.Flags |= fabric.FlagSignaled
		last.ID = uint64(len(f.chains))
		f.chains = append(f.chains, chain)
	}
	f.t0 = make([]int64, len(f.chains))
	f.free = make([]int, len(f.chains))
	for i := range f.free {
		f.put(i)
	}
	return f
}

// take and put use the chains in rotation: a round of one window sends every message
// once.
// Hot path.
func (f *flow) take() int {
	c := f.free[f.head]
	if f.head++; f.head == len(f.free) {
		f.head = 0
	}
	f.nfree--
	return c
}

func (f *flow) put(c int) {
	at := f.head + f.nfree
	if at >= len(f.free) {
		at -= len(f.free)
	}
	f.free[at] = c
	f.nfree++
}

// request returns the request of a slot of the window.
func (s *side) request(p *point, f *flow, slot int) fabric.WR {
	at := offData + slot%f.places*f.stride
	result := offResult + slot%resultSlots*8
	switch p.Op {
	case Get:
		return fabric.WR{Op: fabric.OpRead, Local: []fabric.SGE{s.sge(at, p.size)},
			RemoteAddr: s.peer.Addr + uint64(at), RKey: s.peer.RKey}
	case FAdd:
		return fabric.WR{Op: fabric.OpFetchAdd, Operand: 1, Local: []fabric.SGE{s.sge(result, 8)},
			RemoteAddr: s.peer.Addr + offAtomic, RKey: s.peer.RKey}
	case CAS: // always succeeds and changes nothing, so that all requests cost the same
		return fabric.WR{Op: fabric.OpCompareSwap, Local: []fabric.SGE{s.sge(result, 8)},
			RemoteAddr: s.peer.Addr + offAtomic, RKey: s.peer.RKey}
	}
	return s.write(at+s.span, p.size, at)
}

// flowPhase keeps the window full until bud is used up, then waits for the outstanding
// requests. It does not allocate.
func (s *side) flowPhase(f *flow, rec *recorder, bud budget) (msgs int64, ticks int64, err error) {
	var (
		n       = len(f.chains[0])
		busy    = -1 // a chain that is posted in part
		off     int
		pending int
		start   = cpu.Ticks()
		now     = start
		until   = start + bud.ticks
	)
	s.Begin()
	for {
		moved := false
		over := now >= until && msgs >= bud.iters
		if busy < 0 && f.nfree > 0 && !over {
			busy, off = f.take(), 0
			f.t0[busy] = cpu.Ticks()
		}
		if busy >= 0 {
			k, err := s.EP.Post(f.chains[busy][off:])
			if err != nil {
				return msgs, 0, s.Because(err)
			}
			moved = k > 0
			if off += k; off == n {
				busy = -1
				s.Sent++
				pending++
				msgs += int64(n)
			}
		}
		k, err := s.Poll()
		if err != nil {
			return msgs, 0, err
		}
		if k > 0 {
			now = cpu.Ticks()
			for _, id := range s.IDs[:k] {
				rec.add(now - f.t0[id])
				f.put(int(id))
			}
			pending -= k
			moved = true
		}
		switch {
		case moved:
			s.Begin()
		case over && pending == 0 && busy < 0:
			return msgs, now - start, nil
		default:
			if err := s.Rest(); err != nil {
				return msgs, 0, err
			}
		}
		if over && pending == 0 && busy < 0 {
			return msgs, now - start, nil
		}
	}
}

// flood is rank 0's part of bw and rate.
func (s *side) flood(p *point, rec *recorder) (msgs int64, took time.Duration, err error) {
	f := s.newFlow(p)
	warm, _, err := s.flowPhase(f, rec, p.warmup())
	if err != nil {
		return 0, 0, err
	}
	rec.reset()
	msgs, ticks, err := s.flowPhase(f, rec, p.measure())
	if err == nil && p.Validate { // atomics; put and get have floodChecked
		err = s.countAtomics(p, warm+msgs)
	}
	if err != nil {
		return 0, 0, err
	}
	return msgs, cpu.Duration(ticks), s.stop(p.epoch)
}

// countAtomics reads the counter and compares it with the number of requests.
func (s *side) countAtomics(p *point, n int64) error {
	if err := s.Drain(); err != nil {
		return err
	}
	w := fabric.WR{Op: fabric.OpRead, Flags: fabric.FlagSignaled | fabric.FlagFence,
		Local: []fabric.SGE{s.sge(offResult, 8)}, RemoteAddr: s.peer.Addr + offAtomic, RKey: s.peer.RKey}
	if err := s.Post([]fabric.WR{w}, 1); err != nil {
		return err
	}
	if err := s.Drain(); err != nil {
		return err
	}
	want := uint64(n)
	if p.Op == CAS {
		want = 0
	}
	if got := cellAt(s.mem, offResult).load(); got != want {
		return fmt.Errorf("%w: %s %s: counter is %d after %d requests, want %d", ErrValidate, p.Test, p.Op, got, n, want)
	}
	return nil
}

// floodChecked is both sides' part of a validating bw or rate of put and get: rounds of
// one window, each message with a place and a pattern of its own, checked by the side
// that received it. Only the transfers are timed.
func (s *side) floodChecked(ctx context.Context, p *point, rec *recorder) (msgs int64, took time.Duration, err error) {
	var (
		rank  = s.Rank()
		w     = p.window()
		bud   = p.measure()
		f     *flow
		began = cpu.Ticks()
		ticks int64
	)
	if rank == 0 {
		f = s.newFlow(p)
	}
	for round := 1; ; round++ {
		more := []byte{0}
		if rank == 0 && (msgs < bud.iters || cpu.Ticks()-began < bud.ticks) {
			more[0] = 1
		}
		s.prepare(p, w, round)
		theirs, err := s.Exchange(ctx, more)
		if err != nil {
			return 0, 0, err
		}
		if rank == 1 {
			more = theirs
		}
		if len(more) != 1 || more[0] == 0 {
			return msgs, cpu.Duration(ticks), nil
		}
		epoch := p.epoch + uint64(round)<<32
		if rank == 0 {
			var n, t int64
			if n, t, err = s.flowPhase(f, rec, budget{0, int64(w)}); err == nil {
				msgs, ticks = msgs+n, ticks+t
				err = s.stop(epoch)
			}
		} else {
			err = s.serve(epoch)
		}
		if err == nil && (rank == 0) == (p.Op == Get) {
			err = s.inspect(p, w, round)
		}
		if err = agree(ctx, s, err); err != nil {
			return 0, 0, err
		}
	}
}

// prepare fills the data to send and clears the place where it will arrive.
func (s *side) prepare(p *point, w, round int) {
	rank := s.Rank()
	sends := (rank == 0) == (p.Op == Put)
	for slot := range w {
		at := offData + slot*stride(p.size)
		if sends && p.Op == Put {
			at += s.span
		}
		mem := s.mem[at : at+p.size]
		if sends {
			fill(mem, p.seed(rank, uint64(round*w+slot)))
		} else {
			clear(mem)
		}
	}
}

// inspect checks the received data.
func (s *side) inspect(p *point, w, round int) error {
	for slot := range w {
		at := offData + slot*stride(p.size)
		if i := check(s.mem[at:at+p.size], p.seed(1-s.Rank(), uint64(round*w+slot))); i >= 0 {
			return fmt.Errorf("%w: %s %s of %d bytes: message %d of window %d differs at byte %d",
				ErrValidate, p.Test, p.Op, p.size, slot, round, i)
		}
	}
	return nil
}
