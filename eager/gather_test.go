package eager

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/internal/testutil"
)

// batches sends batches of messages from a to b as gathers, in whatever cuts
// limits demand, and compares what arrives with the plain list of messages.
type batches struct {
	tb   testing.TB
	rng  *rand.Rand
	a, b *side
	mem  []byte // registered at a
	reg  fabric.Region

	seq   uint64
	want  []gather.Message // on their way; Data is ours
	lent  []lent           // memory in place
	split gather.Splitter
	got   int
	ways  [3]int
	buf   []byte
}

// lent is memory that a gather was given until pos.
type lent struct {
	data [][]byte
	pos  uint64
}

func newBatches(tb testing.TB, seed uint64, a, b *side) *batches {
	s := &batches{tb: tb, rng: rand.New(rand.NewPCG(seed, 99)), a: a, b: b}
	s.mem = testutil.Scratch(tb, 256<<10)
	var err error
	s.reg, err = a.link.Register(s.mem, 0)
	require.NoError(tb, err)
	a.regs = append(a.regs, s.reg)
	s.buf = make([]byte, a.ch.MaxPayload(flowctl.Data, false))
	return s
}

// batch draws messages: tiny and medium, registered or not.
func (s *batches) batch(limit int) (msgs []gather.Message) {
	free := s.mem
	for range 1 + s.rng.IntN(60) {
		n := s.rng.IntN(40)
		switch s.rng.IntN(5) {
		case 0:
			n = s.rng.IntN(700)
		case 1:
			if s.rng.IntN(4) == 0 {
				n = s.rng.IntN(limit - 40)
			}
		}
		n = min(n, limit-40)
		s.seq += 1 + uint64(s.rng.IntN(2)*s.rng.IntN(300))
		m := gather.Message{At: s.seq}
		if s.rng.IntN(2) == 0 && n <= len(free) {
			m.Data, free = free[:n:n], free[n:]
			m.LKey, m.Registered = s.reg.LKey(), true
		} else {
			m.Data = make([]byte, n)
		}
		testutil.Fill(m.Data, s.rng.Uint64(), 0)
		msgs = append(msgs, m)
	}
	return msgs
}

// send moves one batch, receiving when the other side must.
func (s *batches) send() {
	c := s.a.ch
	e := Envelope{Kind: uint8(gather.Seq), HasMeta: s.rng.IntN(3) == 0, Meta: 77}
	l := c.GatherLimits(e)
	msgs := s.batch(l.Bytes)
	if s.rng.IntN(2) == 0 {
		l.InPlace = s.rng.IntN(l.InPlace + 5) // more than the channel takes: the rest is copied
	}
	p := gather.NewPacker(l, 1+s.rng.IntN(64))
	for left := msgs; len(left) > 0; {
		n, err := p.Pack(left)
		require.NoError(s.tb, err)
		require.Positive(s.tb, n)
		pos := s.post(e, p.Pieces())
		b := lent{pos: pos}
		for i, m := range left[:n] {
			s.want = append(s.want, gather.Message{Data: append([]byte(nil), m.Data...), At: m.At})
			if p.Pieces()[1+i].InPlace {
				b.data = append(b.data, m.Data)
			} else {
				clear(m.Data) // copied: ours again
			}
		}
		if len(b.data) > 0 {
			s.lent = append(s.lent, b)
		}
		left = left[n:]
		s.reclaim()
		if s.rng.IntN(4) == 0 {
			s.receive()
		}
	}
	if s.rng.IntN(4) > 0 {
		_, err := c.Flush()
		require.NoError(s.tb, err)
	}
	// All memory must come back before the next batch writes to it.
	s.until("memory in place", func() bool {
		_, err := c.Flush()
		require.NoError(s.tb, err)
		s.reclaim()
		return len(s.lent) == 0
	})
}

// post hands over one gather, however long that takes.
func (s *batches) post(e Envelope, ps []gather.Piece) (pos uint64) {
	s.until("room", func() bool {
		var res Result
		var err error
		if s.rng.IntN(2) == 0 {
			pos, res, err = s.a.sendVec(e, ps)
		} else {
			pos, res, err = s.a.ch.StageVec(e, ps)
		}
		require.NoError(s.tb, err)
		return res == Accepted
	})
	return pos
}

// reclaim spoils memory as soon as it may be.
func (s *batches) reclaim() {
	for len(s.lent) > 0 && s.a.ch.Done(s.lent[0].pos) {
		for _, d := range s.lent[0].data {
			for i := range d {
				d[i] = 0xee
			}
		}
		s.lent = s.lent[1:]
	}
}

// until makes both sides progress until done.
func (s *batches) until(what string, done func() bool) {
	end := time.Now().Add(testutil.Limit)
	for k := 0; !done(); k++ {
		s.a.poll()
		s.b.poll()
		s.receive()
		for _, x := range []*side{s.a, s.b} {
			_, err := x.ch.Progress(true)
			require.NoError(s.tb, err)
		}
		if k&1023 == 1023 && time.Now().After(end) {
			require.Fail(s.tb, "stuck waiting for "+what, "%+v; %+v", s.a.ch.Stats(), s.b.ch.Stats())
		}
	}
}

// receive takes gathers at b, in one of the ways there are: copied out of the
// ring first, in place, copied segment by segment.
func (s *batches) receive() {
	for {
		way := s.rng.IntN(len(s.ways))
		if way == 0 {
			h, ok, err := s.b.ch.Recv(s.buf)
			require.NoError(s.tb, err)
			if !ok {
				return
			}
			require.NoError(s.tb, s.split.Open(nil, s.buf[:h.Len]))
			s.take(way)
			continue
		}
		l, h, ok, err := s.b.ch.Lease()
		require.NoError(s.tb, err)
		if !ok {
			return
		}
		require.Equal(s.tb, uint8(gather.Seq), h.Kind)
		require.NoError(s.tb, l.Split(&s.split))
		s.take(way)
		require.NoError(s.tb, l.Release())
		require.False(s.tb, s.split.Next())
		require.ErrorIs(s.tb, s.split.Err(), gather.ErrReleased)
		require.ErrorIs(s.tb, l.Split(&s.split), ErrLeaseEnded)
	}
}

// take compares one gather with the list.
func (s *batches) take(way int) {
	s.ways[way]++
	for s.split.Next() {
		require.NotEmpty(s.tb, s.want, "a segment that nobody sent")
		m, e := s.want[0], s.split.Entry()
		s.want = s.want[1:]
		require.Equal(s.tb, gather.Entry{At: m.At, Size: uint32(len(m.Data))}, e)
		var got []byte
		if b, ok := s.split.Bytes(); ok && way != 2 {
			got = b
		} else {
			got = make([]byte, e.Size)
			require.Equal(s.tb, len(got), s.split.Copy(got))
		}
		require.True(s.tb, string(m.Data) == string(got), "segment %d of %d bytes differs", e.At, e.Size)
		s.got++
	}
	require.NoError(s.tb, s.split.Err())
}

func (s *batches) run(n int) {
	for range n {
		s.send()
	}
	s.until("messages", func() bool { return len(s.want) == 0 })
	require.Positive(s.tb, s.got)
	require.NoError(s.tb, s.a.ch.Err())
	require.NoError(s.tb, s.b.ch.Err())
}

// gatherOptions are rings that hold the batches of the test in several gathers,
// or in many.
func gatherOptions(rng *rand.Rand) Options {
	o := Options{
		Blocks: 16 << rng.IntN(6), BlockSize: 64 << rng.IntN(5), Imm: 9, IDTag: 5,
		Depth: 16 << rng.IntN(4), Batch: 8 + rng.IntN(30), Mode: Mode(rng.IntN(3)),
	}
	if rng.IntN(2) == 0 {
		o.Pieces = o.Batch + rng.IntN(200)
	}
	if rng.IntN(3) == 0 {
		o.Every = 1 + rng.IntN(o.Blocks/2)
	}
	return o
}

// Whatever the network, the ring, the limits and the way of receiving: a batch of
// messages arrives as if it had been sent as a list of messages.
func TestGathersAreTheirMessages(t *testing.T) {
	eachNetwork(t, 8, 2, func(t *testing.T, o sim.Options) {
		seed := o.Seed
		rng := rand.New(rand.NewPCG(seed, 7))
		if seed%2 == 0 {
			o.Caps.MaxSGE = 1 + rng.IntN(8)
		}
		oa, ob := randomOptions(rng, o.Caps), gatherOptions(rng)
		if !o.Caps.LastByteLast {
			ob.Mode = ModeCursor
		}
		ok := t.Run(fmt.Sprintf("%d/%s/%d", seed, name(ob), o.Caps.MaxSGE), func(t *testing.T) {
			oa.Depth, oa.Batch, oa.Pieces = ob.Depth, ob.Batch, ob.Pieces
			a, b := pair(t, simLinks(o), oa, ob)
			newBatches(t, seed, a, b).run(12)
		})
		require.True(t, ok)
	})
}

func TestGathersOverRealLinks(t *testing.T) {
	for link, open := range realLinks {
		t.Run(link, func(t *testing.T) { gathersOver(t, open) })
	}
}

func gathersOver(t *testing.T, open opener) {
	for seed := range uint64(4) {
		for _, mode := range bothModes {
			o := gatherOptions(rand.New(rand.NewPCG(seed, 9)))
			o.Mode = mode
			t.Run(fmt.Sprintf("%d/%s", seed, name(o)), func(t *testing.T) {
				a, b := pair(t, open, o, o)
				newBatches(t, seed, a, b).run(30)
			})
		}
	}
}

// A gather that lies, in a message that is in order, is refused and harms nothing:
// the channel goes on.
func TestHostileGather(t *testing.T) {
	t.Parallel()
	a, b := pair(t, simLinks(sim.Options{}), Options{}, Options{})
	p := gather.NewPacker(gather.Limits{Bytes: 1024}, 0)
	data := testutil.Payload(16, 1, 0)
	_, err := p.Pack([]gather.Message{{Data: data[:8], At: 4}, {Data: data[8:], At: 20}})
	require.NoError(t, err)
	var good []byte
	for _, x := range p.Pieces() {
		good = append(good, x.Data...)
	}
	var s gather.Splitter
	open := func(p []byte) (Lease, error) {
		res, err := a.ch.Send(Envelope{}, p)
		require.NoError(t, err)
		require.Equal(t, Accepted, res)
		l, _, ok, err := b.ch.Lease()
		require.NoError(t, err)
		require.True(t, ok)
		return l, l.Split(&s)
	}
	for n := range good {
		l, err := open(good[:n])
		require.ErrorIs(t, err, gather.ErrHeader, "prefix of %d bytes", n)
		require.False(t, s.Next())
		require.NoError(t, l.Release())
		a.poll()
	}
	// The header is checked once: a peer that changes it later is not believed.
	l, err := open(good)
	require.NoError(t, err)
	seg, err := l.Segment(0)
	require.NoError(t, err)
	for i := range seg[:len(good)-16] {
		seg[i] = 0xff
	}
	for i := range 2 {
		require.True(t, s.Next())
		require.Equal(t, gather.Entry{At: 4 + 16*uint64(i), Size: 8}, s.Entry())
		b, ok := s.Bytes()
		require.True(t, ok)
		require.NoError(t, testutil.Verify(b, 1, uint64(8*i)))
	}
	require.False(t, s.Next())
	require.NoError(t, l.Release())
	require.NoError(t, b.ch.Err())
}
