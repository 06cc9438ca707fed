package main

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The transform of width vectors is the sum that defines it, whichever way they lie.
func TestTransform(t *testing.T) {
	const n = 32
	rng := rand.New(rand.NewPCG(1, 2))
	v := make([]complex128, n*width)
	for i := range v {
		v[i] = complex(rng.Float64(), rng.Float64())
	}
	for dir, sign := range map[direction]float64{forward: -1, inverse: 1} {
		f := newFFT(n)
		rows := append([]complex128(nil), v...)
		f.rows(rows, dir)
		columns := make([]complex128, n*width)
		f.run(columns, v, dir, func(k int) int { return k * width })
		for j := range width {
			for k := range n {
				row, column := complex128(0), complex128(0)
				for i := range n {
					root := cmplx.Rect(1, sign*2*math.Pi*float64(i*k)/n)
					row += v[j*n+i] * root
					column += v[i*width+j] * root
				}
				require.InDelta(t, 0, cmplx.Abs(row-rows[j*n+k]), 1e-12)
				require.InDelta(t, 0, cmplx.Abs(column-columns[k*width+j]), 1e-12)
			}
		}
	}
}
