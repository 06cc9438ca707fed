package message

import (
	"slices"
	"testing"
	"time"

	"github.com/seed33544411/rma/fabric/linktest"
)

// one is one side of a ping-pong of single messages.
type one struct {
	*side
	out       Out
	in        In
	sent, got note
}

func (s *one) post(size int) {
	s.in.Buf, s.in.LKey, s.in.Registered, s.in.Done = s.reg.Bytes()[:size], s.reg.LKey(), true, &s.got
	s.ch.Recv(&s.in)
}

func (s *one) send(size int) {
	s.out.Data, s.out.LKey, s.out.RKey = s.reg.Bytes()[:size], s.reg.LKey(), s.reg.Key().RKey
	s.out.Registered, s.out.Done = true, &s.sent
	s.ch.Send(&s.out)
}

// sendNow is send where that can be.
func (s *one) sendNow(size int) bool {
	if !s.ch.SendNow(0, s.reg.Bytes()[:size]) {
		return false
	}
	s.sent.n++
	return true
}

// rounds plays n round trips of messages of size bytes: whoever receives hands that in
// before. now: the short way of both.
func rounds(a, b *one, size, n int, now bool) error {
	for range n {
		for _, s := range []*one{a, b} {
			to := a
			if s == a {
				to = b
			}
			to.post(size)
			want, sent := to.got.n+1, s.sent.n+1
			if !now || !s.sendNow(size) {
				s.send(size)
			}
			for to.got.n < want || s.sent.n < sent {
				if now && to.ch.Poll() {
					continue
				}
				if err := to.turn(); err != nil {
					return err
				}
				if s.sent.n == sent {
					continue
				}
				if err := s.turn(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// BenchmarkSingle is what the two processors spend on half a round trip of one message
// when neither waits: both sides are one goroutine. now is the same the short way; a
// turn is one look of a side that has nothing to do. The figures are medians of short
// runs, which a busy machine leaves alone.
func BenchmarkSingle(b *testing.B) {
	const run = 100
	for link, open := range linktest.Real() {
		b.Run(link, func(b *testing.B) {
			x, y := pair(b, open, 64, Options{Learn: DefaultLearn}, Options{Learn: DefaultLearn})
			p, q := &one{side: x}, &one{side: y}
			b.ReportAllocs()
			names := []string{"half-ns", "now-ns", "turn-ns"}
			times := make([][]time.Duration, len(names))
			for b.Loop() {
				for i := range times {
					n := 2 * run
					at := time.Now()
					switch i {
					case 0, 1:
						if err := rounds(p, q, 8, run, i == 1); err != nil {
							b.Fatal(err)
						}
					default:
						p.post(8)
						for range n {
							if err := p.turn(); err != nil {
								b.Fatal(err)
							}
						}
						p.ch.Cancel(&p.in)
					}
					times[i] = append(times[i], time.Since(at)/time.Duration(n))
				}
			}
			for i, name := range names {
				slices.Sort(times[i])
				b.ReportMetric(float64(times[i][len(times[i])/2]), name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
