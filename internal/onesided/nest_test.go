package onesided

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// copies copies the shape of c in turns of random length. Sometimes it begins again.
func copies(t *testing.T, c *Cursor, local, remote []byte, get bool, rng *rand.Rand) {
	turn := 1 << rng.IntN(20)
	for n := 0; !c.Done(); n++ {
		_, _, _, ok := c.Span()
		require.True(t, ok, "another turn is possible")
		require.Less(t, n, 2*int(c.Len())+1)
		if n == 3 {
			c.Recopy()
		}
		c.Copy(local, remote, get, turn)
	}
}

// What is copied, at once or in turns, is what nested loops copy, whichever dimension varies fastest on
// either side, and nothing else changes.
func TestNestAgainstLoops(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		s := Shape{Run: []int{1, 3, 4, 8, 8, 21}[rng.IntN(6)]}
		l, r := s.Run, s.Run
		for range rng.IntN(5) { // disjoint on both sides, in an order of its own on each
			d := Dim{Count: 1 + rng.IntN(5), Local: l + rng.IntN(2)*rng.IntN(9)}
			if rng.IntN(8) == 0 {
				d.Count = 33 // more than a tile
			}
			l = d.Count * d.Local
			s.Dims = append(s.Dims, d)
			if l > 1<<18 {
				break
			}
		}
		for _, i := range rng.Perm(len(s.Dims)) {
			s.Dims[i].Remote = r + rng.IntN(2)*rng.IntN(9)
			r = s.Dims[i].Count * s.Dims[i].Remote
		}
		rng.Shuffle(len(s.Dims), func(i, j int) { s.Dims[i], s.Dims[j] = s.Dims[j], s.Dims[i] })
		p, err := s.Check()
		require.NoError(t, err)
		var c Cursor
		c.SetShape(Piece{Addr: 1000, Key: 5}, Piece{Addr: 9000, Key: 6}, s, p)
		here, there, run, ok := c.Span()
		require.True(t, ok)
		require.Equal(t, []Piece{{1000, p.Local, 5}, {9000, p.Remote, 6}}, []Piece{here, there})
		require.Zero(t, run%s.Run)

		ls, rs := bytesOf(s, local, 0), bytesOf(s, remote, 0)
		mine, theirs := make([]byte, p.Local), make([]byte, p.Remote)
		for _, b := range [][]byte{mine, theirs} {
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
		}
		put := append([]byte(nil), theirs...)
		for i := range ls {
			put[rs[i]] = mine[ls[i]]
		}
		got := append([]byte(nil), theirs...)
		copies(t, &c, mine, got, false, rng)
		require.Equal(t, put, got, "%+v", s)
		require.True(t, c.Done())
		_, _, _, ok = c.Span()
		require.False(t, ok, "its walk is at the end")

		get := append([]byte(nil), mine...)
		for i := range ls {
			get[ls[i]] = theirs[rs[i]]
		}
		c.SetShape(here, there, s, p)
		require.Zero(t, testing.AllocsPerRun(1, func() { c.nest.copy(mine, theirs, false, math.MaxInt) }))
		copies(t, &c, mine, theirs, true, rng)
		require.Equal(t, get, mine, "%+v", s)
	}
}
