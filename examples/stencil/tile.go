package main

// side is a direction in which a tile may have a neighbour.
type side int

const (
	up side = iota
	down
	left
	right
	sides
)

func (s side) opposite() side { return s ^ 1 }

// tile is the part of an n × n grid that a rank computes. In memory it has a ring
// of cells around it: its halo, or the edge of the grid.
type tile struct {
	n          int // of the grid
	row0, col0 int // of the first own cell
	rows, cols int // own cells
	neighbour  [sides]int
}

// none stands for no neighbour.
const none = -1

// processGrid lays size ranks out in rows and columns, as square as it goes: the
// less square, the more halo.
func processGrid(size int) (rows, cols int) {
	rows = 1
	for r := 2; r*r <= size; r++ {
		if size%r == 0 {
			rows = r
		}
	}
	return rows, size / rows
}

// share is part i of n cells in parts parts whose sizes differ by one at most.
func share(n, parts, i int) (from, count int) {
	from = n * i / parts
	return from, n*(i+1)/parts - from
}

// tileOf is the part of a rank. Everybody can compute everybody's.
func tileOf(n, size, rank int) tile {
	rows, cols := processGrid(size)
	y, x := rank/cols, rank%cols
	t := tile{n: n, neighbour: [sides]int{none, none, none, none}}
	t.row0, t.rows = share(n, rows, y)
	t.col0, t.cols = share(n, cols, x)
	if y > 0 {
		t.neighbour[up] = rank - cols
	}
	if y < rows-1 {
		t.neighbour[down] = rank + cols
	}
	if x > 0 {
		t.neighbour[left] = rank - 1
	}
	if x < cols-1 {
		t.neighbour[right] = rank + 1
	}
	return t
}

// A rank's window holds a signal word for each side, the residual, and two planes:
// one is read while the other is computed.
const (
	residualAt = 8 * int(sides)
	planesAt   = 64
	cell       = 8 // bytes
)

// stride returns the number of cells of a row in memory.
func (t *tile) stride() int { return t.cols + 2 }

func (t *tile) planeBytes() int { return cell * (t.rows + 2) * t.stride() }

// bytes returns the size of the window.
func (t *tile) bytes() int { return planesAt + 2*t.planeBytes() }

// at returns the offset in the window of a cell of a plane; cells of the ring have row or
// column 0, or rows+1, cols+1.
func (t *tile) at(plane, row, col int) int {
	return planesAt + plane*t.planeBytes() + cell*(row*t.stride()+col)
}
