package shm

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// One side alone: what Post costs. ns/op is per request.
func BenchmarkPost(b *testing.B) {
	for _, way := range []string{"mapped", "cma"} {
		for _, n := range []int{8, 64, 4096, 65536, 1 << 20, 64 << 20} {
			for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead} {
				b.Run(fmt.Sprintf("%s/%v/%d", way, op, n), func(b *testing.B) {
					x, y := pair(b, ways[way], fabric.EndpointOptions{})
					la, lb := alloc(b, x.link, n), alloc(b, y.link, n)
					wr := write(la, 0, n, lb.Key(), 0)
					wr.Op, wr.Flags = op, 0
					list := []fabric.WR{wr}
					b.SetBytes(int64(n))
					for b.Loop() {
						if k, err := x.Post(list); k != 1 || err != nil {
							b.Fatal(k, err)
						}
					}
				})
			}
		}
	}
	b.Run("mapped/inline/8", func(b *testing.B) {
		x, y := pair(b, Options{}, fabric.EndpointOptions{})
		la, lb := alloc(b, x.link, 8), alloc(b, y.link, 8)
		wr := write(la, 0, 8, lb.Key(), 0)
		wr.Flags = fabric.FlagInline
		list := []fabric.WR{wr}
		for b.Loop() {
			_, _ = x.Post(list)
		}
	})
	b.Run("mapped/fetch-add", func(b *testing.B) {
		x, y := pair(b, Options{}, fabric.EndpointOptions{})
		la, lb := alloc(b, x.link, 8), alloc(b, y.link, 8)
		wr := write(la, 0, 8, lb.Key(), 0)
		wr.Op, wr.Flags = fabric.OpFetchAdd, 0
		list := []fabric.WR{wr}
		for b.Loop() {
			_, _ = x.Post(list)
		}
	})
}

// One request of 8 bytes at a time, complete when the call returns.
func BenchmarkDo(b *testing.B) {
	for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead, fabric.OpFetchAdd} {
		b.Run(op.String(), func(b *testing.B) {
			x, y := pair(b, Options{}, fabric.EndpointOptions{})
			la, lb := alloc(b, x.link, 8), alloc(b, y.link, 8)
			wr := write(la, 0, 8, lb.Key(), 0)
			wr.Op, wr.Flags = op, 0
			for b.Loop() {
				if !x.Do(&wr) {
					b.Fatal("refused")
				}
			}
		})
	}
}

// What an idle link costs whoever polls it.
func BenchmarkPollIdle(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l, m := openPair(b, Options{})
			for range n {
				pairOn(b, l, m, fabric.EndpointOptions{})
			}
			cs := make([]fabric.Completion, 16)
			for b.Loop() {
				l.Poll(cs)
			}
		})
	}
}

// apart keeps what comes in and what goes out on different pages.
func apart(n int) int { return max(n, 4096) }

// pingPong runs half of a ping-pong of put over n bytes: the last word of the
// message is its number.
func pingPong(ep *endpoint, local, remote fabric.Region, n, rounds int, first bool) {
	wr := write(local, apart(n), n, remote.Key(), 0)
	wr.Flags = fabric.FlagInline
	if n > maxInline {
		wr.Flags = 0
	}
	list := []fabric.WR{wr}
	in, out := local.Bytes()[n-8:n], local.Bytes()[apart(n)+n-8:]
	var sp cpu.Spinner
	for i := uint64(1); i <= uint64(rounds); i++ {
		if first {
			testutil.Store64(out, i)
			_, _ = ep.Post(list)
		}
		for sp.Reset(); testutil.Load64(in) != i; {
			sp.Wait()
		}
		if !first {
			testutil.Store64(out, i)
			_, _ = ep.Post(list)
		}
	}
}

// Two threads, one link each. ns/op is the full round trip; ns/half half of it.
func BenchmarkPingPong(b *testing.B) {
	for _, way := range []string{"mapped", "cma"} {
		for _, n := range []int{8, 64, 4096, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%d", way, n), func(b *testing.B) {
				x, y := pair(b, ways[way], fabric.EndpointOptions{})
				la, lb := alloc(b, x.link, 2*apart(n)), alloc(b, y.link, 2*apart(n))
				b.SetBytes(int64(2 * n))
				b.ResetTimer()
				done := make(chan struct{})
				go func() {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					pingPong(y, lb, la, n, b.N, false)
					close(done)
				}()
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				pingPong(x, la, lb, n, b.N, true)
				<-done
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/half")
			})
		}
	}
}

// A put of 8 bytes with notification, and the Poll that reports it.
func BenchmarkNotifyPost(b *testing.B) {
	x, y := pair(b, Options{}, fabric.EndpointOptions{})
	la, lb := alloc(b, x.link, 8), alloc(b, y.link, 8)
	wr := write(la, 0, 8, lb.Key(), 0)
	wr.Flags = fabric.FlagNotify
	list := []fabric.WR{wr}
	cs := make([]fabric.Completion, 4)
	for b.Loop() {
		_, _ = x.Post(list)
		if y.link.Poll(cs) != 1 {
			require.FailNow(b, "no notification")
		}
	}
}
