package initiator

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/mr"
)

// longBytes takes three whole turns and a part of a fourth one.
const longBytes = 3*carriedTurn + 4096

// mappedPair is two ranks over shared memory, or one twice, and memory of the second that the
// first can reach.
func mappedPair(t *testing.T, own bool) (a, b *side, there *mr.Registration) {
	t.Helper()
	la, lb := linktest.Real()["shm"](t)
	if own {
		lb = la
	}
	a = newSideIdle(t, la)
	if b = a; !own {
		b = newSideIdle(t, lb)
	}
	a.other, b.other = b, a
	var answers fabric.Endpoint
	a.EP, answers = linktest.Join(t, la, lb, fabric.EndpointOptions{})
	if !own {
		b.EP = answers
	}
	there, err := b.Memory.Alloc(longBytes, fabric.AccessAll, 0)
	require.NoError(t, err)
	a.Prog.Do(func() {
		a.Queue.own, a.Queue.immediate = own, own
		a.Queue.Up(a.EP)
	})
	if !own {
		b.Prog.Do(func() { b.Queue.Up(b.EP) })
		b.Prog.Start(false)
		t.Cleanup(func() { b.close(t) })
	}
	a.Prog.Start(false)
	t.Cleanup(func() {
		if own {
			a.Prog.Do(func() { require.NoError(t, answers.Close()) }) // the progress goroutine polls its link
		}
		a.close(t)
	})
	testutil.Eventually(t, testutil.Limit, func() (reached bool) {
		a.Prog.Do(func() {
			k := there.Key()
			reached = a.Queue.mapped.Reach(fabric.AccessRemoteRead, k.RKeys[0], k.Addr, longBytes) != nil
			a.Queue.mapped.Stored(false)
		})
		return reached
	}, "the link to map the memory")
	return a, b, there
}

// turns starts o and counts the turns until it ends, while nothing else drives the engine.
func turns(s *side, o *Op) (n int) {
	s.Prog.Do(func() {
		for o.Start(); !o.Done(); n++ {
			if !s.Queue.post() {
				return // a completion must follow
			}
		}
	})
	return n
}

// A long operation on mapped memory is executed in turns, between which the engine does
// other things.
func TestLongOperationsTakeTurns(t *testing.T) {
	for _, own := range []bool{false, true} {
		name := map[bool]string{false: "another rank", true: "itself"}[own]
		t.Run(name, func(t *testing.T) {
			a, _, there := mappedPair(t, own)
			k := there.Key()
			src := make([]byte, longBytes)
			for i := 0; i < longBytes; i += 8 {
				binary.NativeEndian.PutUint64(src[i:], uint64(i))
			}
			check := func(times uint64, what string) {
				t.Helper()
				for i := 0; i < longBytes; i += 8 {
					if v := binary.NativeEndian.Uint64(there.Bytes()[i:]); v != times*uint64(i) {
						t.Fatalf("%s: %d at %d, want %d", what, v, i, times*uint64(i))
					}
				}
			}
			end := func(o *Op, what string) {
				t.Helper()
				n := turns(a, o)
				require.True(t, o.Done(), what)
				require.NoError(t, o.Err, what)
				require.Equal(t, 4, n, what)
			}

			o := New(&a.Queue, Accumulate)
			o.Remote(k.Addr, k.RKeys[0])
			o.Combine(src, onesided.Request{Op: onesided.Sum, Type: onesided.Uint64, Ref: k.Ref, Addr: k.Addr})
			end(o, "one piece")
			check(1, "one piece")

			o = New(&a.Queue, Accumulate)
			o.Cursor().AddLocal(onesided.Piece{Addr: fabric.Addr(src), Len: longBytes})
			o.Cursor().AddRemote(onesided.Piece{Addr: k.Addr, Len: longBytes, Key: k.RKeys[0]})
			require.True(t, o.Cursor().End())
			old := make([]byte, longBytes)
			o.CombinePieces(onesided.Combining{Op: onesided.Sum, Type: onesided.Uint64, Fetch: true}, src, old, k.Addr, longBytes)
			end(o, "with a result")
			check(2, "with a result")
			require.Equal(t, src, old)
		})
	}
}

// Memory that the target closes between two turns is refused, and what was combined before stays.
func TestMemoryIsClosedBetweenTurns(t *testing.T) {
	a, _, there := mappedPair(t, false)
	k := there.Key()
	src := make([]byte, longBytes)
	src[0] = 1
	o := New(&a.Queue, Accumulate)
	o.Remote(k.Addr, k.RKeys[0])
	o.Combine(src, onesided.Request{Op: onesided.Sum, Type: onesided.Uint64, Ref: k.Ref, Addr: k.Addr})
	a.Prog.Do(func() {
		o.Start()
		require.True(t, a.Queue.post())
		require.False(t, o.Done())
		require.EqualValues(t, 1, there.Bytes()[0])
		at := fabric.Addr(src)
		require.True(t, a.Engine.Uses(at+longBytes-1, at+longBytes), "the last byte of the source")
		require.False(t, a.Engine.Uses(at+longBytes, at+longBytes+8))
		require.NoError(t, there.Close())
	})
	require.NoError(t, a.Prog.Wait(testutil.Context(t, testutil.Limit), &o.Waiter))
	require.ErrorIs(t, o.Err, fabric.ErrRemoteAccess)
}
