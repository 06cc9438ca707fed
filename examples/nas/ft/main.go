// Command ft is the benchmark FT of the NAS Parallel Benchmarks, "fast Fourier transform": it
// solves the diffusion equation in a periodic box by a forward transform in three dimensions,
// and for each time step a product in the frequency domain and an inverse transform.
//
//	rmarun -n 4 go run ./examples/nas/ft -class A
//
// The number of ranks must be a power of two that divides the number of planes of the box (32
// in class W). Ranks have planes of z for the transforms along x and y, and ranges of y for that
// along z; one alltoall changes from one to the other. The layout of the planes (transform.go)
// is such that the blocks of the alltoall are contiguous on both sides: nothing is packed. It
// measures alltoall with large blocks.
//
// Files: main.go the classes and the time steps, transform.go the transform in three
// dimensions, fft.go that in one, reference.go the checksums of the specification.
package main

import (
	"context"
	"fmt"
	"math"
	"math/cmplx"

	"github.com/seed33544411/rma/examples/nas/internal/nas"
)

var kernel = nas.Kernel{Name: "FT", Run: run}

func main() { nas.Main(kernel) }

// problem is a class: a box of points, and the checksums of its time steps.
type problem struct {
	nx, ny, nz int
	sums       []complex128
}

const (
	diffusion = 1e-6
	accuracy  = 1e-12
	samples   = 1024 // points of a checksum
)

func run(ctx context.Context, c *nas.Comm, class nas.Class) (r nas.Result, err error) {
	p, err := nas.Pick(class, problems)
	if err == nil {
		err = c.PowerOfTwo(min(p.ny, p.nz))
	}
	if err != nil {
		return r, err
	}
	b := newBox(c, p)
	if _, err := b.solve(ctx, 1); err != nil { // not timed
		return r, err
	}
	if err := c.Start(ctx); err != nil {
		return r, err
	}
	sums, err := b.solve(ctx, len(p.sums))
	if err != nil {
		return r, err
	}
	c.Stop()
	r.Verified = true
	for i, sum := range sums {
		r.Printf("T = %4d     Checksum = %22.12e %22.12e", i+1, real(sum), imag(sum))
		r.Verified = r.Verified && cmplx.Abs(sum-p.sums[i]) <= accuracy*cmplx.Abs(p.sums[i])
	}
	points := float64(p.nx * p.ny * p.nz)
	r.Size, r.Iterations, r.Kind = fmt.Sprintf("%dx%dx%d", p.nx, p.ny, p.nz), len(p.sums), "floating point"
	r.Operations = points * (14.8157 + 7.19641*math.Log(points) + float64(len(p.sums))*(5.23518+7.21113*math.Log(points)))
	return r, nil
}

// solve makes the initial state, transforms it, and returns the checksums of that many time
// steps.
func (b *box) solve(ctx context.Context, steps int) ([]complex128, error) {
	b.randomize()
	b.damping()
	if err := b.forward(ctx); err != nil {
		return nil, err
	}
	sums := make([]complex128, steps)
	for i := range sums {
		for k, f := range b.damp {
			b.freq[k] *= complex(f, 0)
		}
		if err := b.inverse(ctx); err != nil {
			return nil, err
		}
		sum, err := b.checksum(ctx)
		if err != nil {
			return nil, err
		}
		sums[i] = sum
	}
	return sums, nil
}
