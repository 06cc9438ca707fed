package bench

import (
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed33544411/rma/internal/cpu"
)

// recorder collects samples in ticks. add is for timing loops: it stores the sample, and
// moves the buffer into the histogram once in len(buf) samples.
type recorder struct {
	hist     *hdrhistogram.Histogram
	buf      [1024]int64
	n        int
	count    int64
	min, max int64
	sum      float64
	meter    *meter // restarted with the samples; may be nil
}

// maxTicks is the top of the histogram: some 20 s at 5 GHz. Larger samples count as
// maxTicks there; the exact maximum is kept separately.
const maxTicks = 100_000_000_000

func newRecorder() *recorder {
	r := &recorder{hist: hdrhistogram.New(1, maxTicks, 3)}
	r.reset()
	return r
}

func (r *recorder) reset() {
	r.hist.Reset()
	r.n, r.count, r.min, r.max, r.sum = 0, 0, math.MaxInt64, 0, 0
	if r.meter != nil {
		r.meter.start()
	}
}

// add records one sample.
func (r *recorder) add(ticks int64) {
	r.buf[r.n] = ticks
	if r.n++; r.n == len(r.buf) {
		r.flush()
	}
}

// lap records the sample from last to now, and returns when the next one begins: now, or after
// the histogram has been filled, which belongs to no sample.
func (r *recorder) lap(last, now int64) int64 {
	if r.add(now - last); r.n == 0 {
		return cpu.Ticks()
	}
	return now
}

func (r *recorder) flush() {
	for _, t := range r.buf[:r.n] {
		t = max(t, 0) // counters of two cores may differ by a few ticks
		r.min, r.max = min(r.min, t), max(r.max, t)
		r.sum += float64(t)
		_ = r.hist.RecordValue(min(t, maxTicks)) // in range by construction
	}
	r.count += int64(r.n)
	r.n = 0
}

// latency summarises the samples, each divided by parts (2 for half round trips).
func (r *recorder) latency(parts float64) Latency {
	r.flush()
	if r.count == 0 {
		return Latency{}
	}
	us := cpu.NsPerTick() / 1000 / parts
	q := func(p float64) float64 {
		// The histogram's buckets are 0.1 % wide; the exact extremes bound the quantile.
		return float64(min(max(r.hist.ValueAtQuantile(p), r.min), r.max)) * us
	}
	return Latency{
		Min: float64(r.min) * us, P50: q(50), P90: q(90), P99: q(99), P999: q(99.9),
		Max: float64(r.max) * us, Mean: r.sum / float64(r.count) * us,
	}
}

// timerNS is the cost of one reading of the cycle counter in ns: the least mean of
// several series of readings.
func timerNS() float64 {
	const row = 1000
	best := int64(math.MaxInt64)
	for range 20 {
		t0 := cpu.Ticks()
		for range row {
			cpu.Ticks()
		}
		best = min(best, cpu.Ticks()-t0)
	}
	return float64(best) / row * cpu.NsPerTick()
}

// Median returns the middle value of v, or the mean of the two middle values; 0 if v is
// empty.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
