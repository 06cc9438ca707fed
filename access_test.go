package rma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// accesses returns operations on the 4096 bytes of a key, by the right that they need.
func accesses(ctx context.Context, p *Peer, mem *Region, k Key) map[string]struct {
	need Access
	do   func() error
} {
	type access = struct {
		need Access
		do   func() error
	}
	return map[string]access{
		"put":            {PeersWrite, func() error { return p.Put(k.At(0), mem.Slice(0, 8)).Wait(ctx) }},
		"long put":       {PeersWrite, func() error { return p.Put(k.At(0), mem.Slice(0, 4096)).Wait(ctx) }},
		"put of bytes":   {PeersWrite, func() error { return p.PutBytes(k.At(0), make([]byte, 4096)).Wait(ctx) }},
		"vector":         {PeersWrite, func() error { return p.PutV([]Span{k.Slice(0, 8)}, []Buffer{mem.Slice(0, 8)}).Wait(ctx) }},
		"strided":        {PeersWrite, func() error { return p.PutStrided(k.At(0), mem.Slice(0, 4096), Shape2D(8, 4, 16, 16)).Wait(ctx) }},
		"signal":         {PeersWrite, func() error { return p.Signal(k.At(0), SignalSet, 1).Wait(ctx) }},
		"adding signal":  {PeersAtomic, func() error { return p.Signal(k.At(0), SignalAdd, 1).Wait(ctx) }},
		"put and signal": {PeersWrite, func() error { return p.PutSignal(k.At(8), mem.Slice(0, 8), k.At(0), SignalSet, 1).Wait(ctx) }},
		"get":            {PeersRead, func() error { return p.Get(mem.Slice(0, 8), k.At(0)).Wait(ctx) }},
		"long get":       {PeersRead, func() error { return p.Get(mem.Slice(0, 4096), k.At(0)).Wait(ctx) }},
		"get of bytes":   {PeersRead, func() error { return p.GetBytes(make([]byte, 4096), k.At(0)).Wait(ctx) }},
		"fetch-add":      {PeersAtomic, func() error { _, err := p.FetchAdd(k.At(0), 1).Wait(ctx); return err }},
		"swap":           {PeersAtomic, func() error { _, err := p.Swap(k.At(0), 1).Wait(ctx); return err }},
		"half":           {PeersAtomic, func() error { _, err := p.FetchAdd32(k.At(0), 1).Wait(ctx); return err }},
		"accumulate":     {PeersWrite | PeersAtomic, func() error { return Accumulate(p, k.At(0), Sum, []uint64{1}).Wait(ctx) }},
	}
}

// A peer can do what its rights permit, and nothing else; a refused operation costs no
// connection and changes nothing.
func TestAccess(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, _ := share(t, es, 4096)
		testutil.Fill(mems[0].Bytes(), 1, 0)
		for _, rights := range []Access{PeersNothing, PeersRead, PeersWrite, PeersAtomic, PeersRead | PeersWrite, PeersWrite | PeersAtomic} {
			for _, register := range []bool{false, true} {
				mem, err := es[1].Alloc(4096, rights)
				if register {
					require.NoError(t, mem.Close())
					mem, err = es[1].Register(make([]byte, 4096), rights)
				}
				require.NoError(t, err)
				key := mem.Key()
				var got []byte
				for what, x := range accesses(ctx, es[0].Peer(1), mems[0], key) {
					es[1].prog.Do(func() { clear(mem.Bytes()) }) // on the owner, which accesses the memory for peers
					err := x.do()
					if rights.has(x.need) {
						require.NoError(t, err, "%s with %b", what, rights)
						continue
					}
					require.ErrorIs(t, err, ErrRemoteAccess, "%s with %b", what, rights)
					require.NotErrorIs(t, err, ErrFlushed, "%s with %b", what, rights)
					es[1].prog.Do(func() { got = bytes.Clone(mem.Bytes()) })
					require.Equal(t, make([]byte, 4096), got, "%s with %b", what, rights)
				}
				require.NoError(t, es[0].FlushAll(ctx))
				require.NoError(t, mem.Close())
			}
		}
	})
}

// The owner refuses a peer that forges a right in its key.
func TestTakenRights(t *testing.T) {
	for what := range accesses(context.Background(), nil, nil, Key{}) {
		t.Run(what, func(t *testing.T) {
			onAll(t, 2, func(t *testing.T, es []*Engine) {
				ctx := testutil.Context(t, testutil.Limit)
				mems, _ := share(t, es, 4096)
				testutil.Fill(mems[0].Bytes(), 1, 0)
				mine := bytes.Clone(mems[0].Bytes())
				mem, err := es[1].Alloc(4096, PeersNothing)
				require.NoError(t, err)
				v := mem.Key().value()
				v.Rights = fabric.AccessAll
				key := newKey(v)
				x := accesses(ctx, es[0].Peer(1), mems[0], key)[what]
				require.ErrorIs(t, x.do(), ErrRemoteAccess)
				require.Equal(t, make([]byte, 4096), mem.Bytes())
				require.Equal(t, mine, mems[0].Bytes())
			})
		})
	}
}

// Messages are sent from and received in memory to which peers have no right.
func TestMessagesOfPrivateMemory(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		ctx := testutil.Context(t, testutil.Limit)
		const n = 1 << 20
		for _, rights := range []Access{PeersNothing, PeersRead, PeersWrite} {
			from, err := es[0].Alloc(n, rights)
			require.NoError(t, err)
			to, err := es[1].Alloc(n, rights)
			require.NoError(t, err)
			for round, size := range []int{8, 5000, n, n, n} {
				testutil.Fill(from.Bytes()[:size], uint64(round), 0)
				r := es[1].Peer(0).RecvBuffer(1, to.Slice(0, size))
				var s Request
				if round%2 == 0 {
					s = es[0].Peer(1).SendBuffer(1, from.Slice(0, size))
				} else {
					b := es[0].Peer(1).Batch()
					b.AddBuffer(1, from.Slice(0, size))
					s = b.Send()
				}
				got, err := r.Wait(ctx)
				require.NoError(t, err, "%b", rights)
				require.Equal(t, size, got)
				require.NoError(t, s.Wait(ctx), "%b", rights)
				require.NoError(t, testutil.Verify(to.Bytes()[:size], uint64(round), 0))
			}
			require.NoError(t, from.Close())
			require.NoError(t, to.Close())
		}
	})
}

// Each rank chooses the rights of others to its part of a window.
func TestWindowAccess(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		together(t, es, func(ctx context.Context, e *Engine) error {
			w, err := e.Window(ctx, 64, []Access{PeersRead, PeersWrite}[e.Rank()])
			if err != nil {
				return err
			}
			p, you := e.Peer(1-e.Rank()), 1-e.Rank()
			put, get := p.Put(w.At(you, 0), w.Slice(8, 8)).Wait(ctx), p.Get(w.Slice(16, 8), w.At(you, 0)).Wait(ctx)
			if you == 1 {
				put, get = get, put
			}
			if get != nil || !errors.Is(put, ErrRemoteAccess) {
				return fmt.Errorf("rank %d: %v, %v", e.Rank(), put, get)
			}
			return w.Free(ctx)
		})
	})
}

// The same memory has several keys: one for reading, for some ranks, and one for writing,
// for others. Each permits its own operations and refuses those of the other.
func TestKeysOfTheSameMemory(t *testing.T) {
	onAll(t, 2, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, _ := share(t, es, 4096)
		buf := make([]byte, 4096)
		readers, err := es[1].Register(buf, PeersRead)
		require.NoError(t, err)
		writers, err := es[1].Register(buf, PeersWrite)
		require.NoError(t, err)
		p, read, write := es[0].Peer(1), readers.Key(), writers.Key()
		testutil.Fill(mems[0].Bytes()[:64], 1, 0)
		for range 3 {
			require.ErrorIs(t, p.Put(read.At(0), mems[0].Slice(0, 64)).Wait(ctx), ErrRemoteAccess)
			require.ErrorIs(t, p.Get(mems[0].Slice(64, 64), write.At(0)).Wait(ctx), ErrRemoteAccess)
		}
		require.NoError(t, p.Put(write.At(0), mems[0].Slice(0, 64)).Wait(ctx))
		require.NoError(t, p.Get(mems[0].Slice(64, 64), read.At(0)).Wait(ctx))
		require.NoError(t, testutil.Verify(mems[0].Bytes()[64:128], 1, 0))
		require.NoError(t, writers.Close()) // revokes the right to write
		require.NoError(t, p.Get(mems[0].Slice(64, 64), read.At(0)).Wait(ctx))
		require.ErrorIs(t, p.Put(write.At(0), mems[0].Slice(0, 64)).Wait(ctx), ErrRemoteAccess)
		require.NoError(t, readers.Close())
	})
}
