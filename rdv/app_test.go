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
	id        ID
	d         scatter.Descriptor
	src       []piece
	plain     []byte // unregistered
	write     bool   // into an advert
	cancelled bool
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
	cancelled
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
	count   struct{ received, sent, refused, cancelled, failed, filled, chunked int }
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
	d := scatter.Descriptor{Form: scatter.FormSequence}
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

// cancel gives up one of the outstanding batches.
func (a *app) cancel() {
	for token := range a.last {
		if b := a.sent[token+1]; b != nil && !b.write && a.rng.IntN(3) == 0 {
			b.cancelled = true
			if err := a.s.ch.Cancel(b.id); err != nil {
				require.True(a.t, a.failing, "%v", err)
			}
			return
		}
	}
}

// Match gives a random answer.
func (a *app) Match(m Incoming) ([]fabric.SGE, Verdict) {
	want, known := a.peer.sizes[m.Pos]
	require.True(a.t, known, "message %d was never sent", m.Pos)
	require.Equal(a.t, want, m.Size)
	_, seen := a.results[m.Pos]
	require.False(a.t, seen, "message %d twice", m.Pos)
	switch a.rng.IntN(8) {
	case 0:
		a.results[m.Pos] = refused
		a.count.refused++
		return nil, Refuse
	case 1, 2, 3:
		a.later = append(a.later, inbound{m: m})
		return nil, Later
	}
	in := inbound{m, a.allot(a.dst, int(m.Size))}
	if m.Size > 0 && in.dst == nil {
		a.later = append(a.later, in)
		return nil, Later
	}
	a.taken[m.Handle] = in
	return a.sges(in.dst), Take
}

func (a *app) sges(ps []piece) []fabric.SGE {
	var out []fabric.SGE
	for _, p := range ps {
		out = append(out, fabric.NewSGE(a.dst.cell(p.cell)[p.off:][:p.n], a.dst.reg.LKey()))
	}
	return out
}

// acceptOne gives a message of the later list its destination, or refuses it.
func (a *app) acceptOne() {
	if len(a.later) == 0 {
		return
	}
	k := a.rng.IntN(len(a.later))
	in := a.later[k]
	if a.rng.IntN(8) == 0 {
		ok, err := a.s.ch.Refuse(in.m.Handle)
		if err != nil {
			require.True(a.t, a.failing, "%v", err)
			return
		}
		require.True(a.t, ok)
		a.unlist(in.m.Handle)
		a.results[in.m.Pos] = refused
		a.count.refused++
		return
	}
	in.dst = a.allot(a.dst, int(in.m.Size))
	if in.m.Size > 0 && in.dst == nil {
		return
	}
	// Empty messages may end inside Accept.
	a.unlist(in.m.Handle)
	a.taken[in.m.Handle] = in
	if err := a.s.ch.Accept(in.m.Handle, a.sges(in.dst)); err != nil {
		require.True(a.t, a.failing, "%v", err)
		if _, still := a.taken[in.m.Handle]; still {
			delete(a.taken, in.m.Handle)
			a.release(a.dst, in.dst)
			in.dst = nil
			a.later = append(a.later, in)
		}
	}
}

func (a *app) unlist(h Handle) (in inbound, ok bool) {
	for i := range a.later {
		if a.later[i].m.Handle == h {
			in = a.later[i]
			a.later = append(a.later[:i], a.later[i+1:]...)
			return in, true
		}
	}
	return in, false
}

// Received checks a message that is over.
func (a *app) Received(m Incoming, err error) {
	if a.t.Failed() {
		return // hanging up
	}
	_, seen := a.results[m.Pos]
	require.False(a.t, seen, "message %d ended twice", m.Pos)
	in, ok := a.taken[m.Handle]
	if ok {
		delete(a.taken, m.Handle)
	} else {
		in, ok = a.unlist(m.Handle)
		require.Error(a.t, err, "message %d was never taken", m.Pos)
	}
	require.True(a.t, ok, "message %d is unknown", m.Pos)
	require.Equal(a.t, in.m, m)
	switch {
	case err == nil:
		a.results[m.Pos] = got
		a.count.received++
		var off uint64
		for _, p := range in.dst {
			cell := a.dst.cell(p.cell)
			require.NoError(a.t, testutil.Verify(cell[p.off:][:p.n], m.Pos, off), "message %d", m.Pos)
			off += uint64(p.n)
			base := uint64(p.cell * a.dst.size)
			require.NoError(a.t, testutil.Verify(cell[:p.off], canary, base))
			require.NoError(a.t, testutil.Verify(cell[p.off+p.n:], canary, base+uint64(p.off+p.n)))
		}
	case errors.Is(err, ErrCancelled):
		a.results[m.Pos] = cancelled
		a.count.cancelled++
	default:
		require.True(a.t, a.failing, "%v", err)
		a.results[m.Pos] = failed
		a.count.failed++
	}
	a.release(a.dst, in.dst)
}

// Sent checks a transfer that is over against what the peer says.
func (a *app) Sent(token uint64, err error) {
	if a.t.Failed() {
		return
	}
	b := a.sent[token]
	require.NotNil(a.t, b, "token %d is not outstanding", token)
	delete(a.sent, token)
	testutil.Fill(b.plain, canary, 1) // ours again
	a.ended[token] = err
	a.count.sent++
	var bad, cancels int
	for _, m := range b.d.Messages {
		switch r := a.peer.results[m.Pos]; {
		case r == got:
		case r == cancelled:
			cancels++
		case r == refused:
			bad++
		default:
			require.True(a.t, a.failing, "message %d has no result", m.Pos)
		}
	}
	switch {
	case err == nil:
		require.Zero(a.t, bad+cancels)
	case errors.Is(err, ErrCancelled):
		require.True(a.t, b.cancelled)
		require.Positive(a.t, cancels)
	case errors.Is(err, ErrRefused):
		require.Positive(a.t, bad)
	default:
		require.True(a.t, a.failing, "%v", err)
	}
	a.release(a.src, b.src)
}

// outstanding is what both sides still wait for.
func (a *app) outstanding() int { return len(a.sent) + len(a.later) + len(a.taken) + len(a.offers) }

// intact checks that nothing was written where it must not be.
func (a *app) intact() {
	for _, cell := range a.dst.free {
		require.NoError(a.t, testutil.Verify(a.dst.cell(cell), canary, uint64(cell*a.dst.size)), "cell %d, which is nobody's, was written", cell)
	}
}
