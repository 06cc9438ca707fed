package rdv

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/scatter"
)

// piece is a part of a cell.
type piece struct{ cell, off, n int }

// batch is a transfer as its sender remembers it.
type batch struct {
	id    ID
	d     scatter.Descriptor
	src   []piece
	plain []byte // unregistered
	write bool   // into an advert
}

// promise is an advert as its maker remembers it.
type promise struct {
	id      ID
	pos     uint64
	at      piece
	revoked bool
}

// inbound is a message as its receiver remembers it.
type inbound struct {
	m   Incoming
	dst []piece
}

// outcome is what the receiver did with a message.
type outcome uint8

const (
	got outcome = 1 + iota
	refused
	failed
)

// app is the layer above in tests: it sends random batches, gives random
// destinations, and compares with what a plain map says. Memory that is its own
// again is overwritten at once, so that late reads and writes show.
type app struct {
	t    testing.TB
	rng  *rand.Rand
	s    *side
	peer *app
	src  *memory
	dst  *memory
	next uint64 // sequence number
	last uint64 // token

	sizes   map[uint64]uint32   // of all messages sent, by sequence number
	results map[uint64]outcome  // of all messages that came, by sequence number
	sent    map[uint64]*batch   // outstanding, by token
	later   []inbound           // without destination
	taken   map[Handle]inbound  // with destination
	ended   map[uint64]error    // tokens over
	failing bool                // faults are being played: errors are expected
	forge   uint32              // spoils the keys of sources
	offers  map[uint64]*promise // adverts made, by token
	open    []Advert            // adverts of the peer, not answered
	written map[uint64]uint32   // adverts of the peer written, by position: bytes
	spurned map[uint64]bool     // adverts of the peer declined
	carried uint64              // messages that this side wrote by a CTS, when Sent was called last
	count   struct{ received, sent, refused, failed, filled, chunked int }
}

func newApp(t testing.TB, seed uint64) *app {
	return &app{
		t: t, rng: rand.New(rand.NewPCG(seed, 21)), sizes: map[uint64]uint32{}, results: map[uint64]outcome{},
		sent: map[uint64]*batch{}, taken: map[Handle]inbound{}, ended: map[uint64]error{},
		offers: map[uint64]*promise{}, written: map[uint64]uint32{}, spurned: map[uint64]bool{},
	}
}

// cells of cellSize bytes are what each side sends from, and receives into.
const (
	cells    = 160
	cellSize = 2048

	maxRegions = 24
)

// apps joins two of them.
func apps(t testing.TB, open opener, seed uint64, oa, ob Options) (a, b *app) {
	a, b = newApp(t, seed), newApp(t, seed+1000)
	la, lb := open(t)
	for x, l := range map[*app]fabric.Link{a: la, b: lb} {
		// Before the channels, so that it is closed after them.
		x.src, x.dst = newMemory(t, l, cells, cellSize), newMemory(t, l, cells, cellSize)
		testutil.Fill(x.dst.mem, canary, 0)
	}
	a.peer, b.peer = b, a
	a.s, b.s = pairOn(t, la, lb, a, b, oa, ob)
	return a, b
}

const canary = 0xcafe

// allot takes pieces of n bytes in all, at random places of free cells; nil if
// there are not enough.
func (a *app) allot(m *memory, n int) []piece {
	var out []piece
	for n > 0 {
		if len(m.free) == 0 {
			a.release(m, out)
			return nil
		}
		k := a.rng.IntN(len(m.free))
		cell := m.free[k]
		m.free[k] = m.free[len(m.free)-1]
		m.free = m.free[:len(m.free)-1]
		p := piece{cell: cell, n: 1 + a.rng.IntN(min(n, m.size))}
		p.off = a.rng.IntN(m.size - p.n + 1)
		out = append(out, p)
		n -= p.n
	}
	return out
}

// release gives pieces back, overwritten.
func (a *app) release(m *memory, ps []piece) {
	for _, p := range ps {
		testutil.Fill(m.cell(p.cell), canary, uint64(p.cell*m.size))
		m.free = append(m.free, p.cell)
	}
}

// send announces a random batch, if it can.
func (a *app) send() {
	n := 1 + a.rng.IntN(5)
	d := scatter.Descriptor{}
	total := 0
	seq := a.next
	for range n {
		size := a.rng.IntN(3 * cellSize / 2)
		if a.rng.IntN(6) == 0 {
			size = 0
		}
		seq += 1 + a.rng.Uint64N(3)
		d.Messages = append(d.Messages, scatter.Message{Pos: seq, Size: uint32(size)})
		total += size
	}
	src := a.allot(a.src, total)
	if total > 0 && src == nil {
		return
	}
	stream := make([]byte, 0, total)
	for _, m := range d.Messages {
		stream = append(stream, testutil.Payload(int(m.Size), m.Pos, 0)...)
	}
	for _, p := range src {
		b := a.src.cell(p.cell)[p.off:][:p.n]
		stream = stream[copy(b, stream):]
		d.Regions = append(d.Regions, scatter.Region{Addr: a.src.addr(b), Len: uint32(p.n), RKey: a.src.reg.Key().RKey ^ a.forge})
	}
	token := a.last + 1
	// Known before the call: the peer may hear of it inside.
	for _, m := range d.Messages {
		a.sizes[m.Pos] = m.Size
	}
	id, res, err := a.s.ch.Send(&d, uint32(token), token)
	switch {
	case errors.Is(err, ErrTooLarge):
		require.Greater(a.t, len(d.Regions), maxRegions)
	case err != nil:
		require.True(a.t, a.failing, "%v", err)
	}
	if err != nil || res != Accepted {
		for _, m := range d.Messages {
			delete(a.sizes, m.Pos)
		}
		a.release(a.src, src)
		return
	}
	a.last, a.next = token, seq
	a.sent[token] = &batch{id: id, d: d, src: src}
}

// outstanding is what both sides still wait for.
func (a *app) outstanding() int { return len(a.sent) + len(a.later) + len(a.taken) + len(a.offers) }

// intact checks that nothing was written where it must not be.
func (a *app) intact() {
	for _, cell := range a.dst.free {
		require.NoError(a.t, testutil.Verify(a.dst.cell(cell), canary, uint64(cell*a.dst.size)), "cell %d, which is nobody's, was written", cell)
	}
}
