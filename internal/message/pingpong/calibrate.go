package pingpong

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/logp"
)

// wordSize is the room of a control message: the extra terms of all modes.
const wordSize = 128

// wordTag is no batch's: those have tag 0.
const wordTag = 1<<32 - 1

// probes are the batches that Calibrate plays. Each of the four terms of
// logp.Extra varies by itself somewhere: one message of many sizes, many messages
// of few bytes, several writes or descriptors. The first enough of them cover the
// range by themselves, so that a budget that ends early costs accuracy between
// points, and never makes the fit go on beyond what it has seen.
var probes = [...]struct{ n, size int }{
	{1, 8}, {64, 64}, {4, 32 << 10}, {8, 512}, {1, 128 << 10}, {32, 2 << 10}, {1, 4 << 10}, {128, 8},
	{8, 8}, {64, 4 << 10}, {1, 512}, {16, 8 << 10}, {2, 64}, {64, 512}, {4, 4 << 10}, {16, 64}, {1, 512 << 10}, {1, 32 << 10}, {128, 1 << 10}, {16, 32 << 10}, {4, 8}, {16, 512},
}

// enough is how many probes a fit needs.
const enough = 8

// CalibrationSpan is the Options.Span that Calibrate needs.
const CalibrationSpan = 1 << 20

// Round trips of a probe; the first is not counted. The lower quartile of the
// others is: what else runs on the machine only adds.
const (
	minTrips = 5
	maxTrips = 32
)

// trips shares what is left of the budget among the probes that are left: ns is
// what a trip of the slowest mode is expected to take.
func trips(left, probes int, ns float64) int {
	each := float64(left) * cpu.NsPerTick() / float64(2*logp.NumModes*probes)
	return int(min(max(each/ns, minTrips), maxTrips))
}

// slowest predicts the slowest mode, in ns.
func slowest(p *logp.Params, b *logp.Batch) (ns float64) {
	for m := range logp.Mode(logp.NumModes) {
		if c, err := p.Cost(b, m); err == nil {
			ns = max(ns, c.Total())
		}
	}
	return max(ns, 1)
}

// warm touches every block of the rings, descriptors and queues at both ends: the
// first lap pays for the pages. It is not part of the budget, and does the same
// whatever is measured afterwards.
var warm = [...]struct {
	n, size int
	mode    logp.Mode
}{{128, 64, logp.Eager}, {64, 1 << 10, logp.Gather}, {64, 4 << 10, logp.Eager}, {128, 64, logp.Scatter}}

// Samples are measured batches, by the mode in which they went.
type Samples [logp.NumModes][]logp.Sample

// Calibrate returns p with the Extra with which the model comes nearest to
// batches that are played now, each of them in every mode, until budget is used up on
// the first side's clock; with p as it is when that is too soon for a fit. Both sides call it and get the same; what they learn
// is in use on the channel when it returns, with no policy. It ends with an error
// where it would have to believe nonsense of the peer. Setup path.
func (s *Side) Calibrate(ctx context.Context, p logp.Params, budget time.Duration) (logp.Params, *Samples, error) {
	samples := new(Samples)
	if err := s.ch.SetParams(&p); err != nil {
		return p, nil, err
	}
	var buf [maxTrips]int64
	for _, q := range warm {
		if err := s.Load(slices.Repeat([]int{q.size}, q.n)); err != nil {
			return p, nil, err
		}
		if err := s.ch.SetPolicy(logp.Policy{Forced: true, Mode: q.mode}); err != nil {
			return p, nil, err
		}
		if err := s.Play(ctx, buf[:2]); err != nil {
			return p, nil, err
		}
	}
	var word [wordSize]byte
	until := cpu.Ticks() + int64(float64(budget)/cpu.NsPerTick())
	played, slow := 0, 1.0 // slow: measured over predicted, of the probe before
	for _, q := range probes {
		if err := s.Load(slices.Repeat([]int{q.size}, q.n)); err != nil {
			return p, nil, err
		}
		b := s.Batch()
		guess := slowest(&p, b)
		n := 0
		if left := until - cpu.Ticks(); left > 0 {
			n = trips(int(left), len(probes)-played, guess*slow)
		}
		n, err := s.agree(ctx, n, &word)
		if err != nil {
			return p, nil, err
		}
		if n == 0 {
			break
		}
		times, took := buf[:n], 0.0
		for m := range logp.Mode(logp.NumModes) {
			if _, err := p.Cost(b, m); err != nil {
				continue // on both sides: the limits are those of the same channel
			}
			if err := s.ch.SetPolicy(logp.Policy{Forced: true, Mode: m}); err != nil {
				return p, nil, err
			}
			if err := s.Play(ctx, times); err != nil {
				return p, nil, err
			}
			slices.Sort(times[1:])
			ns := max(float64(times[1+(n-2)/4])*cpu.NsPerTick(), 1)
			samples[m] = append(samples[m], logp.Sample{Batch: b, NS: ns})
			took = max(took, ns)
		}
		if err := s.ch.SetPolicy(logp.Policy{}); err != nil {
			return p, nil, err
		}
		slow = took / guess
		played++
	}
	if s.opt.First {
		for m := range samples {
			if played < enough {
				break
			}
			if e, err := logp.FitExtra(&p, logp.Mode(m), samples[m]); err == nil {
				p.Extra[m] = e
			}
		}
		if err := s.tell(ctx, appendExtra(word[:0], &p.Extra)); err != nil {
			return p, nil, err
		}
	} else {
		b, err := s.hear(ctx, word[:])
		if err == nil {
			p.Extra, err = parseExtra(b)
		}
		if err != nil {
			return p, nil, fmt.Errorf("calibrate: %w", err)
		}
	}
	return p, samples, s.ch.SetParams(&p)
}

// agree carries the number of trips of the next probe to the second side; 0 ends.
func (s *Side) agree(ctx context.Context, n int, word *[wordSize]byte) (int, error) {
	if s.opt.First {
		word[0] = byte(n)
		return n, s.tell(ctx, word[:1])
	}
	b, err := s.hear(ctx, word[:])
	if err == nil && (len(b) != 1 || b[0] != 0 && (b[0] < minTrips || b[0] > maxTrips)) {
		err = fmt.Errorf("calibrate: %w: number of trips %v", ErrWrong, b)
	}
	if err != nil {
		return 0, err
	}
	return int(b[0]), nil
}

// appendExtra appends twelve float64, little-endian.
func appendExtra(b []byte, e *[logp.NumModes]logp.Extra) []byte {
	for _, x := range e {
		for _, f := range [...]float64{x.Fixed, x.PerOp, x.PerMessage, x.PerByte} {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
		}
	}
	return b
}

func parseExtra(b []byte) (e [logp.NumModes]logp.Extra, err error) {
	if len(b) != 8*4*logp.NumModes {
		return e, fmt.Errorf("%w: extra terms of %d bytes", ErrWrong, len(b))
	}
	next := func() float64 {
		f := math.Float64frombits(binary.LittleEndian.Uint64(b))
		b = b[8:]
		return f
	}
	for m := range e {
		e[m] = logp.Extra{Fixed: next(), PerOp: next(), PerMessage: next(), PerByte: next()}
	}
	p := logp.Params{Extra: e}
	return e, p.Validate()
}

// tell sends a control message; it waits until its memory is free.
func (s *Side) tell(ctx context.Context, b []byte) error {
	at := 2 * s.opt.Span
	mem := s.reg.Bytes()[at : at+wordSize]
	o := &s.word
	o.Data, o.LKey, o.RKey, o.Registered, o.Tag, o.Done = mem[:copy(mem, b)], s.reg.LKey(), s.reg.Key().RKey, true, wordTag, &s.told
	s.ch.Send(o)
	return s.until(ctx, &s.told, s.told.n+1)
}

// hear takes the peer's control message into b.
func (s *Side) hear(ctx context.Context, b []byte) ([]byte, error) {
	at := 2*s.opt.Span + wordSize
	mem := s.reg.Bytes()[at : at+wordSize]
	in := &s.answer
	k := length{&s.told, 0}
	in.Buf, in.LKey, in.Registered, in.Tag, in.Done = mem, s.reg.LKey(), true, wordTag, &k
	want := s.told.n + 1
	s.ch.Recv(in)
	if err := s.until(ctx, &s.told, want); err != nil {
		return nil, err
	}
	return b[:copy(b, mem[:k.n])], nil
}

// length is a counter that keeps the length of the message.
type length struct {
	*counter
	n int
}

// Complete implements message.Completer.
func (l *length) Complete(tag uint32, n int, err error) {
	l.n = n
	l.counter.Complete(tag, n, err)
}
