//go:build linux && !rma_portable

package tcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// besideSize is a large request of BenchmarkSmallBesideLarge, besideDepth how many
// of them are under way: 64 MiB.
const besideSize, besideDepth = 4 << 20, 16

// besideChild reads the peer's region again and again, and answers each new value
// of its first word with the same.
var besideChild = testutil.NewChild("beside", func(args []string, in *bufio.Reader, out io.Writer) error {
	lanes, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	l, err := Open(&Config{Lanes: lanes})
	if err != nil {
		return err
	}
	defer l.Close()
	reg, err := l.Alloc(64+besideSize, fabric.AccessAll)
	if err != nil {
		return err
	}
	defer reg.Close()
	ep, err := l.NewEndpoint(fabric.EndpointOptions{})
	if err != nil {
		return err
	}
	theirs, key, err := swap(in, out, ep.Address(), reg.Key())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Limit)
	defer cancel()
	if err := ep.Connect(ctx, theirs); err != nil {
		return err
	}
	fmt.Fprintln(out, "up")
	large := args[1] == "large"
	read := []fabric.WR{{
		Op: fabric.OpRead, Flags: fabric.FlagSignaled, RemoteAddr: key.Addr + 64, RKey: key.RKey,
		Local: []fabric.SGE{{Addr: reg.Addr() + 64, Len: besideSize, LKey: reg.LKey()}},
	}}
	answer := []fabric.WR{{
		Op: fabric.OpWrite, Flags: fabric.FlagInline, RemoteAddr: key.Addr, RKey: key.RKey,
		Local: []fabric.SGE{{Addr: reg.Addr() + 8, Len: 8}},
	}}
	keepOn(1)
	eof := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, in); close(eof) }()
	var cs [64]fabric.Completion
	done, inFlight := 0, 0
	for last, i := uint64(0), 0; ; i++ {
		for large && inFlight < besideDepth {
			k, err := ep.Post(read)
			if err != nil {
				return err
			}
			if inFlight += k; k == 0 {
				break // the queue is full
			}
		}
		n := l.Poll(cs[:])
		for _, c := range cs[:n] {
			if c.Op == fabric.OpRead {
				inFlight--
				done++
			}
		}
		if v := testutil.Load64(reg.Bytes()); v != last {
			testutil.Store64(reg.Bytes()[8:], v)
			k, err := ep.Post(answer)
			if err != nil {
				return err
			}
			if k == 1 { // else the queue is full, and the next round tries again
				last = v
			}
		}
		if i%1024 == 0 {
			select {
			case <-eof:
				fmt.Fprintln(out, done)
				return nil
			default:
			}
		}
	}
})

// BenchmarkSmallBesideLarge reports half a round trip of 8 bytes while 64 MiB of
// answers are on their way to the same peer, and the bandwidth of those.
func BenchmarkSmallBesideLarge(b *testing.B) {
	for _, c := range []struct {
		name, load string
		lanes      int
	}{{"alone", "none", 1}, {"one connection", "large", -1}, {"one lane", "large", 1}, {"two lanes", "large", 2}} {
		b.Run(c.name, func(b *testing.B) {
			h := newHost(b, Config{Lanes: c.lanes}, fabric.EndpointOptions{}, 64+besideSize)
			p := besideChild.Start(b, strconv.Itoa(c.lanes), c.load)
			theirs, key, err := swap(p.Out, p.In, h.ep.Address(), h.reg.Key())
			require.NoError(b, err)
			require.NoError(b, h.ep.Connect(testutil.Context(b, testutil.Limit), theirs))
			require.Equal(b, "up", p.Line(b, testutil.Limit))
			keepOn(0)
			ping := []fabric.WR{h.write(8, 8, key, fabric.FlagInline)}
			ping[0].RemoteAddr = key.Addr
			mem := h.reg.Bytes()
			poll := func() {
				for _, c := range h.cs[:h.l.Poll(h.cs[:])] {
					if c.Op == fabric.OpDown || c.Status != fabric.StatusOK {
						b.Fatalf("the child has ended: %+v: %v", c, p.Wait(testutil.Limit))
					}
				}
			}
			turn := uint64(0)
			var took []time.Duration
			for b.Loop() {
				turn++
				testutil.Store64(mem[8:], turn)
				start := cpu.Ticks()
				for k := 0; k == 0; {
					if k, err = h.ep.Post(ping); err != nil {
						b.Fatal(err)
					}
					poll()
				}
				for testutil.Load64(mem) != turn {
					poll()
				}
				took = append(took, cpu.Duration(cpu.Ticks()-start)/2)
			}
			require.NoError(b, p.In.Close())
			done, err := strconv.Atoi(p.Line(b, testutil.Limit))
			require.NoError(b, err)
			slices.Sort(took)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "µs-p50")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "µs-p99")
			b.ReportMetric(float64(done)*besideSize/1e6/b.Elapsed().Seconds(), "MB/s")
		})
	}
}

// keepOn keeps this goroutine on a processor, where there is more than one. The
// goroutine's thread ends with it.
func keepOn(cpu int) {
	runtime.LockOSThread()
	if runtime.NumCPU() > 1 {
		var set unix.CPUSet
		set.Set(cpu)
		_ = unix.SchedSetaffinity(0, &set)
	}
}
