package rdv

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
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
	filled         int
	advert         Advert
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
func (c *counter) Advertised(a Advert) { c.advert = a }
func (c *counter) Revoked(Advert) bool { return true }
func (c *counter) Filled(_ uint64, _ Answer, err error) {
	c.filled++
	if err != nil {
		c.err = err
	}
}

func newSteady(tb testing.TB, open opener, size int, o Options) *steady {
	s := &steady{ha: &counter{}, hb: &counter{}}
	la, lb := open(tb)
	s.src, s.dst = newMemory(tb, la, 1, size), newMemory(tb, lb, 1, size)
	testutil.Fill(s.src.mem, 1, 0) // memory that was never written reads faster than any
	s.a, s.b = pairOn(tb, la, lb, s.ha, s.hb, o, o)
	s.d = scatter.Descriptor{
		Messages: []scatter.Message{{Pos: 1, Size: uint32(size)}},
		Regions:  []scatter.Region{{Addr: s.src.reg.Addr(), Len: uint32(size), RKey: s.src.reg.Key().RKey}},
	}
	s.hb.dst = []fabric.SGE{fabric.NewSGE(s.dst.mem[:size], s.dst.reg.LKey())}
	return s
}

// finish lets both sides work until the sender has been told of n transfers,
// and the receiver of filled adverts.
func (s *steady) finish(n, filled int) error {
	for s.ha.sent < n || s.hb.filled < filled {
		if err := s.b.turn(); err != nil {
			return err
		}
		if err := s.a.turn(); err != nil {
			return err
		}
	}
	return s.hb.err
}

// read makes one transfer from beginning to end.
func (s *steady) read() error {
	_, res, err := s.a.ch.Send(&s.d, 0, 0)
	if err != nil || res != Accepted {
		return fmt.Errorf("send: %v, %w", res, err)
	}
	return s.finish(s.ha.sent+1, s.hb.filled)
}

// chunks sends the same without its registration.
func (s *steady) chunks() error {
	_, res, err := s.a.ch.SendUnregistered(1, s.src.mem[:s.d.Messages[0].Size], Copy, 0, 0)
	if err != nil || res != Accepted {
		return fmt.Errorf("send unregistered: %v, %w", res, err)
	}
	return s.finish(s.ha.sent+1, s.hb.filled)
}

// write lets the receiver go first.
func (s *steady) write() error {
	_, res, err := s.b.ch.Advertise(Want{Pos: 1}, s.dst.reg.Key(), 0)
	if err != nil || res != Accepted {
		return fmt.Errorf("advertise: %v, %w", res, err)
	}
	for s.ha.advert.Len == 0 {
		if err := s.a.turn(); err != nil {
			return err
		}
		if err := s.b.turn(); err != nil {
			return err
		}
	}
	piece := [1]fabric.SGE{fabric.NewSGE(s.src.mem[:s.d.Messages[0].Size], s.src.reg.LKey())}
	res, err = s.a.ch.Write(s.ha.advert.ID, 1, 2, piece[:], 0)
	if err != nil || res != Accepted {
		return fmt.Errorf("write: %v, %w", res, err)
	}
	s.ha.advert = Advert{}
	return s.finish(s.ha.sent+1, s.hb.filled+1)
}

// ways are the three variants.
var ways = []struct {
	name string
	one  func(*steady) error
}{{"read", (*steady).read}, {"write", (*steady).write}, {"chunks", (*steady).chunks}}

func TestTransferDoesNotAllocate(t *testing.T) {
	for name, open := range realLinks {
		t.Run(name, func(t *testing.T) { steadyDoesNotAllocate(t, open) })
	}
}

func steadyDoesNotAllocate(t *testing.T, open opener) {
	if testutil.Race {
		t.Skip("the race detector allocates")
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := newSteady(t, open, 64<<10, Options{Chunk: 16 << 10, FirstChunk: 8 << 10})
			for range 20 {
				require.NoError(t, way.one(s))
			}
			var err error
			require.Zero(t, testutil.AllocsPerRun(50, func() {
				if e := way.one(s); e != nil {
					err = e
				}
			}))
			require.NoError(t, err)
		})
	}
}

// BenchmarkOne is one transfer of each variant from beginning to end, both ends
// in one goroutine.
func BenchmarkOne(b *testing.B) {
	for _, link := range []string{"shm", "tcp"} {
		for _, way := range ways {
			for _, size := range []int{16 << 10, 1 << 20} {
				b.Run(fmt.Sprintf("%s/%s/%d", link, way.name, size), func(b *testing.B) {
					s := newSteady(b, realLinks[link], size, Options{})
					b.SetBytes(int64(size))
					b.ReportAllocs()
					for b.Loop() {
						if err := way.one(s); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
