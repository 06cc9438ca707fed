package eager

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// side is one end: a link, its endpoint and the channel on it.
type side struct {
	link  fabric.Link
	ep    fabric.Endpoint
	ch    *Channel
	cs    [16]fabric.Completion
	notes int
	pool  pool // registered memory for messages taken in place
	regs  []fabric.Region
}

// sendVec is StageVec with a Flush behind it.
func (s *side) sendVec(e Envelope, pieces []gather.Piece) (pos uint64, res Result, err error) {
	if pos, res, err = s.ch.StageVec(e, pieces); res == Accepted && err == nil {
		_, err = s.ch.Flush()
	}
	return pos, res, err
}

// drop takes the next message, which is there, without looking at it.
func (s *side) drop(tb testing.TB) {
	l, _, ok, err := s.ch.Lease()
	require.NoError(tb, err)
	require.True(tb, ok)
	require.NoError(tb, l.Release())
}

// poll polls the link once and dispatches. Completions of other endpoints of
// the link are dropped.
func (s *side) poll() {
	n := s.link.Poll(s.cs[:])
	for i := range s.cs[:n] {
		c := &s.cs[i]
		if c.EP != 7 {
			continue
		}
		if c.Op == fabric.OpNotify {
			s.notes++
		}
		s.ch.OnCompletion(c)
	}
}

type opener = linktest.Opener

var (
	two      = linktest.Two
	simLinks = linktest.Sim
)

// join connects two endpoints with ID 7 on links a and b.
func join(tb testing.TB, a, b fabric.Link, depth int) (fabric.Endpoint, fabric.Endpoint) {
	return linktest.Join(tb, a, b, fabric.EndpointOptions{ID: 7, Depth: depth})
}

// pair joins two channels.
func pair(tb testing.TB, open opener, oa, ob Options) (a, b *side) {
	la, lb := open(tb)
	ea, eb := join(tb, la, lb, max(oa.Depth, ob.Depth))
	ca, err := Open(la, ea, oa)
	require.NoError(tb, err)
	cb, err := Open(lb, eb, ob)
	require.NoError(tb, err)
	require.NoError(tb, ca.Connect(cb.Setup()))
	require.NoError(tb, cb.Connect(ca.Setup()))
	a, b = &side{link: la, ep: ea, ch: ca}, &side{link: lb, ep: eb, ch: cb}
	a.pool.open(tb, la)
	b.pool.open(tb, lb)
	tb.Cleanup(func() { a.close(tb, b) })
	return a, b
}

func (s *side) close(tb testing.TB, peer *side) {
	require.NoError(tb, s.ep.Close())
	require.NoError(tb, peer.ep.Close())
	for range 64 {
		s.poll()
		peer.poll()
	}
	require.NoError(tb, s.ch.Close())
	require.NoError(tb, peer.ch.Close())
	for _, reg := range append(append(s.regs, peer.regs...), s.pool.reg, peer.pool.reg) {
		require.NoError(tb, reg.Close())
	}
}

// sent is what the reference model remembers of a message.
type sent struct {
	seed uint64
	n    int
	e    Envelope
}

// script sends and receives at random on both sides, and compares what arrives
// with a plain queue. It is driven by rng alone.
type script struct {
	tb     testing.TB
	rng    *rand.Rand
	sides  [2]*side
	queues [2][]sent // towards side i
	seq    uint64
	buf    []byte
	got    int
	short  int // sent without requests
	packed int // of these, into a block with others
	taken  int // received by Short
	busy   [3]int
}

// sendOne tries to send from side i.
func (s *script) sendOne(i int) {
	x := s.sides[i]
	e := Envelope{Kind: uint8(s.rng.Uint32()), HasMeta: s.rng.IntN(3) == 0}
	if e.HasMeta {
		e.Meta = s.rng.Uint64()
	}
	if s.rng.IntN(8) == 0 {
		e.Class = flowctl.Control
	}
	limit := x.ch.MaxPayload(e.Class, e.HasMeta)
	n := s.rng.IntN(min(24, limit) + 1)
	switch s.rng.IntN(6) {
	case 0:
		n = s.rng.IntN(limit + 1)
	case 1:
		n = min(limit, x.ch.txRing.room()-8+s.rng.IntN(17)) // round the edge of a block
	}
	s.seq++
	testutil.Fill(s.buf[:n], s.seq, 0)
	p := s.buf[:n]
	cut1, cut2 := 0, 0
	if n > 0 {
		cut1 = s.rng.IntN(n)
		cut2 = cut1 + s.rng.IntN(n-cut1)
	}
	var res Result
	var err error
	burst := false
	switch how := s.rng.IntN(8); {
	case how == 7 && e.HasMeta && e.Class == flowctl.Data && x.ch.SendShort(e.Kind, e.Meta, p):
		s.short++
		burst = true
	case how >= 6:
		var room Room
		if room, res, err = x.ch.Compose(e, n); res == Accepted && err == nil {
			_, at := room.Put(0, p[:cut1])
			_, at = room.Put(at, p[cut1:cut2])
			left, at := room.Put(at, p[cut2:])
			require.Equal(s.tb, len(left), at, "the room is as long as the message")
			require.Zero(s.tb, len(room.Next())+len(room.Next()))
		}
	case how >= 3:
		res, err = s.sendVec(x, e, p)
	case how == 0:
		res, err = x.ch.Send(e, p)
	case how == 1:
		res, err = x.ch.Send(e, p[:cut1], p[cut1:cut2], nil, p[cut2:])
	default:
		res, err = x.ch.Stage(e, p[:cut1], p[cut1:])
	}
	require.NoError(s.tb, err)
	clear(p) // ours again
	s.busy[res]++
	if res == Accepted {
		s.queues[1-i] = append(s.queues[1-i], sent{s.seq, n, e})
	}
	if burst {
		s.sendBurst(i)
	}
}

// sendBurst sends a few messages after one that SendShort has sent: small ones share its block.
func (s *script) sendBurst(i int) {
	x := s.sides[i]
	for range s.rng.IntN(8) {
		head, n := x.ch.Head(), s.rng.IntN(40)
		e := Envelope{Kind: uint8(s.rng.Uint32()), HasMeta: true, Meta: s.rng.Uint64()}
		b := make([]byte, n)
		testutil.Fill(b, s.seq+1, 0)
		if !x.ch.SendShort(e.Kind, e.Meta, b) {
			return
		}
		s.seq++
		s.queues[1-i] = append(s.queues[1-i], sent{s.seq, n, e})
		if s.short++; x.ch.Head() == head {
			s.packed++
		}
	}
}

// recvOne takes a message at side i if there is one.
func (s *script) recvOne(i int) bool {
	ch := s.sides[i].ch
	kind := uint8(s.rng.Uint32())
	if len(s.queues[i]) > 0 && s.rng.IntN(4) > 0 {
		kind = s.queues[i][0].e.Kind
	}
	meta, msg, short := ch.Short(kind)
	if short && s.rng.IntN(2) == 0 {
		require.NotEmpty(s.tb, s.queues[i], "a message that nobody sent: %x", msg)
		want := s.queues[i][0]
		s.queues[i] = s.queues[i][1:]
		require.Equal(s.tb, want.e.Meta, meta)
		require.Len(s.tb, msg, want.n)
		require.NoError(s.tb, testutil.Verify(msg, want.seed, 0))
		ch.TakeShort(len(msg))
		s.got, s.taken = s.got+1, s.taken+1
		return true
	}
	h, ok, err := ch.Peek()
	require.NoError(s.tb, err)
	if !ok {
		require.False(s.tb, short)
		return false
	}
	oneBlock := h.HasMeta && h.Kind == kind && ch.lapMode && h.Len <= ch.rxRing.room()-metaSize
	if oneBlock && !short { // it has arrived between the two calls
		_, _, again := ch.Short(kind)
		require.False(s.tb, again, "a message that Peek has found")
	} else {
		require.Equal(s.tb, oneBlock, short, "%+v", h)
	}
	require.NotEmpty(s.tb, s.queues[i], "a message that nobody sent: %+v", h)
	want := s.queues[i][0]
	s.queues[i] = s.queues[i][1:]
	require.Equal(s.tb, Head{Meta: want.e.Meta, Len: want.n, Kind: want.e.Kind, HasMeta: want.e.HasMeta}, h)
	buf := s.buf[:h.Len+16]
	for k := range buf {
		buf[k] = 0xa5
	}
	if s.rng.IntN(2) == 0 {
		_, ok, err = ch.Recv(buf[:h.Len])
		require.NoError(s.tb, err)
		require.True(s.tb, ok)
	} else {
		l, _, ok, err := ch.Lease()
		require.NoError(s.tb, err)
		require.True(s.tb, ok)
		n := 0
		for j := range l.Segments() {
			seg, err := l.Segment(j)
			require.NoError(s.tb, err)
			n += copy(buf[n:], seg)
		}
		require.Equal(s.tb, h.Len, n)
		require.NoError(s.tb, l.Release())
	}
	require.NoError(s.tb, testutil.Verify(buf[:h.Len], want.seed, 0), "message of %d bytes, %+v", want.n, want.e)
	for _, b := range buf[h.Len:] {
		require.Equal(s.tb, byte(0xa5), b, "written beyond the message")
	}
	s.got++
	return true
}

func newScript(tb testing.TB, seed uint64, a, b *side) *script {
	n := 0
	for _, x := range []*side{a, b} {
		n = max(n, x.ch.MaxPayload(flowctl.Data, false), x.ch.MaxPayload(flowctl.Control, false))
	}
	return &script{tb: tb, rng: rand.New(rand.NewPCG(seed, 77)), sides: [2]*side{a, b}, buf: make([]byte, n+16)}
}

// run makes steps random steps, then drains both directions.
func (s *script) run(steps int) {
	s.some(steps)
	s.drain()
}

func (s *script) some(steps int) {
	pace := [2]int{s.rng.IntN(4), s.rng.IntN(4)} // how seldom a side receives
	for range steps {
		i := s.rng.IntN(2)
		x := s.sides[i]
		switch s.rng.IntN(10) {
		case 0, 1, 2, 3:
			s.sendOne(i)
		case 4, 5:
			if s.rng.IntN(1+pace[i]) == 0 {
				s.recvOne(i)
			}
		case 6, 7:
			x.poll()
		case 8:
			_, err := x.ch.Progress(s.rng.IntN(4) == 0)
			require.NoError(s.tb, err)
		case 9:
			_, err := x.ch.Sleep(s.rng.IntN(2) == 0)
			require.NoError(s.tb, err)
		}
	}
}

func (s *script) drain() {
	end := time.Now().Add(testutil.Limit)
	for k := 0; len(s.queues[0])+len(s.queues[1]) > 0; k++ {
		for i, x := range s.sides {
			x.poll()
			_, err := x.ch.Progress(false)
			require.NoError(s.tb, err)
			for s.recvOne(i) {
			}
		}
		if k&1023 == 1023 && time.Now().After(end) {
			require.Fail(s.tb, "stuck", "left %d and %d; %+v; %+v", len(s.queues[0]), len(s.queues[1]), s.sides[0].ch.Stats(), s.sides[1].ch.Stats())
		}
	}
	for i, x := range s.sides {
		require.False(s.tb, s.recvOne(i), "side %d got more than was sent", i)
		require.NoError(s.tb, x.ch.Err())
	}
}

// randomOptions draws a ring; caps decide which modes are possible.
func randomOptions(rng *rand.Rand, caps fabric.Caps) Options {
	for {
		o := Options{
			Blocks: 2 << rng.IntN(5), BlockSize: 64 * (1 + rng.IntN(8)), Imm: rng.Uint32(), IDTag: uint16(rng.Uint32()),
			Depth: 16 << rng.IntN(4), Batch: 8 + rng.IntN(20), Mode: Mode(rng.IntN(3)),
		}
		if rng.IntN(3) == 0 {
			o.Pieces = o.Batch + rng.IntN(60)
		}
		if rng.IntN(2) == 0 {
			o.Control, o.Every = 1+rng.IntN(o.Blocks), 1+rng.IntN(o.Blocks)
		}
		if _, _, err := o.effective(caps); err == nil {
			return o
		}
	}
}

func name(o Options) string {
	return fmt.Sprintf("%dx%d-%d-%d-%v", o.Blocks, o.BlockSize, o.Control, o.Every, o.Mode)
}
