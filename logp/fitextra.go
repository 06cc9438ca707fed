package logp

import (
	"fmt"
	"math"
	"slices"
)

// Sample is the measured time of a batch, all of it in one mode.
type Sample struct {
	Batch *Batch
	NS    float64
}

// FitExtra returns the Extra of mode m for which the model is nearest to samples: least
// squares of the relative error, reweighted twice to limit the influence of outliers, with
// a slight ridge towards 0, so that terms that the samples do not determine stay small. The
// present Extra and Scale of the mode are ignored.
//
// The curves of Params are measured one operation at a time. Overlap between many
// operations, and costs per batch, show only in whole batches, and are fitted here. A
// negative term never outweighs the costs that it corrects: every operation, message and
// byte keeps at least a twentieth of its price.
//
// Samples that mode m cannot carry, that are invalid or that took no time are ignored; an
// error wraps ErrParams if none remain. Meaningful terms need about 20 samples over
// different n and sizes.
func FitExtra(p *Params, m Mode, samples []Sample) (Extra, error) {
	bare, rows, size, err := fitRows(p, m, samples)
	if err != nil {
		return Extra{}, err
	}
	lim := fitLimitsOf(&bare, m)
	return lim.bound(ExtraOf(lim.robust(rows, size, allTerms))), nil
}

// fitRows returns a row of the least squares for each usable sample; bare is p without the
// fitted terms. size scales the ridge.
func fitRows(p *Params, m Mode, samples []Sample) (bare Params, rows []fitRow, size [ExtraTerms]float64, err error) {
	if m >= NumModes {
		return bare, nil, size, fmt.Errorf("%w: unknown %v", ErrParams, m)
	}
	if err := p.Validate(); err != nil {
		return bare, nil, size, err
	}
	bare = *p
	bare.Extra[m], bare.Scale[m] = Extra{}, 1
	for _, s := range samples {
		if !(s.NS > 0 && s.NS <= MaxNS) || s.Batch.Validate() != nil || len(s.Batch.Messages) == 0 {
			continue
		}
		base, err := bare.Cost(s.Batch, m)
		if err != nil {
			continue
		}
		row := fitRow{y: (s.NS - base.Total()) / s.NS, w: 1}
		row.x = [ExtraTerms]float64{1, float64(operations(&bare, s.Batch, m)), float64(len(s.Batch.Messages)), float64(s.Batch.Bytes()), float64(min(s.Batch.Bytes(), FirstBytes))}
		for k := range row.x {
			row.x[k] /= s.NS
			size[k] += row.x[k] * row.x[k]
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return bare, nil, size, fmt.Errorf("%w: no usable sample of %v", ErrParams, m)
	}
	return bare, rows, size, nil
}

// terms is a set of the terms of an Extra, one bit for each.
type terms uint8

const allTerms terms = 1<<ExtraTerms - 1

// robust solves three times, reweighting the rows in between.
func (l *fitLimits) robust(rows []fitRow, size [ExtraTerms]float64, use terms) (x [ExtraTerms]float64) {
	for i := range rows {
		rows[i].w = 1
	}
	for range 3 {
		x = l.within(rows, size, use)
		reweigh(rows, x)
	}
	return x
}

// within is solve with bounded terms: a term that reaches its bound is fixed there, and the
// others are solved again.
func (l *fitLimits) within(rows []fitRow, size [ExtraTerms]float64, use terms) (x [ExtraTerms]float64) {
	var held [len(x)]bool
	free := slices.Clone(rows)
	for k := range held {
		if use>>k&1 == 0 {
			held[k] = true
			for i := range free {
				free[i].x[k] = 0
			}
		}
	}
	for range len(x) {
		y := solve(free, size)
		for k := range y {
			if !held[k] {
				x[k] = y[k]
			}
		}
		b := l.bound(ExtraOf(x))
		more := false
		for k, v := range b.Terms() {
			if held[k] || v == x[k] {
				continue
			}
			held[k], more, x[k] = true, true, v
			for i := range free {
				free[i].y -= free[i].x[k] * v
				free[i].x[k] = 0
			}
		}
		if !more {
			break
		}
	}
	return x
}

type fitRow struct {
	x    [ExtraTerms]float64 // as Extra.Terms, divided by the time
	y, w float64
}

// operations returns how many writes or descriptors carry b in mode m.
func operations(p *Params, b *Batch, m Mode) int {
	c, _ := p.Cost(b, m)
	if b.Limits.Cursor {
		return c.Ops - 1
	}
	return c.Ops
}

// solve returns the weighted ridge solution of rows; size scales the ridge, so
// that units do not matter.
func solve(rows []fitRow, size [ExtraTerms]float64) (x [ExtraTerms]float64) {
	const ridge = 1e-3
	var a [ExtraTerms][ExtraTerms + 1]float64
	for _, r := range rows {
		for i := range ExtraTerms {
			for j := range ExtraTerms {
				a[i][j] += r.w * r.x[i] * r.x[j]
			}
			a[i][ExtraTerms] += r.w * r.x[i] * r.y
		}
	}
	for i := range ExtraTerms {
		a[i][i] += ridge*size[i] + math.SmallestNonzeroFloat64
	}
	for i := range ExtraTerms { // Gauss: positive definite, so the diagonal suffices as pivot
		for k := i + 1; k < ExtraTerms; k++ {
			f := a[k][i] / a[i][i]
			for j := i; j <= ExtraTerms; j++ {
				a[k][j] -= f * a[i][j]
			}
		}
	}
	for i := ExtraTerms - 1; i >= 0; i-- {
		x[i] = a[i][ExtraTerms]
		for j := i + 1; j < ExtraTerms; j++ {
			x[i] -= a[i][j] * x[j]
		}
		x[i] /= a[i][i]
	}
	for i := range x {
		if math.IsNaN(x[i]) || math.IsInf(x[i], 0) {
			x[i] = 0
		}
	}
	return x
}

// reweigh reduces the weight of rows with an error above 1.5 median errors, so that their
// influence is that of such an error (Huber).
func reweigh(rows []fitRow, x [ExtraTerms]float64) {
	off := make([]float64, len(rows))
	for i, r := range rows {
		e := r.y
		for k := range x {
			e -= r.x[k] * x[k]
		}
		off[i] = math.Abs(e)
	}
	sorted := slices.Clone(off)
	slices.Sort(sorted)
	limit := 1.5*sorted[len(sorted)/2] + 1e-9
	for i := range rows {
		rows[i].w = min(1, limit/max(off[i], 1e-300))
	}
}

// fitLimits bounds negative terms of a mode.
type fitLimits [ExtraTerms]float64

// fitLimitsOf keeps negative terms smaller than the costs that they correct.
func fitLimitsOf(p *Params, m Mode) (l fitLimits) {
	const most = 0.95
	var r prices
	r.set(p)
	per := r.arrive // the certain cost of a byte
	soft, hard := p.latency(m)
	// A plan has one gap less than operations, and posts once.
	g := min(p.G, soft+hard+p.CPU.A)
	op := g + p.CPU.B + per.At(0)
	switch m {
	case Gather:
		op = g + p.CPU.B
	case Scatter:
		per = p.Os
		op = p.CPU.A + p.CPU.B
	}
	least := math.Inf(1)
	if d := per.d; d != nil {
		for i, n := range d.nodes {
			if i > 0 {
				least = min(least, (n.y-d.nodes[0].y)/float64(n.x))
			}
		}
		least = min(least, d.nodes[len(d.nodes)-1].slope)
	}
	if math.IsInf(least, 1) {
		least = 0
	}
	msg := 0.0
	if m == Eager { // a message is an operation
		msg, op = op/2, op/2
	}
	if m == Scatter {
		msg = p.CPU.B + p.Os.At(0)
	}
	return fitLimits{-most * (soft + hard + p.CPU.A - g), -most * op, -most * msg, -most * max(least, 0), 0}
}

// bound applies the limits.
func (l *fitLimits) bound(e Extra) Extra {
	x := e.Terms()
	for k := range x {
		x[k] = min(max(x[k], l[k]), MaxNS)
	}
	return ExtraOf(x)
}
