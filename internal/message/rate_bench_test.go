package message

import (
	"fmt"
	"testing"

	"github.com/seed33544411/rma/fabric/linktest"
)

// flood streams small messages in chains, as rmabench rate does, with both sides in
// one goroutine: what a message costs the processor at either end, without
// the traffic between two of them.
type flood struct {
	s, r  *side
	size  int
	tags  uint32
	chain int
	seq   uint32 // of the next message
	want  uint32 // of the next receive
	free  []*floodOut
	sent  int
	got   int
}

type floodOut struct {
	Out
	of *flood
}

func (o *floodOut) Complete(_ uint32, _ int, err error) {
	if err != nil {
		return // the benchmark is over
	}
	o.of.free = append(o.of.free, o)
	o.of.sent++
}

type floodIn struct {
	In
	of *flood
}

func (i *floodIn) Complete(_ uint32, _ int, err error) {
	if err != nil {
		return
	}
	i.of.got++
	i.of.post(i)
}

func (f *flood) post(i *floodIn) {
	i.Buf, i.Tag = f.r.reg.Bytes()[:f.size:f.size], f.want%f.tags
	i.LKey, i.Registered = f.r.reg.LKey(), true
	f.want++
	f.r.ch.Recv(&i.In)
}

func newFlood(tb testing.TB, open linktest.Opener, size, tags, window, chain int, o Options) *flood {
	f := &flood{size: size, tags: uint32(tags), chain: chain}
	f.s, f.r = pair(tb, open, max(size, 4096), o, o)
	f.free = make([]*floodOut, 0, window)
	for range window {
		f.free = append(f.free, &floodOut{of: f})
		i := &floodIn{of: f}
		i.Done = i
		f.post(i)
	}
	return f
}

//go:noinline
func (f *flood) send() error {
	if len(f.free) >= f.chain {
		for range f.chain {
			o := f.free[len(f.free)-1]
			f.free = f.free[:len(f.free)-1]
			o.Data, o.Tag = f.s.reg.Bytes()[:f.size:f.size], f.seq%f.tags
			o.LKey, o.RKey, o.Registered, o.Done = f.s.reg.LKey(), f.s.reg.Key().RKey, true, o
			f.seq++
			f.s.ch.Send(&o.Out)
		}
	}
	return f.s.turn()
}

//go:noinline
func (f *flood) recv() error { return f.r.turn() }

// run moves at least n messages.
func (f *flood) run(n int) error {
	for end := f.got + n; f.got < end; {
		if err := f.send(); err != nil {
			return err
		}
		if err := f.recv(); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkRate is what a small message costs both ends together.
func BenchmarkRate(b *testing.B) {
	for _, chain := range []int{1, 8, 32, 64} {
		for _, tags := range []int{1, 4} {
			for _, size := range []int{8, 64, 256} {
				b.Run(fmt.Sprintf("chain=%d/tags=%d/%d", chain, tags, size), func(b *testing.B) {
					f := newFlood(b, linktest.Real()["shm"], size, tags, 128, chain, Options{Learn: DefaultLearn})
					b.ReportAllocs()
					if err := f.run(100 * chain); err != nil {
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
