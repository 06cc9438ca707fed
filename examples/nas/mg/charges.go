package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/seed33544411/rma/examples/nas/internal/nas"
)

// charges of either sign
const charges = 10

// charge sets the right-hand side: of random numbers at all points of the cube, the points of
// the ten largest get 1, those of the ten smallest -1, all others 0.
func (s *solver) charge(ctx context.Context, b block) error {
	v, n := s.v, 1<<s.p.levels
	first := [axes]int{b.place[axisX] * v.nx, b.place[axisY] * v.ny, b.place[axisZ] * v.nz}
	var least, most extremes
	for z := range v.nz {
		for y := range v.ny {
			index := ((first[axisZ]+z)*n+first[axisY]+y)*n + first[axisX]
			x := nas.Seed.Skip(int64(index))
			for i := range v.nx {
				value := x.Next()
				least.offer(value, index+i)
				most.offer(-value, index+i)
			}
		}
	}
	all := make([]float64, 2*2*charges*s.c.Size())
	if err := nas.Allgather(ctx, s.c, append(least.flat(), most.flat()...), all); err != nil {
		return err
	}
	least, most = extremes{}, extremes{}
	for ; len(all) > 0; all = all[4*charges:] {
		for i := 0; i < 2*charges; i += 2 {
			least.offer(all[i], int(all[i+1]))
			most.offer(all[2*charges+i], int(all[2*charges+i+1]))
		}
	}
	set := func(points extremes, value float64) {
		for _, p := range points {
			x, y, z := p.index%n-first[axisX], p.index/n%n-first[axisY], p.index/n/n-first[axisZ]
			if x >= 0 && x < v.nx && y >= 0 && y < v.ny && z >= 0 && z < v.nz {
				v.row(z+1, y+1)[x+1] = value
			}
		}
	}
	set(least, -1)
	set(most, 1)
	return s.halo.exchange(ctx, v)
}

// extremes are the points with the least values, the least first.
type extremes []point

type point struct {
	value float64
	index int
}

// offer adds a point if it belongs to them.
func (e *extremes) offer(value float64, index int) {
	if len(*e) == charges && value >= (*e)[charges-1].value {
		return
	}
	at, _ := slices.BinarySearchFunc(*e, value, func(p point, v float64) int { return cmp.Compare(p.value, v) })
	*e = slices.Insert(*e, at, point{value, index})
	if len(*e) > charges {
		*e = (*e)[:charges]
	}
}

// flat returns the values and indices in turn, which are whole numbers below 2^53.
func (e extremes) flat() (out []float64) {
	for _, p := range e {
		out = append(out, p.value, float64(p.index))
	}
	return out
}
