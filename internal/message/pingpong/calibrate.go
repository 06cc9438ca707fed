package pingpong

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/logp"
)

// Calibrate plays batches, each in every mode, and returns p with the Extra that fits their
// times best. It plays as many batches as the budget, on the first side's clock, has time
// for, and fits as many terms as they support. It ends early when the model predicts the
// times of new batches. It does not begin an operation that is expected to exceed the
// budget: a link that is far slower than p costs a round trip or two beyond it. Both sides
// call it and get the same Params, Probes and Error; on return the channel uses the new
// parameters, and no policy. Invalid data from the peer is an error. Setup path.
func (s *Side) Calibrate(ctx context.Context, p logp.Params, budget time.Duration) (logp.Params, *Outcome, error) {
	fail := func(err error) (logp.Params, *Outcome, error) {
		return p, nil, fmt.Errorf("calibrate: %w", err)
	}
	if err := s.ch.SetParams(&p); err != nil {
		return fail(err)
	}
	out, fitted := new(Outcome), p
	var err error
	if s.opt.First {
		err = s.lead(ctx, &fitted, out, newPurse(s.now, budget, s.opt.MaxBytes))
	} else {
		err = s.follow(ctx, &fitted, out)
	}
	if err == nil {
		err = s.ch.SetPolicy(logp.Policy{})
	}
	if err == nil {
		err = s.ch.SetParams(&fitted)
	}
	if err != nil {
		return fail(err)
	}
	return fitted, out, nil
}

// lead chooses the batches, measures their times, and fits.
func (s *Side) lead(ctx context.Context, p *logp.Params, out *Outcome, left *purse) error {
	for i, q := range warm {
		b, err := s.load(orderWarm, i)
		if err != nil {
			return err
		}
		c, err := p.Cost(b, q.mode)
		if err != nil {
			continue
		}
		ns := max(c.Total(), 1)
		if 2*ns*left.slow[q.mode] > warmPart*left.budget || !left.affords(1, q.mode, ns, tripBytes(b)) {
			continue
		}
		took, err := s.play(ctx, order{orderWarm, byte(i), q.mode, 1}, out, left)
		if err != nil {
			return err
		}
		left.learn(q.mode, ns, s.ns(took[0]))
	}
	quiet := 0 // probes in a row that the model has predicted
	for i := range probes {
		if left.left() <= 0 {
			break
		}
		b, err := s.load(orderProbe, i)
		if err != nil {
			return err
		}
		var ns [logp.NumModes]float64
		for m := range ns {
			if ns[m], err = s.probe(ctx, i, logp.Mode(m), p, b, out, left); err != nil {
				return err
			}
		}
		if ns == [logp.NumModes]float64{} {
			continue
		}
		if quiet++; out.surprises(p, b, &ns) > settledAt {
			quiet = 0
		}
		out.Probes++
		for m, t := range ns {
			if t > 0 {
				out.Samples[m] = append(out.Samples[m], logp.Sample{Batch: b, NS: t})
			}
		}
		if out.Settled = quiet >= settledAfter && out.Probes >= fewest; out.Settled {
			break
		}
	}
	out.fit(p)
	var word [wordSize]byte
	if err := s.tell(ctx, order{}.append(word[:0])); err != nil {
		return err
	}
	err := s.tell(ctx, appendOutcome(word[:0], &p.Extra, out))
	out.Spent = time.Duration(s.now() - left.start)
	return err
}

// probe plays the loaded batch in one mode, and returns its time in ns; 0 if the mode
// cannot carry it, or there is no time.
func (s *Side) probe(ctx context.Context, i int, m logp.Mode, p *logp.Params, b *logp.Batch, out *Outcome, left *purse) (float64, error) {
	c, err := p.Cost(b, m)
	if err != nil {
		return 0, nil //nolint:nilerr // a message that cannot go this way: on either side, limits are the same
	}
	guess := max(c.Total(), 1)
	if !left.affords(pilotTrips, m, guess, tripBytes(b)) {
		left.shares--
		return 0, nil
	}
	took, err := s.play(ctx, order{orderProbe, byte(i), m, pilotTrips}, out, left)
	if err != nil {
		return 0, err
	}
	took = took[1:]
	least := max(s.ns(slices.Min(took)), 1)
	left.learn(m, guess, least)
	times := append(make([]int64, 0, pilotTrips+maxTrips), took...)
	if n := left.more(least, tripBytes(b)); n > 0 {
		if took, err = s.play(ctx, order{orderProbe, byte(i), m, byte(n)}, out, left); err != nil {
			return 0, err
		}
		times = append(times, took...)
	}
	return max(s.ns(quartile(times)), 1), nil
}

// play sends an order to the second side and executes it. The times are valid until the
// next call.
func (s *Side) play(ctx context.Context, o order, out *Outcome, left *purse) ([]int64, error) {
	moved := int64(o.trips) * tripBytes(s.Batch())
	left.bytes -= moved
	out.Bytes += moved
	var word [wordSize]byte
	if err := s.tell(ctx, o.append(word[:0])); err != nil {
		return nil, err
	}
	out.Trips += int(o.trips)
	return s.times[:o.trips], s.carry(ctx, o)
}

// follow executes the first side's orders.
func (s *Side) follow(ctx context.Context, p *logp.Params, out *Outcome) error {
	var word [wordSize]byte
	loaded, moved := order{kind: orderEnd}, int64(0)
	for {
		b, err := s.hear(ctx, word[:])
		if err != nil {
			return err
		}
		o, err := parseOrder(b)
		if err != nil {
			return err
		}
		if o.kind == orderEnd {
			break
		}
		if o.kind != loaded.kind || o.probe != loaded.probe {
			if _, err := s.load(o.kind, int(o.probe)); err != nil {
				return err
			}
			loaded = o
		}
		moved += int64(o.trips) * tripBytes(s.Batch())
		if err := s.carry(ctx, o); err != nil {
			return err
		}
	}
	b, err := s.hear(ctx, word[:])
	if err != nil {
		return err
	}
	extra, outcome, err := parseOutcome(b)
	if err != nil {
		return err
	}
	p.Extra, *out = extra, outcome
	out.Bytes = moved
	return nil
}

// carry plays the loaded batch in the mode and the number of trips of the order.
func (s *Side) carry(ctx context.Context, o order) error {
	if err := s.ch.SetPolicy(logp.Policy{Forced: true, Mode: o.mode}); err != nil {
		return err
	}
	return s.Play(ctx, s.times[:o.trips])
}

// load loads batch i of the list that kind selects.
func (s *Side) load(kind byte, i int) (*logp.Batch, error) {
	n, size := probes[i%len(probes)].n, probes[i%len(probes)].size
	if kind == orderWarm {
		n, size = warm[i].n, warm[i].size
	}
	if err := s.Load(slices.Repeat([]int{size}, n)); err != nil {
		return nil, err
	}
	return s.Batch(), nil
}

// ticks is the clock of Play; ns converts a difference of its readings.
func (s *Side) ticks() int64 {
	if s.opt.clock != nil {
		return s.opt.clock()
	}
	return cpu.Ticks()
}

func (s *Side) ns(ticks int64) float64 {
	if s.opt.clock != nil {
		return float64(ticks)
	}
	return float64(ticks) * cpu.NsPerTick()
}

// now is the clock of the budget, in ns.
func (s *Side) now() int64 { return int64(s.ns(s.ticks())) }
