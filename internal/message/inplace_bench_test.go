package message

import (
	"fmt"
	"testing"

	"github.com/seed33544411/rma/fabric/linktest"
)

// BenchmarkInPlace is what registered messages cost both ends together, gathered or alone,
// where they are copied to the mirror and where the link takes them from their place.
func BenchmarkInPlace(b *testing.B) {
	for _, chain := range []int{1, 4, 16} {
		for _, size := range []int{512, 1024, 2048, 4096, 8192} {
			for how, from := range map[string]int{"copied": 1 << 20, "placed": 1} {
				b.Run(fmt.Sprintf("%d/%d/%s", chain, size, how), func(b *testing.B) {
					mode := "gather"
					if chain == 1 {
						mode = "eager"
					}
					f := newFlood(b, linktest.Real()["shm"], size, 1, 64, chain, Options{Policy: policies[mode], InPlace: from})
					if err := f.run(10 * chain); err != nil {
						b.Fatal(err)
					}
					b.ResetTimer()
					if err := f.run(b.N); err != nil {
						b.Fatal(err)
					}
				})
			}
		}
	}
}
