package main

import "math"

// hot is the temperature of the grid's upper edge; the other edges and, to begin
// with, all cells are at 0.
const hot = 100

// heat sets the upper edge of a plane with that stride.
func heat(plane []float64, stride int) {
	for i := range stride {
		plane[i] = hot
	}
}

// relax computes the cells of rows r0 … r1-1 and columns c0 … c1-1: each becomes the
// mean of its neighbours. It returns the largest change.
//
// The order of the additions is the same for whoever computes a cell, so that any
// number of ranks come to the same bits.
func relax(to, from []float64, stride, r0, r1, c0, c1 int) (change float64) {
	for r := r0; r < r1; r++ {
		above, here, below := from[(r-1)*stride:], from[r*stride:], from[(r+1)*stride:]
		out := to[r*stride:]
		for c := c0; c < c1; c++ {
			v := 0.25 * (above[c] + below[c] + here[c-1] + here[c+1])
			change = max(change, math.Abs(v-here[c]))
			out[c] = v
		}
	}
	return change
}

// serial is the whole computation by one processor: the own cells, row by row, and
// the largest change of the last iteration.
func serial(n, iters int) (cells []float64, change float64) {
	stride := n + 2
	planes := [2][]float64{make([]float64, stride*stride), make([]float64, stride*stride)}
	heat(planes[0], stride)
	heat(planes[1], stride)
	for k := 1; k <= iters; k++ {
		change = relax(planes[k%2], planes[(k-1)%2], stride, 1, n+1, 1, n+1)
	}
	for r := 1; r <= n; r++ {
		cells = append(cells, planes[iters%2][r*stride+1:r*stride+1+n]...)
	}
	return cells, change
}
