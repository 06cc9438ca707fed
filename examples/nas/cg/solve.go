package main

import (
	"context"
	"math"

	"github.com/seed33544411/rma/examples/nas/internal/nas"
)

// inner is the number of iterations of the conjugate gradient method.
const inner = 25

// solver has a rank's rows of the matrix and its part of each vector.
type solver struct {
	c       *nas.Comm
	a       *matrix
	z, r, q []float64
	p       *shared // the search direction
}

func newSolver(ctx context.Context, c *nas.Comm, p problem) (*solver, error) {
	from, to := c.Share(p.n)
	s := &solver{c: c, a: newMatrix(p, from, to)}
	for _, v := range []*[]float64{&s.z, &s.r, &s.q} {
		*v = make([]float64, to-from)
	}
	var err error
	s.p, err = newShared(ctx, c, p.n)
	return s, err
}

// solve sets z to the approximate solution of A·z = x, and returns the norm of x - A·z.
func (s *solver) solve(ctx context.Context, x []float64) (residual float64, err error) {
	p := s.p.own
	clear(s.z)
	copy(s.r, x)
	copy(p, x)
	rho, err := s.dot(ctx, s.r, s.r)
	for i := 0; i < inner && err == nil; i++ {
		if err = s.p.spread(ctx); err != nil {
			break
		}
		s.a.times(s.q, s.p.all)
		var d float64
		if d, err = s.dot(ctx, p, s.q); err != nil {
			break
		}
		alpha, before := rho/d, rho
		for i, q := range s.q {
			s.z[i] += alpha * p[i]
			s.r[i] -= alpha * q
		}
		if rho, err = s.dot(ctx, s.r, s.r); err != nil {
			break
		}
		for i, r := range s.r {
			p[i] = r + rho/before*p[i]
		}
	}
	if err != nil {
		return 0, err
	}
	copy(p, s.z)
	if err := s.p.spread(ctx); err != nil {
		return 0, err
	}
	s.a.times(s.q, s.p.all)
	for i, q := range s.q {
		s.r[i] = x[i] - q
	}
	sum, err := s.dot(ctx, s.r, s.r)
	return math.Sqrt(sum), err
}

// dot returns the dot product of two vectors.
func (s *solver) dot(ctx context.Context, a, b []float64) (float64, error) {
	sum := []float64{dot(a, b)}
	err := nas.Sum(ctx, s.c, sum)
	return sum[0], err
}

func dot(a, b []float64) (sum float64) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

func (s *solver) close(ctx context.Context) error { return s.p.win.Free(ctx) }
