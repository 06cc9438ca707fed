package gather

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// appendHeader appends the header for es to b, or returns ErrOrder and b as it was.
func appendHeader(b []byte, k Kind, es []Entry) ([]byte, error) {
	var s shape
	for _, e := range es {
		if !s.add(k, e, math.MaxInt) {
			return b, ErrOrder
		}
	}
	if s.n == 0 {
		return b, ErrOrder
	}
	return s.append(b, k, es), nil
}

func entries(h *Header) (out []Entry) {
	it := h.Iter()
	for e, ok := it.Next(); ok; e, ok = it.Next() {
		out = append(out, e)
	}
	return out
}

// Bytes on the wire, as docs/wire.md has them.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind    Kind
		entries []Entry
		want    []byte
	}{
		"three small, consecutive": {Seq, []Entry{{At: 7, Size: 64}, {At: 8, Size: 0}, {At: 9, Size: 255}}, []byte{
			3, 0, 0x00, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
			64, 0, 255, 0, 0, 0, 0, 0,
		}},
		"two with a gap of numbers": {Seq, []Entry{{At: 0x0102030405060708, Size: 256}, {At: 0x010203040506070f, Size: 2}}, []byte{
			2, 0, 0x05, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1,
			0, 1, 0, 2, 0, 6, 0, 0,
		}},
		"destinations in one region": {Dest, []Entry{{At: 0x1000, Size: 0x10, Region: 5}, {At: 0x2000, Size: 0x11223344, Region: 5}}, []byte{
			2, 0, 0x0a, 0, 5, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0,
			0x10, 0, 0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 0xf0, 0x0f, 0, 0, 0, 0,
		}},
		"destinations in two regions": {Dest, []Entry{{At: 8, Size: 4, Region: 1}, {At: 3, Size: 2, Region: 0x0a0b0c0d}}, []byte{
			2, 0, 0x24, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0,
			4, 0, 1, 0, 0, 0, 2, 3, 0x0d, 0x0c, 0x0b, 0x0a, 0, 0, 0, 0,
		}},
		"a gap of 8 bytes": {Dest, []Entry{{At: 0, Size: 1}, {At: 1<<40 + 1, Size: 1}}, []byte{
			2, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
			1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := 0
			for _, e := range c.entries {
				body += int(e.Size)
			}
			b, err := appendHeader([]byte{0xee}, c.kind, c.entries)
			require.NoError(t, err)
			require.Equal(t, append([]byte{0xee}, c.want...), b)
			if body > 1<<20 {
				return
			}
			var h Header
			require.NoError(t, h.Parse(c.kind, b[1:], make([]byte, body)))
			require.Equal(t, c.entries, entries(&h))
			require.Equal(t, len(c.entries), h.Count())
			require.Equal(t, len(c.want), h.Len())
			// No prefix of the payload will do, wherever it is cut in parts.
			p := append(b[1:len(b):len(b)], make([]byte, body)...)
			for n := range p {
				err := h.Parse(c.kind, p[:n/3], p[n/3:n])
				require.ErrorIs(t, err, ErrHeader, "prefix of %d bytes", n)
				require.Zero(t, h.Count())
			}
			require.NoError(t, h.Parse(c.kind, p[:1], p[1:18], p[18:]))
			require.Equal(t, c.entries, entries(&h))
			require.ErrorIs(t, h.Parse(c.kind, p, []byte{0}), ErrHeader, "one byte more than the sizes say")
		})
	}
}

func TestHostileHeaders(t *testing.T) {
	t.Parallel()
	good := func() []byte {
		b, err := appendHeader(nil, Dest, []Entry{{At: 8, Size: 4, Region: 1}, {At: 16, Size: 2, Region: 1}, {At: 3, Size: 2, Region: 2}})
		require.NoError(t, err)
		return append(b, make([]byte, 8)...)
	}
	// 16: size, 17: gap, 18-21: region; 22: size, ...
	for name, c := range map[string]struct {
		spoil func(b []byte) []byte
		want  string
	}{
		"no segment":             {func(b []byte) []byte { b[0] = 0; return b }, "no segment"},
		"more than there are":    {func(b []byte) []byte { b[0] = 4; return b }, ""},
		"fewer than there are":   {func(b []byte) []byte { b[0] = 2; return b }, ""},
		"far too many":           {func(b []byte) []byte { b[0], b[1] = 255, 255; return b }, "more entries"},
		"unknown size width":     {func(b []byte) []byte { b[2] |= 3; return b }, "widths"},
		"unknown gap width":      {func(b []byte) []byte { b[2] = b[2]&3 | 5<<2; return b }, "widths"},
		"unknown width bit":      {func(b []byte) []byte { b[2] |= 0x40; return b }, "widths"},
		"reserved byte":          {func(b []byte) []byte { b[3] = 1; return b }, "widths"},
		"first region is not":    {func(b []byte) []byte { b[4] = 0; return b }, "base is not"},
		"region before the base": {func(b []byte) []byte { b[4] = 9; return b }, "regions do not ascend"},
		"regions descend":        {func(b []byte) []byte { b[30] = 0; return b }, "regions do not ascend"},
		"base has a gap":         {func(b []byte) []byte { b[17] = 1; return b }, "base is not"},
		"base at the end":        {func(b []byte) []byte { binary.LittleEndian.PutUint64(b[8:], math.MaxUint64-3); return b }, "ends beyond"},
		"second beyond the end":  {func(b []byte) []byte { binary.LittleEndian.PutUint64(b[8:], math.MaxUint64-6); return b }, "beyond 2^64"},
		"one byte more":          {func(b []byte) []byte { b[22]++; return b }, "add up"},
		"one byte less":          {func(b []byte) []byte { b[22]--; return b }, "add up"},
		"padding":                {func(b []byte) []byte { b[35] = 1; return b }, "padding"},
		"payload cut":            {func(b []byte) []byte { return b[:len(b)-1] }, "add up"},
		"prelude only":           {func(b []byte) []byte { return b[:16] }, "more entries"},
		"empty":                  {func([]byte) []byte { return nil }, "prelude"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h Header
			require.NoError(t, h.Parse(Dest, good()))
			err := h.Parse(Dest, c.spoil(good()))
			require.ErrorIs(t, err, ErrHeader)
			require.ErrorContains(t, err, c.want)
			var he *HeaderError
			require.True(t, errors.As(err, &he))
			require.Zero(t, h.Count(), "nothing is left of a bad header")
			require.Empty(t, entries(&h))
		})
	}
	var h Header
	require.ErrorIs(t, h.Parse(Seq, good()), ErrHeader, "regions in a header of numbers")
	require.ErrorIs(t, h.Parse(Kind(0), good()), ErrHeader)
	require.ErrorContains(t, h.Parse(Kind(9), good()), "kind(9)")

	// Sequence numbers do not wrap.
	b, err := appendHeader(nil, Seq, []Entry{{At: 5}, {At: 6}})
	require.NoError(t, err)
	binary.LittleEndian.PutUint64(b[8:], math.MaxUint64)
	require.ErrorContains(t, h.Parse(Seq, b), "beyond 2^64")
	b[4] = 1
	require.ErrorContains(t, h.Parse(Seq, b), "region")
}

// What a header cannot say: order that descends, overlap, too many.
func TestEntriesRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind Kind
		e    []Entry
	}{
		"none":              {Seq, nil},
		"same number twice": {Seq, []Entry{{At: 4}, {At: 4}}},
		"numbers descend":   {Seq, []Entry{{At: 4}, {At: 3}}},
		"number after last": {Seq, []Entry{{At: math.MaxUint64}, {At: 0}}},
		"region of a seq":   {Seq, []Entry{{At: 4}, {At: 5, Region: 1}}},
		"overlap":           {Dest, []Entry{{At: 4, Size: 4}, {At: 7, Size: 1}}},
		"offset descends":   {Dest, []Entry{{At: 4, Size: 4}, {At: 0, Size: 1}}},
		"region descends":   {Dest, []Entry{{Region: 2}, {Region: 1}}},
		"end wraps":         {Dest, []Entry{{At: math.MaxUint64, Size: 2}}},
		"end wraps later":   {Dest, []Entry{{At: 1}, {At: math.MaxUint64 - 5, Size: 6}}},
		"too many":          {Dest, make([]Entry, MaxCount+1)},
	} {
		b, err := appendHeader([]byte{1}, c.kind, c.e)
		require.ErrorIs(t, err, ErrOrder, name)
		require.Equal(t, []byte{1}, b, name)
	}
	_, err := appendHeader(nil, Dest, make([]Entry, MaxCount))
	require.NoError(t, err)
	_, err = appendHeader(nil, Seq, []Entry{{At: math.MaxUint64 - 1}, {At: math.MaxUint64}})
	require.NoError(t, err)
}

// randomEntries draws entries that a header can say, and their bytes in all.
func randomEntries(rng *rand.Rand, k Kind, n, most int) (es []Entry, body int) {
	var at uint64
	var region uint32
	if rng.IntN(2) == 0 {
		at = rng.Uint64() >> (2 + rng.IntN(60))
	}
	if k == Dest {
		region = uint32(rng.IntN(3))
	}
	gapBits, many := rng.IntN(48), rng.IntN(2) == 0
	for range n {
		e := Entry{At: at, Size: uint32(rng.IntN(most + 1)), Region: region}
		es = append(es, e)
		body += int(e.Size)
		at++
		if k == Dest {
			at += uint64(e.Size) - 1
			if many && rng.IntN(4) == 0 {
				region += 1 + uint32(rng.IntN(1<<20))
				at = 0
			}
		}
		at += rng.Uint64N(1<<gapBits + 1)
	}
	return es, body
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var h Header
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 1))
		k := Seq + Kind(seed%2)
		es, body := randomEntries(rng, k, 1+rng.IntN(40), 1<<rng.IntN(12))
		b, err := appendHeader(nil, k, es)
		require.NoError(t, err)
		require.Zero(t, len(b)%8)
		require.NoError(t, h.Parse(k, b, make([]byte, body)))
		require.Equal(t, es, entries(&h), "seed %d", seed)
	}
}

func TestCodecDoesNotAllocate(t *testing.T) {
	es := make([]Entry, 64)
	for i := range es {
		es[i] = Entry{At: uint64(100 + 3*i), Size: 64}
	}
	buf := make([]byte, 0, 1024)
	body := make([]byte, 64*64)
	var h Header
	var sum uint64
	run := func() {
		b, err := appendHeader(buf[:0], Seq, es)
		if err != nil || h.Parse(Seq, b, body) != nil {
			t.Error("codec failed")
		}
		it := h.Iter()
		for e, ok := it.Next(); ok; e, ok = it.Next() {
			sum += e.At
		}
	}
	require.Zero(t, testing.AllocsPerRun(100, run))
	require.Equal(t, 16+64*2, h.Len())
}

func FuzzHeader(f *testing.F) {
	for k, es := range map[Kind][]Entry{
		Seq:  {{At: 1, Size: 3}, {At: 9, Size: 300}},
		Dest: {{At: 64, Size: 8, Region: 1}, {At: 80, Size: 1, Region: 1}, {Size: 2, Region: 4}},
	} {
		b, err := appendHeader(nil, k, es)
		require.NoError(f, err)
		f.Add(uint8(k), append(b, make([]byte, 303)...), uint16(5))
		f.Add(uint8(k), append(b, make([]byte, 11)...), uint16(20))
	}
	f.Fuzz(func(t *testing.T, kind uint8, p []byte, cut uint16) {
		var h Header
		k := Kind(kind)
		i := min(int(cut), len(p))
		if err := h.Parse(k, p[:i], p[i:]); err != nil {
			if !errors.Is(err, ErrHeader) || h.Count() != 0 {
				t.Fatalf("untyped error, or remains of a bad header: %v", err)
			}
			return
		}
		es := entries(&h)
		sum := uint64(h.Len())
		for i, e := range es {
			sum += uint64(e.Size)
			if e.At+uint64(e.Size) < e.At && k == Dest {
				t.Fatalf("entry %d wraps: %+v", i, e)
			}
			if i == 0 {
				continue
			}
			prev := es[i-1]
			ok := e.Region > prev.Region || e.Region == prev.Region && e.At >= prev.At+uint64(prev.Size)
			if k == Seq {
				ok = e.At > prev.At && e.Region == 0
			}
			if !ok {
				t.Fatalf("entries %d %+v and %d %+v do not ascend or overlap", i-1, prev, i, e)
			}
		}
		if sum != uint64(len(p)) || len(es) != h.Count() {
			t.Fatalf("%d bytes in header and segments, payload of %d; %d entries, count %d", sum, len(p), len(es), h.Count())
		}
		// It says the same when written again, in no more bytes.
		b, err := appendHeader(nil, k, es)
		if err != nil || len(b) > h.Len() {
			t.Fatalf("written again: %d bytes for %d, %v", len(b), h.Len(), err)
		}
		var again Header
		if err := again.Parse(k, b, p[h.Len():]); err != nil {
			t.Fatalf("written again: %v", err)
		}
		require.Equal(t, es, entries(&again))
	})
}
