package onesided

import "testing"

// 1 MiB of elements combined in cache, per reduction and type.
func BenchmarkReduce(b *testing.B) {
	dst, src := make([]byte, 1<<20), make([]byte, 1<<20)
	for _, c := range []struct {
		name string
		r    Reduction
		t    Type
	}{
		{"sum/float64", Sum, Float64}, {"max/float64", Max, Float64}, {"sum/float32", Sum, Float32}, {"sum/uint32", Sum, Uint32}, {"sum/uint64", Sum, Uint64},
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
