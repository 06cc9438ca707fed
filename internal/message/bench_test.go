package message

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
)

// stream keeps 16 messages of one size under way, or reads beside the channel.
type stream struct {
	s, r      *side
	size      int
	outs      [16]slot
	ins       [32]slot
	sent, got slots
}

// slot is a message or a receive; they do not end in order.
type slot struct {
	out Out
	in  In
	of  *slots
}

type slots struct {
	free  []*slot
	ended int
}

func (s *slot) Complete(uint32, int, error) {
	s.of.ended++
	s.of.free = append(s.of.free, s)
}

func (s *slots) take() *slot {
	x := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return x
}

func newStream(b *testing.B, open linktest.Opener, size, adverts int) *stream {
	o := Options{Policy: policies["scatter"], Adverts: adverts}
	x := &stream{size: size}
	x.s, x.r = pair(b, open, size, o, o)
	for i := range x.outs {
		x.outs[i].of = &x.sent
		x.sent.free = append(x.sent.free, &x.outs[i])
	}
	for i := range x.ins {
		x.ins[i].of = &x.got
		x.got.free = append(x.got.free, &x.ins[i])
	}
	return x
}

// messages sends n; receives are there before.
func (x *stream) messages(n int) error {
	x.sent.ended, x.got.ended = 0, 0
	posted, begun := 0, 0
	for x.sent.ended < n || x.got.ended < n {
		for ; posted < n && len(x.got.free) > 0; posted++ {
			k := x.got.take()
			k.in = In{Buf: x.r.reg.Bytes()[:x.size], LKey: x.r.reg.LKey(), RKey: x.r.reg.Key().RKey, Registered: true, Remote: true, Done: k}
			x.r.ch.Recv(&k.in)
		}
		for ; begun < n && len(x.sent.free) > 0; begun++ {
			k := x.sent.take()
			k.out = Out{Data: x.s.reg.Bytes()[:x.size], LKey: x.s.reg.LKey(), RKey: x.s.reg.Key().RKey, Registered: true, Done: k}
			x.s.ch.Send(&k.out)
		}
		if err := x.s.turn(); err != nil {
			return err
		}
		if err := x.r.turn(); err != nil {
			return err
		}
	}
	return nil
}

// raw makes n reads of the link.
func (x *stream) raw(n int) error {
	wr := [1]fabric.WR{{
		ID: 99 << 48, Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: []fabric.SGE{fabric.NewSGE(x.r.reg.Bytes()[:x.size], x.r.reg.LKey())},
		RemoteAddr: x.s.reg.Addr(), RKey: x.s.reg.Key().RKey,
	}}
	for posted, done := 0, 0; done < n; {
		for posted < n && posted-done < len(x.outs) {
			k, err := x.r.ep.Post(wr[:])
			if err != nil {
				return err
			}
			posted += k
		}
		k := x.r.link.Poll(x.r.cs[:])
		for i := range x.r.cs[:k] {
			if x.r.cs[i].ID == wr[0].ID {
				done++
			} else {
				x.r.ch.OnCompletion(&x.r.cs[i])
			}
		}
		x.s.poll()
	}
	return nil
}

// BenchmarkStream compares streams of messages, fetched and written to receives
// that were there first, with raw reads of the link, in turns: both sides are one
// goroutine, so that the machine's other work weighs on all alike. The ratios are
// medians.
func BenchmarkStream(b *testing.B) {
	for link, open := range linktest.Real() {
		for _, size := range []int{64 << 10, 256 << 10, 1 << 20, 4 << 20} {
			b.Run(fmt.Sprintf("%s/%d", link, size), func(b *testing.B) {
				read, first := newStream(b, open, size, -1), newStream(b, open, size, 16)
				const n = 64
				var raws, reads, firsts []float64
				for b.Loop() {
					for _, f := range []struct {
						run func(int) error
						to  *[]float64
					}{{read.raw, &raws}, {read.messages, &reads}, {first.messages, &firsts}} {
						start := time.Now()
						if err := f.run(n); err != nil {
							b.Fatal(err)
						}
						*f.to = append(*f.to, time.Since(start).Seconds())
					}
				}
				ratio := func(x []float64) float64 {
					var r []float64
					for i := range x {
						r = append(r, raws[i]/x[i])
					}
					slices.Sort(r)
					return r[len(r)/2]
				}
				b.ReportMetric(ratio(reads), "read/raw")
				b.ReportMetric(ratio(firsts), "first/raw")
				b.ReportMetric(n*float64(size)/1e6/slices.Min(raws), "raw-MB/s")
				if st := first.s.ch.Stats(); st.Written == 0 {
					b.Fatalf("%+v", st)
				}
			})
		}
	}
}

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
