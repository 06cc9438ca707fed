package main

// axis is a direction of the cube.
type axis int

const (
	axisX axis = iota
	axisY
	axisZ
	axes
)

// block is a rank's place among the parts of the cube, of which there are one or two along
// each axis.
type block struct{ parts, place [axes]int }

// blockOf divides the cube among n ranks, a power of two up to 8: along z first, where
// faces are contiguous.
func blockOf(rank, n int) block {
	b := block{parts: [axes]int{1, 1, 1}}
	for a := axisZ; a >= axisX && n > 1; a, n = a-1, n/2 {
		b.parts[a], b.place[a] = 2, rank%2
		rank /= 2
	}
	return b
}

// rank is the inverse of blockOf.
func (b block) rank() (r int) {
	for a := axisX; a < axes; a++ {
		r = r*b.parts[a] + b.place[a]
	}
	return r
}

// grid is a rank's part of a grid. It has nx × ny × nz own points, from index 1 on, and around
// them a layer of points that belong to others. x is contiguous.
type grid struct {
	nx, ny, nz int
	at         []float64
	near, far  []float64 // of the row at work, see around
}

// newGrid returns the block of a grid with n points along each axis.
func newGrid(b block, n int) *grid {
	g := &grid{nx: n / b.parts[axisX], ny: n / b.parts[axisY], nz: n / b.parts[axisZ]}
	g.at = make([]float64, (g.nx+2)*(g.ny+2)*(g.nz+2))
	g.near, g.far = make([]float64, g.nx+2), make([]float64, g.nx+2)
	return g
}

// row returns the row of points along x.
func (g *grid) row(z, y int) []float64 {
	n := g.nx + 2
	from := (z*(g.ny+2) + y) * n
	return g.at[from : from+n : from+n]
}

// around sets near to the sums of the four neighbours in y and z of each point of a row, and
// far to the sums of the four diagonal ones.
func (g *grid) around(z, y int) (near, far []float64) {
	near, far = g.near, g.far
	n := len(near)
	far = far[:n]
	a, b, c, d := g.row(z, y-1)[:n], g.row(z, y+1)[:n], g.row(z-1, y)[:n], g.row(z+1, y)[:n]
	for i := range near {
		near[i] = a[i] + b[i] + c[i] + d[i]
	}
	a, b, c, d = g.row(z-1, y-1)[:n], g.row(z-1, y+1)[:n], g.row(z+1, y-1)[:n], g.row(z+1, y+1)[:n]
	for i := range far {
		far[i] = a[i] + b[i] + c[i] + d[i]
	}
	return near, far
}

// stencil is an operator of 27 points: its coefficients of the point itself, of the 6 points
// at distance 1, the 12 at distance √2, and the 8 at distance √3.
type stencil [4]float64

// residual sets the own points of r to v - a·u. The coefficient a[1] is 0.
func residual(r, v, u *grid, a *stencil) {
	a0, a2, a3 := a[0], a[2], a[3]
	for z := 1; z <= r.nz; z++ {
		for y := 1; y <= r.ny; y++ {
			near, far := u.around(z, y)
			to, v, u := r.row(z, y), v.row(z, y), u.row(z, y)
			n := len(to)
			v, u, near, far = v[:n], u[:n], near[:n], far[:n]
			for i := 1; i < n-1; i++ {
				to[i] = v[i] - a0*u[i] - a2*(far[i]+near[i-1]+near[i+1]) - a3*(far[i-1]+far[i+1])
			}
		}
	}
}

// smooth adds c·r to the own points of u. The coefficient c[3] is 0.
func smooth(u, r *grid, c *stencil) {
	c0, c1, c2 := c[0], c[1], c[2]
	for z := 1; z <= u.nz; z++ {
		for y := 1; y <= u.ny; y++ {
			near, far := r.around(z, y)
			to, r := u.row(z, y), r.row(z, y)
			n := len(to)
			r, near, far = r[:n], near[:n], far[:n]
			for i := 1; i < n-1; i++ {
				to[i] += c0*r[i] + c1*(r[i-1]+r[i+1]+near[i]) + c2*(far[i]+near[i-1]+near[i+1])
			}
		}
	}
}

// restrict sets the own points of a coarse grid to means of the fine grid's: point i is at
// 2i there.
func (g *grid) restrict(fine *grid) {
	for z := 1; z <= g.nz; z++ {
		for y := 1; y <= g.ny; y++ {
			near, far := fine.around(2*z, 2*y)
			to, r := g.row(z, y), fine.row(2*z, 2*y)
			for x := 1; x <= g.nx; x++ {
				i := 2 * x
				to[x] = 0.5*r[i] + 0.25*(r[i-1]+r[i+1]+near[i]) + 0.125*(near[i-1]+near[i+1]+far[i]) + 0.0625*(far[i-1]+far[i+1])
			}
		}
	}
}

// prolong adds to all points of a fine grid, those of its neighbours included, the
// interpolated values of a coarse grid.
func (g *grid) prolong(coarse *grid) {
	n := coarse.nx + 2
	sum := coarse.near[:n]
	for z := range coarse.nz + 1 {
		for y := range coarse.ny + 1 {
			// The four fine rows between four coarse ones: means of one, two, two and four.
			c, cy := coarse.row(z, y)[:n], coarse.row(z, y+1)[:n]
			cz, cyz := coarse.row(z+1, y)[:n], coarse.row(z+1, y+1)[:n]
			interpolate(g.row(2*z, 2*y), c, 1)
			for i := range sum {
				sum[i] = c[i] + cy[i]
			}
			interpolate(g.row(2*z, 2*y+1), sum, 0.5)
			for i := range sum {
				sum[i] = c[i] + cz[i]
			}
			interpolate(g.row(2*z+1, 2*y), sum, 0.5)
			for i := range sum {
				sum[i] = c[i] + cy[i] + cz[i] + cyz[i]
			}
			interpolate(g.row(2*z+1, 2*y+1), sum, 0.25)
		}
	}
}

// interpolate adds to a fine row the values of a coarse one, times weight.
func interpolate(fine, coarse []float64, weight float64) {
	half := weight / 2
	for i := range len(coarse) - 1 {
		pair := fine[2*i : 2*i+2]
		pair[0] += weight * coarse[i]
		pair[1] += half * (coarse[i] + coarse[i+1])
	}
}
