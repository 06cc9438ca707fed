package scatter

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

var wide = Bounds{MaxCount, MaxCount}

func sequenced() *Descriptor {
	return &Descriptor{
		Messages: []Message{{Pos: 0x1122334455667788, Size: 5}, {Pos: 0x112233445566778a, Size: 0}, {Pos: 0x112233445566778b, Size: 0x01020304}},
		Regions:  []Region{{Addr: 0x7f0000001003, Len: 2, RKey: 0xa1b2c3d4}, {Addr: 8, Len: 0x01020307, RKey: 9}},
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	d, want := sequenced(), []byte{
		1, 0, 3, 0, 2, 0, 0, 0, // form, reserved, messages, regions, reserved
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // first sequence number
		5, 0, 0, 0, 0, 0, 0, 0, // size, distance from the first
		0, 0, 0, 0, 2, 0, 0, 0,
		4, 3, 2, 1, 3, 0, 0, 0,
		3, 0x10, 0, 0, 0, 0x7f, 0, 0, 2, 0, 0, 0, 0xd4, 0xc3, 0xb2, 0xa1, // address, length, key
		8, 0, 0, 0, 0, 0, 0, 0, 7, 3, 2, 1, 9, 0, 0, 0,
	}
	b, err := d.Append([]byte{0xee})
	require.NoError(t, err)
	require.Equal(t, append([]byte{0xee}, want...), b)
	require.Equal(t, len(want), marshalledSize(d))
	var got Descriptor
	rest, err := got.Parse(append(b[1:], 9), wide)
	require.NoError(t, err)
	require.Equal(t, []byte{9}, rest)
	require.Equal(t, d, &got)
	for n := range len(want) {
		_, err := got.Parse(want[:n], wide)
		require.ErrorIs(t, err, ErrDescriptor, "prefix of %d bytes", n)
		require.ErrorIs(t, err, ErrTruncated, "prefix of %d bytes", n)
	}
}

// What cannot be true is refused by Parse, and by Append before it is sent.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		spoil func(*Descriptor)
		want  error
	}{
		"no message":              {func(d *Descriptor) { d.Messages = nil }, ErrCount},
		"no region":               {func(d *Descriptor) { d.Regions = nil }, ErrSize},
		"empty region":            {func(d *Descriptor) { d.Regions[0].Len = 0 }, ErrAddress},
		"source too short":        {func(d *Descriptor) { d.Regions[1].Len-- }, ErrSize},
		"source too long":         {func(d *Descriptor) { d.Regions[1].Len++ }, ErrSize},
		"sequence twice":          {func(d *Descriptor) { d.Messages[1].Pos = d.Messages[0].Pos }, ErrOrder},
		"sequence falls":          {func(d *Descriptor) { d.Messages[2].Pos = d.Messages[0].Pos + 1 }, ErrOrder},
		"sequence too far":        {func(d *Descriptor) { d.Messages[2].Pos += 1 << 32 }, ErrOrder},
		"region wraps":            {func(d *Descriptor) { d.Regions[0].Addr = math.MaxUint64 - 1 }, ErrAddress},
		"sum beyond what is read": {func(d *Descriptor) { d.Messages[0].Size = math.MaxUint32 }, ErrSize},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := sequenced()
			c.spoil(d)
			mark := []byte{1, 2}
			b, err := d.Append(mark)
			var de *DescriptorError
			require.ErrorAs(t, err, &de)
			require.ErrorIs(t, err, ErrDescriptor)
			require.ErrorIs(t, err, c.want)
			require.NotEmpty(t, err.Error())
			require.Equal(t, mark, b)
			var got Descriptor
			raw := force(d)
			rest, err := got.Parse(raw, wide)
			require.ErrorIs(t, err, c.want)
			require.Equal(t, raw, rest)
		})
	}
}

// force marshals what Append would refuse.
func force(d *Descriptor) []byte {
	le := binary.LittleEndian
	b := []byte{form, 0}
	b = le.AppendUint16(b, uint16(len(d.Messages)))
	b = le.AppendUint16(b, uint16(len(d.Regions)))
	b = append(b, 0, 0)
	var base uint64
	if len(d.Messages) > 0 {
		base = d.Messages[0].Pos
	}
	b = le.AppendUint64(b, base)
	for _, m := range d.Messages {
		b = le.AppendUint32(b, m.Size)
		b = le.AppendUint32(b, uint32(min(m.Pos-base, math.MaxUint32)))
		if m.Pos-base > math.MaxUint32 {
			le.PutUint64(b[8:], math.MaxUint64-1) // so that it wraps instead
		}
	}
	for _, r := range d.Regions {
		b = le.AppendUint64(b, r.Addr)
		b = le.AppendUint32(b, r.Len)
		b = le.AppendUint32(b, r.RKey)
	}
	return b
}

// Bytes that no Descriptor value stands for.
func TestHostileBytes(t *testing.T) {
	t.Parallel()
	good, err := sequenced().Append(nil)
	require.NoError(t, err)
	for what, c := range map[string]struct {
		at   int
		val  byte
		want error
	}{
		"reserved byte 1":       {1, 1, ErrForm},
		"reserved byte 6":       {6, 1, ErrForm},
		"reserved byte 7":       {7, 0x80, ErrForm},
		"another form":          {0, 2, ErrForm},
		"first is not first":    {HeaderSize + 4, 1, ErrOrder},
		"sequence numbers wrap": {15, 0xff, nil}, // not yet: see below
		"65000 messages":        {3, 0xff, ErrTruncated},
		"65000 regions":         {5, 0xff, ErrTruncated},
	} {
		b := append([]byte(nil), good...)
		b[c.at] = c.val
		if what == "sequence numbers wrap" {
			binary.LittleEndian.PutUint64(b[8:], math.MaxUint64-1)
			c.want = ErrOrder
		}
		var d Descriptor
		_, err := d.Parse(b, wide)
		require.ErrorIs(t, err, c.want, what)
	}
	// The receiver's bounds come before the length of what is there.
	var d Descriptor
	_, err = d.Parse(good[:HeaderSize], Bounds{2, 8})
	require.ErrorIs(t, err, ErrCount)
	_, err = d.Parse(good[:HeaderSize], Bounds{3, 1})
	require.ErrorIs(t, err, ErrCount)
	require.Zero(t, cap(d.Messages), "nothing is allocated for what is refused")
}

// random returns a legal descriptor.
func random(rng *rand.Rand, messages int) *Descriptor {
	d := &Descriptor{}
	pos := rng.Uint64N(1 << 40)
	var left uint64
	for range messages {
		m := Message{Pos: pos, Size: uint32(rng.IntN(200))}
		if rng.IntN(4) == 0 {
			m.Size = 0
		}
		d.Messages = append(d.Messages, m)
		left += uint64(m.Size)
		pos += 1 + rng.Uint64N(3)
	}
	addr := 1<<32 + rng.Uint64N(1<<20)
	for left > 0 {
		r := Region{Addr: addr, Len: uint32(1 + rng.Uint64N(min(left, 300))), RKey: uint32(rng.IntN(2))}
		d.Regions = append(d.Regions, r)
		left -= uint64(r.Len)
		addr += uint64(r.Len)
		if rng.IntN(2) == 0 {
			addr += rng.Uint64N(1 << 16)
		}
	}
	return d
}

func TestRoundTripWithoutAllocation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var got Descriptor
	var b []byte
	for range 300 {
		d := random(rng, 1+rng.IntN(40))
		var err error
		b, err = d.Append(b[:0])
		require.NoError(t, err)
		require.Len(t, b, marshalledSize(d))
		require.LessOrEqual(t, len(b), Bounds{len(d.Messages), len(d.Regions)}.MaxSize())
		rest, err := got.Parse(b, Bounds{len(d.Messages), len(d.Regions)})
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, d.Messages, got.Messages)
		require.Len(t, got.Regions, len(d.Regions))
		for i := range d.Regions {
			require.Equal(t, d.Regions[i], got.Regions[i])
		}
		require.Zero(t, testing.AllocsPerRun(2, func() {
			b, _ = d.Append(b[:0])
			_, _ = got.Parse(b, wide)
		}))
	}
}

func FuzzParse(f *testing.F) {
	b, err := sequenced().Append(nil)
	require.NoError(f, err)
	f.Add(b, uint16(8), uint16(8))
	f.Add(b[:len(b)-3], uint16(3), uint16(2))
	f.Fuzz(func(t *testing.T, b []byte, messages, regions uint16) {
		var d Descriptor
		before := append([]byte{}, b...)
		rest, err := d.Parse(b, Bounds{int(messages), int(regions)})
		require.True(t, bytes.Equal(before, b), "Parse wrote to its input")
		if err != nil {
			require.ErrorIs(t, err, ErrDescriptor)
			require.Len(t, rest, len(b))
			return
		}
		require.LessOrEqual(t, len(d.Messages), int(messages))
		require.LessOrEqual(t, len(d.Regions), int(regions))
		again, err := d.Append(nil)
		require.NoError(t, err)
		require.Equal(t, b[:len(b)-len(rest)], again, "one meaning, one spelling")
	})
}

// marshalledSize is what Append should append for d, in bytes.
func marshalledSize(d *Descriptor) int {
	return HeaderSize + len(d.Messages)*MessageSize + len(d.Regions)*RegionSize
}

// total is the number of bytes of the batch.
func total(d *Descriptor) uint64 {
	var n uint64
	for i := range d.Messages {
		n += uint64(d.Messages[i].Size)
	}
	return n
}
