package eager

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/internal/testutil"
)

// pool is registered memory in slots. A slot that a message borrows is overwritten
// as soon as the channel says that it may be.
type pool struct {
	mem  []byte
	reg  fabric.Region
	used [poolSlots]uint64 // position until which the slot is borrowed
	lent [poolSlots]bool
}

const (
	poolSlots = 64
	slotSize  = 512
)

func (p *pool) open(tb testing.TB, l fabric.Link) {
	var err error
	p.mem = testutil.Scratch(tb, poolSlots*slotSize)
	p.reg, err = l.Register(p.mem, 0)
	require.NoError(tb, err)
}

func (p *pool) slot(i int) []byte { return p.mem[i*slotSize:][:slotSize] }

// reclaim spoils what the channel no longer needs.
func (p *pool) reclaim(c *Channel) (left int) {
	for i := range p.lent {
		if !p.lent[i] {
			continue
		}
		if !c.Done(p.used[i]) {
			left++
			continue
		}
		p.lent[i] = false
		for k := range p.slot(i) {
			p.slot(i)[k] = 0xee
		}
	}
	return left
}

// take copies b to a free slot, nil if there is none.
func (p *pool) take(b []byte, claimed *[]int) []byte {
	if len(b) > slotSize {
		return nil
	}
	for i := range p.lent {
		if !p.lent[i] {
			p.lent[i], p.used[i] = true, ^uint64(0)>>1
			*claimed = append(*claimed, i)
			return p.slot(i)[:copy(p.slot(i), b)]
		}
	}
	return nil
}

// settle says until when the claimed slots are borrowed, or that they are not.
func (p *pool) settle(claimed []int, pos uint64, accepted bool) {
	for _, i := range claimed {
		p.used[i], p.lent[i] = pos, accepted
	}
}

// sendVec sends p cut at random, some pieces in place.
func (s *script) sendVec(x *side, e Envelope, p []byte) (Result, error) {
	x.pool.reclaim(x.ch)
	var pieces []gather.Piece
	var claimed []int
	for rest := p; len(rest) > 0 || s.rng.IntN(4) == 0; {
		n := min(len(rest), s.rng.IntN(120))
		if s.rng.IntN(5) == 0 {
			n = min(len(rest), s.rng.IntN(slotSize+1))
		}
		pc := gather.Piece{Data: rest[:n]}
		rest = rest[n:]
		if s.rng.IntN(3) > 0 {
			if mem := x.pool.take(pc.Data, &claimed); mem != nil {
				pc = gather.Piece{Data: mem, LKey: x.pool.reg.LKey(), InPlace: true}
			}
		}
		pieces = append(pieces, pc)
	}
	var pos uint64
	var res Result
	var err error
	if s.rng.IntN(2) == 0 {
		pos, res, err = x.sendVec(e, pieces)
	} else {
		pos, res, err = x.ch.StageVec(e, pieces)
	}
	x.pool.settle(claimed, pos, err == nil && res == Accepted)
	return res, err
}

// Memory taken in place comes back without more traffic: the post that took it is
// signalled for it.
func TestInPlaceComesBack(t *testing.T) {
	t.Parallel()
	for _, mode := range bothModes {
		for _, n := range []int{3, 40, 200} {
			o := Options{Blocks: 64, BlockSize: 64, Mode: mode}
			a, b := pair(t, simLinks(sim.Options{MaxCompletionDelay: 3}), o, o)
			mem := a.pool.slot(0)[:n]
			testutil.Fill(mem, 4, 0)
			pos, res, err := a.ch.StageVec(Envelope{Kind: 2}, []gather.Piece{{Data: []byte("head")}, {Data: mem, LKey: a.pool.reg.LKey(), InPlace: true}})
			require.NoError(t, err)
			require.Equal(t, Accepted, res)
			require.False(t, a.ch.Done(pos))
			_, err = a.ch.Stage(Envelope{}, []byte("behind it, copied"))
			require.NoError(t, err)
			done, err := a.ch.Flush()
			require.NoError(t, err)
			require.True(t, done)
			for range 10 {
				a.poll()
			}
			require.True(t, a.ch.Done(pos))
			require.Equal(t, uint64(1), a.ch.Stats().Posts)
			require.Positive(t, a.ch.Stats().InPlace)
			buf := make([]byte, n+4)
			h, ok, err := b.ch.Recv(buf)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, n+4, h.Len)
			require.NoError(t, testutil.Verify(buf[4:], 4, 0))
		}
	}
}

// Copied pieces share SGEs and requests, pieces in place have one each, and lists
// are as long as the link takes.
func TestVecCost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode           Mode
		maxSGE, n, len int
		inPlace        bool
		writes         uint64
		pieces         int
	}{
		{ModeLap, 16, 20, 10, false, 1, 1},
		{ModeLap, 16, 5, 100, true, 1, 6},         // five, and the trailer
		{ModeLap, 4, 5, 100, true, 2, 6},          // 4 + 2
		{ModeLap, 1, 5, 100, true, 6, 6},          //
		{ModeLap, 16, 20, 100, true, 1 + 1, 22},   // 2000 bytes in blocks of 1024: the run and the first block share one piece
		{ModeLap, 16, 20, 100, false, 1 + 1, 2},   //
		{ModeCursor, 16, 5, 100, true, 1 + 1, 7},  // and the cursor
		{ModeCursor, 8, 20, 100, true, 3 + 1, 23}, // 976 | trailer | 1024
	} {
		caps := sim.CapsLike("sim")
		caps.MaxSGE = c.maxSGE
		o := Options{Blocks: 16, BlockSize: 1024, Mode: c.mode, Batch: 32}
		a, b := pair(t, simLinks(sim.Options{Caps: caps}), o, o)
		require.GreaterOrEqual(t, a.ch.MaxInPlace(), c.n)
		ps := make([]gather.Piece, c.n)
		for i := range ps {
			ps[i] = gather.Piece{Data: a.pool.slot(i)[:c.len], LKey: a.pool.reg.LKey(), InPlace: c.inPlace}
			testutil.Fill(ps[i].Data, 1, uint64(i*c.len))
		}
		_, res, err := a.ch.StageVec(Envelope{}, ps)
		require.NoError(t, err)
		require.Equal(t, Accepted, res)
		_, err = a.ch.Flush()
		require.NoError(t, err)
		total := 0
		for _, w := range a.ch.wrs[:c.writes] {
			require.LessOrEqual(t, len(w.Local), c.maxSGE)
			total += len(w.Local)
		}
		st := a.ch.Stats()
		require.Equal(t, c.writes, st.Writes, "%+v", c)
		require.Equal(t, c.pieces, total, "%+v", c)
		require.Equal(t, uint64(1), st.Posts)
		buf := make([]byte, c.n*c.len)
		_, ok, err := b.ch.Recv(buf)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, testutil.Verify(buf, 1, 0))
	}
}

// More pieces in place than the lists hold are copied, not refused; and what can
// never be sent is.
func TestVecLimits(t *testing.T) {
	t.Parallel()
	for _, maxSGE := range []int{1, 2, 3, 16} {
		for _, batch := range []int{8, 9, 16} {
			m := inPlaceLimit(batch, 16*batch, maxSGE)
			require.LessOrEqual(t, vecWRs(m, maxSGE)+flushWRs, max(batch, vecWRs(0, maxSGE)+flushWRs), "%d %d", batch, maxSGE)
			require.LessOrEqual(t, vecWRs(0, maxSGE)+flushWRs, minBatch)
			caps := sim.CapsLike("sim")
			caps.MaxSGE, caps.MaxInline = maxSGE, 0
			for _, mode := range bothModes {
				o := Options{Blocks: 64, BlockSize: 64, Batch: batch, Mode: mode}
				a, b := pair(t, simLinks(sim.Options{Caps: caps}), o, o)
				require.Equal(t, m, a.ch.MaxInPlace())
				ps := make([]gather.Piece, poolSlots)
				for i := range ps {
					ps[i] = gather.Piece{Data: a.pool.slot(i)[:i%30], LKey: a.pool.reg.LKey(), InPlace: true}
				}
				n := 0
				for i := range ps {
					testutil.Fill(ps[i].Data, 1, uint64(n))
					n += len(ps[i].Data)
				}
				_, res, err := a.sendVec(Envelope{}, ps)
				require.NoError(t, err)
				require.Equal(t, Accepted, res)
				if m < 50 {
					require.Equal(t, uint64(m), a.ch.Stats().InPlace)
				}
				a.poll()
				buf := make([]byte, n)
				_, ok, err := b.ch.Recv(buf)
				require.NoError(t, err)
				require.True(t, ok)
				require.NoError(t, testutil.Verify(buf, 1, 0))
				lim := a.ch.GatherLimits(Envelope{HasMeta: true})
				require.Equal(t, gather.Limits{Bytes: a.ch.MaxPayload(flowctl.Data, true), InPlace: m}, lim)
				_, _, err = a.sendVec(Envelope{HasMeta: true}, []gather.Piece{{Data: make([]byte, lim.Bytes+1)}})
				require.ErrorIs(t, err, ErrTooLarge)
			}
		}
	}
	require.Zero(t, inPlaceLimit(8, 8, 1))
}

func TestVecDoesNotAllocate(t *testing.T) {
	for _, mode := range bothModes {
		o := Options{Blocks: 256, BlockSize: 256, Mode: mode}
		a, b := pair(t, simLinks(sim.Options{}), o, o)
		msgs := make([]gather.Message, 40)
		for i := range msgs {
			msgs[i] = gather.Message{Data: a.pool.slot(i)[:17*i%300], At: uint64(i), LKey: a.pool.reg.LKey(), Registered: true}
		}
		p := gather.NewPacker(a.ch.GatherLimits(Envelope{}), 100)
		var s gather.Splitter
		var sum int
		run := func() {
			for left := msgs; len(left) > 0; {
				n, err := p.Pack(left)
				if err != nil {
					t.Fatal(err)
				}
				for {
					_, res, err := a.sendVec(Envelope{}, p.Pieces())
					if err != nil {
						t.Fatal(err)
					}
					if res == Accepted {
						break
					}
					a.poll()
				}
				left = left[n:]
				l, _, ok, err := b.ch.Lease()
				if !ok || err != nil || l.Split(&s) != nil {
					t.Fatal("no gather", err)
				}
				for s.Next() {
					sum += int(s.Entry().Size)
				}
				if err := l.Release(); err != nil {
					t.Fatal(err)
				}
			}
		}
		run()
		require.Zero(t, testing.AllocsPerRun(50, run), "%v", mode)
		require.Positive(t, sum)
	}
}
