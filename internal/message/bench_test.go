package message

import (
	"fmt"
	"testing"

	"github.com/seed33544411/rma/fabric/linktest"
)

// Messages of 1 MiB from and to memory that nobody registered, the same each time.
func BenchmarkUnregistered(b *testing.B) {
	const size = 1 << 20
	for link, open := range linktest.Real() {
		for how, pinned := range map[string]int64{"each": -1, "cached": 0} {
			b.Run(fmt.Sprintf("%s/%s", link, how), func(b *testing.B) {
				o := Options{Policy: policies["scatter"], Pinned: pinned}
				s, r := pair(b, open, 64, o, o)
				var sent, got note
				var out Out
				var in In
				data, buf := make([]byte, size), make([]byte, size)
				b.SetBytes(size)
				b.ReportAllocs()
				for b.Loop() {
					sent.n, got.n = 0, 0
					in = In{Buf: buf, Done: &got}
					out = Out{Data: data, Done: &sent}
					r.ch.Recv(&in)
					s.ch.Send(&out)
					for sent.n == 0 || got.n == 0 {
						if s.turn() != nil || r.turn() != nil {
							b.Fatal(r.ch.Err(), s.ch.Err())
						}
					}
				}
			})
		}
	}
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
