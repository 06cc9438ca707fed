package choice

import (
	"fmt"
	"math/rand/v2"

	"github.com/seed33544411/rma/logp"
)

// Series holds what a cell's series took in each round, in µs: the lower quartile of
// the round's trips. Entry r of all of them is of one round, in which they took turns.
type Series struct {
	Eager   []float64 `json:"eager"`
	Gather  []float64 `json:"gather"`
	Scatter []float64 `json:"scatter"`
	Auto    []float64 `json:"auto"`
	Again   []float64 `json:"again"` // the mode AgainOf once more
	AgainOf string    `json:"again_of"`

	Thresholds []float64 `json:"thresholds,omitempty"` // fixed ones, where asked for
}

func (s *Series) array() [logp.NumModes][]float64 {
	return [logp.NumModes][]float64{s.Eager, s.Gather, s.Scatter}
}

// timeOf is the time of a series. What else runs on a machine only adds: rounds that
// were disturbed do not count as long as a quarter were not.
func timeOf(rounds []float64) float64 { return quantile(rounds, 0.25) }

// least is the fastest mode.
func least(t [logp.NumModes]float64) (best int) {
	for m := range t {
		if t[m] < t[best] {
			best = m
		}
	}
	return best
}

// Interval is a 95 % confidence interval by the percentile bootstrap (Efron and
// Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13): rounds are drawn with
// replacement as many times as there are, all series of a round together, since they
// shared its moment, and the figure is computed anew; the interval is what lies between
// the quantiles 0.025 and 0.975 of that.
type Interval struct {
	Lo float64 `json:"lo"`
	Hi float64 `json:"hi"`
}

// String is the interval in percent.
func (i Interval) String() string { return fmt.Sprintf("%.1f … %.1f", 100*i.Lo, 100*i.Hi) }

// resamples is what intervals of 95 % need: 25 values lie beyond either end.
const resamples = 1000

// interval returns the interval of a figure from its resamples; none for none.
func interval(x []float64) Interval {
	return Interval{quantile(x, 0.025), quantile(x, 0.975)}
}

// drawer draws rounds, the same ones for the same results.
type drawer struct {
	rnd   *rand.Rand
	times []float64
	draw  []int
}

func newDrawer() *drawer { return &drawer{rnd: rand.New(rand.NewPCG(1, 95))} }

// regret is that of s in a draw of its rounds.
func (d *drawer) regret(s *Series) float64 {
	d.draw = d.draw[:0]
	for range s.Auto {
		d.draw = append(d.draw, d.rnd.IntN(len(s.Auto)))
	}
	drawn := func(rounds []float64) float64 {
		d.times = d.times[:0]
		for _, r := range d.draw {
			d.times = append(d.times, rounds[r])
		}
		return timeOf(d.times)
	}
	var t [logp.NumModes]float64
	for m, rounds := range s.array() {
		t[m] = drawn(rounds)
	}
	return drawn(s.Auto)/t[least(t)] - 1
}

// complete reports whether every series has all rounds: what is read from a file may not.
func (s *Series) complete() bool {
	for _, rounds := range s.array() {
		if len(rounds) != len(s.Auto) {
			return false
		}
	}
	return len(s.Auto) > 0
}

// regret95 is the interval of the regret.
func (s *Series) regret95() Interval {
	if !s.complete() {
		return Interval{}
	}
	d, x := newDrawer(), make([]float64, resamples)
	for i := range x {
		x[i] = d.regret(s)
	}
	return interval(x)
}

// meanAndWithin returns the mean of regrets, and the share of them up to 0.1.
func meanAndWithin(regrets []float64) (mean, within float64) {
	n := float64(max(len(regrets), 1))
	for _, r := range regrets {
		mean += r
		if r <= 0.1 {
			within++
		}
	}
	return mean / n, within / n
}

// summary95 returns the intervals of what meanAndWithin does for rs, each cell's rounds
// drawn by themselves; none if the rounds of a cell are not known.
func summary95(rs []Result) (mean, within Interval) {
	for i := range rs {
		if !rs[i].Series.complete() {
			return mean, within
		}
	}
	d, means, shares := newDrawer(), make([]float64, resamples), make([]float64, resamples)
	regrets := make([]float64, len(rs))
	for i := range means {
		for c := range rs {
			regrets[c] = d.regret(&rs[c].Series)
		}
		means[i], shares[i] = meanAndWithin(regrets)
	}
	return interval(means), interval(shares)
}
