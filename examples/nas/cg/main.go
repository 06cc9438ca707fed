// Command cg is the benchmark CG of the NAS Parallel Benchmarks, "conjugate gradient": it
// estimates the smallest eigenvalue of a sparse symmetric matrix by inverse iteration, and
// solves the system of each step by 25 iterations of the conjugate gradient method.
//
//	rmarun -n 4 go run ./examples/nas/cg -class A
//
// Any number of ranks. Each has a block of rows and of the vectors. A product of matrix and
// vector needs the whole vector: each rank puts its part into the window of every other one,
// with a signal (Peer.PutSignal), and waits for theirs. The dot products are allreduces of
// one number. It measures latency, because there is little to compute between them.
//
// Files: main.go the classes and the inverse iteration, matrix.go the matrix, solve.go the
// conjugate gradient method, share.go the exchange of vectors.
package main

import (
	"context"
	"math"
	"strconv"

	"github.com/seed33544411/rma/examples/nas/internal/nas"
)

var kernel = nas.Kernel{Name: "CG", Run: run}

func main() { nas.Main(kernel) }

// problem is a class: a matrix of n rows, of the sum of n outer products of vectors with
// nonzeros elements.
type problem struct {
	n, nonzeros, iterations int
	shift                   float64
	zeta                    float64 // to be found
}

var problems = map[nas.Class]problem{
	"S": {1400, 7, 15, 10, 8.5971775078648},
	"W": {7000, 8, 15, 12, 10.362595087124},
	"A": {14000, 11, 15, 20, 17.130235054029},
	"B": {75000, 13, 75, 60, 22.712745482631},
}

const accuracy = 1e-10

func run(ctx context.Context, c *nas.Comm, class nas.Class) (r nas.Result, err error) {
	p, err := nas.Pick(class, problems)
	if err != nil {
		return r, err
	}
	s, err := newSolver(ctx, c, p)
	if err != nil {
		return r, err
	}
	x := make([]float64, len(s.r))
	zeta := 0.0
	step := func() (residual float64, err error) {
		if residual, err = s.solve(ctx, x); err != nil {
			return 0, err
		}
		sums := []float64{dot(x, s.z), dot(s.z, s.z)}
		if err := nas.Sum(ctx, c, sums); err != nil {
			return 0, err
		}
		zeta = p.shift + 1/sums[0]
		for i, z := range s.z {
			x[i] = z / math.Sqrt(sums[1])
		}
		return residual, nil
	}
	ones := func() {
		for i := range x {
			x[i] = 1
		}
	}
	ones()
	if _, err := step(); err != nil { // not timed
		return r, err
	}
	ones()
	if err := c.Start(ctx); err != nil {
		return r, err
	}
	r.Printf("   iteration           ||r||                 zeta")
	for i := 1; i <= p.iterations; i++ {
		residual, err := step()
		if err != nil {
			return r, err
		}
		r.Printf("%12d %21.14e %20.14f", i, residual, zeta)
	}
	c.Stop()
	r.Printf("Zeta is    %20.13e", zeta)
	r.Printf("Error is   %20.13e", math.Abs(zeta-p.zeta)/p.zeta)
	inRow := float64(p.nonzeros * (p.nonzeros + 1))
	r.Size, r.Iterations, r.Kind = strconv.Itoa(p.n), p.iterations, "floating point"
	r.Operations = float64(2*p.iterations) * float64(p.n) * (3 + inRow + inner*(5+inRow) + 3)
	r.Verified = nas.Near(zeta, p.zeta, accuracy)
	return r, s.close(ctx)
}
