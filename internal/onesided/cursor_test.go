package onesided

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// step is one byte of a transfer: where it is on either side.
type step struct {
	local, remote uint64
	lkey, rkey    uint32
}

// walk runs the cursor to its end, with random room and limits, going back to
// marks now and then, and returns every byte moved.
func walk(t *testing.T, rng *rand.Rand, c *Cursor) (all []step) {
	var sges [9]fabric.SGE
	for !c.Done() {
		at := c.Mark()
		room, limit := 1+rng.IntN(len(sges)), 1+rng.Uint64N(200)
		k, remote, n := c.Next(sges[:room], limit)
		require.Positive(t, k)
		require.LessOrEqual(t, k, room)
		require.LessOrEqual(t, n, limit)
		require.Equal(t, n, remote.Len)
		if rng.IntN(4) == 0 { // the link did not take it
			c.Seek(at)
			require.Equal(t, at, c.Mark())
			continue
		}
		r := remote.Addr
		for _, s := range sges[:k] {
			require.Positive(t, s.Len)
			for b := range uint64(s.Len) {
				all = append(all, step{s.Addr + b, r, s.LKey, remote.Key})
				r++
			}
		}
		require.Equal(t, remote.Addr+n, r)
		require.Equal(t, c.pos >= c.total, c.Mark().Done(c))
	}
	require.EqualValues(t, c.Len(), len(all))
	return all
}

// bytesOf lists the bytes of a shape as nested loops do.
func bytesOf(s Shape, at func(Dim) int, base uint64) []uint64 {
	if len(s.Dims) == 0 {
		var out []uint64
		for i := range s.Run {
			out = append(out, base+uint64(i))
		}
		return out
	}
	var out []uint64
	for i := range s.Dims[0].Count {
		out = append(out, bytesOf(Shape{Run: s.Run, Dims: s.Dims[1:]}, at, base+uint64(i*at(s.Dims[0])))...)
	}
	return out
}

func local(d Dim) int  { return d.Local }
func remote(d Dim) int { return d.Remote }

func unique(addrs []uint64) bool {
	seen := map[uint64]bool{}
	for _, a := range addrs {
		if seen[a] {
			return false
		}
		seen[a] = true
	}
	return true
}

// A shape's walk visits the bytes that nested loops visit, in their order, and
// its extents and overlaps are what those say.
func TestShapeAgainstLoops(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	overlaps, clean, joined := 0, 0, 0
	for range 600 {
		s := Shape{Run: rng.IntN(9)}
		for range rng.IntN(4) {
			d := Dim{Count: rng.IntN(5), Local: rng.IntN(60), Remote: rng.IntN(60)}
			if rng.IntN(3) == 0 && d.Count > 0 { // contiguous with what is inside
				inner, err := s.Check()
				require.NoError(t, err)
				d.Local, d.Remote = int(inner.Local), int(inner.Remote)
				joined++
			}
			s.Dims = append([]Dim{d}, s.Dims...)
		}
		p, err := s.Check()
		require.NoError(t, err)
		ls, rs := bytesOf(s, local, 1000), bytesOf(s, remote, 9000)
		require.EqualValues(t, len(ls), p.Total)
		var c Cursor
		c.SetShape(Piece{Addr: 1000, Key: 5}, Piece{Addr: 9000, Key: 6}, s, p)
		require.Equal(t, p.Total > 0, c.Uses(1000+p.Local-min(1, p.Local), 5000))
		require.False(t, c.Uses(1000+p.Local, 5000))
		require.False(t, c.Uses(0, 1000))
		all := walk(t, rng, &c)
		for i, b := range all {
			require.Equal(t, step{ls[i], rs[i], 5, 6}, b)
			require.Less(t, b.local, 1000+p.Local)
			require.Less(t, b.remote, 9000+p.Remote)
		}
		if p.Total == 0 {
			require.Zero(t, p)
			continue
		}
		require.Contains(t, ls, 1000+p.Local-1)
		require.Contains(t, rs, 9000+p.Remote-1)
		for _, side := range []struct {
			far   bool
			bytes []uint64
		}{{false, ls}, {true, rs}} {
			if s.Overlaps(side.far) {
				overlaps++
			} else {
				clean++
				require.True(t, unique(side.bytes), "%+v", s)
			}
		}
	}
	require.Positive(t, min(overlaps, clean, joined))
	// Nested strides never count as overlapping, in whatever order they stand.
	require.False(t, Shape{Run: 4, Dims: []Dim{{3, 100, 4}, {5, 20, 12}, {5, 4, 60}}}.Overlaps(false))
	require.False(t, Shape{Run: 4, Dims: []Dim{{3, 100, 4}, {5, 20, 12}, {5, 4, 60}}}.Overlaps(true))
	require.True(t, Shape{Run: 4, Dims: []Dim{{3, 3, 4}}}.Overlaps(false))
	require.True(t, Shape{Run: 4, Dims: []Dim{{2, 0, 4}}}.Overlaps(false))
	require.False(t, Shape{Run: 4, Dims: []Dim{{2, 0, 4}, {0, 0, 0}}}.Overlaps(false))
}

func TestShapeRefusals(t *testing.T) {
	const big = int(^uint(0) >> 2)
	for _, s := range []Shape{
		{Run: -1},
		{Run: 1, Dims: make([]Dim, MaxDims+1)},
		{Run: 1, Dims: []Dim{{Count: -1}}},
		{Run: 1, Dims: []Dim{{2, -8, 8}}},
		{Run: 1, Dims: []Dim{{2, 8, -8}}},
		{Run: big, Dims: []Dim{{4, 0, 0}}},
		{Run: 1, Dims: []Dim{{big, big, 1}}},
		{Run: 1, Dims: []Dim{{big, 1, big}}},
		{Run: 8, Dims: []Dim{{big, 0, 0}, {big, 0, 0}}},
	} {
		_, err := s.Check()
		require.ErrorIs(t, err, ErrShape, "%+v", s)
	}
	p, err := Shape{Run: 8, Dims: []Dim{{0, 100, 100}, {5, 8, 8}}}.Check()
	require.NoError(t, err)
	require.Zero(t, p)
}

// Two lists of pieces cut differently: byte i of one goes with byte i of the
// other.
func TestListsAgainstBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var c Cursor
	overlaps := 0
	for range 400 {
		c.Reset()
		total := rng.Uint64N(400)
		cut := func(add func(Piece), key uint32) (bytes []step) {
			for left := total; left > 0; {
				p := Piece{Addr: 1 + rng.Uint64N(100_000), Len: rng.Uint64N(min(left, 90) + 1), Key: key + uint32(rng.IntN(2))}
				if n := len(bytes); n > 0 && rng.IntN(3) == 0 { // goes on where the last one ended
					p.Addr, p.Key = bytes[n-1].local+1, bytes[n-1].lkey
				}
				add(p)
				for b := range p.Len {
					bytes = append(bytes, step{local: p.Addr + b, lkey: p.Key})
				}
				left -= p.Len
			}
			return bytes
		}
		ls, rs := cut(c.AddLocal, 10), cut(c.AddRemote, 20)
		require.True(t, c.End())
		twice := func(bytes []step) bool {
			seen := map[step]bool{}
			for _, b := range bytes {
				if seen[b] {
					return true
				}
				seen[b] = true
			}
			return false
		}
		require.Equal(t, twice(ls), c.Overlap(false))
		for _, b := range ls {
			require.True(t, c.Uses(b.local, b.local+1))
		}
		require.False(t, c.Uses(200_000, 300_000))
		require.Equal(t, twice(rs), c.Overlap(true))
		if twice(ls) {
			overlaps++
		}
		for i, b := range walk(t, rng, &c) {
			require.Equal(t, step{ls[i].local, rs[i].local, ls[i].lkey, rs[i].lkey}, b)
		}
	}
	require.Positive(t, overlaps)
	c.Reset()
	c.AddLocal(Piece{Addr: 1, Len: 5})
	c.AddRemote(Piece{Addr: 1, Len: 6})
	require.False(t, c.End(), "different lengths")
}

func TestOverlapOfManyPieces(t *testing.T) {
	var ps []Piece
	for i := range uint64(100) {
		ps = append(ps, Piece{Addr: 1000 - 10*i + 1000*(i%3), Len: 10, Key: uint32(i % 3)})
	}
	require.False(t, overlap(ps))
	ps[7].Len++
	require.False(t, overlap(ps), "still none: every third is of one key")
	ps[7].Len = 31
	require.True(t, overlap(ps))
}

func TestCursorAllocatesNothing(t *testing.T) {
	var c Cursor
	var sges [16]fabric.SGE
	shape := Shape{Run: 8, Dims: []Dim{{64, 16, 32}, {4, 4096, 8192}}}
	p, err := shape.Check()
	require.NoError(t, err)
	n := testing.AllocsPerRun(50, func() {
		c.SetShape(Piece{Addr: 8}, Piece{Addr: 8}, shape, p)
		for !c.Done() {
			c.Next(sges[:], 1<<20)
		}
		c.Reset()
		for i := range uint64(20) {
			c.AddLocal(Piece{Addr: 100 * i, Len: 10})
			c.AddRemote(Piece{Addr: 200 * i, Len: 10})
		}
		if !c.End() || c.Overlap(true) {
			panic("lists")
		}
		for !c.Done() {
			c.Next(sges[:], 1<<20)
		}
	})
	require.Zero(t, n)
}
