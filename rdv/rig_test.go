package rdv

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

type opener = linktest.Opener

var (
	two       = linktest.Two
	simLinks  = linktest.Sim
	realLinks = linktest.Real()
)

// side is one end: a link, its endpoint, the channel on it and the layer above.
type side struct {
	link fabric.Link
	ep   fabric.Endpoint
	ch   *Channel
	cs   [16]fabric.Completion
}

// poll polls the link once and hands completions over.
func (s *side) poll() {
	n := s.link.Poll(s.cs[:])
	for i := range s.cs[:n] {
		if c := &s.cs[i]; c.EP == 7 {
			s.ch.OnCompletion(c)
		}
	}
}

// turn polls and lets the channel progress.
func (s *side) turn() error {
	s.poll()
	_, err := s.ch.Progress()
	return err
}

// join connects two endpoints with ID 7.
func join(tb testing.TB, a, b fabric.Link, depth int) (fabric.Endpoint, fabric.Endpoint) {
	return linktest.Join(tb, a, b, fabric.EndpointOptions{ID: 7, Depth: depth})
}

// pair joins two channels whose handlers are given.
func pair(tb testing.TB, open opener, ha, hb Handler, oa, ob Options) (a, b *side) {
	la, lb := open(tb)
	return pairOn(tb, la, lb, ha, hb, oa, ob)
}

// pairOn is pair on links that are there.
func pairOn(tb testing.TB, la, lb fabric.Link, ha, hb Handler, oa, ob Options) (a, b *side) {
	ea, eb := join(tb, la, lb, max(oa.Ring.Depth, ob.Ring.Depth))
	wa, wb := &words{Endpoint: ea}, &words{Endpoint: eb}
	if _, direct := ea.(fabric.Direct); la.Caps().MapsAlloc && !direct {
		ea, eb = wa, wb
	}
	ca, err := Open(la, ea, ha, oa)
	require.NoError(tb, err)
	cb, err := Open(lb, eb, hb, ob)
	require.NoError(tb, err)
	wa.peer, wb.peer = cb, ca
	require.NoError(tb, ca.Connect(cb.Setup()))
	require.NoError(tb, cb.Connect(ca.Setup()))
	a, b = &side{link: la, ep: ea, ch: ca}, &side{link: lb, ep: eb, ch: cb}
	tb.Cleanup(func() { hangUp(tb, a, b) })
	return a, b
}

// words is an endpoint that reaches the claim words of the peer, which is in this process.
type words struct {
	fabric.Endpoint
	peer *Channel
}

func (w *words) Do(*fabric.WR) bool { return false }

func (w *words) Reach(_ fabric.Access, rkey uint32, addr uint64, n int) []byte {
	c := &w.peer.claims
	if w.Err() != nil || c.claimWords == nil || rkey != c.reg.Key().RKey {
		return nil
	}
	off := addr - fabric.Addr(c.mem)
	if off > uint64(len(c.mem)-n) {
		return nil
	}
	return c.mem[off:][:n]
}

func (*words) Local(fabric.Access, fabric.SGE) []byte { return nil }
func (*words) Stored(bool)                            {}

// hangUp closes endpoints, drains completions, closes channels.
func hangUp(tb testing.TB, a, b *side) {
	require.NoError(tb, a.ep.Close())
	require.NoError(tb, b.ep.Close())
	for range 64 {
		a.poll()
		b.poll()
	}
	require.NoError(tb, a.ch.Close())
	require.NoError(tb, b.ch.Close())
}

// memory is a registered arena cut into cells.
type memory struct {
	reg  fabric.Region
	mem  []byte
	size int
	free []int
}

func newMemory(tb testing.TB, l fabric.Link, cells, size int) *memory {
	reg, err := l.Alloc(cells*size, fabric.AccessAll)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, reg.Close()) })
	m := &memory{reg: reg, mem: reg.Bytes(), size: size}
	for i := range cells {
		m.free = append(m.free, i)
	}
	return m
}

func (m *memory) cell(i int) []byte { return m.mem[i*m.size:][:m.size:m.size] }

func (m *memory) addr(b []byte) uint64 { return fabric.Addr(b) }
