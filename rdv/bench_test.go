package rdv

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/scatter"
)

// steady is a sender and a receiver that repeat one transfer.
type steady struct {
	a, b   *side
	ha, hb *counter
	d      scatter.Descriptor
	src    *memory
	dst    *memory
}

// counter is a handler that takes everything at one place.
type counter struct {
	dst            []fabric.SGE
	received, sent int
	err            error
}

func (c *counter) Match(Incoming) ([]fabric.SGE, Verdict) { return c.dst, Take }
func (c *counter) Received(_ Incoming, err error) {
	c.received++
	if err != nil {
		c.err = err
	}
}
func (c *counter) Sent(_ uint64, err error) {
	c.sent++
	if err != nil {
		c.err = err
	}
}
func (c *counter) Advertised(Advert)            {}
func (c *counter) Revoked(Advert)               {}
func (c *counter) Filled(uint64, uint32, error) {}

func newSteady(tb testing.TB, open opener, size int, o Options) *steady {
	s := &steady{ha: &counter{}, hb: &counter{}}
	la, lb := open(tb)
	s.src, s.dst = newMemory(tb, la, 1, size), newMemory(tb, lb, 1, size)
	s.a, s.b = pairOn(tb, la, lb, s.ha, s.hb, o, o)
	s.d = scatter.Descriptor{
		Form: scatter.FormSequence, Messages: []scatter.Message{{Pos: 1, Size: uint32(size)}},
		Regions: []scatter.Region{{Addr: s.src.reg.Addr(), Len: uint32(size), RKey: s.src.reg.Key().RKey}},
	}
	s.hb.dst = []fabric.SGE{fabric.NewSGE(s.dst.mem[:size], s.dst.reg.LKey())}
	return s
}

// transfer makes one from beginning to end.
func (s *steady) transfer() error {
	_, res, err := s.a.ch.Send(&s.d, 0, 0)
	if err != nil || res != Accepted {
		return fmt.Errorf("send: %v, %w", res, err)
	}
	for want := s.ha.sent + 1; s.ha.sent != want; {
		if err := s.b.turn(); err != nil {
			return err
		}
		if err := s.a.turn(); err != nil {
			return err
		}
	}
	return s.hb.err
}

func TestTransferDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for name, open := range realLinks {
		t.Run(name, func(t *testing.T) {
			s := newSteady(t, open, 64<<10, Options{Chunk: 16 << 10})
			for range 20 {
				require.NoError(t, s.transfer())
			}
			var err error
			require.Zero(t, testing.AllocsPerRun(50, func() {
				if e := s.transfer(); e != nil {
					err = e
				}
			}))
			require.NoError(t, err)
		})
	}
}

// BenchmarkRead compares a rendezvous with the bare read of the same size over
// the same endpoints, in turns within one run: raw is the read and its
// completion, rdv the whole from Send to Sent. Both ends are in one goroutine.
func BenchmarkRead(b *testing.B) {
	for _, link := range []string{"shm", "tcp"} {
		for _, size := range []int{16 << 10, 256 << 10, 1 << 20, 4 << 20} {
			s := newSteady(b, realLinks[link], size, Options{})
			wr := []fabric.WR{{
				ID: 1, Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: s.hb.dst,
				RemoteAddr: s.src.reg.Addr(), RKey: s.src.reg.Key().RKey,
			}}
			b.Run(fmt.Sprintf("%s/%d/raw", link, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					if n, err := s.b.ep.Post(wr); n != 1 || err != nil {
						b.Fatal(n, err)
					}
					for s.b.link.Poll(s.b.cs[:]) == 0 {
						s.a.poll()
					}
				}
			})
			b.Run(fmt.Sprintf("%s/%d/rdv", link, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if err := s.transfer(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
