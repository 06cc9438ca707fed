// Command mg is the benchmark MG of the NAS Parallel Benchmarks, "multigrid": it solves the
// Poisson equation on a periodic cube, with charges at twenty points, by V-cycles.
//
//	rmarun -n 4 go run ./examples/nas/mg -class A
//
// 1, 2, 4 or 8 ranks: they halve the cube along z, then y, then x, so that the coarsest grid,
// of 2 × 2 × 2 points, has one for each of eight ranks. After every operation on a grid, ranks
// exchange its faces: each packs its two faces and puts them into the window of its neighbour,
// with a signal. It measures many exchanges of all sizes between neighbours.
//
// Files: main.go the classes and the iterations, grid.go a grid and the operators, halo.go
// the exchange of faces, charges.go the right-hand side.
package main

import (
	"context"
	"fmt"
	"math"

	"github.com/seed33544411/rma/examples/nas/internal/nas"
)

var kernel = nas.Kernel{Name: "MG", Run: run}

func main() { nas.Main(kernel) }

// problem is a class: 2^levels points along each axis.
type problem struct {
	levels, iterations int
	smoother           stencil
	norm               float64 // of the residual, to be found
}

var (
	poisson     = stencil{-8. / 3, 0, 1. / 6, 1. / 12}
	smootherSWA = stencil{-3. / 8, 1. / 32, -1. / 64, 0}
	smootherB   = stencil{-3. / 17, 1. / 33, -1. / 61, 0}
)

var problems = map[nas.Class]problem{
	"S": {5, 4, smootherSWA, 0.5307707005734e-04},
	"W": {7, 4, smootherSWA, 0.6467329375339e-05},
	"A": {8, 4, smootherSWA, 0.2433365309069e-05},
	"B": {8, 20, smootherB, 0.1800564401355e-05},
}

const accuracy = 1e-8

// solver has a rank's part of the grids. u and r have one of each level, from 1.
type solver struct {
	c    *nas.Comm
	p    problem
	halo *halo
	v    *grid   // right-hand side, at the highest level
	u, r []*grid // solution and residual
}

func run(ctx context.Context, c *nas.Comm, class nas.Class) (r nas.Result, err error) {
	p, err := nas.Pick(class, problems)
	if err == nil {
		err = c.PowerOfTwo(8)
	}
	if err != nil {
		return r, err
	}
	s := &solver{c: c, p: p, u: make([]*grid, p.levels+1), r: make([]*grid, p.levels+1)}
	b := blockOf(c.Rank(), c.Size())
	for k := 1; k <= p.levels; k++ {
		s.u[k], s.r[k] = newGrid(b, 1<<k), newGrid(b, 1<<k)
	}
	top := s.u[p.levels]
	s.v = newGrid(b, 1<<p.levels)
	if s.halo, err = newHalo(ctx, c, b, top); err != nil {
		return r, err
	}
	if err := s.charge(ctx, b); err != nil {
		return r, err
	}
	if err := s.iterate(ctx, 1); err != nil { // not timed
		return r, err
	}
	clear(top.at)
	if err := c.Start(ctx); err != nil {
		return r, err
	}
	if err := s.iterate(ctx, p.iterations); err != nil {
		return r, err
	}
	norm, err := s.norm(ctx)
	if err != nil {
		return r, err
	}
	c.Stop()
	n := 1 << p.levels
	r = nas.Result{
		Size: fmt.Sprintf("%dx%dx%d", n, n, n), Iterations: p.iterations, Kind: "floating point",
		Operations: 58 * float64(p.iterations) * math.Pow(float64(n), 3), Verified: nas.Near(norm, p.norm, accuracy),
	}
	r.Printf("L2 norm is %20.13e", norm)
	r.Printf("Error is   %20.13e", math.Abs(norm-p.norm)/p.norm)
	return r, s.halo.win.Free(ctx)
}

// iterate computes the residual, then n times a V-cycle and the residual.
func (s *solver) iterate(ctx context.Context, n int) error {
	k := s.p.levels
	if err := s.residual(ctx, k, s.v); err != nil {
		return err
	}
	for range n {
		if err := s.cycle(ctx); err != nil {
			return err
		}
		if err := s.residual(ctx, k, s.v); err != nil {
			return err
		}
	}
	return nil
}

// cycle is a V-cycle: it restricts the residual to the coarsest grid, smooths there, and
// corrects the solution of each finer grid.
func (s *solver) cycle(ctx context.Context) error {
	for k := s.p.levels; k > 1; k-- {
		s.r[k-1].restrict(s.r[k])
		if err := s.halo.exchange(ctx, s.r[k-1]); err != nil {
			return err
		}
	}
	clear(s.u[1].at)
	if err := s.smooth(ctx, 1); err != nil {
		return err
	}
	for k := 2; k <= s.p.levels; k++ {
		right := s.v
		if k < s.p.levels {
			right = s.r[k]
			clear(s.u[k].at)
		}
		s.u[k].prolong(s.u[k-1])
		if err := s.residual(ctx, k, right); err != nil {
			return err
		}
		if err := s.smooth(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// residual sets r to v - A·u at a level. v may be r.
func (s *solver) residual(ctx context.Context, k int, v *grid) error {
	residual(s.r[k], v, s.u[k], &poisson)
	return s.halo.exchange(ctx, s.r[k])
}

// smooth adds S·r to u at a level.
func (s *solver) smooth(ctx context.Context, k int) error {
	smooth(s.u[k], s.r[k], &s.p.smoother)
	return s.halo.exchange(ctx, s.u[k])
}

// norm returns the L2 norm of the residual.
func (s *solver) norm(ctx context.Context) (float64, error) {
	r := s.r[s.p.levels]
	sum := []float64{0}
	for z := 1; z <= r.nz; z++ {
		for y := 1; y <= r.ny; y++ {
			for _, v := range r.row(z, y)[1 : r.nx+1] {
				sum[0] += v * v
			}
		}
	}
	err := nas.Sum(ctx, s.c, sum)
	return math.Sqrt(sum[0] / math.Pow(2, float64(3*s.p.levels))), err
}
