package main

import (
	"math"
)

// width is how many vectors are transformed at once, element by element, for the sake of
// caches: elements of a vector are far apart in memory. It divides the number of points
// along x of all classes.
const width = 16

// direction is the sign of the exponent.
type direction int

const (
	forward direction = iota
	inverse
)

// fft transforms vectors of n elements, n a power of two, by Stockham's algorithm, which
// needs no bit reversal. It does not scale the result.
type fft struct {
	n     int
	roots [2][]complex128 // by direction: exp(±2πi k/n)
	a, b  []complex128    // n rows of width elements
}

func newFFT(n int) *fft {
	f := &fft{n: n, a: make([]complex128, n*width), b: make([]complex128, n*width)}
	for d := range f.roots {
		f.roots[d] = make([]complex128, n/2)
		for k := range f.roots[d] {
			sin, cos := math.Sincos(2 * math.Pi * float64(k) / float64(n))
			f.roots[d][k] = complex(cos, sin)
			if direction(d) == forward {
				f.roots[d][k] = complex(cos, -sin)
			}
		}
	}
	return f
}

// run transforms width vectors, whose elements k are consecutive from index at(k) on, from src
// to the same places of dst.
func (f *fft) run(dst, src []complex128, dir direction, at func(k int) int) {
	for k := range f.n {
		copy(f.a[k*width:][:width], src[at(k):])
	}
	f.transform(dir)
	for k := range f.n {
		copy(dst[at(k):], f.a[k*width:][:width])
	}
}

// rows transforms width vectors in place that follow each other.
func (f *fft) rows(v []complex128, dir direction) {
	for j := range width {
		for k, x := range v[j*f.n:][:f.n] {
			f.a[k*width+j] = x
		}
	}
	f.transform(dir)
	for j := range width {
		row := v[j*f.n:][:f.n]
		for k := range row {
			row[k] = f.a[k*width+j]
		}
	}
}

// transform transforms the vectors in a. A stage makes of 2·half vectors of length groups·2
// half as many, twice as long.
func (f *fft) transform(dir direction) {
	from, to := f.a, f.b
	half := f.n / 2
	for groups := 1; groups < f.n; groups *= 2 {
		// groups: length of the transforms that are done; n/groups/2 of them are combined
		// with as many others.
		pairs := f.n / (2 * groups)
		for p := range pairs {
			root := f.roots[dir][p*groups]
			low, high := from[p*groups*width:], from[(p*groups+half)*width:]
			out := to[2*p*groups*width:]
			butterflies(out[:groups*width], out[groups*width:2*groups*width], low, high, root)
		}
		from, to = to, from
	}
	f.a, f.b = from, to
}

// butterflies sets sum to x + y, and difference to (x - y)·root.
func butterflies(sum, difference, x, y []complex128, root complex128) {
	difference, x, y = difference[:len(sum)], x[:len(sum)], y[:len(sum)]
	for i := range sum {
		p, q := x[i], y[i]
		sum[i] = p + q
		d := p - q
		difference[i] = complex(real(d)*real(root)-imag(d)*imag(root), real(d)*imag(root)+imag(d)*real(root))
	}
}
