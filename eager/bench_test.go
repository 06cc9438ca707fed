package eager

import (
	"fmt"
	"testing"

	"github.com/seed33544411/rma/internal/cpu"
)

// Both ends of a channel in one goroutine: what the protocol and the link cost
// in processor time, without waiting for another thread. rmabench measures
// between processes.
func BenchmarkSendRecv(b *testing.B) {
	for _, link := range []string{"shm", "tcp"} {
		for _, mode := range bothModes {
			for _, size := range []int{8, 512, 4000, 32 << 10} {
				b.Run(fmt.Sprintf("%s/%v/%d", link, mode, size), func(b *testing.B) {
					o := Options{Mode: mode}
					x, y := pair(b, realLinks[link], o, o)
					p, buf := make([]byte, size), make([]byte, size)
					b.SetBytes(int64(size))
					b.ReportAllocs()
					for b.Loop() {
						for {
							res, err := x.ch.Send(Envelope{}, p)
							if err != nil {
								b.Fatal(err)
							}
							if res == Accepted {
								break
							}
							x.poll()
							y.poll()
						}
						for {
							_, ok, err := y.ch.Recv(buf)
							if err != nil {
								b.Fatal(err)
							}
							if ok {
								break
							}
							x.poll()
							y.poll()
						}
					}
				})
			}
		}
	}
}

// A ping-pong between two goroutines, each the owner of its link: ns/op is the
// round trip.
func BenchmarkPingPong(b *testing.B) {
	for _, link := range []string{"shm", "tcp"} {
		for _, mode := range bothModes {
			b.Run(fmt.Sprintf("%s/%v", link, mode), func(b *testing.B) {
				o := Options{Mode: mode}
				x, y := pair(b, realLinks[link], o, o)
				p := make([]byte, 8)
				stop := make(chan struct{})
				done := make(chan error, 1)
				bounce := func(s *side, buf []byte) (bool, error) {
					s.poll()
					_, ok, err := s.ch.Recv(buf)
					if !ok || err != nil {
						return false, err
					}
					for {
						res, err := s.ch.Send(Envelope{}, buf)
						if res == Accepted || err != nil {
							return true, err
						}
						s.poll()
					}
				}
				go func() {
					buf := make([]byte, 8)
					var sp cpu.Spinner
					for {
						ok, err := bounce(y, buf)
						switch {
						case err != nil:
							done <- err
							return
						case ok:
							sp.Reset()
						default:
							if sp.Wait() > 0 {
								select {
								case <-stop:
									done <- nil
									return
								default:
								}
							}
						}
					}
				}()
				if _, err := x.ch.Send(Envelope{}, p); err != nil {
					b.Fatal(err)
				}
				var sp cpu.Spinner
				b.ReportAllocs()
				for b.Loop() {
					for {
						ok, err := bounce(x, p)
						if err != nil {
							b.Fatal(err)
						}
						if ok {
							break
						}
						sp.Wait()
					}
					sp.Reset()
				}
				close(stop)
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
