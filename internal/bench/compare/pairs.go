package compare

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/seed33544411/rma/internal/bench"
)

// Combine makes one result of those of our pairs that ran at once, as combine does
// for the peer's: rates add up, times are medians over the pairs, and so is the
// processor time for a message.
func (t Test) Combine(all []bench.Result) bench.Result {
	r := all[0]
	var p50, mean, cpu []float64
	r.MBs, r.Mmsgs = 0, 0
	for _, x := range all {
		r.MBs += x.MBs
		r.Mmsgs += x.Mmsgs
		p50, mean, cpu = append(p50, x.LatUS.P50), append(mean, x.LatUS.Mean), append(cpu, x.CPUNS)
	}
	r.LatUS.P50, r.LatUS.Mean, r.CPUNS = bench.Median(p50), bench.Median(mean), bench.Median(cpu)
	return r
}

const (
	// fewIters is how many iterations the first trial of pairs has: next to nothing,
	// also where every message waits for a time slice.
	fewIters  = 20
	maxTrials = 8
)

// crowd is a peer whose pairs share processors. The clock says how many iterations
// fill a time and what all pairs move together, because what a pair tells of the time
// when it ran says little about how long it did not: pairs that ran one after another
// would each tell the rate of a pair alone.
type crowd struct {
	*program
	start time.Duration // of a run that does next to nothing
	first Sample        // that run
}

// run makes one run; its figure for streams is that of all pairs by the clock.
func (c *crowd) run(ctx context.Context, t Test, iters int) (s Sample, took time.Duration, err error) {
	at := time.Now()
	if s, err = c.once(ctx, t, iters); err != nil {
		return s, 0, fmt.Errorf("%d iterations: %w", iters, err)
	}
	took = time.Since(at)
	if !t.less() && c.start > 0 {
		// Where starts take longer than what is measured, the clock says little; but
		// pairs cannot have had more of the processors than there was.
		window := max(took-c.start, (s.CPU-c.first.CPU)/time.Duration(c.processors()))
		s.Figure = min(s.Figure, t.together(float64(c.messages(t, iters)-c.messages(t, fewIters)), window))
	}
	return s, took, nil
}

// processors is how many all pairs have.
func (c *crowd) processors() int {
	if n := len(c.job.Cores); n > 1 {
		return n
	}
	return runtime.NumCPU()
}

// together is the figure of a stream of n messages in that time.
func (t Test) together(n float64, took time.Duration) float64 {
	us := max(float64(took)/1e3, 1)
	if t.Kind == Rate {
		return n / us
	}
	return n * float64(t.Size) / us
}

// fit finds how many iterations fill d.
func (c *crowd) fit(ctx context.Context, t Test, d time.Duration) (iters int, err error) {
	n := fewIters
	for i := range maxTrials {
		s, took, err := c.run(ctx, t, n)
		if err != nil {
			return 0, err
		}
		if i == 0 {
			c.first, c.start = s, took
		} else if over := took - c.start; over > d/4 {
			return more(n, float64(d)/float64(over)), nil
		}
		n = more(n, 8)
	}
	return n, nil
}

// more is n times f, within bounds.
func more(n int, f float64) int { return int(min(max(float64(n)*f, fewIters), maxIters)) }
