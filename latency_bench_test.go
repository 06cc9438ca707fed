package rma

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/onesided"
)

// Half a round trip of 8 bytes between two ranks of this process, each driven by a
// thread of its own, in ns, as the tenth of short runs in which nothing else ran:
//
//	go test -run '^$' -bench Latency -benchtime 2000x .
//
// send is Send and Recv; put is Put to memory that the target polls.
func BenchmarkLatency(b *testing.B) {
	const run = 50
	for _, fabric := range []string{"shm", "tcp"} {
		for _, what := range []string{"send", "put"} {
			b.Run(what+"/"+fabric, func(b *testing.B) {
				es := open(b, 2, fabric)
				mems, keys := share(b, es, 4096)
				ctx := context.Background()
				turn := []func(me int, n uint64) error{
					func(me int, n uint64) error { // throw
						if what == "put" {
							binary.NativeEndian.PutUint64(mems[me].Bytes()[64:], n)
							return es[me].Peer(1-me).Put(keys[1-me].At(0), mems[me].Slice(64, 8)).Wait(ctx)
						}
						return es[me].Peer(1 - me).Send(mems[me].Bytes()[64:72]).Wait(ctx)
					},
					func(me int, n uint64) error { // catch
						if what == "put" {
							for i := 0; onesided.Load64(mems[me].Bytes()) != n; i++ {
								if i&15 == 15 {
									es[me].Progress()
								}
								if i&(1<<16-1) == 1<<16-1 {
									runtime.Gosched()
								}
							}
							return nil
						}
						_, err := es[me].Peer(1 - me).Recv(mems[me].Bytes()[:8]).Wait(ctx)
						return err
					},
				}
				var took []time.Duration
				rounds := b.N + 20
				var g errgroup.Group
				for me := range 2 {
					g.Go(func() error {
						runtime.LockOSThread()
						defer runtime.UnlockOSThread()
						n := uint64(0)
						for range rounds {
							at := time.Now()
							for range run {
								n++
								for k := range 2 {
									if err := turn[(me+k)%2](me, n); err != nil {
										return err
									}
								}
							}
							if me == 0 {
								took = append(took, time.Since(at))
							}
						}
						return nil
					})
				}
				require.NoError(b, g.Wait())
				took = took[20:]
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/10])/(2*run), "half-ns")
				b.ReportMetric(float64(took[len(took)/2])/(2*run), "median-ns")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// A put of 8 bytes of a rank to itself.
func BenchmarkOwnPut(b *testing.B) {
	for _, fabric := range []string{"shm", "tcp"} {
		b.Run(fabric, func(b *testing.B) {
			es := open(b, 1, fabric)
			mems, keys := share(b, es, 4096)
			ctx, p := context.Background(), es[0].Peer(0)
			for b.Loop() {
				if err := p.Put(keys[0].At(0), mems[0].Slice(64, 8)).Wait(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Half a round trip of a []byte, memory that is not registered, between two ranks of this
// process, each driven by a thread of its own, in ns, as the lower quartile: forced modes
// beside the choice of the model, which is measured before.
//
//	go test -run '^$' -bench PrivateMessages -benchtime 1000x .
func BenchmarkPrivateMessages(b *testing.B) {
	for _, size := range []int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
		for _, mode := range []Mode{ModeAuto, ModeEager, ModeGather, ModeScatter} {
			b.Run(fmt.Sprintf("%d/%s", size, mode), func(b *testing.B) {
				es := openWith(b, 2, "shm", func(c *Config) { c.Sampling, c.Mode = "force", mode })
				ctx := context.Background()
				var took []time.Duration
				var g errgroup.Group
				for me := range 2 {
					g.Go(func() error {
						runtime.LockOSThread()
						defer runtime.UnlockOSThread()
						p, buf := es[me].Peer(1-me), make([]byte, size)
						for range b.N + 20 {
							at := time.Now()
							for k := range 2 {
								if (me+k)%2 == 0 {
									if err := p.Send(buf).Wait(ctx); err != nil {
										return err
									}
								} else if _, err := p.Recv(buf).Wait(ctx); err != nil {
									return err
								}
							}
							if me == 0 {
								took = append(took, time.Since(at))
							}
						}
						return nil
					})
				}
				require.NoError(b, g.Wait())
				took = took[20:]
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/4])/2, "half-ns")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
