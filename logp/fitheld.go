package logp

import (
	"math"
	"math/bits"
)

// HeldOut is a fit that was tested on samples not used for it.
type HeldOut struct {
	Extra Extra
	Terms int // number of fitted terms; 0: Extra is unchanged, or empty
	Rows  int // usable samples
	// Before and After are the mean absolute errors with the earlier Extra and with the
	// fit, each over samples that were not fitted, as fractions of the measured time, each
	// at most 1. They are equal if there is no fit.
	Before, After float64
}

const (
	// Each term of a fit needs at least rowsPerTerm samples beyond the first rowsFirst:
	// with few samples one outlier would decide.
	rowsPerTerm, rowsFirst = 2, 4
	// folds is the number of parts that are held out in turn.
	folds = 5
	// A term that reduces the held-out error by less than a fraction of heldGain/samples
	// describes noise.
	heldGain = 1.0
)

// shrinks are the fractions of a fit that are tried: smaller ones may predict better.
var shrinks = [...]float64{1, 0.75, 0.5, 0.25}

// FitExtraHeldOut is FitExtra for samples that are too few for all terms, such as those of
// a start-up. Of all sets of terms for which there are enough samples, it fits the one that
// best predicts held-out samples, where each term must improve the prediction by enough,
// and it applies the fraction of the fit that predicts best. If nothing predicts better
// than the present Extra, that is the result: a fit is never worse than none as far as the
// samples show. Errors are those of FitExtra.
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
	// No terms at all may also be better than the present ones.
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

// heldOut returns for each row the correction by a fit to the rows of the other folds, as a
// fraction of the measured time. Neighbours are in different folds, because they are alike.
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

// shortfall returns the mean remaining error if a share of the correction in said is added.
func shortfall(rows []fitRow, said []float64, share float64) (sum float64) {
	for i, r := range rows {
		sum += min(math.Abs(r.y-share*said[i]), 1)
	}
	return sum / float64(len(rows))
}
