package onesided

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/mr"
)

// target is a rank whose memory groups name.
type target struct {
	*Server
	domain *mr.Domain
	mem    *mr.Registration // 4 KiB, everything allowed
	sealed *mr.Registration // 4 KiB, nothing allowed
	slot   []byte
}

func newTarget(t testing.TB) *target {
	l, err := sim.NewNetwork(sim.Options{}).NewLink()
	require.NoError(t, err)
	d, err := mr.NewDomain(mr.Rail{Link: l, Number: 3})
	require.NoError(t, err)
	x := &target{Server: NewServer(d, 0), domain: d, slot: testutil.Scratch(t, SlotSize)}
	x.mem, err = d.Alloc(4096, fabric.AccessAll, 0)
	require.NoError(t, err)
	x.sealed, err = d.Alloc(4096, 0, 0)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.Close())
		require.NoError(t, l.Close())
	})
	return x
}

// at is n bytes of the target's memory.
func (x *target) at(off, n int) Piece {
	k := x.mem.Key()
	return Piece{Addr: k.Addr + uint64(off), Len: uint64(n), Key: k.RKeys[3]}
}

// cursor moves between local, from its start, and the pieces.
func cursor(local []byte, remote ...Piece) *Cursor {
	c := new(Cursor)
	n := uint64(0)
	for _, p := range remote {
		c.AddRemote(p)
		n += p.Len
	}
	c.AddLocal(Piece{Addr: fabric.Addr(local), Len: n})
	c.End()
	return c
}

// make makes the next group of c in the target's slot.
func (x *target) make(t testing.TB, c *Cursor, get bool) (n, pieces, bytes int) {
	t.Helper()
	var g Grouper
	g.View(c, 4, 1<<30)
	return g.Make(c, get, x.slot, 7)
}

func TestGroupBytes(t *testing.T) {
	local := testutil.Scratch(t, 64)
	testutil.Fill(local, 0, 0)
	copy(local, "abcdefgh")
	slot := testutil.Scratch(t, SlotSize)
	at := func(addr uint64, n, key int) Piece { return Piece{Addr: addr, Len: uint64(n), Key: uint32(key)} }
	for what, c := range map[string]struct {
		get    bool
		how    Combining
		pieces []Piece
		want   string
	}{
		"sums of int32": {false, Combining{Op: Sum, Type: Int32}, []Piece{at(0x1000, 4, 5)},
			"0203001128000000" + "000000000000000000000000" + "00000000" +
				"1c00000000000000" +
				"0100000005000000" + "0010000000000000" + "0400000000000000" + "61626364" + "00000000"},
		"exchanges of uint64": {true, Combining{Op: Replace, Type: Uint64, Fetch: true}, []Piece{at(0x1000, 8, 5)},
			"0203041428000000" + "aaaaaaaaaaaaaaaa" + "07000000" + "00000000" +
				"2000000000000000" +
				"0100000005000000" + "0010000000000000" + "0800000000000000" + "6162636465666768"},
		"loads of float64": {true, Combining{Op: NoOp, Type: Float64, Fetch: true}, []Piece{at(0x1000, 8, 5)},
			"0203081620000000" + "aaaaaaaaaaaaaaaa" + "07000000" + "00000000" +
				"1800000000000000" +
				"0100000005000000" + "0010000000000000" + "0800000000000000"},
		"puts, the last of them before the others": {false, Combining{}, []Piece{at(0x1000, 2, 5), at(0x1010, 1, 5), at(0x800, 2, 5)},
			"0201000050000000" + "000000000000000000000000" + "00000000" + // header
				"1b00000000000000" + // a list of 27 bytes
				"0200040005000000" + "0010000000000000" + "0200010e00000000" + "616263" + "0000000000" + // two entries, bytes, zeros
				"1a00000000000000" +
				"0100000005000000" + "0008000000000000" + "0200000000000000" + "6465" + "000000000000"},
		"gets of two regions": {true, Combining{}, []Piece{at(0x1000, 2, 5), at(0x10, 1, 6)},
			"0202000028000000" + "aaaaaaaaaaaaaaaa" + "07000000" + "00000000" +
				"2000000000000000" +
				"0200240005000000" + "0010000000000000" + "0200050000000110" + "0600000000000000"},
	} {
		var g Grouper
		cur := cursor(local, c.pieces...)
		g.View(cur, 1, 1<<30)
		var n, k int
		if c.how.Type != 0 {
			n, k, _ = g.MakeAccumulate(cur, c.how, slot, 7)
		} else {
			n, k, _ = g.Make(cur, c.get, slot, 7)
		}
		require.Equal(t, len(c.pieces), k, what)
		require.True(t, cur.Done(), what)
		got := slot[:n]
		if c.get {
			require.Equal(t, fabric.Addr(slot)+uint64(n), binary.LittleEndian.Uint64(got[8:]), what)
			copy(got[8:16], "\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa")
		}
		require.Equal(t, c.want, hex.EncodeToString(got), what)
	}
}

// What is larger than a slot goes in several groups, of which each fits.
func TestGroupsFillSlots(t *testing.T) {
	x := newTarget(t)
	local := testutil.Scratch(t, 4096)
	for _, get := range []bool{false, true} {
		for _, size := range []int{1, 7, 64, 1000} {
			var ps []Piece
			for off := 4096 - size; off >= 0 && len(ps) < 2000; off -= size + 1 { // descending: a list for each
				ps = append(ps, x.at(off, size))
			}
			testutil.Fill(local, uint64(size), 0)
			testutil.Fill(x.mem.Bytes(), uint64(size+1), 0)
			c, want := cursor(local, ps...), append([]byte(nil), local...)
			if get {
				want = nil
				for _, p := range ps {
					off := p.Addr - x.mem.Key().Addr
					want = append(want, x.mem.Bytes()[off:off+p.Len]...)
				}
			}
			for !c.Done() {
				from := c.Mark()
				n, pieces, bytes := x.make(t, c, get)
				require.Positive(t, pieces)
				require.LessOrEqual(t, n, SlotSize)
				a, err := x.Serve(x.slot)
				require.NoError(t, err)
				if get {
					require.LessOrEqual(t, n+bytes, SlotSize)
					require.EqualValues(t, bytes, a.Len)
					TakeAnswer(c, from, x.slot[:a.Len])
				}
			}
			if get {
				require.Equal(t, want, local[:len(want)])
				continue
			}
			for i, p := range ps {
				off := p.Addr - x.mem.Key().Addr
				require.Equal(t, want[i*size:][:size], x.mem.Bytes()[off:off+p.Len])
			}
		}
	}
}

// A group that View finds moves at least its first piece. It may end with the last byte of its slot,
// behind which nothing is.
func TestGroupsOfOddSizes(t *testing.T) {
	slot := testutil.Scratch(t, SlotSize)
	require.Equal(t, SlotSize, cap(slot))
	local := testutil.Scratch(t, 2*SlotSize)
	for _, sizes := range [][]int{
		{16352, 16353, 7},
		{16352, -16321, 7}, // its second list does
		{32705, 1},         // the first alone fills it
		{32706, 1},         // no piece fits
	} {
		for _, get := range []bool{false, true} {
			var ps []Piece
			total, at := 0, uint64(1<<20)
			for _, n := range sizes {
				if n < 0 { // before the one that precedes it
					n, at = -n, at-1<<19
				}
				ps = append(ps, Piece{Addr: at, Len: uint64(n), Key: 5})
				total, at = total+n, at+uint64(n)+8
			}
			var g Grouper
			c, moved := cursor(local, ps...), 0
			for k, _ := g.View(c, 4, 1<<30); k > 0; k, _ = g.View(c, 4, 1<<30) {
				n, pieces, bytes := g.Make(c, get, slot, 7)
				require.Positive(t, pieces, "%v", sizes)
				require.LessOrEqual(t, n, SlotSize, "%v", sizes)
				moved += bytes
			}
			require.Equal(t, sizes[0] < 32706, moved == total, "%v", sizes)
		}
	}
}

// What is refused changes no byte, nor does what is behind it; what was before it is done.
func TestGroupRefusals(t *testing.T) {
	x := newTarget(t)
	local := testutil.Scratch(t, 64)
	for i := range local {
		local[i] = 1
	}
	sealed := x.sealed.Key()
	gone, err := x.domain.Alloc(64, fabric.AccessAll, 0)
	require.NoError(t, err)
	stale := Piece{Addr: gone.Key().Addr, Len: 8, Key: gone.Key().RKeys[3]}
	require.NoError(t, gone.Close())
	for what, bad := range map[string]Piece{
		"before":  {x.at(0, 0).Addr - 1, 2, x.at(0, 0).Key},
		"behind":  x.at(4095, 2),
		"no key":  {x.at(0, 0).Addr, 8, 12345},
		"right":   {sealed.Addr, 8, sealed.RKeys[3]},
		"stale":   stale,
		"of null": {0, 8, x.at(0, 0).Key},
	} {
		for _, get := range []bool{false, true} {
			clear(x.mem.Bytes())
			x.make(t, cursor(local, x.at(8, 8), bad, x.at(24, 8)), get)
			_, err := x.Serve(x.slot)
			require.ErrorIs(t, err, fabric.ErrRemoteAccess, what)
			require.Equal(t, StatusRefused, StatusOf(err), what)
			for i, b := range x.mem.Bytes() {
				require.Equal(t, !get && i >= 8 && i < 16, b == 1, "%s: byte %d", what, i)
			}
			require.Zero(t, x.mem.Holds(), what)
		}
	}
	require.Equal(t, make([]byte, 4096), x.sealed.Bytes())
}

func TestMalformedGroups(t *testing.T) {
	x := newTarget(t)
	local := testutil.Scratch(t, 64)
	for what, c := range map[string]struct {
		get    bool
		change func(b []byte)
	}{
		"version":          {false, func(b []byte) { b[0] = 1 }},
		"kind":             {false, func(b []byte) { b[1] = 4 }},
		"no type":          {false, func(b []byte) { b[1], b[3] = 3, 0x10 }},
		"type":             {false, func(b []byte) { b[1], b[3] = 3, 0x17 }},
		"no order":         {false, func(b []byte) { b[1], b[3] = 3, 1 }},
		"order":            {false, func(b []byte) { b[1], b[3] = 3, 0x31 }},
		"reduction":        {true, func(b []byte) { b[1], b[2], b[3] = 3, 9, 0x11 }},
		"bits of floats":   {false, func(b []byte) { b[1], b[2], b[3] = 3, 5, 0x15 }},
		"load of nothing":  {false, func(b []byte) { b[1], b[2], b[3] = 3, 8, 0x11 }},
		"no kind":          {false, func(b []byte) { b[1] = 0 }},
		"reserved":         {false, func(b []byte) { b[2] = 1 }},
		"reserved behind":  {true, func(b []byte) { b[20] = 1 }},
		"nothing":          {false, func(b []byte) { b[4] = 0 }},
		"odd length":       {false, func(b []byte) { b[4]++ }},
		"too long":         {false, func(b []byte) { b[7] = 1 }},
		"answer to puts":   {false, func(b []byte) { b[8] = 1 }},
		"list too long":    {false, func(b []byte) { b[25] = 9 }},
		"list too short":   {false, func(b []byte) { b[24]-- }},
		"list of get":      {true, func(b []byte) { b[24] -= 8 }},
		"reserved of list": {false, func(b []byte) { b[28] = 1 }},
		"count":            {false, func(b []byte) { b[32] = 9 }},
		"too much": {true, func(b []byte) {
			b[groupHeader+listHeader+2] |= 2                                                        // sizes of 4 bytes
			binary.LittleEndian.PutUint32(b[groupHeader+listHeader+16:], SlotSize-groupHeader-32+1) // one byte more than there is room for
			binary.LittleEndian.PutUint16(b[groupHeader+listHeader:], 1)
		}},
	} {
		clear(x.slot)
		x.make(t, cursor(local, x.at(8, 8)), c.get)
		c.change(x.slot)
		_, err := x.Serve(x.slot)
		require.Error(t, err, what)
		require.True(t, errors.Is(err, ErrGroup) || errors.Is(err, gather.ErrHeader), "%s: %v", what, err)
		require.Equal(t, StatusMalformed, StatusOf(err), what)
	}
}

func TestGroupsAllocateNothing(t *testing.T) {
	x := newTarget(t)
	local := testutil.Scratch(t, 4096)
	var ps []Piece
	for i := range 32 {
		ps = append(ps, x.at(i*100, 64))
	}
	c := cursor(local, ps...)
	var g Grouper
	for _, get := range []bool{false, true} {
		require.Zero(t, testing.AllocsPerRun(20, func() {
			c.Seek(Mark{})
			g.View(c, 4, 1<<30)
			g.Make(c, get, x.slot, 7)
			a, err := x.Serve(x.slot)
			if err != nil || get != (a.Len > 0) {
				panic("refused")
			}
			if get {
				TakeAnswer(c, Mark{}, x.slot[:a.Len])
			}
		}))
	}
}

// Accumulates of any reduction and type, in as many groups as it takes, do what the same on
// plain slices does, with and without the previous elements.
func TestGroupsAccumulate(t *testing.T) {
	x := newTarget(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		how := Combining{Op: Reduction(rng.IntN(int(NoOp) + 1)), Type: Type(1 + rng.IntN(6)), Fetch: rng.IntN(2) == 0}
		if !how.Known() {
			continue
		}
		size := how.Type.Size()
		fill := func(b []byte) {
			testutil.Fill(b, rng.Uint64(), 0)
			for i := size - 1; how.Type >= Float32 && i < len(b); i += size {
				b[i] &^= 0x40        // no NaN, in either byte order: of two, either
				b[i-size+1] &^= 0x40 // may be the result
			}
		}
		fill(x.mem.Bytes())
		var ps []Piece
		total := 0
		for range 1 + rng.IntN(40) {
			n := size * (1 + rng.IntN(1+rng.IntN(4000/size-1)))
			ps = append(ps, x.at(size*rng.IntN(1+(4096-n)/size), n))
			total += n
		}
		local := testutil.Scratch(t, total)
		fill(local)
		plain := how.Op
		if !how.Fetch && rng.IntN(2) == 0 {
			how.Op |= Exclusive
			require.True(t, how.Known())
		}
		want, mem, src := []byte(nil), slices.Clone(x.mem.Bytes()), local
		for _, p := range ps {
			for off := int(p.Addr - x.mem.Key().Addr); p.Len > 0; p.Len, off, src = p.Len-uint64(size), off+size, src[size:] {
				if at := mem[off:]; size == 4 {
					a, b := binary.NativeEndian.Uint32(at), binary.NativeEndian.Uint32(src)
					want = binary.NativeEndian.AppendUint32(want, a)
					binary.NativeEndian.PutUint32(at, uint32(combineBits(plain, how.Type, uint64(a), uint64(b))))
				} else {
					a, b := binary.NativeEndian.Uint64(at), binary.NativeEndian.Uint64(src)
					want = binary.NativeEndian.AppendUint64(want, a)
					binary.NativeEndian.PutUint64(at, combineBits(plain, how.Type, a, b))
				}
			}
		}
		var old []byte
		var g Grouper
		for c := cursor(local, ps...); !c.Done(); {
			g.View(c, 1, how.MaxPiece())
			n, pieces, bytes := g.MakeAccumulate(c, how, x.slot, 7)
			require.Positive(t, pieces)
			require.LessOrEqual(t, n, SlotSize)
			a, err := x.Serve(x.slot)
			require.NoError(t, err)
			if how.Fetch {
				require.LessOrEqual(t, n+bytes, SlotSize)
				require.EqualValues(t, bytes, a.Len)
				old = append(old, x.slot[:a.Len]...)
			}
		}
		require.Equal(t, mem, x.mem.Bytes(), "%+v", how)
		if how.Fetch {
			require.Equal(t, want, old, "%+v", how)
		}
	}
}

// A group of accumulates of the other byte order, or to places that are not those of
// elements, is refused as such, and changes nothing.
func TestGroupsOfOtherElements(t *testing.T) {
	x := newTarget(t)
	var g Grouper
	how := Combining{Op: Replace, Type: Int64}
	for _, p := range []Piece{x.at(4, 8), x.at(8, 12)} {
		c := cursor(testutil.Scratch(t, 64), p)
		g.View(c, 1, how.MaxPiece())
		g.MakeAccumulate(c, how, x.slot, 7)
		_, err := x.Serve(x.slot)
		require.ErrorIs(t, err, ErrAlign)
	}
	x.slot[3] ^= 0x30
	_, err := x.Serve(x.slot)
	require.ErrorIs(t, err, ErrOrder)
	require.Equal(t, make([]byte, 4096), x.mem.Bytes())
}

// Groups that no honest peer makes change nothing but what keys grant, and are answered by
// nothing else. The first bytes of the input say which pieces an honest peer would have
// asked for, four bytes each; the rest is written over the request, three bytes each.
func FuzzGroup(f *testing.F) {
	f.Add(false, []byte{1, 0, 8, 0, 1, 5, 100, 1}, []byte{})
	f.Add(false, []byte{8, 0, 8, 0, 16, 0, 8, 0}, []byte{1, 0, 3, 3, 0, 0x11})
	f.Add(true, []byte{8, 0, 8, 0, 16, 0, 8, 1}, []byte{1, 0, 3, 2, 0, 8, 3, 0, 0x16})
	f.Add(true, []byte{1, 0, 8, 0, 200, 0, 100, 2, 3, 0, 9, 1}, []byte{4, 0, 255})
	x := newTarget(f)
	around := testutil.Scratch(f, 4096)
	f.Fuzz(func(t *testing.T, get bool, spec, patch []byte) {
		clear(x.slot)
		clear(x.mem.Bytes())
		clear(x.sealed.Bytes())
		var ps []Piece
		for ; len(spec) >= 4 && len(ps) < GroupPieces; spec = spec[4:] {
			p := x.at(int(int16(binary.LittleEndian.Uint16(spec))), int(spec[2]))
			switch spec[3] % 3 {
			case 1:
				p.Addr += x.sealed.Key().Addr - x.mem.Key().Addr
				p.Key = x.sealed.Key().RKeys[3]
			case 2:
				p.Key += uint32(spec[3])
			}
			ps = append(ps, p)
		}
		local := around[:0]
		n := uint64(0)
		for _, p := range ps {
			n += p.Len
		}
		if n > uint64(len(around)) {
			return
		}
		testutil.Fill(local[:n], 3, 0)
		x.make(t, cursor(local[:max(n, 1)], ps...), get)
		for ; len(patch) >= 3; patch = patch[3:] {
			x.slot[int(binary.LittleEndian.Uint16(patch))%SlotSize] = patch[2]
		}
		a, err := x.Serve(x.slot)
		if err != nil && !errors.Is(err, ErrGroup) && !errors.Is(err, gather.ErrHeader) && !errors.Is(err, fabric.ErrRemoteAccess) && !errors.Is(err, ErrAlign) && !errors.Is(err, ErrOrder) {
			t.Fatalf("untyped error: %v", err)
		}
		if err != nil && a != (Answer{}) || a.Len > SlotSize {
			t.Fatalf("answer %+v with %v", a, err)
		}
		for i, b := range x.sealed.Bytes() {
			if b != 0 {
				t.Fatalf("byte %d of memory that nobody may write", i)
			}
		}
		if x.mem.Holds()+x.sealed.Holds() != 0 {
			t.Fatal("memory stays held")
		}
	})
}
