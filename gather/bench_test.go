package gather

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// What packing and splitting cost by themselves: no link, nothing copied but
// headers.
func BenchmarkCodec(b *testing.B) {
	for _, step := range []uint64{1, 3} {
		msgs := make([]Message, 64)
		for i := range msgs {
			msgs[i] = Message{Data: make([]byte, 64), At: uint64(i) * step}
		}
		p := NewPacker(Limits{Bytes: 1 << 20}, 0)
		_, err := p.Pack(msgs)
		require.NoError(b, err)
		payload := flat(p.Pieces())
		per := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(msgs)), "ns/msg")
		}
		b.Run(fmt.Sprintf("pack/every %d", step), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if n, _ := p.Pack(msgs); n != len(msgs) {
					b.Fatal(n)
				}
			}
			per(b)
		})
		b.Run(fmt.Sprintf("split/every %d", step), func(b *testing.B) {
			b.ReportAllocs()
			var s Splitter
			for b.Loop() {
				if err := s.Open(nil, payload); err != nil {
					b.Fatal(err)
				}
				n := 0
				for s.Next() {
					if seg, ok := s.Bytes(); ok {
						n += len(seg)
					}
				}
				if n != 64*64 {
					b.Fatal(n)
				}
			}
			per(b)
		})
	}
}
