package main

import (
	"math"
	"math/rand/v2"

	"github.com/seed33544411/rma"
)

// number is what parameters may be.
type number interface{ float32 | float64 }

func sizeOf[T number]() int { return len(rma.Bytes(make([]T, 1))) }

// seed makes all runs fit the same model to the same data.
const seed = 0x5eed

// rowsPer is how many rows of data a worker has for each parameter. Fewer: some
// directions hardly show in the data, and descent is slow along them. With eight, the
// eigenvalues of the mean of x·xᵀ lie between (1-√⅛)² = 0.42 and (1+√⅛)² = 1.8 (Marchenko
// and Pastur). More: longer to generate, and nothing gained.
const rowsPer = 8

// solution is the parameters that the data was made with.
func solution[T number](n int) []T {
	rng := rand.New(rand.NewPCG(seed, 0))
	w := make([]T, n)
	for i := range w {
		w[i] = T(rng.NormFloat64())
	}
	return w
}

// data is rows x, normally distributed, and y = x·w for the solution w.
type data[T number] struct {
	n    int // parameters
	x    []T // rows of n
	y    []T
	next int // row
}

// generate is the data of a worker; that of two workers is independent.
func generate[T number](n, worker int) *data[T] {
	rng := rand.New(rand.NewPCG(seed, uint64(worker)+1))
	w := solution[T](n)
	d := &data[T]{n: n, x: make([]T, rowsPer*n*n), y: make([]T, rowsPer*n)}
	for i := range d.x {
		d.x[i] = T(rng.NormFloat64())
	}
	for i := range d.y {
		d.y[i] = dot(d.x[i*n:(i+1)*n], w)
	}
	return d
}

// descend sets step to the negative gradient of the mean of ½(x·w - y)² over the next
// rows, times rate.
func (d *data[T]) descend(step, w []T, rows int, rate float64) {
	clear(step)
	for range rows {
		x := d.x[d.next*d.n : (d.next+1)*d.n]
		r := T(rate/float64(rows)) * (d.y[d.next] - dot(x, w))
		for i, v := range x {
			step[i] += r * v
		}
		d.next = (d.next + 1) % len(d.y)
	}
}

func dot[T number](a, b []T) (sum T) {
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// rateOf returns the length of a step.
//
// The gradient of a batch is a matrix times the error; its largest eigenvalue is
// about (1+√(n/batch))². A step of the inverse of that cannot overshoot. Gradients are late:
// when one is added, each other worker may have added two since its parameters were read, so
// that all of them together must not overshoot either.
func rateOf(n, batch, workers int) float64 {
	s := 1 + math.Sqrt(float64(n)/float64(batch))
	return 1 / (s * s * 2 * float64(workers))
}
