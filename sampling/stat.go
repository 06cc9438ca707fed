package sampling

import (
	"math"
	"slices"
)

const (
	// maxSamples bounds a series; later samples replace the oldest. The standard error of a
	// median falls with the root of the number: more samples would be better spent on other
	// points.
	maxSamples = 31
	// minSamples is the number of samples needed to recognise an outlier.
	minSamples = 3
	// enough is the confidence from which a point gets no more samples.
	enough = 0.85
	// outlier is the largest distance of a sample from the median, in standard deviations.
	outlier = 6
	// disturbed is the largest multiple of the lower quartile that a sample may be. Noise
	// only adds: a time slice of another process, on a busy machine in more than half of
	// the samples, takes a hundred times as long as most operations, while the jitter of
	// the operations themselves is within a factor of two.
	disturbed = 3
)

// series collects samples of one quantity in ns.
type series struct {
	buf [maxSamples]float64
	n   int // number of samples ever added
}

func (s *series) add(x float64) {
	s.buf[s.n%maxSamples] = x
	s.n++
}

// estimate is the median of a series. se is its standard error.
type estimate struct {
	v, se   float64
	n       int // samples kept
	dropped int
}

// estimate returns the median of the samples without outliers. The spread is computed from
// the median absolute deviation, which disturbances in a third of the samples do not
// change. Of a single sample only the value is known. Does not allocate.
func (s *series) estimate() estimate {
	var x, d [maxSamples]float64
	n := copy(x[:], s.buf[:min(s.n, maxSamples)])
	if n == 0 {
		return estimate{se: math.Inf(1)}
	}
	slices.Sort(x[:n])
	hi := n
	for x[hi-1] > disturbed*x[(n-1)/4] {
		hi--
	}
	lo := 0
	med := middle(x[:hi])
	if sd := deviation(d[:], x[:hi], med); sd > 0 {
		for x[hi-1]-med > outlier*sd {
			hi--
		}
		for med-x[lo] > outlier*sd {
			lo++
		}
	}
	kept := x[lo:hi]
	e := estimate{v: middle(kept), n: len(kept), dropped: n - len(kept)}
	if e.n == 1 {
		e.se = e.v
		return e
	}
	// The standard error of a median is 1.25 times that of a mean. Equal samples still have
	// the granularity of the clock and the loop.
	e.se = max(1.2533*deviation(d[:], kept, e.v)/math.Sqrt(float64(e.n)), 0.002*e.v)
	return e
}

// least returns the smallest sample: an optimistic estimate of the undisturbed time.
func (s *series) least() float64 {
	if s.n == 0 {
		return 0
	}
	return slices.Min(s.buf[:min(s.n, maxSamples)])
}

// middle returns the median of sorted x.
func middle(x []float64) float64 {
	n := len(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}

// deviation returns the standard deviation of a normal distribution with the same median
// absolute deviation from med as x. d is scratch.
func deviation(d, x []float64, med float64) float64 {
	d = d[:len(x)]
	for i, v := range x {
		d[i] = math.Abs(v - med)
	}
	slices.Sort(d)
	return 1.4826 * middle(d)
}

// conf maps the standard error to 0 … 1: ½ if it is Tolerance times the value, and less with
// few samples, which may all be disturbed: 3 samples with probability 1/4, 5 with 1/10.
func (e estimate) conf() float64 {
	if e.n == 0 || math.IsInf(e.se, 0) || math.IsNaN(e.se) {
		return 0
	}
	c := 1 - math.Exp2(-float64(e.n)/1.5)
	if e.se <= 0 {
		return c
	}
	if e.v <= 0 {
		return 0
	}
	r := e.se / e.v / Tolerance
	return c / (1 + r*r)
}
