//go:build unix

package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/launch/launchtest"
)

func TestMain(m *testing.M) {
	launchtest.Main(m, map[string]launchtest.Role{
		"odd":  func(ctx context.Context) error { return run(ctx, options{n: 61, iters: 50, check: true}) },
		"tiny": func(ctx context.Context) error { return run(ctx, options{n: 3, iters: 7, check: true}) },
		"none": func(ctx context.Context) error { return run(ctx, options{n: 1, iters: 1, check: true}) },
	})
}

// Any number of ranks compute what one does, tiles of a single row, column or cell
// included.
func TestEqualsSerial(t *testing.T) {
	for _, c := range []struct {
		n      int
		fabric string
		role   string
		grid   string
	}{
		{1, "shm", "odd", "1 x 1"}, {2, "shm", "odd", "1 x 2"}, {4, "shm", "odd", "2 x 2"}, {4, "tcp", "odd", "2 x 2"},
		{3, "tcp", "tiny", "1 x 3"}, {6, "shm", "tiny", "2 x 3"}, {2, "ibv", "odd", "1 x 2"},
	} {
		t.Run(fmt.Sprintf("%d ranks %s %s", c.n, c.fabric, c.role), func(t *testing.T) {
			launchtest.Parallel(t, c.fabric)
			out := launchtest.Job{N: c.n, Role: c.role, Fabric: c.fabric}.Output(t)
			require.Contains(t, out, "[0] equal to the serial computation, bit for bit\n")
			require.Contains(t, out, "cells on "+c.grid+" ranks over "+c.fabric)
		})
	}
}

func TestTooSmall(t *testing.T) {
	t.Parallel()
	out, _, err := launchtest.Job{N: 2, Role: "none", Fabric: "shm"}.Run(t)
	require.Error(t, err)
	require.Contains(t, out, "want at least 2 cells per side")
}

// Tiles cover the grid, each cell once, and neighbours agree on who they are.
func TestTiles(t *testing.T) {
	for size := 1; size <= 24; size++ {
		for _, n := range []int{24, 25, 67} {
			seen := map[[2]int]bool{}
			for rank := range size {
				tl := tileOf(n, size, rank)
				for r := range tl.rows {
					for c := range tl.cols {
						at := [2]int{tl.row0 + r, tl.col0 + c}
						require.False(t, seen[at])
						seen[at] = true
					}
				}
				for s, other := range tl.neighbour {
					if other != none {
						require.Equal(t, rank, tileOf(n, size, other).neighbour[side(s).opposite()])
					}
				}
			}
			require.Len(t, seen, n*n)
		}
	}
}

// Heat comes from above: warmer there, symmetric, and never hotter than the edge.
func TestSerialIsPhysical(t *testing.T) {
	const n = 17
	cells, change := serial(n, 4000)
	require.Less(t, change, 1e-6)
	for r := range n {
		for c := range n {
			v := cells[r*n+c]
			require.InDelta(t, cells[r*n+n-1-c], v, 1e-9)
			require.True(t, v > 0 && v < hot)
			if r > 0 {
				require.Less(t, v, cells[(r-1)*n+c])
			}
		}
	}
}
