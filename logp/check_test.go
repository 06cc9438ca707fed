package logp

import (
	"fmt"
	"math"
	"slices"
)

// checkParts says whether parts carry every message of b exactly once, in
// ascending order within a part, each within the limits of its mode, and parts such
// that the ring and the descriptors can be in the order of the batch: no message
// of another part that goes the same way lies between two of a gather, or of a
// descriptor. Errors wrap ErrBatch or ErrInfeasible.
func checkParts(p *Params, b *Batch, parts []Part) error {
	seen := make([]bool, len(b.Messages))
	left := len(seen)
	for k, q := range parts {
		var r room
		last := int32(-1)
		if len(q.Messages) == 0 {
			return fmt.Errorf("%w: part %d is empty", ErrBatch, k)
		}
		for _, i := range q.Messages {
			if i < 0 || int(i) >= len(seen) || seen[i] || i <= last {
				return fmt.Errorf("%w: part %d: message %d unknown, sent twice or out of order", ErrBatch, k, i)
			}
			seen[i], last = true, i
			left--
			if err := p.Feasible(&b.Limits, b.Messages[i], q.Mode); err != nil {
				return fmt.Errorf("part %d, message %d: %w", k, i, err)
			}
			if !r.fits(&b.Limits, b.Messages[i], q.Mode) {
				return fmt.Errorf("%w: part %d: message %d does not fit with the others", ErrInfeasible, k, i)
			}
		}
	}
	if left > 0 {
		return fmt.Errorf("%w: %d messages in no part", ErrBatch, left)
	}
	return inOrder(len(seen), parts)
}

// inOrder says whether both streams of n messages, ring and descriptors, can be in
// the order of the batch: no gather encloses others of the ring, no descriptor
// messages of another.
func inOrder(n int, parts []Part) error {
	of := make([]int, n) // part of each message
	for k, q := range parts {
		for _, i := range q.Messages {
			of[i] = k
		}
	}
	done := make([]bool, len(parts))
	last := [2]int{-1, -1} // part of the message before, by stream
	for i, k := range of {
		stream := 0
		if parts[k].Mode == Scatter {
			stream = 1
		}
		if k == last[stream] {
			continue
		}
		if done[k] && parts[k].Mode != Eager {
			return fmt.Errorf("%w: part %d: message %d behind one of part %d", ErrBatch, k, i, last[stream])
		}
		done[k], last[stream] = true, k
	}
	return nil
}

// predictionErrors returns the median and the 95th percentile of
// |predicted/measured − 1| over the samples that mode m can carry, and their
// number.
func predictionErrors(p *Params, m Mode, samples []Sample) (median, p95 float64, n int) {
	var errs []float64
	for _, s := range samples {
		if !(s.NS > 0) || s.Batch.Validate() != nil {
			continue
		}
		if c, err := p.Cost(s.Batch, m); err == nil {
			errs = append(errs, math.Abs(c.Total()/s.NS-1))
		}
	}
	if len(errs) == 0 {
		return 0, 0, 0
	}
	slices.Sort(errs)
	return errs[len(errs)/2], errs[(len(errs)-1)*95/100], len(errs)
}
