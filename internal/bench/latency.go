package bench

import (
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
)

// point is one size of one round of a plan.
type point struct {
	*Plan
	size  int
	epoch uint64 // counts points; never 0
}

// seed is the pattern's seed of message n from rank.
func (p *point) seed(rank int, n uint64) uint64 {
	return p.epoch<<40 ^ uint64(rank)<<39 ^ n
}

// budget is the length of a phase: both of its limits must be reached.
type budget struct {
	ticks int64 // least duration
	iters int64 // least operations
}

func ticksOf(d time.Duration) int64 { return int64(float64(d) / cpu.NsPerTick()) }

// warmup is a fifth of the measured time, at most 200 ms: caches, branch predictors and
// the device's translation tables need far less.
func (p *point) warmup() budget {
	return budget{ticksOf(min(p.Time/5, 200*time.Millisecond)), min(p.Iters, 10)}
}

func (p *point) measure() budget { return budget{ticksOf(p.Time), p.Iters} }

// ball is the message of a ping-pong, and the way in which its arrival is detected.
//
// If the link guarantees that the last 8 bytes arrive last and the size allows it, the
// sequence number is in the last 8 bytes of the message; else it is in the last byte, as
// in perftest. The last byte does not prove the arrival of those before it, so a validating
// run uses a separate word, written by a second request after the data.
type ball struct {
	s       *side
	size    int
	payload int // bytes of the pattern
	wrs     []fabric.WR
	mark    cell // source of the sequence number
	markAt  int  // or, if mark.p is nil, the offset of its byte in the region
	flag    cell // destination of the sequence number
	shift   int
	mask    uint64
	lap     uint64 // sequence numbers are modulo lap; 0: they are not
}

func newBall(s *side, p *point) *ball {
	n := p.size
	in, out := offData, offData+s.span
	b := &ball{s: s, size: n, payload: n, mask: ^uint64(0), wrs: []fabric.WR{s.write(out, n, in)}}
	switch {
	case s.caps.LastByteLast && n%8 == 0:
		b.payload = n - 8
		b.mark, b.flag = cellAt(s.mem, out+n-8), cellAt(s.mem, in+n-8)
	case !p.Validate:
		b.payload = n - 1
		b.markAt, b.flag = out+n-1, cellAt(s.mem, in+n-1)
		b.shift, b.mask, b.lap = 8*((in+n-1)&7), 0xff, 255
	default:
		b.mark, b.flag = cellAt(s.mem, offOut), cellAt(s.mem, offFlag)
		b.wrs = append(b.wrs, s.write(offOut, 8, offFlag))
	}
	return b
}

// value is the form of sequence number seq in the flag. It is never 0, the value of the
// flag before the first message.
func (b *ball) value(seq uint64) uint64 {
	if b.lap == 0 {
		return seq
	}
	return seq%b.lap + 1
}

// arrived reports whether message seq has arrived.
// Hot path.
func (b *ball) arrived(seq uint64) bool {
	return b.flag.load()>>b.shift&b.mask == b.value(seq)
}

// throw sends message seq.
// Hot path.
func (b *ball) throw(seq uint64) error {
	if b.mark.p != nil {
		b.mark.store(b.value(seq))
	} else {
		b.s.mem[b.markAt] = byte(b.value(seq))
	}
	last := &b.wrs[len(b.wrs)-1]
	if seq%signalEvery != 0 {
		last.Flags &^= fabric.FlagSignaled
		return b.s.Post(b.wrs, 0)
	}
	last.Flags |= fabric.FlagSignaled
	return b.s.Post(b.wrs, 1)
}

// verify checks message n, of size bytes, that arrived from rank with the payload b.
func (p *point) verify(b []byte, size, rank int, n uint64) error {
	if size != p.size {
		return fmt.Errorf("%w: %s %s of %d bytes: message %d has %d", ErrValidate, p.Test, p.Op, p.size, n, size)
	}
	if i := check(b, p.seed(rank, n)); i >= 0 {
		return fmt.Errorf("%w: %s %s of %d bytes: message %d differs at byte %d", ErrValidate, p.Test, p.Op, p.size, n, i)
	}
	return nil
}

// phases runs phase for the warm-up, and then with new samples for the measurement. phase
// runs until a budget is used up; n is the number of operations before it, then with it.
func (p *point) phases(rec *recorder, phase func(bud budget, n uint64) (uint64, error)) error {
	n, err := phase(p.warmup(), 0)
	if err == nil {
		rec.reset()
		_, err = phase(p.measure(), n)
	}
	return err
}

// ping is rank 0's part of lat put.
func (s *side) ping(p *point, rec *recorder) error {
	b := newBall(s, p)
	if err := p.phases(rec, func(bud budget, n uint64) (uint64, error) { return s.pingPhase(p, b, rec, bud, n) }); err != nil {
		return err
	}
	return s.stop(p.epoch)
}

// pingPhase runs until bud is used up. It does not allocate.
func (s *side) pingPhase(p *point, b *ball, rec *recorder, bud budget, seq uint64) (uint64, error) {
	last := cpu.Ticks()
	until := last + bud.ticks
	for n := int64(0); n < bud.iters || last < until; n++ {
		seq++
		if p.Validate {
			fill(s.out(b.payload), p.seed(0, seq))
		}
		if err := b.throw(seq); err != nil {
			return seq, err
		}
		for s.Begin(); !b.arrived(seq); {
			if err := s.Miss(); err != nil {
				return seq, err
			}
		}
		last = rec.lap(last, cpu.Ticks())
		if p.Validate {
			if err := p.verify(s.in(b.payload), p.size, 1, seq); err != nil {
				return seq, err
			}
		}
		if s.Sent-s.Acked > 2 {
			if _, err := s.Poll(); err != nil {
				return seq, err
			}
		}
	}
	return seq, nil
}

// pong is rank 1's part: it answers until rank 0 ends the point. A validation error is
// returned only then, so that rank 0 is not left waiting.
func (s *side) pong(p *point) error {
	b := newBall(s, p)
	over := cellAt(s.mem, offStop)
	var wrong error
	for seq := uint64(1); ; seq++ {
		for s.Begin(); !b.arrived(seq); {
			if over.load() == p.epoch {
				return firstOf(wrong, s.Drain())
			}
			if err := s.Miss(); err != nil {
				return firstOf(wrong, err)
			}
		}
		if p.Validate {
			if err := p.verify(s.in(b.payload), p.size, 0, seq); err != nil && wrong == nil {
				wrong = err
			}
			fill(s.out(b.payload), p.seed(1, seq))
		}
		if err := b.throw(seq); err != nil {
			return firstOf(wrong, err)
		}
		if s.Sent-s.Acked > 2 {
			if _, err := s.Poll(); err != nil {
				return firstOf(wrong, err)
			}
		}
	}
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// roundTrip is rank 0's part of lat get and of lat of the atomics.
func (s *side) roundTrip(p *point, rec *recorder) error {
	w := fabric.WR{Flags: fabric.FlagSignaled, RKey: s.peer.RKey}
	switch p.Op {
	case Get:
		w.Op, w.RemoteAddr = fabric.OpRead, s.peer.Addr+offData
		w.Local = []fabric.SGE{s.sge(offData, p.size)}
	case FAdd:
		w.Op, w.RemoteAddr, w.Operand = fabric.OpFetchAdd, s.peer.Addr+offAtomic, 1
		w.Local = []fabric.SGE{s.sge(offResult, 8)}
	case CAS:
		w.Op, w.RemoteAddr = fabric.OpCompareSwap, s.peer.Addr+offAtomic
		w.Local = []fabric.SGE{s.sge(offResult, 8)}
	}
	wrs := []fabric.WR{w}
	if err := p.phases(rec, func(bud budget, n uint64) (uint64, error) { return s.tripPhase(p, wrs, rec, bud, n) }); err != nil {
		return err
	}
	return s.stop(p.epoch)
}

// tripPhase posts one request after another, each after the previous one has completed.
// Hot path.
func (s *side) tripPhase(p *point, wrs []fabric.WR, rec *recorder, bud budget, n uint64) (uint64, error) {
	last := cpu.Ticks()
	until := last + bud.ticks
	for k := int64(0); k < bud.iters || last < until; k++ {
		if p.Validate && p.Op == Get {
			clear(s.in(p.size))
		}
		if p.Op == CAS {
			wrs[0].Compare, wrs[0].Operand = n, n+1
		}
		if err := s.Post(wrs, 1); err != nil {
			return n, err
		}
		for s.Begin(); s.Acked != s.Sent; {
			got, err := s.Poll()
			if err == nil && got == 0 {
				err = s.Rest()
			}
			if err != nil {
				return n, err
			}
		}
		last = rec.lap(last, cpu.Ticks())
		if p.Validate {
			if err := s.tripVerify(p, n); err != nil {
				return n, err
			}
		}
		n++
	}
	return n, nil
}

// tripVerify checks the result of request n: the peer's pattern, or the number of
// earlier atomics.
func (s *side) tripVerify(p *point, n uint64) error {
	if p.Op == Get {
		if i := check(s.in(p.size), p.seed(1, 0)); i >= 0 {
			return fmt.Errorf("%w: %s get of %d bytes: request %d differs at byte %d", ErrValidate, p.Test, p.size, n, i)
		}
		return nil
	}
	if old := cellAt(s.mem, offResult).load(); old != n {
		return fmt.Errorf("%w: %s %s: request %d returned %d, want %d", ErrValidate, p.Test, p.Op, n, old, n)
	}
	return nil
}
