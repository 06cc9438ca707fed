package locks

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/testutil"
)

// Ranks and their goroutines that get, add and put without atomics lose no update under a
// lock; readers never see a partial change.
func TestLocksExclude(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		const ranks, goroutines, rounds = 3, 2, 20
		es := jobtest.Open(t, ranks, fabric)
		ls := serve(t, es)
		ctx := testutil.Context(t, testutil.Limit)
		wins := make([]*rma.Window, ranks)
		var g errgroup.Group
		for r, e := range es {
			g.Go(func() (err error) { wins[r], err = e.Window(ctx, 4096); return err })
		}
		require.NoError(t, g.Wait())
		id := ID{Home: 1, Key: 7}
		at := func(r int) rma.Remote { return wins[r].At(2, 0) } // not at the home
		for r := range es {
			for range goroutines {
				p := es[r].Peer(2)
				g.Go(func() error {
					var pair [16]byte
					for range rounds {
						h, err := ls[r].Lock(ctx, id)
						if err != nil {
							return err
						}
						if err := p.GetBytes(pair[:], at(r)).Wait(ctx); err != nil {
							return err
						}
						v := binary.LittleEndian.Uint64(pair[:]) + 1
						binary.LittleEndian.PutUint64(pair[:], v)
						binary.LittleEndian.PutUint64(pair[8:], v)
						p.PutBytes(at(r), pair[:8]).Forget() // Unlock flushes
						p.PutBytes(wins[r].At(2, 8), pair[8:]).Forget()
						if err := h.Unlock(ctx); err != nil {
							return err
						}
					}
					return nil
				})
				g.Go(func() error {
					var pair [16]byte
					for range rounds {
						h, err := ls[r].RLock(ctx, id)
						if err != nil {
							return err
						}
						err = p.GetBytes(pair[:], at(r)).Wait(ctx)
						if a, b := binary.LittleEndian.Uint64(pair[:]), binary.LittleEndian.Uint64(pair[8:]); a != b && err == nil {
							err = rma.ErrLength // any error: the reader saw a partial change
						}
						if err != nil {
							return err
						}
						if err := h.Unlock(ctx); err != nil {
							return err
						}
					}
					return nil
				})
			}
		}
		require.NoError(t, g.Wait())
		require.EqualValues(t, ranks*goroutines*rounds, binary.LittleEndian.Uint64(wins[2].Bytes()))
		nothingLeft(t, ls)
	})
}

// nothingLeft checks that neither homes nor requesting ranks keep any state.
func nothingLeft(t *testing.T, ls []*Locks) {
	t.Helper()
	for r, l := range ls {
		testutil.Eventually(t, testutil.Limit, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.table.locks)+len(l.table.asked)+len(l.table.count)+len(l.mine) == 0
		}, "rank %d forgets", r)
	}
}

// requests waits until a home has n requests, granted and waiting.
func requests(t *testing.T, home *Locks, n int) {
	t.Helper()
	testutil.Eventually(t, testutil.Limit, func() bool {
		home.mu.Lock()
		defer home.mu.Unlock()
		return len(home.table.asked) == n
	}, "%d requests at their home", n)
}

// A wait that was given up takes no lock, wherever its cancellation meets the grant.
func TestLockGivenUp(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := jobtest.Open(t, 2, fabric)
		ls := serve(t, es)
		ctx := testutil.Context(t, testutil.Limit)
		id := ID{0, 1}
		first, err := ls[0].Lock(ctx, id)
		require.NoError(t, err)
		_, err = ls[1].TryLock(ctx, id)
		require.ErrorIs(t, err, ErrTaken)
		_, err = ls[1].TryRLock(ctx, id)
		require.ErrorIs(t, err, ErrTaken)
		given, end := context.WithCancel(ctx)
		waits := make(chan error)
		go func() { _, err := ls[1].Lock(given, id); waits <- err }()
		requests(t, ls[0], 2)
		end()
		require.ErrorIs(t, <-waits, context.Canceled)
		require.NoError(t, first.Unlock(ctx))
		require.ErrorIs(t, first.Unlock(ctx), ErrNotHeld)
		for range 50 { // some cancellations cross the grant
			given, end := context.WithCancel(ctx)
			go end()
			if h, err := ls[1].Lock(given, id); err == nil {
				require.NoError(t, h.Unlock(ctx))
			} else {
				require.ErrorIs(t, err, context.Canceled)
			}
			end()
		}
		again, err := ls[0].Lock(ctx, id)
		require.NoError(t, err)
		require.NoError(t, again.Unlock(ctx))
		nothingLeft(t, ls)

		_, err = ls[0].Lock(ctx, ID{Home: 2})
		require.ErrorContains(t, err, "ranks are 0 to 1")
		_, err = New(es[0])
		require.Error(t, err, "there is one an engine")
	})
}

// Waits at a home that does not answer occupy bounded memory after they were given up.
func TestLocksGivenUpAreBounded(t *testing.T) {
	es := jobtest.Open(t, 2, "shm")
	l, err := New(es[1])
	require.NoError(t, err)
	ctx := testutil.Context(t, testutil.Limit)
	id := ID{0, 1}
	for err = nil; !errors.Is(err, ErrFull); {
		require.LessOrEqual(t, len(l.mine), maxRequests)
		given, end := context.WithCancel(ctx)
		go end()
		_, err = l.Lock(given, id)
	}
	home, err := New(es[0])
	require.NoError(t, err)
	nothingLeft(t, []*Locks{home, l})
	h, err := l.Lock(ctx, id)
	require.NoError(t, err)
	require.NoError(t, h.Unlock(ctx))
}

// If the context of Unlock ends, the next Unlock returns the errors of the operations under the
// lock.
func TestUnlockAgain(t *testing.T) {
	es := jobtest.Open(t, 2, "shm")
	ls := serve(t, es)
	ctx := testutil.Context(t, testutil.Limit)
	over, end := context.WithCancel(ctx)
	end()
	mem, err := es[1].Alloc(4096)
	require.NoError(t, err)
	called, open := make(chan struct{}), make(chan struct{})
	_, err = es[1].Handle(0, func(rma.Envelope, [][]byte) { close(called); <-open }) // in the progress engine
	require.NoError(t, err)
	go es[1].Peer(1).Send(nil)
	<-called // rank 1 does not connect
	h, err := ls[0].Lock(ctx, ID{})
	require.NoError(t, err)
	p := es[0].Peer(1)
	p.PutBytes(mem.Key().At(mem.Key().Len()), []byte{1}).Forget()
	put := p.PutBytes(mem.Key().At(0), []byte{1})
	require.ErrorIs(t, h.Unlock(over), context.Canceled)
	close(open)
	require.NoError(t, put.Wait(ctx))
	require.ErrorIs(t, h.Unlock(ctx), rma.ErrBounds)
	require.ErrorIs(t, h.Unlock(ctx), ErrNotHeld)
}

// Operations that the application leaves incomplete, up to Config.Outstanding, do not stop
// requests and releases of locks.
func TestLocksBesideOutstanding(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := jobtest.Open(t, 2, fabric, func(c *rma.Config) { c.Outstanding = 16 })
		ls := serve(t, es)
		ctx := testutil.Context(t, testutil.Limit)
		id := ID{1, 1}
		h, err := ls[0].Lock(ctx, id)
		require.NoError(t, err)
		end := jobtest.Busy(t, es[0], es[1])
		require.NoError(t, h.Unlock(ctx))
		h, err = ls[1].Lock(ctx, id)
		require.NoError(t, err, "the release has arrived")
		require.NoError(t, h.Unlock(ctx))
		h, err = ls[0].Lock(ctx, id)
		require.NoError(t, err)
		require.NoError(t, h.Unlock(ctx))
		end()
	})
}

// A release that the engine refuses, because the home takes none of very many messages, comes
// when it does. Other locks are not affected, and requests fail.
func TestReleaseIsKept(t *testing.T) {
	es := jobtest.Open(t, 2, "shm")
	ls := serve(t, es)
	ctx := testutil.Context(t, testutil.Limit)
	id := ID{1, 1}
	h, err := ls[0].Lock(ctx, id)
	require.NoError(t, err)
	other, err := ls[0].Lock(ctx, ID{1, 2})
	require.NoError(t, err)
	end := jobtest.BusyWith(t, es[0], es[1], rma.LibraryTags|1)
	_, err = ls[0].Lock(ctx, ID{1, 3})
	require.ErrorIs(t, err, rma.ErrBusy)
	require.NoError(t, h.Unlock(ctx))
	_, err = ls[1].TryLock(ctx, id)
	require.ErrorIs(t, err, ErrTaken)
	end()
	h, err = ls[1].Lock(ctx, id)
	require.NoError(t, err)
	require.NoError(t, h.Unlock(ctx))
	require.NoError(t, other.Unlock(ctx))
	nothingLeft(t, ls)
}

// A lock whose writer is lost is broken until a rank recovers it.
func TestHolderIsLost(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := jobtest.Open(t, 3, fabric)
		ls := serve(t, es)
		ctx := testutil.Context(t, testutil.Limit)
		written, read := ID{0, 1}, ID{0, 2}
		_, err := ls[2].Lock(ctx, written)
		require.NoError(t, err)
		_, err = ls[2].RLock(ctx, read)
		require.NoError(t, err)
		waits, reads := make(chan error, 1), make(chan error, 1)
		go func() { _, err := ls[1].Lock(ctx, written); waits <- err }()
		go func() { _, err := ls[1].Lock(ctx, read); reads <- err }()
		orphan := make(chan error, 1)
		go func() { // its home is lost
			h, err := ls[1].Lock(ctx, ID{2, 1})
			if err == nil {
				_, err = ls[1].Lock(ctx, h.ID())
				require.ErrorIs(t, h.Unlock(ctx), ErrNotHeld)
			}
			orphan <- err
		}()
		requests(t, ls[0], 4)
		requests(t, ls[2], 2)
		require.NoError(t, es[2].Close())
		require.ErrorIs(t, <-waits, ErrBroken)
		require.NoError(t, <-reads)
		require.ErrorIs(t, <-orphan, rma.ErrPeerGone)
		for _, l := range ls[:2] {
			_, err = l.RLock(ctx, written)
			var who *rma.PeerError
			require.ErrorAs(t, err, &who)
			require.ErrorIs(t, who, ErrBroken)
			require.Equal(t, 2, who.Rank)
		}
		h, err := ls[1].Recover(ctx, written)
		require.NoError(t, err)
		require.NoError(t, h.Unlock(ctx))
		h, err = ls[0].Lock(ctx, written)
		require.NoError(t, err)
		require.NoError(t, h.Unlock(ctx))
	})
}

// A request that is handled behind the loss of the connection over which it came takes no lock.
func TestRequestBehindTheLoss(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := jobtest.Open(t, 3, fabric)
		ls := serve(t, es)
		ctx := testutil.Context(t, testutil.Limit)
		h, err := ls[2].Lock(ctx, ID{0, 1})
		require.NoError(t, err)
		require.NoError(t, h.Unlock(ctx))
		require.NoError(t, es[2].Close())
		testutil.Eventually(t, testutil.Limit, func() bool {
			ls[0].mu.Lock()
			defer ls[0].mu.Unlock()
			return ls[0].losses[2] == 1
		}, "the loss is noticed")
		var b [frameSize]byte
		(&frame{kind: kindLock, serial: 9, key: 1}).put(&b)
		for _, noticed := range []int{1, 0} { // or reported, but not noticed yet
			testutil.Holding(&ls[0].mu, func() { ls[0].losses[2] = noticed })
			ls[0].take(rma.Envelope{From: 2, Tag: tag, Len: len(b)}, [][]byte{b[:]})
			h, err = ls[1].Lock(ctx, ID{0, 1})
			require.NoError(t, err)
			require.NoError(t, h.Unlock(ctx))
		}
		nothingLeft(t, ls[:2])
	})
}

// After a reset of the connection neither side keeps state from before it.
func TestLocksAfterReset(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := jobtest.Open(t, 2, fabric)
		ls := serve(t, es)
		ctx := testutil.Context(t, testutil.Limit)
		id := ID{0, 1}
		mem, err := es[0].Alloc(64)
		require.NoError(t, err)
		stale := mem.Key()
		require.NoError(t, mem.Close())
		for range 5 {
			h, err := ls[1].Recover(ctx, id)
			require.NoError(t, err)
			require.Error(t, es[1].Peer(0).PutBytes(stale.At(0), []byte{1}).Wait(ctx))
			require.NoError(t, es[1].Peer(0).Reset(ctx))
			testutil.Eventually(t, testutil.Limit, func() bool {
				ls[1].mu.Lock()
				defer ls[1].mu.Unlock()
				return h.state == over
			}, "the loss is known")
			require.ErrorIs(t, h.Unlock(ctx), ErrNotHeld)
		}
		ended := make(chan error, 1)
		h, err := ls[0].Recover(ctx, id)
		require.NoError(t, err)
		go func() {
			_, err := ls[1].Lock(ctx, id)
			ended <- err
		}()
		require.NoError(t, h.Unlock(ctx))
		require.NoError(t, <-ended)
	})
}

// Closing the engine ends all waits.
func TestLocksEndWithTheEngine(t *testing.T) {
	es := jobtest.Open(t, 2, "shm")
	ls := serve(t, es)
	ctx := testutil.Context(t, testutil.Limit)
	_, err := ls[1].Lock(ctx, ID{1, 1})
	require.NoError(t, err)
	waits := make(chan error, 1)
	go func() { _, err := ls[1].Lock(ctx, ID{1, 1}); waits <- err }()
	requests(t, ls[1], 2)
	require.NoError(t, es[1].Close())
	require.ErrorIs(t, <-waits, rma.ErrClosed)
	_, err = ls[1].Lock(ctx, ID{1, 1})
	require.ErrorIs(t, err, rma.ErrClosed)
}

// A first use while the engine closes leaves nothing behind.
func TestNoLocksWhileTheEngineCloses(t *testing.T) {
	eng := jobtest.Open(t, 1, "shm")[0]
	for range 2 {
		eng.BeforeClose(func() {
			_, err := New(eng)
			require.ErrorIs(t, err, rma.ErrClosed)
		})
	}
	require.NoError(t, eng.Close())
	_, has := engines.Load(eng)
	require.False(t, has)
}

// A message that violates the protocol affects only the peer that sent it.
func TestLiesAboutLocks(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := jobtest.Open(t, 3, fabric)
		ls := make([]*Locks, 3)
		for r := range 2 {
			var err error
			ls[r], err = New(es[r])
			require.NoError(t, err)
		}
		ctx := testutil.Context(t, testutil.Limit)
		say := func(b []byte) { require.NoError(t, es[2].Peer(0).SendTag(tag, b).Wait(ctx)) }
		frameOf := func(f frame) []byte {
			var b [frameSize]byte
			f.put(&b)
			return b[:]
		}
		id := ID{0, 1}
		h, err := ls[1].Lock(ctx, id)
		require.NoError(t, err)
		say(frameOf(frame{kind: kindUnlock, serial: h.serial})) // another rank's
		say(frameOf(frame{kind: kindCancel, serial: h.serial}))
		say(frameOf(frame{kind: kindBroken, serial: 1, rank: 1 << 31}))
		_, err = ls[0].TryLock(ctx, id)
		require.ErrorIs(t, err, ErrTaken)
		waits := make(chan error, 1)
		go func() { _, err := ls[0].Lock(ctx, id); waits <- err }()
		requests(t, ls[0], 2)
		for serial := range uint64(4) {
			say(frameOf(frame{kind: kindGranted, serial: serial + 1})) // not from its home
			say(frameOf(frame{kind: kindCancelled, serial: serial + 1}))
		}
		say(frameOf(frame{kind: kindForgotten, serial: 1<<64 - 1}))
		say(frameOf(frame{kind: kindLock, serial: 1, key: 5}))
		requests(t, ls[0], 3)
		say(make([]byte, frameSize)) // its lock is broken from here on
		for _, n := range []int{0, 1, frameSize - 1} {
			say(make([]byte, n))
		}
		testutil.Eventually(t, testutil.Limit, func() bool {
			_, err := ls[1].TryLock(ctx, ID{0, 5})
			return errors.Is(err, ErrBroken)
		}, "the offender loses its locks")
		say(frameOf(frame{kind: kindLock, serial: 2, key: 6})) // ignored
		say(frameOf(frame{kind: kindGranted, serial: 77}))     // answered
		for f := (frame{}); f.serial != 77; {
			b := make([]byte, frameSize)
			_, err := es[2].Peer(0).RecvTag(tag, b).Wait(ctx)
			require.NoError(t, err)
			f, err = parse(b)
			require.NoError(t, err)
		}
		requests(t, ls[0], 2)
		require.NoError(t, h.Unlock(ctx))
		require.NoError(t, <-waits)
	})
}

func BenchmarkLock(b *testing.B) {
	for _, fabric := range []string{"shm", "tcp"} {
		b.Run(fabric, func(b *testing.B) {
			es := jobtest.Open(b, 2, fabric)
			ls := serve(b, es)
			ctx := context.Background()
			for b.Loop() {
				h, err := ls[1].Lock(ctx, ID{0, 1})
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Unlock(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
