package onesided

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func appendNative(b []byte, v uint64) []byte { return binary.NativeEndian.AppendUint64(b, v) }

// table runs every reduction on values of one type.
func table[T number](t *testing.T, ty Type, put func(b []byte, v T), get func(b []byte) T, values []T) {
	size := ty.Size()
	for r, plain := range map[Reduction]func(a, b T) T{
		Sum: func(a, b T) T { return a + b }, Prod: func(a, b T) T { return a * b },
		Replace: func(_, b T) T { return b },
		Min: func(a, b T) T {
			if a != a || b != b {
				return a + b // NaN
			}
			if a < b {
				return a
			}
			return b
		},
		Max: func(a, b T) T {
			if a != a || b != b {
				return a + b
			}
			if a > b {
				return a
			}
			return b
		},
	} {
		dst, src := make([]byte, 0, 1024), make([]byte, 0, 1024)
		var want []T
		var buf [8]byte
		for _, a := range values {
			for _, b := range values {
				put(buf[:size], a)
				dst = append(dst, buf[:size]...)
				put(buf[:size], b)
				src = append(src, buf[:size]...)
				want = append(want, plain(a, b))
			}
		}
		for i := range want { // the same, one by one
			m := RMW{Func: Combine, Op: r, Type: ty, Half: size == 4, Shift: Shift(0)}
			var word, arg [8]byte
			copy(word[:], dst[i*size:][:size])
			copy(arg[:], src[i*size:][:size])
			if m.Arg = binary.NativeEndian.Uint64(arg[:]); m.Half {
				m.Arg = uint64(binary.NativeEndian.Uint32(arg[:]))
			}
			old := binary.NativeEndian.Uint64(word[:])
			now, ok := m.Apply(old)
			require.Equal(t, ok, now != old)
			binary.NativeEndian.PutUint64(word[:], now)
			if got := get(word[:]); want[i] == want[i] {
				require.Equal(t, want[i], got, "%v of %v", r, ty)
			} else {
				require.True(t, got != got)
			}
		}
		const repeats = 3*chunk + 1 // several chunks, and a rest; src is unaligned
		exclusive, mine := bytes.Repeat(dst, repeats), append([]byte{0}, bytes.Repeat(src, repeats)...)[1:]
		Reduce(r|Exclusive, ty, exclusive, mine)
		Reduce(r, ty, dst, src)
		for i := range len(exclusive) / size {
			w, got := want[i%len(want)], get(exclusive[i*size:])
			if w != w {
				require.True(t, got != got, "%v of %v", r|Exclusive, ty)
				continue
			}
			if got != w {
				require.Equal(t, w, got, "%v of type %d", r|Exclusive, ty)
			}
		}
		for i, w := range want {
			got := get(dst[i*size:])
			if w != w {
				require.True(t, got != got, "%v of %v", r, ty)
				continue
			}
			require.Equal(t, w, got, "%v of type %d", r, ty)
		}
	}
}

func TestReduceBits(t *testing.T) {
	for _, ty := range []Type{Int32, Uint32, Int64, Uint64, Float32, Float64} {
		for r, f := range map[Reduction]func(a, b uint64) uint64{
			BitAnd: func(a, b uint64) uint64 { return a & b }, BitOr: func(a, b uint64) uint64 { return a | b },
			BitXor: func(a, b uint64) uint64 { return a ^ b },
		} {
			if require.Equal(t, ty < Float32, r.Takes(ty)); !r.Takes(ty) {
				req := Request{Op: r, Type: ty, Count: 1}
				_, err := ParseRequest(req.Append(nil))
				require.ErrorIs(t, err, ErrRequest)
				continue
			}
			const a, b = 0x0123456789abcdef, 0xf0f0f0f0ff00ff00
			for _, how := range []Reduction{r, r | Exclusive} {
				dst, src := appendNative(nil, a), appendNative(nil, b)
				Reduce(how, ty, dst, src)
				require.Equal(t, appendNative(nil, f(a, b)), dst, "%v of type %d", how, ty)
			}
		}
	}
	require.False(t, reductions.Takes(Int32))
}

func TestReduce(t *testing.T) {
	n := binary.NativeEndian
	table(t, Int32, func(b []byte, v int32) { n.PutUint32(b, uint32(v)) }, func(b []byte) int32 { return int32(n.Uint32(b)) },
		[]int32{0, 1, -1, 7, math.MinInt32, math.MaxInt32})
	table(t, Uint32, func(b []byte, v uint32) { n.PutUint32(b, v) }, n.Uint32, []uint32{0, 1, 7, math.MaxUint32, 1 << 31})
	table(t, Int64, func(b []byte, v int64) { n.PutUint64(b, uint64(v)) }, func(b []byte) int64 { return int64(n.Uint64(b)) },
		[]int64{0, 1, -1, 7, math.MinInt64, math.MaxInt64})
	table(t, Uint64, func(b []byte, v uint64) { n.PutUint64(b, v) }, n.Uint64, []uint64{0, 1, 7, math.MaxUint64, 1 << 63})
	inf := math.Inf(1)
	table(t, Float32, func(b []byte, v float32) { n.PutUint32(b, math.Float32bits(v)) },
		func(b []byte) float32 { return math.Float32frombits(n.Uint32(b)) }, []float32{0, 1.5, -2.25, float32(inf), float32(math.NaN())})
	table(t, Float64, func(b []byte, v float64) { n.PutUint64(b, math.Float64bits(v)) },
		func(b []byte) float64 { return math.Float64frombits(n.Uint64(b)) }, []float64{0, 1.5, -2.25, inf, -inf, math.NaN()})
	require.Equal(t, "max", Max.String())
	require.Equal(t, "reduction(9)", Reduction(9).String())
	require.Equal(t, "exclusive sum", (Sum | Exclusive).String())
}

// 1 MiB of elements combined in cache, per reduction and type.
func BenchmarkReduce(b *testing.B) {
	dst, src := make([]byte, 1<<20), make([]byte, 1<<20)
	for _, c := range []struct {
		name string
		r    Reduction
		t    Type
	}{
		{"sum/float64", Sum, Float64}, {"exclusive sum/float64", Sum | Exclusive, Float64}, {"max/float64", Max, Float64}, {"sum/float32", Sum, Float32}, {"sum/uint32", Sum, Uint32}, {"sum/uint64", Sum, Uint64},
		{"or/uint64", BitOr, Uint64}, {"replace/uint64", Replace, Uint64},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				Reduce(c.r, c.t, dst, src)
			}
		})
	}
}
