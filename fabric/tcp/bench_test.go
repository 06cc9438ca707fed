//go:build linux

package tcp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// All benchmarks run between two processes over the loopback device.

// BenchmarkPutLatency reports half a round trip: a write is answered by a write.
func BenchmarkPutLatency(b *testing.B) {
	for _, size := range []int{8, 1 << 10, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { putLatency(b, Config{}, size) })
	}
}

func putLatency(b *testing.B, cfg Config, size int) {
	h, _, key := spawnWith(b, cfg, modeEcho, fabric.EndpointOptions{})
	flags := fabric.Flags(0)
	if size <= maxInline {
		flags = fabric.FlagInline
	}
	// The first word is the flag: it comes last in a frame of its own
	// unless it is all there is.
	wrs := []fabric.WR{h.write(0, 8, key, flags)}
	if size > 8 {
		wrs = []fabric.WR{h.write(8, size-8, key, flags), wrs[0]}
	}
	mem := h.reg.Bytes()
	answer := mem[:8]
	turn := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		turn++
		testutil.Store64(answer, turn)
		left := wrs
		for len(left) > 0 {
			n, err := h.ep.Post(left)
			if err != nil {
				b.Fatal(err)
			}
			if left = left[n:]; len(left) > 0 {
				h.l.Poll(h.cs[:])
			}
		}
		testutil.Store64(answer, 0)
		var sp cpu.Spinner
		for testutil.Load64(answer) != turn {
			h.l.Poll(h.cs[:])
			sp.Wait()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/half")
}

// BenchmarkOp reports the time of one operation from Post to completion.
func BenchmarkOp(b *testing.B) {
	for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead, fabric.OpFetchAdd} {
		b.Run(op.String(), func(b *testing.B) {
			h, _, key := spawn(b, modeSink, fabric.EndpointOptions{})
			wr := h.write(0, 8, key, fabric.FlagSignaled)
			wr.Op = op
			wrs := []fabric.WR{wr}
			b.ReportAllocs()
			for b.Loop() {
				if n, err := h.ep.Post(wrs); n != 1 {
					b.Fatal(n, err)
				}
				var sp cpu.Spinner
				for h.l.Poll(h.cs[:]) == 0 {
					sp.Wait()
				}
			}
		})
	}
}

// BenchmarkBandwidth reports what comes to the other process.
func BenchmarkBandwidth(b *testing.B) {
	for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead} {
		for _, size := range []int{8, 4 << 10, 64 << 10, 1 << 20, 4 << 20} {
			b.Run(fmt.Sprintf("%v/%d", op, size), func(b *testing.B) { bandwidth(b, Config{}, op, size) })
		}
	}
}

// BenchmarkCrypt reports what protection costs: half a round trip, and bandwidth.
func BenchmarkCrypt(b *testing.B) {
	for _, size := range []int{8, 64 << 10, 1 << 20} {
		for c := CryptOff; c < numCrypts; c++ {
			b.Run(fmt.Sprintf("%d/%v", size, c), func(b *testing.B) {
				if cfg := (Config{Crypt: c}); size == 8 {
					putLatency(b, cfg, size)
				} else {
					bandwidth(b, cfg, fabric.OpWrite, size)
				}
			})
		}
	}
}

// bandwidth streams with up to 16 requests outstanding.
func bandwidth(b *testing.B, cfg Config, op fabric.Op, size int) {
	h, _, key := spawnWith(b, cfg, modeSink, fabric.EndpointOptions{})
	wr := h.write(0, size, key, fabric.FlagSignaled)
	wr.Op = op
	wrs := make([]fabric.WR, 16)
	for i := range wrs {
		wrs[i] = wr
	}
	out := 0
	var sp cpu.Spinner
	b.SetBytes(int64(size))
	b.ReportAllocs()
	reap := func() {
		n := h.l.Poll(h.cs[:])
		for _, c := range h.cs[:n] {
			if c.Status != fabric.StatusOK {
				b.Fatal(c.Err())
			}
		}
		if out -= n; n > 0 {
			sp.Reset()
		} else {
			sp.Wait()
		}
	}
	for b.Loop() {
		for out == len(wrs) {
			reap()
		}
		n, err := h.ep.Post(wrs[:1])
		require.NoError(b, err)
		out += n
	}
	for out > 0 {
		reap()
	}
}

// BenchmarkRecords reports what both sides of a connection spend on a block, one after
// the other on one processor: a figure that other work on the machine moves little.
func BenchmarkRecords(b *testing.B) {
	for _, size := range []int{headerSize + 8, 64 << 10} {
		for c := CryptOff; c < numCrypts; c++ {
			b.Run(fmt.Sprintf("%d/%v", size, c), func(b *testing.B) {
				h, k := pair(b, Config{Crypt: c, Lanes: -1}, 64)
				x, y := h.ep, k.ep
				mem := testutil.Scratch(b, 2*size)
				b.SetBytes(int64(size))
				for b.Loop() {
					for sent, got := 0, 0; got < size; {
						if sent < size {
							h.l.iov[0] = iovec{uintptr(fabric.Addr(mem[sent:])), uintptr(size - sent)}
							n, _ := x.sock.send(h.l.iov[:1], size-sent)
							sent += n
						}
						k.l.iov[0] = iovec{uintptr(fabric.Addr(mem[size+got:])), uintptr(size - got)}
						n, _ := y.sock.recv(k.l.iov[:1], size-got)
						got += n
					}
				}
			})
		}
	}
}
