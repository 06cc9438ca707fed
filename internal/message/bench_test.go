package message

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed33544411/rma/fabric/linktest"
)

// Messages of 1 MiB from and to memory that nobody registered, the same each time:
// kept registered, and registered for each, in turns. The ratio of their times is a
// median.
func BenchmarkUnregistered(b *testing.B) {
	for link, open := range linktest.Real() {
		b.Run(link, func(b *testing.B) { unregistered(b, open) })
	}
}

func unregistered(b *testing.B, open opener) {
	const size = 1 << 20
	data, buf := make([]byte, size), make([]byte, size)
	var took [2][]float64
	var sides [2][2]*side
	for i, pinned := range []int64{-1, 0} {
		o := Options{Policy: policies["scatter"], Pinned: pinned}
		sides[i][0], sides[i][1] = pair(b, open, 64, o, o)
	}
	var sent, got note
	var out Out
	var in In
	for b.Loop() {
		for i, p := range sides {
			start := time.Now()
			for range 4 {
				sent.n, got.n = 0, 0
				in = In{Buf: buf, Done: &got}
				out = Out{Data: data, Done: &sent}
				p[1].ch.Recv(&in)
				p[0].ch.Send(&out)
				for sent.n == 0 || got.n == 0 {
					if p[0].turn() != nil || p[1].turn() != nil {
						b.Fatal(p[0].ch.Err(), p[1].ch.Err())
					}
				}
			}
			took[i] = append(took[i], time.Since(start).Seconds()/4)
		}
	}
	var r []float64
	for i := range took[0] {
		r = append(r, took[1][i]/took[0][i])
	}
	slices.Sort(r)
	b.ReportMetric(r[len(r)/2], "kept/each")
	b.ReportMetric(slices.Min(took[0])*1e6, "each-us")
	b.ReportMetric(slices.Min(took[1])*1e6, "kept-us")
}

// One large message at a time between two sides of one process, the receive there
// before it: read by the receiver, or written by the sender.
func BenchmarkLarge(b *testing.B) {
	for link, open := range linktest.Real() {
		for _, size := range []int{32 << 10, 64 << 10, 256 << 10, 1 << 20} {
			for how, adverts := range map[string]int{"read": -1, "first": 16} {
				b.Run(fmt.Sprintf("%s/%s/%d", link, how, size), func(b *testing.B) {
					o := Options{Policy: policies["scatter"], Adverts: adverts}
					s, r := pair(b, open, size, o, o)
					var sent, got note
					out := Out{LKey: s.reg.LKey(), RKey: s.reg.Key().RKey, Registered: true}
					in := In{LKey: r.reg.LKey(), RKey: r.reg.Key().RKey, Registered: true, Remote: true}
					b.SetBytes(int64(size))
					b.ReportAllocs()
					for b.Loop() {
						sent.n, got.n = 0, 0
						in.Buf, in.Done = r.reg.Bytes()[:size], &got
						r.ch.Recv(&in)
						if r.turn() != nil || s.turn() != nil {
							b.Fatal(r.ch.Err(), s.ch.Err())
						}
						out.Data, out.Done = s.reg.Bytes()[:size], &sent
						s.ch.Send(&out)
						for sent.n == 0 || got.n == 0 {
							if s.turn() != nil || r.turn() != nil {
								b.Fatal(r.ch.Err(), s.ch.Err())
							}
						}
					}
					if st := s.ch.Stats(); adverts > 0 && st.Written == 0 {
						b.Fatalf("%+v", st)
					}
				})
			}
		}
	}
}

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
