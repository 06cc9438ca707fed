package rma

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/testutil"
)

// A rank stores to and loads from the memory of another one, also when that has closed its
// region and the connection has ended.
func TestMapping(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	es := open(t, 2, "shm")
	mem, err := es[1].Alloc(4096)
	require.NoError(t, err)
	p, k := es[0].Peer(1), mem.Key()
	m, err := Map(ctx, p, k.At(64).Span(16))
	require.NoError(t, err)
	require.Len(t, m.Bytes(), 16)
	onesided.Store64(m.Bytes()[8:], 4711)
	require.EqualValues(t, 4711, onesided.Load64(mem.Bytes()[72:]))
	onesided.Store64(mem.Bytes()[64:], 4712)
	require.EqualValues(t, 4712, onesided.Load64(m.Bytes()))

	require.NoError(t, mem.Close())
	testutil.Eventually(t, testutil.Limit, func() bool {
		_, err := Map(ctx, p, k.At(64).Span(16))
		return errors.Is(err, ErrNotMapped)
	}, "the peer has withdrawn the region")
	require.NoError(t, es[0].Close())
	onesided.Store64(m.Bytes(), 1) // it is mapped still
	require.EqualValues(t, 4711, onesided.Load64(m.Bytes()[8:]))
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	_, err = Map(ctx, p, k.At(0).Span(8))
	require.ErrorIs(t, err, ErrClosed)
}

// What cannot be mapped is refused with the reason.
func TestMappingRefusals(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := open(t, 2, fabric)
		mem, err := es[1].Alloc(4096)
		require.NoError(t, err)
		read, err := es[1].Alloc(64, PeersRead)
		require.NoError(t, err)
		private, err := es[1].Register(make([]byte, 4096))
		require.NoError(t, err)
		p, k := es[0].Peer(1), mem.Key()
		for want, s := range map[error]Span{
			ErrBounds:       k.At(4090).Span(8),
			ErrRemoteAccess: read.Key().At(0).Span(8),
			ErrNotMapped:    private.Key().At(0).Span(8),
			ErrBadKey:       Key{}.At(0).Span(8),
		} {
			_, err := Map(ctx, p, s)
			var pe *PeerError
			require.ErrorIs(t, err, want)
			require.ErrorAs(t, err, &pe)
			require.Equal(t, 1, pe.Rank)
		}
		_, err = Map(ctx, p, read.Key().At(0).Span(8))
		require.ErrorIs(t, err, ErrNotMapped, "a missing right is a reason to use Put and Get as well")
		for _, n := range []int{0, -1} {
			_, err = Map(ctx, p, k.At(0).Span(n))
			require.ErrorIs(t, err, ErrBounds)
		}
		m, err := Map(ctx, p, k.At(0).Span(8))
		if PlaceOf(p).Maps {
			require.NoError(t, err)
			require.NoError(t, m.Close())
		} else {
			require.ErrorIs(t, err, ErrNotMapped)
		}
		own, err := es[0].Alloc(64)
		require.NoError(t, err)
		_, err = Map(ctx, es[0].Peer(0), own.Key().At(0).Span(8))
		require.ErrorIs(t, err, ErrNotMapped, "one's own memory is there anyway")
	})
}

// Goroutines map, use and close while the owner closes regions.
func TestMappingsEnd(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	es := open(t, 2, "shm")
	var sum atomic.Uint64
	together(t, es, func(_ context.Context, e *Engine) error {
		if e.Rank() == 1 {
			return nil
		}
		for i := range 200 {
			mem, err := es[1].Alloc(4096)
			if err != nil {
				return err
			}
			k := mem.Key()
			m, err := Map(ctx, e.Peer(1), k.Slice(0, 4096))
			if err != nil {
				return fmt.Errorf("mapping %d: %w", i, err)
			}
			done := make(chan error, 1)
			go func() {
				for j := range 100 {
					onesided.Store64(m.Bytes()[8*j:], uint64(j))
					sum.Add(onesided.Load64(m.Bytes()[8*j:]))
				}
				done <- m.Close()
			}()
			if err := errors.Join(mem.Close(), <-done); err != nil {
				return err
			}
		}
		return nil
	})
	require.EqualValues(t, 200*4950, sum.Load())
}

// A rank reads and writes memory of another one that is not registered, where the link lets it.
func TestAttachment(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	for name, cma := range map[string]string{"allowed": "0", "forbidden": "1"} {
		t.Run(name, func(t *testing.T) {
			es := openWith(t, 2, "shm", func(c *Config) { c.Settings = map[string]string{"disable_cma": cma} })
			mem, err := es[1].Alloc(8)
			require.NoError(t, err)
			m, err := Map(ctx, es[0].Peer(1), mem.Key().At(0).Span(8))
			require.NoError(t, err)
			defer m.Close()
			a, err := m.Attach()
			var pe *PeerError
			if name == "forbidden" {
				require.ErrorIs(t, err, ErrNotMapped)
				require.ErrorAs(t, err, &pe)
				return
			}
			require.NoError(t, err)
			private, got := []byte("private"), make([]byte, 7)
			require.NoError(t, a.Read(got, fabric.Addr(private)))
			require.Equal(t, private, got)
			require.ErrorAs(t, a.Read(got, 64), &pe)
			require.Equal(t, 1, pe.Rank)
			require.NoError(t, a.Write([]byte("written"), fabric.Addr(private)))
			require.Equal(t, "written", string(private))
			require.ErrorAs(t, a.Write(got, 64), &pe)
			require.Equal(t, 1, pe.Rank)
			require.False(t, a.Ended())
			require.NoError(t, a.Close())
			require.NoError(t, es[0].Close())
			_, err = m.Attach()
			require.ErrorIs(t, err, ErrNotMapped)
		})
	}
}
