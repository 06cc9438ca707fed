package choice

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Series holds the time of each series of a cell in each round, in µs: the lower quartile
// of the round's trips. Entries of the same index are of one round, in which the series
// alternated.
type Series struct {
	Eager   []float64 `json:"eager"`
	Gather  []float64 `json:"gather"`
	Scatter []float64 `json:"scatter"`
	Auto    []float64 `json:"auto"`
	Again   []float64 `json:"again"` // second series of the mode AgainOf
	AgainOf string    `json:"again_of"`

	Thresholds []float64 `json:"thresholds,omitempty"` // a table of thresholds, if requested
	SendRecv   []float64 `json:"send_recv,omitempty"`  // two-sided messages, over verbs
}

func (s *Series) forced() [][]float64 { return [][]float64{s.Eager, s.Gather, s.Scatter} }

func (s *Series) sample() Sample { return Sample{s.Auto, s.forced(), timeShare} }

// timeShare is the Share of the series of batches. Other work on a machine only adds time;
// disturbed rounds have no effect as long as a quarter of the rounds are undisturbed.
const timeShare = 0.25

// timeOf is the time of a series.
func timeOf(rounds []float64) float64 { return Quantile(rounds, timeShare) }

// least returns the index of the least time.
func least(t []float64) (best int) {
	for m := range t {
		if t[m] < t[best] {
			best = m
		}
	}
	return best
}

// Interval is a 95 % confidence interval by the percentile bootstrap (Efron and
// Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13). Rounds are drawn
// with replacement, as many as there are and each with all its series, since they were
// disturbed alike; the figure is computed from them. The interval is between the quantiles
// 0.025 and 0.975 of the figures of all draws.
type Interval struct {
	Lo float64 `json:"lo"`
	Hi float64 `json:"hi"`
}

// String returns the interval in percent.
func (i Interval) String() string { return fmt.Sprintf("%.1f … %.1f", 100*i.Lo, 100*i.Hi) }

// resamples is enough for intervals of 95 %: 25 values lie beyond either end.
const resamples = 1000

// interval returns the interval of a figure from its resamples; zero if there are none.
func interval(x []float64) Interval {
	return Interval{Quantile(x, 0.025), Quantile(x, 0.975)}
}

// drawer draws rounds, with a fixed seed: equal results have equal intervals.
type drawer struct {
	rnd   *rand.Rand
	times []float64
	draw  []int
}

func newDrawer() *drawer { return &drawer{rnd: rand.New(rand.NewPCG(1, 95))} }

// regret draws rounds and returns the regret of the automatic choice in them.
func (d *drawer) regret(s Sample) float64 {
	d.draw = d.draw[:0]
	for range s.Auto {
		d.draw = append(d.draw, d.rnd.IntN(len(s.Auto)))
	}
	timed := func(rounds []float64) float64 {
		d.times = d.times[:0]
		for _, r := range d.draw {
			d.times = append(d.times, rounds[r])
		}
		return Quantile(d.times, s.Share)
	}
	best := math.Inf(1)
	for _, rounds := range s.Forced {
		best = min(best, timed(rounds))
	}
	return timed(s.Auto)/best - 1
}

// Sample holds the times of a cell in each round: of the automatic choice, and of each way
// that can be forced. The time of a series is the quantile Share of its rounds.
type Sample struct {
	Auto   []float64
	Forced [][]float64
	Share  float64
}

// complete reports whether every series has all rounds; in results read from a file some may lack.
func (s Sample) complete() bool {
	for _, rounds := range s.Forced {
		if len(rounds) != len(s.Auto) {
			return false
		}
	}
	return len(s.Auto) > 0
}

// Regret95 returns the interval of the regret; zero if the rounds are not known.
func (s Sample) Regret95() Interval {
	if !s.complete() {
		return Interval{}
	}
	d, x := newDrawer(), make([]float64, resamples)
	for i := range x {
		x[i] = d.regret(s)
	}
	return interval(x)
}

// meanAndWithin returns the mean of regrets, and the share of those up to 0.1.
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

// summary95 returns the intervals of the figures of meanAndWithin over cells, whose rounds
// are drawn independently; zero if the rounds of a cell are not known.
func summary95(cells []Sample) (mean, within Interval) {
	for _, c := range cells {
		if !c.complete() {
			return mean, within
		}
	}
	d, means, shares := newDrawer(), make([]float64, resamples), make([]float64, resamples)
	regrets := make([]float64, len(cells))
	for i := range means {
		for k, c := range cells {
			regrets[k] = d.regret(c)
		}
		means[i], shares[i] = meanAndWithin(regrets)
	}
	return interval(means), interval(shares)
}
