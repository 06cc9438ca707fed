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

// transpose returns a matrix of longBytes of words whose rows are columns on the other side.
func transpose(t *testing.T) (onesided.Shape, onesided.Plan) {
	const columns = 256
	const rows = longBytes / 8 / columns
	s := onesided.Shape{Run: 8, Dims: []onesided.Dim{
		{Count: rows, Local: 8 * columns, Remote: 8},
		{Count: columns, Local: 8, Remote: 8 * rows},
	}}
	p, err := s.Check()
	require.NoError(t, err)
	require.EqualValues(t, longBytes, p.Total)
	return s, p
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

			here, err := a.Memory.Alloc(longBytes, fabric.AccessAll, 0)
			require.NoError(t, err)
			copy(here.Bytes(), src)
			s, plan := transpose(t)
			o = New(&a.Queue, Put)
			o.Cursor().SetShape(onesided.Piece{Addr: fabric.Addr(here.Bytes()), Len: longBytes, Key: here.LKey(0)}, onesided.Piece{Addr: k.Addr, Len: longBytes, Key: k.RKeys[0]}, s, plan)
			end(o, "put of a shape")
			for i := range longBytes / 8 {
				row, column := i/s.Dims[1].Count, i%s.Dims[1].Count
				if v := binary.NativeEndian.Uint64(there.Bytes()[8*(column*s.Dims[0].Count+row):]); v != uint64(8*i) {
					t.Fatalf("put of a shape: %d in row %d, column %d, want %d", v, row, column, 8*i)
				}
			}
			clear(here.Bytes())
			o = New(&a.Queue, Get)
			o.Cursor().SetShape(onesided.Piece{Addr: fabric.Addr(here.Bytes()), Len: longBytes, Key: here.LKey(0)}, onesided.Piece{Addr: k.Addr, Len: longBytes, Key: k.RKeys[0]}, s, plan)
			end(o, "get of a shape")
			require.Equal(t, src, here.Bytes(), "get of a shape")
		})
	}
}

// Memory that the target closes between two turns is refused, and what was combined or put before stays.
func TestMemoryIsClosedBetweenTurns(t *testing.T) {
	for name, begin := range map[string]func(a *side, src *mr.Registration, k mr.Key) *Op{
		"accumulate": func(a *side, src *mr.Registration, k mr.Key) *Op {
			o := New(&a.Queue, Accumulate)
			o.Remote(k.Addr, k.RKeys[0])
			o.Combine(src.Bytes(), onesided.Request{Op: onesided.Sum, Type: onesided.Uint64, Ref: k.Ref, Addr: k.Addr})
			return o
		},
		"put of a shape": func(a *side, src *mr.Registration, k mr.Key) *Op {
			o := New(&a.Queue, Put)
			s, plan := transpose(t)
			o.Cursor().SetShape(onesided.Piece{Addr: fabric.Addr(src.Bytes()), Len: longBytes, Key: src.LKey(0)}, onesided.Piece{Addr: k.Addr, Len: longBytes, Key: k.RKeys[0]}, s, plan)
			return o
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, _, there := mappedPair(t, false)
			src, err := a.Memory.Alloc(longBytes, fabric.AccessAll, 0)
			require.NoError(t, err)
			src.Bytes()[0] = 1
			at := fabric.Addr(src.Bytes())
			o := begin(a, src, there.Key())
			var did, done, last, beyond bool
			var first byte
			a.Prog.Do(func() {
				o.Start()
				did, done, first = a.Queue.post(), o.Done(), there.Bytes()[0]
				last, beyond = a.Engine.Uses(at+longBytes-1, at+longBytes), a.Engine.Uses(at+longBytes, at+longBytes+8)
				err = there.Close()
			})
			require.NoError(t, err)
			require.True(t, did)
			require.False(t, done)
			require.EqualValues(t, 1, first)
			require.True(t, last, "the last byte of the source")
			require.False(t, beyond)
			require.NoError(t, a.Prog.Wait(testutil.Context(t, testutil.Limit), &o.Waiter))
			if name == "accumulate" {
				require.ErrorIs(t, o.Err, fabric.ErrRemoteAccess)
			} else { // the endpoint is down before all runs are posted, and the engine of this test does not ask why
				require.ErrorIs(t, o.Err, fabric.ErrDown)
			}
		})
	}
}

// veiled maps no memory while it is on.
type veiled struct {
	fabric.Direct
	on bool
}

func (v *veiled) Reach(need fabric.Access, rkey uint32, addr uint64, n int) []byte {
	if v.on {
		return nil
	}
	return v.Direct.Reach(need, rkey, addr, n)
}

// renewing is memory of a peer that replaces a region by another, key, when the latter is first reached.
type renewing struct {
	fabric.Direct
	key   uint32
	renew func() (rkey uint32, addr uint64)
}

func (r *renewing) Reach(need fabric.Access, rkey uint32, addr uint64, n int) []byte {
	if rkey == r.key {
		rkey, addr = r.renew()
	}
	return r.Direct.Reach(need, rkey, addr, n)
}

// The word of a signal is not touched if the peer has withdrawn it while the data was put.
func TestSignalOfAWordThatIsWithdrawn(t *testing.T) {
	a, b, there := mappedPair(t, false)
	k := there.Key()
	var data *mr.Registration
	var err error
	r := &renewing{key: ^uint32(0)}
	r.renew = func() (uint32, uint64) {
		require.NoError(t, there.Close())
		data, err = b.Memory.Alloc(2*longBytes, fabric.AccessAll, 0) // does not fit where the word was
		require.NoError(t, err)
		return data.Key().RKeys[0], data.Key().Addr
	}
	a.Prog.Do(func() { r.Direct, a.Queue.mapped.Direct = a.Queue.mapped.Direct, r })
	testutil.Fill(a.region.Bytes()[:64], 1, 0)
	sge := fabric.NewSGE(a.region.Bytes()[:64], a.region.LKey(0))
	var receipt uint64
	testutil.Eventually(t, testutil.Limit, func() bool { // the progress goroutine may own the engine
		receipt = TrySignal(&a.Queue, a.region, sge, 0, r.key, k.Addr, k.RKeys[0], false, 1)
		return data != nil
	}, "the data to be put")
	require.Zero(t, receipt)
	require.Equal(t, a.region.Bytes()[:64], data.Bytes()[:64])
	require.Equal(t, make([]byte, 64), data.Bytes()[64:128])
}

// An accumulate on memory that has been mapped meanwhile does not overtake those that the target
// executes.
func TestAccumulatesKeepTheirOrderWhenMemoryIsMapped(t *testing.T) {
	a, b, there := mappedPair(t, false)
	k := there.Key()
	replace := func(v uint64) *Op {
		o := New(&a.Queue, Accumulate)
		o.Remote(k.Addr, k.RKeys[0])
		o.Combine(binary.NativeEndian.AppendUint64(nil, v), onesided.Request{Op: onesided.Replace, Type: onesided.Uint64, Ref: k.Ref, Addr: k.Addr})
		return o
	}
	v := &veiled{on: true}
	a.Prog.Do(func() { v.Direct, a.Queue.mapped.Direct = a.Queue.mapped.Direct, v })
	_, err := a.do(t, replace(1)) // makes slots
	require.NoError(t, err)
	first, second, third := replace(2), replace(3), replace(4)
	b.Prog.Do(func() { // b serves nothing meanwhile
		a.Prog.Do(func() {
			first.Start()
			a.Queue.post()
			v.on = false
			second.Start()
			a.Queue.post()
		})
	})
	for _, o := range []*Op{first, second} {
		require.NoError(t, a.Prog.Wait(testutil.Context(t, testutil.Limit), &o.Waiter))
		require.NoError(t, o.Err)
	}
	require.EqualValues(t, 3, onesided.Load64(there.Bytes()))
	var done bool
	a.Prog.Do(func() {
		third.Start()
		a.Queue.post()
		done = third.Done()
	})
	require.True(t, done, "nothing is in its way")
	require.EqualValues(t, 4, onesided.Load64(there.Bytes()))
}
