// Command ep is the benchmark EP of the NAS Parallel Benchmarks, "embarrassingly parallel":
// it makes pairs of Gaussian deviates from uniform random numbers, and counts them.
//
//	rmarun -n 4 go run ./examples/nas/ep -class A
//
// Any number of ranks. Each makes the random numbers of its own batches, because the generator
// can skip (nas.Random.Skip); one allreduce at the end is the only communication. It measures
// processors, and shows the start and end of a job.
package main

import (
	"context"
	"math"
	"strconv"

	"github.com/seed33544411/rma/examples/nas/internal/nas"
)

var kernel = nas.Kernel{Name: "EP", Run: run}

func main() { nas.Main(kernel) }

// problem is a class: 2^m pairs, and the sums that the specification gives.
type problem struct {
	m      int
	sx, sy float64
}

var problems = map[nas.Class]problem{
	"S": {24, -3.247834652034740e+3, -6.958407078382297e+3},
	"W": {25, -2.863319731645753e+3, -6.320053679109499e+3},
	"A": {28, -4.295875165629892e+3, -1.580732573678431e+4},
	"B": {30, 4.033815542441498e+4, -2.660669192809235e+4},
}

const (
	seed     nas.Random = 271828183
	batch               = 1 << 16 // pairs
	accuracy            = 1e-8
)

// tally is what is summed: the deviates, and how many pairs lie in each square ring.
type tally struct {
	sx, sy float64
	rings  [10]int64
}

func run(ctx context.Context, c *nas.Comm, class nas.Class) (r nas.Result, err error) {
	p, err := nas.Pick(class, problems)
	if err != nil {
		return r, err
	}
	var all tally
	all.pairs(seed, batch) // touches the code of the loop
	if err := c.Start(ctx); err != nil {
		return r, err
	}
	all = tally{}
	first, end := c.Share(1 << p.m / batch)
	for b := first; b < end; b++ {
		all.pairs(seed.Skip(2*batch*int64(b)), batch)
	}
	sums := []float64{all.sx, all.sy}
	if err := nas.Sum(ctx, c, sums); err != nil {
		return r, err
	}
	if err := nas.Sum(ctx, c, all.rings[:]); err != nil {
		return r, err
	}
	c.Stop()
	pairs := int64(0)
	for _, n := range all.rings {
		pairs += n
	}
	r = nas.Result{
		Size: strconv.FormatInt(int64(2)<<p.m, 10), Operations: math.Ldexp(1, p.m+1), Kind: "Random numbers generated",
		Verified: nas.Near(sums[0], p.sx, accuracy) && nas.Near(sums[1], p.sy, accuracy),
	}
	r.Printf("N = 2^%d", p.m)
	r.Printf("No. Gaussian pairs = %d", pairs)
	r.Printf("Sums = %22.15e %22.15e", sums[0], sums[1])
	for i, n := range all.rings {
		r.Printf("Counts %d %12d", i, n)
	}
	return r, nil
}

// pairs adds the deviates that come of the next n pairs of random numbers. Of the points in
// the square those in the unit disc become deviates, by the polar method (Marsaglia, Bray
// 1964).
func (t *tally) pairs(x nas.Random, n int) {
	sx, sy := 0.0, 0.0
	for range n {
		x1 := 2*x.Next() - 1
		x2 := 2*x.Next() - 1
		s := x1*x1 + x2*x2
		if s > 1 {
			continue
		}
		f := math.Sqrt(-2 * math.Log(s) / s)
		x1, x2 = x1*f, x2*f
		t.rings[int(max(math.Abs(x1), math.Abs(x2)))]++
		sx, sy = sx+x1, sy+x2
	}
	t.sx, t.sy = t.sx+sx, t.sy+sy
}
