package initiator

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/mr"
)

// track is an endpoint that records what is posted; the test completes it.
type track struct {
	fabric.Endpoint
	room   int // requests that Post takes
	posted []fabric.WR
	marks  []uint64 // in requests without a completion
}

func (k *track) Post(wrs []fabric.WR) (n int, err error) {
	for n < len(wrs) && k.room > 0 {
		w := wrs[n]
		if w.Flags&fabric.FlagInline != 0 {
			s := w.Local[0]
			k.marks = append(k.marks, binary.LittleEndian.Uint64(fabric.BytesAt(s.Addr, int(s.Len))))
		} else {
			k.posted = append(k.posted, w)
		}
		n++
		k.room--
	}
	return n, nil
}

// tracks is a queue with rail 0 and a far faster rail 1, both of which the test drives.
type tracks struct {
	*side
	t    *testing.T
	rail [2]*track
	x    *Rails
	ops  []*Op
	lost int
	gone error
}

func (r *tracks) RailLost(int, error) { r.lost++ }
func (r *tracks) Sever(err error)     { r.gone = err }

const trackPut = 8 << 10

func newTracks(t *testing.T) *tracks {
	l, _ := linktest.Sim(sim.Options{})(t)
	r := &tracks{side: newSideIdle(t, l), t: t}
	r.Queue.host = r
	r.x = &r.Queue.rails
	mine, err := l.Alloc(MarksSize, fabric.AccessAll)
	require.NoError(t, err)
	require.True(t, r.Prog.Own()) // by the test
	t.Cleanup(func() {
		for i := range r.rail {
			for len(r.rail[i].posted) > 0 {
				r.end(i, 1, fabric.StatusOK)
			}
		}
		r.Prog.Disown()
		r.close(t)
	})
	r.rail[0] = &track{room: 1 << 20}
	r.Queue.Up(r.rail[0])
	r.x.Marks(1, mine)
	r.connect()
	return r
}

// connect connects rail 1.
func (r *tracks) connect() {
	r.rail[1] = &track{room: 1 << 20}
	r.x.Up(1, r.rail[1], fabric.RemoteKey{Addr: 64, Len: 8})
	r.prefer()
}

// prefer makes rail 1 known to be the faster one.
func (r *tracks) prefer() {
	r.x.rail[0].cost, r.x.rail[0].samples = logp.Rail{PerByte: 1000}, settled
	r.x.rail[1].cost, r.x.rail[1].samples = logp.Rail{PerByte: 1}, settled
	t := r.x.trialOf(trackPut)
	*t = trial{last: 1, cost: [ways]float64{0: 1000, 1: 1}, turn: 1}
	for w := range t.pause {
		t.since[w], t.pause[w] = t.turn, 1<<20
	}
}

// start begins operations to the place of their number.
func (r *tracks) start(k Kind, n int) {
	keys := [mr.MaxRails]PartKeys{{Has: true}, {Has: true}}
	for range n {
		o := New(&r.Queue, k)
		o.Local(fabric.SGE{Len: trackPut})
		o.Remote(uint64(len(r.ops))*trackPut, 0)
		o.Divide(&keys)
		o.Start()
		r.ops = append(r.ops, o)
	}
	r.step()
}

// step posts what can be posted.
func (r *tracks) step() {
	for n := 0; r.Step(); n++ {
		require.Less(r.t, n, 100, "it does not rest")
	}
}

// closed is that the peer has closed rail 1, with its last mark.
func (r *tracks) closed(mark uint64) error {
	defer r.step()
	return r.x.Closed(1, mark)
}

// end completes the next n requests of a rail.
func (r *tracks) end(rail, n int, st fabric.Status) {
	k := r.rail[rail]
	was := k.posted[:n]
	k.posted = k.posted[n:]
	for _, w := range was {
		if c := (&fabric.Completion{ID: w.ID, Op: w.Op, Status: st}); !r.Engine.Complete(c) {
			r.Queue.CompleteControl(c)
		}
	}
	r.step()
}

// done returns the numbers of the operations that are complete.
func (r *tracks) done() (is []int) {
	for i, o := range r.ops {
		if o.Done() {
			require.NoError(r.t, o.Err)
			is = append(is, i)
		}
	}
	return is
}

// on returns the numbers of the operations whose requests are in flight on a rail.
func (r *tracks) on(rail int) (is []int) {
	for _, w := range r.rail[rail].posted {
		is = append(is, int(w.RemoteAddr/trackPut))
	}
	return is
}

func upTo(lo, hi int) (is []int) {
	for ; lo < hi; lo++ {
		is = append(is, lo)
	}
	return is
}

// Puts on another rail follow each other. When the rail ends, those behind which the peer has
// placed a mark are complete, and the others, and no others, are posted again in their order.
// Nothing else is posted before they are complete.
func TestPutsInFlightWhenARailEnds(t *testing.T) {
	const n, ended = 6, 2
	for mark := uint64(ended - 1); mark < n; mark++ {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("mark %d, late %v", mark, late), func(t *testing.T) {
				r := newTracks(t)
				r.start(Put, n)
				require.Equal(t, upTo(0, n), r.on(1))
				require.Equal(t, []uint64{1, 2, 3, 4, 5}, r.rail[1].marks)
				r.end(1, ended, fabric.StatusOK)
				require.Equal(t, upTo(0, ended), r.done())
				r.x.Down(1)
				lose := func() { r.end(1, n-ended, fabric.StatusFlushed) }
				if !late {
					lose()
					require.Equal(t, n-ended, r.lost)
				}
				r.start(Put, 1)
				require.Empty(t, r.on(0), "the peer may still place what was in flight")
				require.NoError(t, r.closed(mark))
				if late {
					require.Empty(t, r.on(0))
					lose()
				}
				placed := max(int(mark), ended)
				require.Equal(t, upTo(0, placed), r.done())
				require.Equal(t, upTo(placed, n), r.on(0))
				require.EqualValues(t, n-placed, r.x.Counts(1).Again)
				r.connect()
				r.step()
				require.Equal(t, upTo(placed, n), r.on(0))
				require.Empty(t, r.on(1), "they could be overtaken on the rail that is back")
				r.end(0, n-placed, fabric.StatusOK)
				require.Equal(t, upTo(0, n), r.done())
				require.Equal(t, []int{n}, append(r.on(0), r.on(1)...))
			})
		}
	}
}

// What the peer says about marks that were not sent, or not any more, has no effect.
func TestMarksThatCannotBe(t *testing.T) {
	r := newTracks(t)
	require.ErrorIs(t, r.x.Closed(1, 1), ErrMisbehaves)
	r.start(Put, 4)
	r.end(1, 3, fabric.StatusOK) // the third one was behind the mark 2
	for _, mark := range []uint64{0, 1, 4, 5, 1 << 63, 1<<64 - 1} {
		require.ErrorIs(t, r.x.Closed(1, mark), ErrMisbehaves, "%d", mark)
	}
	require.Equal(t, []int{3}, r.on(1))
	require.Empty(t, r.on(0))
	r.x.Down(1)
	r.end(1, 1, fabric.StatusFlushed)
	require.Len(t, r.done(), 3)
	require.NoError(t, r.closed(3))
	require.Equal(t, []int{3}, r.on(0))
	r.end(0, 1, fabric.StatusOK)
	require.ErrorIs(t, r.x.Closed(1, 3), ErrMisbehaves, "of the connection before")
	require.NoError(t, r.closed(0))
}

// A get behind puts follows them, there and on rail 0; a put that is alone needs no mark; what is
// not put whole on that rail waits.
func TestWhatFollowsPutsOnARail(t *testing.T) {
	r := newTracks(t)
	r.start(Put, 1)
	r.end(1, 1, fabric.StatusOK)
	r.start(Put, 1)
	require.Empty(t, r.rail[1].marks)
	require.True(t, r.holds())
	r.start(Get, 1)
	r.start(Put, 1)
	require.Equal(t, []int{1, 2, 3}, r.on(1))
	require.Equal(t, []uint64{2}, r.rail[1].marks)
	o := New(&r.Queue, Put) // a short one
	o.Local(fabric.SGE{Len: 8})
	o.Remote(4*trackPut, 0)
	o.Start()
	r.ops = append(r.ops, o)
	r.start(Put, 1)
	require.Empty(t, r.on(0))
	require.Len(t, r.on(1), 3)
	r.x.Down(1)
	r.end(1, 3, fabric.StatusFlushed)
	require.NoError(t, r.closed(2))
	require.Equal(t, []int{0, 1}, r.done())
	require.Equal(t, []int{2, 3}, r.on(0))
	r.end(0, 2, fabric.StatusOK)
	require.Equal(t, []int{4}, r.on(0)[:1])
	for len(r.on(0)) > 0 {
		r.end(0, 1, fabric.StatusOK)
	}
	require.Equal(t, upTo(0, 6), r.done())
	require.False(t, r.holds())
}

// A queue that is full between a mark and its put, or before both, changes neither the order nor
// what the marks mean.
func TestMarksInAFullQueue(t *testing.T) {
	r := newTracks(t)
	r.rail[1].room = 2 // the mark of the second put without the put
	r.start(Put, 4)
	require.Equal(t, []int{0}, r.on(1))
	require.Equal(t, []uint64{1}, r.rail[1].marks)
	for i := range 3 {
		r.rail[1].room = 2
		r.end(1, 1, fabric.StatusOK)
		require.NotContains(t, r.on(1), i)
	}
	r.rail[1].room = 10
	r.end(1, len(r.on(1)), fabric.StatusOK)
	for len(r.on(1)) > 0 {
		r.end(1, 1, fabric.StatusOK)
	}
	require.Equal(t, upTo(0, 4), r.done())
	require.IsIncreasing(t, r.rail[1].marks)
}

// A mark that the peer refuses ends the connection, as any other request.
func TestMarksThatAreRefused(t *testing.T) {
	r := newTracks(t)
	r.start(Put, 2)
	r.Queue.CompleteControl(&fabric.Completion{ID: partID | 1<<railShift, Op: fabric.OpWrite, Status: fabric.StatusFlushed})
	require.NoError(t, r.gone)
	r.Queue.CompleteControl(&fabric.Completion{ID: partID | 1<<railShift, Op: fabric.OpWrite, Status: fabric.StatusRemoteAccess})
	require.ErrorIs(t, r.gone, fabric.ErrRemoteAccess)
	r.end(1, 2, fabric.StatusOK)
}

// Without a word for marks, or on a link that does not copy them, one put is in flight.
func TestPutsWithoutMarks(t *testing.T) {
	r := newTracks(t)
	r.x.rail[1].theirs.Len = 0
	r.start(Put, 3)
	for i := range 3 {
		require.Equal(t, []int{i}, r.on(1))
		r.end(1, 1, fabric.StatusOK)
	}
	require.Empty(t, r.rail[1].marks)
}

// Over sockets: what the peer has placed before a rail ends is not placed again, although its
// acknowledgements are lost; what its application has stored there stays.
func TestPutsThatArePlacedAreNotRepeated(t *testing.T) {
	const puts, consumed = 6, 1<<64 - 1
	la, lb := linktest.Real()["tcp"](t)
	r := &tracks{side: newSideIdle(t, la), t: t}
	r.Queue.host, r.x = r, &r.Queue.rails
	alloc := func(l fabric.Link, n int) fabric.Region {
		m, err := l.Alloc(n, fabric.AccessAll)
		require.NoError(t, err)
		return m
	}
	dst, theirs := alloc(lb, puts*trackPut), alloc(lb, MarksSize)
	require.True(t, r.Prog.Own())
	var other fabric.Endpoint
	r.EP, other = linktest.Join(t, la, lb, fabric.EndpointOptions{})
	r.Queue.Up(r.EP)
	r.x.Marks(1, alloc(la, MarksSize))
	poll := func(l fabric.Link) {
		cs := make([]fabric.Completion, 16)
		n := l.Poll(cs)
		for _, c := range cs[:n] {
			require.Less(t, c.Op, fabric.OpNotify)
			require.True(t, l == la)
			r.Queue.CompleteControl(&c)
		}
		r.step()
	}
	keys := [mr.MaxRails]PartKeys{}
	for i := range 2 {
		keys[i] = PartKeys{LKey: r.region.LKey(0), RKey: dst.Key().RKey, Has: true}
	}
	word := func(i int) []byte { return dst.Bytes()[i*trackPut:] }
	rng := rand.New(rand.NewPCG(1, 2))
	for v := uint64(1); v <= 20; v++ {
		ep, end := linktest.Join(t, la, lb, fabric.EndpointOptions{})
		clear(theirs.Bytes())
		r.x.Up(1, ep, theirs.Key())
		r.prefer()
		var ops []*Op
		start := func(n int) {
			for range n {
				at := uint64(len(ops)) * trackPut
				binary.NativeEndian.PutUint64(r.region.Bytes()[at:], v)
				o := New(&r.Queue, Put)
				o.Local(fabric.SGE{Addr: r.region.Key().Addr + at, Len: trackPut})
				o.Remote(dst.Addr()+at, dst.Key().RKey)
				o.Divide(&keys)
				o.Start()
				ops = append(ops, o)
			}
			r.step()
		}
		first := 1 + rng.IntN(puts-1)
		start(first)
		for testutil.Load64(word(first-1)) != v {
			poll(lb)
		}
		start(puts - first)
		for i := range first - 1 { // its application has seen the last one
			testutil.Store64(word(i), consumed)
		}
		require.NoError(t, ep.Close())
		r.x.Down(1)
		require.NoError(t, end.Close())
		require.NoError(t, r.closed(binary.LittleEndian.Uint64(theirs.Bytes())))
		testutil.Eventually(t, testutil.Limit, func() bool {
			poll(la)
			poll(lb)
			return !slices.ContainsFunc(ops, func(o *Op) bool { return !o.Done() })
		}, "all puts are complete")
		for i, o := range ops {
			require.NoError(t, o.Err)
			want := v
			if i < first-1 {
				want = consumed
			}
			require.Equal(t, want, testutil.Load64(word(i)), "put %d of %d, %d before the end", i, v, first)
		}
	}
	require.Positive(t, r.x.Counts(1).Again)
	require.NoError(t, other.Close())
	require.NoError(t, dst.Close())
	require.NoError(t, theirs.Close())
	r.Prog.Disown()
	r.close(t)
}
