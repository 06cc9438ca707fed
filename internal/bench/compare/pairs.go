package compare

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/seed33544411/rma/internal/bench"
)

// Combine combines the results of our pairs that ran at once, as combine does for the
// peer's: the sum of rates, medians over the pairs of times, and the processor time of all
// of them for a message.
func (t Test) Combine(all []bench.Result) bench.Result {
	r := all[0]
	r.OfPairs(all)
	r.MBs, r.Mmsgs = 0, 0
	for _, x := range all {
		r.MBs += x.MBs
		r.Mmsgs += x.Mmsgs
	}
	return r
}

const (
	// fewIters is the number of iterations of the pairs' first trial: its time is
	// negligible even if every message waits for a time slice.
	fewIters  = 20
	maxTrials = 8
)

// crowd is a peer whose pairs share processors. Iterations are fitted, and the common rate
// of all pairs is measured, by the clock: a pair's own figure covers only the time in which
// it ran, so that pairs that ran one after another would each report the rate of a pair
// alone.
type crowd struct {
	*program
	start time.Duration // duration of a run with fewIters
	first Sample        // the sample of that run
}

// run makes one run; the figure of a stream is that of all pairs by the clock.
func (c *crowd) run(ctx context.Context, t Test, iters int) (s Sample, took time.Duration, err error) {
	at := time.Now()
	if s, err = c.once(ctx, t, iters); err != nil {
		return s, 0, fmt.Errorf("%d iterations: %w", iters, err)
	}
	took = time.Since(at)
	if !t.less() && c.start > 0 {
		// If starts take longer than the measurement, the clock is imprecise; but the pairs
		// cannot have used more processor time than there was.
		window := max(took-c.start, (s.CPU-c.first.CPU)/time.Duration(c.processors()))
		s.Figure = min(s.Figure, t.together(float64(c.messages(t, iters)-c.messages(t, fewIters)), window))
	}
	return s, took, nil
}

// processors is the number of processors that all pairs share.
func (c *crowd) processors() int {
	if n := len(c.job.Cores); n > 1 {
		return n
	}
	return runtime.NumCPU()
}

// together is the figure of a stream of n messages in the time took.
func (t Test) together(n float64, took time.Duration) float64 {
	us := max(float64(took)/1e3, 1)
	if t.Kind == Rate {
		return n / us
	}
	return n * float64(t.Size) / us
}

// fit returns the number of iterations that fill d.
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

// more returns n times f, within bounds.
func more(n int, f float64) int { return int(min(max(float64(n)*f, fewIters), maxIters)) }
