package logp

import (
	"math"
	"math/bits"
)

// HeldOut is a fit that was tried on samples which it had not seen.
type HeldOut struct {
	Extra Extra
	Terms int // how many of the terms were fitted; 0: Extra is as it was, or none
	Rows  int // usable samples
	// Before and After are the mean absolute errors with the Extra that there was
	// and with the fit, each of samples that were not fitted, as fractions of what was
	// measured, none counting for more than 1. Equal where there is no fit.
	Before, After float64
}

const (
	// Each term of a fit takes rowsPerTerm samples at least, beyond the first
	// rowsFirst: of few one outlier would decide.
	rowsPerTerm, rowsFirst = 2, 4
	// folds is how many parts take turns at being held out.
	folds = 5
	// A term that makes held-out errors smaller by less than heldGain/samples, as
	// a part, describes the noise.
	heldGain = 1.0
)

// shrinks are how much of a fit is taken: all, or less where less predicts better.
var shrinks = [...]float64{1, 0.75, 0.5, 0.25}

// FitExtraHeldOut is FitExtra for samples that are too few to be trusted with all
// terms, as what a start has time for. Of all sets of terms for which there are samples
// enough that one is fitted with which samples that were left out are predicted best,
// each term having to pay for itself; and only as much of it is taken as predicts best. Where nothing predicts better than the present Extra, the result is
// that: a fit is never worse than none as far as the samples can tell. Errors as
// FitExtra.
func FitExtraHeldOut(p *Params, m Mode, samples []Sample) (HeldOut, error) {
	bare, rows, size, err := fitRows(p, m, samples)
	if err != nil {
		return HeldOut{}, err
	}
	lim := fitLimitsOf(&bare, m)
	h := HeldOut{Extra: p.Extra[m], Rows: len(rows)}
	said := make([]float64, len(rows))
	left := shortfall(rows, said, 0) // without any Extra
	for i := range rows {
		e := &p.Extra[m]
		for k, x := range e.Terms() {
			said[i] += x * rows[i].x[k]
		}
	}
	h.Before = shortfall(rows, said, 1)
	h.After = h.Before
	pays := 1 - heldGain/float64(len(rows))
	var use terms
	shrink, best := 1.0, left
	for set := terms(1); set <= allTerms; set++ {
		n := bits.OnesCount8(uint8(set))
		if n > (len(rows)-rowsFirst)/rowsPerTerm {
			continue
		}
		said := lim.heldOut(rows, set)
		for _, s := range shrinks {
			e := shortfall(rows, said, s)
			if x := e / math.Pow(pays, float64(n)); x <= best {
				use, shrink, left, best = set, s, e, x
			}
		}
	}
	// No terms at all may be better than those that there were, too.
	if left > h.Before*pays || len(rows) < rowsFirst+rowsPerTerm {
		return h, nil
	}
	h.After = left
	if use == 0 {
		h.Extra = Extra{}
		return h, nil
	}
	x := lim.robust(rows, size, use)
	for k := range x {
		x[k] *= shrink
	}
	h.Extra, h.Terms = lim.bound(ExtraOf(x)), bits.OnesCount8(uint8(use))
	return h, nil
}

// heldOut returns for each row what a fit to the rows of the other folds adds,
// as a fraction of what was measured. Neighbours go to different folds: they are
// alike.
func (l *fitLimits) heldOut(rows []fitRow, use terms) []float64 {
	said := make([]float64, len(rows))
	seen := make([]fitRow, 0, len(rows))
	n := min(folds, len(rows))
	for f := range n {
		var size [ExtraTerms]float64
		seen = seen[:0]
		for i, r := range rows {
			if i%n == f {
				continue
			}
			seen = append(seen, r)
			for k := range r.x {
				size[k] += r.x[k] * r.x[k]
			}
		}
		x := l.robust(seen, size, use)
		for i := f; i < len(rows); i += n {
			for k := range x {
				said[i] += x[k] * rows[i].x[k]
			}
		}
	}
	return said
}

// shortfall is the mean error that is left when a share of what is said is added.
func shortfall(rows []fitRow, said []float64, share float64) (sum float64) {
	for i, r := range rows {
		sum += min(math.Abs(r.y-share*said[i]), 1)
	}
	return sum / float64(len(rows))
}
