package main

import (
	"context"
	"math"

	"github.com/seed33544411/rma/examples/nas/internal/nas"
)

// box is a rank's part of the box, in two layouts.
//
// In planes it has all of x and y and a range of z. They lie as [block of y][z][y in
// block][x]: the block of y that will be rank r's is contiguous. In columns it has all of x and z
// and a range of y, as [z][y][x], so that the range of z that rank r has is contiguous. An
// alltoall of the blocks changes one into the other.
type box struct {
	c                      *nas.Comm
	p                      problem
	z0, nz                 int // own range of z, in planes
	y0, ny                 int // own range of y, in columns
	planes                 []complex128
	freq                   []complex128 // columns, in the frequency domain
	columns                []complex128 // the inverse transform of freq along z
	damp                   []float64    // of freq, in one time step
	alongX, alongY, alongZ *fft
}

func newBox(c *nas.Comm, p problem) *box {
	n := c.Size()
	b := &box{c: c, p: p, nz: p.nz / n, ny: p.ny / n}
	b.z0, b.y0 = b.nz*c.Rank(), b.ny*c.Rank()
	points := p.nx * p.ny * b.nz
	b.planes, b.freq, b.columns = make([]complex128, points), make([]complex128, points), make([]complex128, points)
	b.damp = make([]float64, points)
	b.alongX, b.alongY, b.alongZ = newFFT(p.nx), newFFT(p.ny), newFFT(p.nz)
	return b
}

// row returns the index in planes of the row along x of a plane and a y of the whole box.
func (b *box) row(z, y int) int {
	return ((y/b.ny*b.nz+z)*b.ny + y%b.ny) * b.p.nx
}

// randomize sets the initial state.
func (b *box) randomize() {
	for z := range b.nz {
		for y := range b.p.ny {
			x := nas.Seed.Skip(2 * int64((b.z0+z)*b.p.ny+y) * int64(b.p.nx))
			row := b.planes[b.row(z, y):][:b.p.nx]
			for i := range row {
				re := x.Next()
				row[i] = complex(re, x.Next())
			}
		}
	}
}

// damping computes by how much each frequency decays in a time step.
func (b *box) damping() {
	factors := func(n int) []float64 {
		f := make([]float64, n)
		for i := range f {
			k := float64((i+n/2)%n - n/2)
			f[i] = math.Exp(-4 * diffusion * math.Pi * math.Pi * k * k)
		}
		return f
	}
	fx, fy, fz := factors(b.p.nx), factors(b.p.ny), factors(b.p.nz)
	damp := b.damp
	for z := range b.p.nz {
		for y := range b.ny {
			for x, f := range fx {
				damp[x] = f * fy[b.y0+y] * fz[z]
			}
			damp = damp[b.p.nx:]
		}
	}
}

// forward transforms planes into freq.
func (b *box) forward(ctx context.Context) error {
	b.transformPlanes(forward)
	if err := nas.Alltoall(ctx, b.c, b.planes, b.freq); err != nil {
		return err
	}
	b.transformColumns(b.freq, b.freq, forward)
	return nil
}

// inverse transforms freq into planes. freq stays.
func (b *box) inverse(ctx context.Context) error {
	b.transformColumns(b.columns, b.freq, inverse)
	if err := nas.Alltoall(ctx, b.c, b.columns, b.planes); err != nil {
		return err
	}
	b.transformPlanes(inverse)
	return nil
}

// transformColumns transforms along z.
func (b *box) transformColumns(dst, src []complex128, dir direction) {
	plane := b.ny * b.p.nx
	for i := 0; i < plane; i += width {
		b.alongZ.run(dst, src, dir, func(z int) int { return z*plane + i })
	}
}

// transformPlanes transforms along x and y.
func (b *box) transformPlanes(dir direction) {
	for i := 0; i < len(b.planes); i += width * b.p.nx {
		b.alongX.rows(b.planes[i:][:width*b.p.nx], dir)
	}
	for z := range b.nz {
		for x := 0; x < b.p.nx; x += width {
			b.alongY.run(b.planes, b.planes, dir, func(y int) int { return b.row(z, y) + x })
		}
	}
}

// checksum returns that of planes: the mean of some points of the whole box.
func (b *box) checksum(ctx context.Context) (complex128, error) {
	sum := complex128(0)
	for j := 1; j <= samples; j++ {
		x, y, z := j%b.p.nx, 3*j%b.p.ny, 5*j%b.p.nz-b.z0
		if z >= 0 && z < b.nz {
			sum += b.planes[b.row(z, y)+x]
		}
	}
	v := []float64{real(sum), imag(sum)}
	err := nas.Sum(ctx, b.c, v)
	points := float64(b.p.nx * b.p.ny * b.p.nz)
	return complex(v[0]/points, v[1]/points), err
}
