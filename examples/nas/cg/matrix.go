package main

import (
	"math"
	"slices"

	"github.com/seed33544411/rma/examples/nas/internal/nas"
)

// matrix is some rows of a sparse matrix. Row i has elements start[i] to start[i+1].
type matrix struct {
	start []int
	col   []int32
	value []float64
}

const (
	condition = 0.1 // reciprocal of the matrix's condition number, about
	diagonal  = 0.5
)

// vector is a sparse vector of the specification's random ones.
type vector struct {
	at    []int32
	value []float64
}

// randomVectors returns the vectors whose outer products make the matrix of a problem: each
// has nonzeros random elements in random places, and its own element is 1/2.
func randomVectors(p problem) []vector {
	x := nas.Seed
	x.Next() // the reference programs do
	space := 1
	for space < p.n {
		space *= 2
	}
	all := make([]vector, p.n)
	seen := make([]int, p.n) // by place: the last vector, from 1, that has it
	for i := range all {
		v := vector{make([]int32, 0, p.nonzeros+1), make([]float64, 0, p.nonzeros+1)}
		for len(v.at) < p.nonzeros {
			value := x.Next()
			at := int(float64(space) * x.Next())
			if at < p.n && seen[at] != i+1 {
				seen[at] = i + 1
				v.at, v.value = append(v.at, int32(at)), append(v.value, value)
			}
		}
		own := len(v.at)
		for k, at := range v.at {
			if int(at) == i {
				own = k
			}
		}
		if own == len(v.at) {
			v.at, v.value = append(v.at, int32(i)), append(v.value, 0)
		}
		v.value[own] = diagonal
		all[i] = v
	}
	return all
}

// newMatrix returns rows from to to of the matrix of a problem: the weighted sum of the outer
// products of its vectors, and condition-shift on the diagonal.
func newMatrix(p problem, from, to int) *matrix {
	vectors := randomVectors(p)
	weight := make([]float64, p.n)
	ratio := math.Pow(condition, 1/float64(p.n))
	w := 1.0
	for i := range weight {
		weight[i] = w
		w *= ratio
	}
	// Each row is the sum of multiples of the vectors that have an element in it.
	type part struct {
		vector int32
		value  float64
	}
	rows := make([][]part, to-from)
	for i, v := range vectors {
		for k, at := range v.at {
			if r := int(at) - from; r >= 0 && r < len(rows) {
				rows[r] = append(rows[r], part{int32(i), v.value[k] * weight[i]})
			}
		}
	}
	m := &matrix{start: make([]int, 1, len(rows)+1)}
	sum := make([]float64, p.n)
	in := make([]bool, p.n)
	for r, parts := range rows {
		first := len(m.col)
		for _, q := range parts {
			v := &vectors[q.vector]
			for k, at := range v.at {
				if !in[at] {
					in[at] = true
					m.col = append(m.col, at)
				}
				sum[at] += q.value * v.value[k]
			}
		}
		sum[from+r] += condition - p.shift
		slices.Sort(m.col[first:])
		for _, at := range m.col[first:] {
			m.value = append(m.value, sum[at])
			sum[at], in[at] = 0, false
		}
		m.start = append(m.start, len(m.col))
	}
	return m
}

// times sets y to the product of the rows with x.
func (m *matrix) times(y, x []float64) {
	for i := range y {
		from, to := m.start[i], m.start[i+1]
		value, col := m.value[from:to], m.col[from:to]
		col = col[:len(value)]
		even, odd := 0.0, 0.0 // two sums: each addition waits for the one before
		k := 0
		for ; k+1 < len(value); k += 2 {
			even += value[k] * x[col[k]]
			odd += value[k+1] * x[col[k+1]]
		}
		if k < len(value) {
			even += value[k] * x[col[k]]
		}
		y[i] = even + odd
	}
}
