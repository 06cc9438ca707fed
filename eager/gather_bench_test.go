package eager

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/ibv"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/internal/testutil"
)

var benchLinks = []string{"shm", "tcp", "ibv"}

// bed is a pair of channels with registered messages, driven by one goroutine:
// what protocol and link cost in processor time.
type bed struct {
	b      *testing.B
	x, y   *side
	msgs   []gather.Message
	packer *gather.Packer
	split  gather.Splitter
	pos    uint64
	buf    []byte
	sum    byte
	idle   int // polls since something moved
	quiet  time.Time
}

func newBed(b *testing.B, link string, o Options, n, size, threshold int) *bed {
	open := realLinks[link]
	if link == "ibv" {
		testutil.RequireRDMA(b)
		open = two(func() (fabric.Link, error) { return ibv.Open(ibv.Options{}) })
	}
	x, y := pair(b, open, o, o)
	mem := testutil.Scratch(b, max(n*size, 1))
	reg, err := x.link.Register(mem, 0)
	require.NoError(b, err)
	x.regs = append(x.regs, reg)
	d := &bed{b: b, x: x, y: y, buf: make([]byte, size), packer: gather.NewPacker(x.ch.GatherLimits(Envelope{}), threshold)}
	for i := range n {
		d.msgs = append(d.msgs, gather.Message{Data: mem[i*size:][:size], At: uint64(i), LKey: reg.LKey(), Registered: true})
	}
	b.SetBytes(int64(n * size))
	b.ReportAllocs()
	return d
}

// poll lets both sides progress. It ends a benchmark in which nothing does.
func (d *bed) poll() {
	for _, s := range []*side{d.x, d.y} {
		s.poll()
		if _, err := s.ch.Progress(false); err != nil {
			d.b.Fatal(err)
		}
	}
	if d.idle++; d.idle&(1<<16-1) == 0 {
		if d.quiet.IsZero() {
			d.quiet = time.Now()
		} else if time.Since(d.quiet) > 20*time.Second {
			d.b.Fatalf("stuck: sender %+v, receiver %+v", d.x.ch.Stats(), d.y.ch.Stats())
		}
	}
}

// moved says that something did.
func (d *bed) moved() { d.idle, d.quiet = 0, time.Time{} }

// eager sends every message by itself, each posted alone or all staged.
func (d *bed) eager(stage bool) {
	got := 0
	for i := range d.msgs {
		for {
			var res Result
			var err error
			if stage {
				res, err = d.x.ch.Stage(Envelope{}, d.msgs[i].Data)
			} else {
				res, err = d.x.ch.Send(Envelope{}, d.msgs[i].Data)
			}
			if err != nil {
				d.b.Fatal(err)
			}
			if res == Accepted {
				break
			}
			d.poll()
			got += d.drain()
		}
	}
	for done := false; !done; {
		var err error
		if done, err = d.x.ch.Flush(); err != nil {
			d.b.Fatal(err)
		} else if !done {
			d.poll()
			got += d.drain()
		}
	}
	for got += d.drain(); got < len(d.msgs); got += d.drain() {
		d.poll()
	}
}

// drain copies out what has arrived.
func (d *bed) drain() (n int) {
	for {
		_, ok, err := d.y.ch.Recv(d.buf)
		if err != nil {
			d.b.Fatal(err)
		}
		if !ok {
			return n
		}
		d.moved()
		n++
	}
}

// gather sends all messages as gathers, which are copied out segment by segment.
func (d *bed) gather(inPlace bool) {
	sent, got := d.msgs, 0
	for len(sent) > 0 {
		n, err := d.packer.Pack(sent)
		if err != nil {
			d.b.Fatal(err)
		}
		sent = sent[n:]
		for {
			pos, res, err := d.x.sendVec(Envelope{}, d.packer.Pieces())
			if err != nil {
				d.b.Fatal(err)
			}
			if d.pos = pos; res == Accepted {
				break
			}
			d.poll()
			got += d.take(inPlace)
		}
	}
	for got += d.take(inPlace); got < len(d.msgs); got += d.take(inPlace) {
		d.poll()
	}
}

// reuse waits until the memory of the messages is free again.
func (d *bed) reuse() {
	for !d.x.ch.Done(d.pos) {
		d.poll()
	}
	d.moved()
}

func (d *bed) take(inPlace bool) (n int) {
	l, _, ok, err := d.y.ch.Lease()
	if err != nil {
		d.b.Fatal(err)
	}
	if !ok {
		return 0
	}
	d.moved()
	if err := l.Split(&d.split); err != nil {
		d.b.Fatal(err)
	}
	for d.split.Next() {
		if b, ok := d.split.Bytes(); ok && inPlace {
			if len(b) > 0 {
				d.sum += b[0]
			}
		} else {
			d.split.Copy(d.buf)
		}
		n++
	}
	if err := l.Release(); err != nil {
		d.b.Fatal(err)
	}
	return n
}

// The same batch as messages posted one by one, staged together, and as a gather.
func BenchmarkBatch(b *testing.B) {
	for _, link := range benchLinks {
		for _, mode := range bothModes {
			for _, c := range []struct{ n, size int }{{4, 64}, {64, 64}, {64, 512}, {64, 4096}} {
				for _, how := range []string{"posted", "staged", "gather", "gather in place"} {
					b.Run(fmt.Sprintf("%s/%v/%dx%d/%s", link, mode, c.n, c.size, how), func(b *testing.B) {
						o := Options{Mode: mode, Blocks: 256, BlockSize: 4096}
						d := newBed(b, link, o, c.n, c.size, 0)
						for b.Loop() {
							switch how {
							case "posted":
								d.eager(false)
							case "staged":
								d.eager(true)
							case "gather":
								d.gather(false)
							default:
								d.gather(true)
							}
						}
						b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.n), "ns/msg")
					})
				}
			}
		}
	}
}

// From which size on a piece of its own is cheaper than a copy, memory reused
// after every gather.
func BenchmarkThreshold(b *testing.B) {
	for _, link := range benchLinks {
		for _, size := range []int{64, 128, 256, 512, 1024, 2048, 4096, 16384} {
			for _, threshold := range []int{-1, 1} {
				b.Run(fmt.Sprintf("%s/%d/%s", link, size, map[int]string{-1: "copied", 1: "in place"}[threshold]), func(b *testing.B) {
					d := newBed(b, link, Options{Blocks: 1024, BlockSize: 4096}, 32, size, threshold)
					for b.Loop() {
						d.gather(true)
						if threshold > 0 {
							d.reuse()
						}
					}
				})
			}
		}
	}
}

// What the size of a block costs in a ring of 4 MiB: a gather of 1 MiB in 16
// pieces, one of 64 small messages, and a small message alone.
func BenchmarkBlockSize(b *testing.B) {
	for _, link := range benchLinks {
		for _, block := range []int{256, 1024, 4096, 16384, 65536} {
			o := Options{Blocks: 4 << 20 / block, BlockSize: block}
			b.Run(fmt.Sprintf("%s/%d/16x64K", link, block), func(b *testing.B) {
				d := newBed(b, link, o, 16, 64<<10-64, 0)
				for b.Loop() {
					d.gather(true)
					d.reuse()
				}
			})
			b.Run(fmt.Sprintf("%s/%d/64x64", link, block), func(b *testing.B) {
				d := newBed(b, link, o, 64, 64, 0)
				for b.Loop() {
					d.gather(true)
				}
			})
			b.Run(fmt.Sprintf("%s/%d/1x64", link, block), func(b *testing.B) {
				d := newBed(b, link, o, 1, 64, 0)
				for b.Loop() {
					d.eager(false)
				}
			})
		}
	}
}
