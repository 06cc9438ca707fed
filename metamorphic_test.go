package rma

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/testutil"
)

// Goroutines of all ranks run random scripts of all operations. Each has lanes of its own,
// one in the memory of every rank, and keeps their expected contents in plain slices;
// shared counters are only added to. The same scripts, over every link and with every way
// of pieces, must leave the same memory, and every returned value must be the model's.
func TestScripts(t *testing.T) {
	var first [][]byte
	done := make(chan [][]byte, 16)
	t.Run("links", func(t *testing.T) {
		onAllPieces(t, 3, func(t *testing.T, es []*Engine) { done <- runScripts(t, es) })
	})
	close(done)
	for mems := range done {
		if first == nil {
			first = mems
		}
		require.Equal(t, first, mems, "two links have left different memory")
	}
}

const (
	laneSize = 8 << 10
	scripts  = 2 // a rank
	steps    = 120
	counters = 256 // bytes that all add to, behind the lanes
)

func runScripts(t *testing.T, es []*Engine, without ...int) [][]byte {
	lanes := len(es) * scripts
	size := lanes*laneSize + counters
	mems, keys := share(t, es, size)
	models := make([]*script, 0, lanes)
	for r, e := range es {
		for w := range scripts {
			n := r*scripts + w
			local, err := e.Alloc(4 * laneSize)
			require.NoError(t, err)
			models = append(models, &script{
				eng: e, keys: keys, base: n * laneSize, local: local, counters: lanes * laneSize,
				rng: rand.New(rand.NewPCG(uint64(n), 42)), sums: make([]uint64, len(es)), without: without,
			})
			for range es {
				s := models[n]
				s.want = append(s.want, make([]byte, laneSize))
			}
		}
	}
	ctx := testutil.Context(t, testutil.Limit)
	var g errgroup.Group
	for n, s := range models {
		g.Go(func() error {
			if err := s.run(ctx); err != nil {
				return fmt.Errorf("script %d: %w", n, err)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	var all [][]byte
	for to, m := range mems {
		sum := uint64(0)
		for _, s := range models {
			require.Equal(t, s.want[to], m.Bytes()[s.base:s.base+laneSize], "rank %d", to)
			sum += s.sums[to]
		}
		c := m.Bytes()[lanes*laneSize:][:counters]
		require.Equal(t, sum, binary.NativeEndian.Uint64(c))
		require.EqualValues(t, uint32(sum), binary.NativeEndian.Uint32(c[8:]))
		require.EqualValues(t, uint32(sum), binary.NativeEndian.Uint32(c[12:]))
		require.Equal(t, sum, binary.NativeEndian.Uint64(c[16:]))
		all = append(all, append([]byte(nil), m.Bytes()[:size]...))
	}
	return all
}

// script is one goroutine's: its lane begins at base on every rank.
type script struct {
	eng      *Engine
	keys     []Key
	base     int
	local    *Region
	counters int
	rng      *rand.Rand
	want     [][]byte // by rank: contents of the lane when all operations are complete
	sums     []uint64 // by rank: sum added to its counters
	reqs     []Request
	room     int   // bytes of local used by operations in flight
	without  []int // steps that are left out
}

// scratch returns n bytes of local memory that no operation in flight uses.
func (s *script) scratch(ctx context.Context, n int) (Buffer, []byte, error) {
	if s.room+n > len(s.local.Bytes()) {
		if err := s.settle(ctx); err != nil {
			return Buffer{}, nil, err
		}
	}
	at := s.room
	s.room += (n + 7) &^ 7
	b := s.local.Bytes()[at : at+n]
	for i := range b {
		b[i] = byte(s.rng.Uint32())
	}
	return s.local.Slice(at, n), b, nil
}

// settle waits for all operations in flight, by one of several methods.
func (s *script) settle(ctx context.Context) error {
	defer func() { s.reqs, s.room = s.reqs[:0], 0 }()
	switch s.rng.IntN(3) {
	case 0:
		for range s.reqs {
			i, err := WaitAny(ctx, s.reqs...)
			if err != nil {
				return err
			}
			if err := s.reqs[i].Wait(ctx); err != nil {
				return err
			}
			s.reqs[i] = Request{}
		}
		return nil
	case 1:
		for _, r := range s.reqs {
			r.Forget()
		}
		return s.eng.FlushAll(ctx)
	}
	return WaitAll(ctx, s.reqs...)
}

func (s *script) run(ctx context.Context) error {
	for i := range steps {
		if err := s.step(ctx); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return s.settle(ctx)
}

// atomicSteps are the steps that need the results of atomics.
var atomicSteps = []int{7, 8, 10}

func (s *script) step(ctx context.Context) error {
	to := s.rng.IntN(len(s.keys))
	p, k, lane := s.eng.Peer(to), &s.keys[to], s.want[to]
	off := s.rng.IntN(laneSize - 600)
	n := s.rng.IntN(500)
	at := k.At(s.base + off)
	word := off &^ 7
	cell := k.At(s.base + word)
	kind := s.rng.IntN(13)
	if slices.Contains(s.without, kind) {
		return nil
	}
	switch kind {
	case 0: // put
		src, b, err := s.scratch(ctx, n)
		if err != nil {
			return err
		}
		copy(lane[off:], b)
		s.reqs = append(s.reqs, p.Put(at, src))
	case 1: // put from the heap
		b := make([]byte, n)
		testutil.Fill(b, s.rng.Uint64(), 0)
		copy(lane[off:], b)
		s.reqs = append(s.reqs, p.PutBytes(at, b))
	case 2: // vector
		src, b, err := s.scratch(ctx, 90)
		if err != nil {
			return err
		}
		copy(lane[off+100:], b[:20])
		copy(lane[off:], b[20:])
		dst := []Span{k.Slice(s.base+off+100, 20), at.Span(70)}
		s.reqs = append(s.reqs, p.PutV(dst, []Buffer{{src.region, src.off, 50}, {src.region, src.off + 50, 40}}))
	case 3: // shape
		src, b, err := s.scratch(ctx, 200)
		if err != nil {
			return err
		}
		for row := range 10 {
			copy(lane[off+31*row:], b[20*row:][:7])
		}
		s.reqs = append(s.reqs, p.PutStrided(at, src, Shape2D(10, 7, 20, 31)))
	case 4: // signal with data; the flag is a word of the lane
		src, b, err := s.scratch(ctx, n)
		if err != nil {
			return err
		}
		copy(lane[off:], b)
		flag := (off + n + 8) &^ 7
		v := s.rng.Uint64()
		op := SignalOp(s.rng.IntN(2))
		if op == SignalAdd {
			v, b = s.rng.Uint64(), lane[flag:]
			binary.NativeEndian.PutUint64(b, binary.NativeEndian.Uint64(b)+v)
		} else {
			binary.NativeEndian.PutUint64(lane[flag:], v)
		}
		s.reqs = append(s.reqs, p.PutSignal(at, src, k.At(s.base+flag), op, v))
	case 5: // read back
		p.Fence() // emulated atomics and accumulates may be in flight
		got := make([]byte, n)
		if err := p.GetBytes(got, at).Wait(ctx); err != nil {
			return err
		}
		if string(got) != string(lane[off:off+n]) {
			return fmt.Errorf("get of %d bytes at %d: not what was put", n, off)
		}
	case 6: // read back in pieces
		p.Fence()
		dst, b, err := s.scratch(ctx, 300)
		if err != nil {
			return err
		}
		if err := p.GetStrided(dst, at, Shape2D(9, 11, 30, 50)).Wait(ctx); err != nil {
			return err
		}
		for row := range 9 {
			if string(b[30*row:][:11]) != string(lane[off+50*row:][:11]) {
				return fmt.Errorf("row %d of a shape at %d: not what was put", row, off)
			}
		}
	case 7: // atomics on the lane, whose results are known
		p.Fence()
		m := onesided.RMW{Func: onesided.Func(s.rng.IntN(5)), Arg: s.rng.Uint64()}
		old := binary.NativeEndian.Uint64(lane[word:])
		now, _ := m.Apply(old)
		binary.NativeEndian.PutUint64(lane[word:], now)
		r := [...]func(Remote, uint64) AtomicRequest{p.FetchAdd, p.Swap, p.FetchAnd, p.FetchOr, p.FetchXor}[m.Func](cell, m.Arg)
		p.Fence()
		if v, err := r.Wait(ctx); err != nil || v != old {
			return fmt.Errorf("atomic %d found %x, not %x: %w", m.Func, v, old, err)
		}
	case 8: // compare-and-swap of 4 bytes
		p.Fence()
		half := off &^ 3
		old, v := binary.NativeEndian.Uint32(lane[half:]), s.rng.Uint32()
		compare := old
		if s.rng.IntN(2) == 0 {
			compare++
		} else {
			binary.NativeEndian.PutUint32(lane[half:], v)
		}
		r := p.CompareSwap32(k.At(s.base+half), compare, v)
		p.Fence()
		if got, err := r.Wait(ctx); err != nil || got != old {
			return fmt.Errorf("compare-and-swap found %x, not %x: %w", got, old, err)
		}
	case 9: // accumulate on the lane
		p.Fence()
		xs := make([]uint32, 1+s.rng.IntN(60))
		op := []Reduction{Sum, Min, Max, Prod, Replace}[s.rng.IntN(5)]
		for i := range xs {
			xs[i] = s.rng.Uint32()
		}
		onesided.Reduce(onesided.Reduction(op), onesided.Uint32, lane[word:][:4*len(xs)], Bytes(xs))
		s.reqs = append(s.reqs, Accumulate(p, cell, op, xs))
		p.Fence()
	case 10: // counters that all share
		v := uint64(s.rng.IntN(1000))
		s.sums[to] += v
		s.reqs = append(s.reqs, p.FetchAdd(k.At(s.counters), v).Request,
			p.FetchAdd32(k.At(s.counters+8), uint32(v)).Request, p.FetchAdd32(k.At(s.counters+12), uint32(v)).Request,
			Accumulate(p, k.At(s.counters+16), Sum, []uint64{v}))
	case 11:
		return p.Flush().Wait(ctx)
	default:
		return s.settle(ctx)
	}
	return nil
}
