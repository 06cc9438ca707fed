package rma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// Every test that docs/memory-model.md names for a sentence about this package
// exists, and every TestMM_ test belongs to a sentence.
func TestMemoryModelNamesItsTests(t *testing.T) {
	text, err := os.ReadFile("docs/memory-model.md")
	require.NoError(t, err)
	var files []string
	for _, dir := range []string{"", "coll/", "fabric/shm/", "internal/initiator/", "locks/", "mr/"} {
		more, err := filepath.Glob(dir + "*_test.go")
		require.NoError(t, err)
		files = append(files, more...)
	}
	have := map[string]bool{}
	for _, f := range files {
		src, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllSubmatch(src, -1) {
			have[string(m[1])] = true
		}
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(text, -1) {
		named[string(m[1])] = true
		require.True(t, have[string(m[1])], "docs/memory-model.md names %s, which does not exist", m[1])
	}
	require.Greater(t, len(named), 20)
	for name := range have {
		if len(name) > 7 && name[:7] == "TestMM_" {
			require.True(t, named[name], "%s belongs to no sentence of docs/memory-model.md", name)
		}
	}
}

// The race detector sees that a message, and a signal, come after what was written before them: also
// where the link, sim, stores in memory that it watches, and they arrive in memory that it does not.
func TestMemoryIsOrderedForTheRaceDetector(t *testing.T) {
	es := simulateWith(t, 2, "sim", func(c *Config) { c.Mode = ModeScatter })
	words, wordKeys := share(t, es, 64)
	var data [2][]byte
	var keys [2]Key
	together(t, es, func(ctx context.Context, e *Engine) error {
		data[e.Rank()] = make([]byte, 100)
		mine, err := e.Register(data[e.Rank()])
		if err == nil {
			keys[e.Rank()] = mine.Key()
			err = e.Barrier(ctx)
		}
		return err
	})
	together(t, es, func(ctx context.Context, e *Engine) error {
		me, p := e.Rank(), e.Peer(1-e.Rank())
		for i := range uint64(300) {
			msg := make([]byte, 100)
			r := p.Recv(msg)
			src := testutil.Payload(100, i, 0)
			put := p.PutBytes(keys[1-me].At(0), src)
			sig := p.Signal(wordKeys[1-me].At(0), SignalAdd, 1)
			_, err := p.WaitSignal(ctx, words[me].Slice(0, 8), GE, i+1)
			if err == nil {
				err = testutil.Verify(data[me], i, 0)
			}
			send := p.Send(src)
			if _, err2 := r.Wait(ctx); err == nil && err2 == nil {
				err = testutil.Verify(msg, i, 0)
			}
			if err = errors.Join(err, WaitAll(ctx, put, sig, send)); err != nil {
				return err
			}
		}
		return nil
	})
}

// watch calls look, with words of mem, until stop, and returns its first error.
func watch(e *Engine, stop *atomic.Bool, look func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		for !stop.Load() {
			e.Progress()
			if err := look(); err != nil {
				done <- err
				return
			}
		}
		done <- look()
	}()
	return done
}

func TestMM_PutsAppearInOrder(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 4096)
		p, src, dst := es[0].Peer(1), mems[0].Bytes(), mems[1].Bytes()
		var stop atomic.Bool
		seen := watch(es[1], &stop, func() error {
			b := testutil.Load64(dst[2048:]) // before a: a value read later may only be larger
			if a := testutil.Load64(dst); a < b {
				return fmt.Errorf("the second put, %d, is there before the first, %d", b, a)
			}
			return nil
		})
		var reqs []Request
		for i := range 500 {
			at := 8 * (i % 100)
			if i%100 == 0 {
				require.NoError(t, WaitAll(ctx, reqs...))
				reqs = reqs[:0]
			}
			binary.NativeEndian.PutUint64(src[at:], uint64(i+1))
			reqs = append(reqs, p.Put(keys[1].At(0), mems[0].Slice(at, 8)), p.Put(keys[1].At(2048), mems[0].Slice(at, 8)))
		}
		require.NoError(t, WaitAll(ctx, reqs...))
		stop.Store(true)
		require.NoError(t, <-seen)
		require.EqualValues(t, 500, testutil.Load64(dst[2048:]))
	})
}

func TestMM_WhatIsBehindAVectorComesAfterIt(t *testing.T) {
	onAllPieces(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 1<<16)
		p, src, dst := es[0].Peer(1), mems[0].Bytes(), mems[1].Bytes()
		const n = 100
		var stop atomic.Bool
		seen := watch(es[1], &stop, func() error {
			last := testutil.Load64(dst[60_000:])
			for i := range n {
				if v := testutil.Load64(dst[64*i:]); v < last {
					return fmt.Errorf("%d is there before piece %d of the vector, %d", last, i, v)
				}
			}
			return nil
		})
		for round := range uint64(60) {
			for i := range n {
				binary.NativeEndian.PutUint64(src[8*i:], round+1)
			}
			a := p.PutStrided(keys[1].At(0), mems[0].Slice(0, 8*n), Shape2D(n, 8, 8, 64))
			b := p.Put(keys[1].At(60_000), mems[0].Slice(0, 8))
			require.NoError(t, WaitAll(ctx, a, b))
		}
		stop.Store(true)
		require.NoError(t, <-seen)
	})
}

func TestMM_GetSeesEarlierPuts(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 1<<16)
		for round := range 60 {
			p, k, b := es[0].Peer(round%2), &keys[round%2], mems[0].Bytes()
			testutil.Fill(b[:5000], uint64(round), 0)
			put := p.Put(k.At(20_000), mems[0].Slice(0, 5000))
			add := p.FetchAdd(k.At(30_000), 1)
			get := p.Get(mems[0].Slice(10_000, 5000), k.At(20_000))
			count := p.Get(mems[0].Slice(16_000, 8), k.At(30_000))
			require.NoError(t, WaitAll(ctx, get, count))
			require.NoError(t, testutil.Verify(b[10_000:15_000], uint64(round), 0))
			require.EqualValues(t, round/2+1, binary.NativeEndian.Uint64(b[16_000:]))
			require.NoError(t, WaitAll(ctx, put, add.Request))
		}
	})
}

func TestMM_SignalComesAfterEverythingBefore(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		mems, keys := share(t, es, 1<<16)
		const rounds = 30
		together(t, es, func(ctx context.Context, e *Engine) error {
			if e.Rank() == 0 {
				p := e.Peer(1)
				var reqs []Request
				for i := range uint64(rounds) {
					at := int(i) * 128
					binary.NativeEndian.PutUint64(mems[0].Bytes()[at:], i+1)
					reqs = append(reqs,
						p.Put(keys[1].At(8192+at), mems[0].Slice(at, 8)),
						p.PutStrided(keys[1].At(16384+at), mems[0].Slice(at, 8), Shape2D(2, 4, 4, 64)),
						p.FetchAdd(keys[1].At(64), 1).Request,
						p.Signal(keys[1].At(0), SignalSet, i+1),
					)
				}
				return WaitAll(ctx, reqs...)
			}
			for i := range uint64(rounds) {
				if _, err := e.WaitSignal(ctx, mems[1].Slice(0, 8), GE, i+1); err != nil {
					return err
				}
				b, at := mems[1].Bytes(), int(i)*128
				half := append(append([]byte{}, b[16384+at:][:4]...), b[16384+at+64:][:4]...)
				if x, y, n := testutil.Load64(b[8192+at:]), binary.NativeEndian.Uint64(half), testutil.Load64(b[64:]); x != i+1 || y != i+1 || n < i+1 {
					return fmt.Errorf("signal %d is there, but the data is %d, %d, %d", i+1, x, y, n)
				}
			}
			return nil
		})
	})
}

// count64 returns the word at the start of b, for the processor's own atomics.
func count64(b []byte) *uint64 { return (*uint64)(unsafe.Pointer(unsafe.SliceData(b))) }

func TestMM_AtomicsAccumulatesAndTheTargetsOwn(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		if !es[0].links[0].Caps().AtomicCPU {
			return // the sentence is about the other links
		}
		mems, keys := share(t, es, 64)
		const rounds = 60
		var wg sync.WaitGroup
		wg.Go(func() {
			for range rounds {
				atomic.AddUint64(count64(mems[0].Bytes()), 1)
			}
		})
		together(t, es, func(ctx context.Context, e *Engine) error {
			p, k := e.Peer(0), &keys[0]
			var reqs []Request
			for i := range uint64(rounds) {
				reqs = append(reqs, p.FetchAdd(k.At(0), 1).Request, Accumulate(p, k.At(0), Sum, []uint64{1}),
					p.FetchAdd32(k.At(8), 1).Request, Accumulate(p, k.At(8), Sum, []uint32{1, 1}),
					p.FetchXor(k.At(16), i).Request, Accumulate(p, k.At(24), Max, []int64{int64(i)}))
			}
			return WaitAll(ctx, reqs...)
		})
		wg.Wait()
		b := mems[0].Bytes()
		require.EqualValues(t, 7*rounds, testutil.Load64(b))
		require.EqualValues(t, 6*rounds, binary.NativeEndian.Uint32(b[8:]))
		require.EqualValues(t, 3*rounds, binary.NativeEndian.Uint32(b[12:]))
		require.EqualValues(t, rounds-1, testutil.Load64(b[24:]))
	})
}
