package initiator

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/logp"
)

// grouping has a's puts and gets of many pieces go as groups.
func grouping(t *testing.T, a *side) {
	t.Helper()
	a.Prog.Do(func() {
		a.Queue.Plan(new(logp.Params), true, logp.Group)
		a.Queue.requests.open()
	})
	testutil.Eventually(t, testutil.Limit, func() (open bool) {
		a.Prog.Do(func() { open = a.Queue.requests.state == wayOpen })
		return open
	}, "slots")
}

// pieces is an operation of n pieces of size bytes, from the start of this side's region to
// places stride bytes apart in the other side's, the last one first.
func pieces(s *side, k Kind, n, size, stride int) *Op {
	o := New(&s.Queue, k)
	c := o.Cursor()
	mem, lkey := s.region.Bytes(), s.region.LKey(0)
	addr, rkey := s.at(0)
	for i := range n {
		c.AddLocal(onesided.Piece{Addr: fabric.Addr(mem[i*size:]), Len: uint64(size), Key: lkey})
		c.AddRemote(onesided.Piece{Addr: addr + uint64((n-1-i)*stride), Len: uint64(size), Key: rkey})
	}
	c.End()
	return o
}

// Puts and gets of many pieces in groups move what chains move, with the completion of all.
func TestGroups(t *testing.T) {
	a, b := pair(t, sim.Options{})
	grouping(t, a)
	for _, c := range []struct{ n, size int }{{2, 8}, {64, 64}, {3000, 13}, {40, 1000}, {3, 30_000}} {
		stride := c.size + 11
		src, dst := a.region.Bytes(), b.region.Bytes()
		testutil.Fill(src[:c.n*c.size], uint64(c.n), 0)
		clear(dst)
		var served uint64
		b.Prog.Do(func() { served = b.Queue.Counts().Served })
		_, err := a.do(t, pieces(a, Put, c.n, c.size, stride))
		require.NoError(t, err)
		for i := range c.n {
			require.Equal(t, src[i*c.size:][:c.size], dst[(c.n-1-i)*stride:][:c.size], "piece %d of %v", i, c)
		}
		want := append([]byte(nil), src[:c.n*c.size]...)
		clear(src)
		_, err = a.do(t, pieces(a, Get, c.n, c.size, stride))
		require.NoError(t, err)
		require.Equal(t, want, src[:c.n*c.size], "%v", c)
		b.Prog.Do(func() { require.Equal(t, c.size < 8000, b.Queue.Counts().Served > served, "%v", c) })
	}
	a.Prog.Do(func() { require.False(t, a.holds()) })
}

// post posts o, and returns what waits for it.
func (s *side) post(t *testing.T, o *Op) (wait func() error) {
	gen := o.Gen()
	s.Queue.Post(o)
	return func() error {
		require.NoError(t, s.Prog.Wait(testutil.Context(t, testutil.Limit), &o.Waiter))
		err := o.Err
		require.True(t, o.Claim(gen))
		o.Release()
		return err
	}
}

// Nothing that the link carries out by itself overtakes puts in groups, and nothing passes
// them by being complete in the call; messages are held. Groups go on.
func TestNothingOvertakesPutsInGroups(t *testing.T) {
	a, b := pair(t, sim.Options{})
	grouping(t, a)
	src, dst := a.region.Bytes(), b.region.Bytes()
	testutil.Fill(src, 1, 0)
	put := func(off uint64) *Op {
		o := a.op(Put, off)
		o.Local(fabric.NewSGE(src[:8], a.region.LKey(0)))
		return o
	}
	var waits []func() error
	var receipt uint64
	var left, open int
	var held bool
	var seen []byte
	b.Prog.Do(func() { // b serves nothing meanwhile
		a.Prog.Do(func() { // all of it is there when the first is posted
			waits = append(waits,
				a.post(t, pieces(a, Put, 10, 8, 16)),
				a.post(t, pieces(a, Put, 10, 8, 32)),
				a.post(t, pieces(a, Get, 10, 8, 16)),
				a.post(t, put(4096)),
				a.post(t, a.op(FetchAdd, 4104)))
		})
		receipt = a.Queue.TryMove(Put, a.region, fabric.NewSGE(src[:8], a.region.LKey(0)), 0, 0)
		testutil.Eventually(t, testutil.Limit, func() (still bool) {
			a.Prog.Progress()
			a.Prog.Do(func() { still = a.Queue.inflight == 0 })
			return still
		}, "what may be posted to be placed")
		a.Prog.Do(func() { left, open, held = a.Queue.posts.len(), a.Queue.groups.open, a.holds() })
		seen = append(seen, dst[:8192]...)
	})
	require.Equal(t, make([]byte, 8192), seen)
	require.Zero(t, receipt)
	require.Equal(t, 2, left)
	require.Equal(t, 2, open)
	require.True(t, held)
	for _, wait := range waits {
		require.NoError(t, wait())
	}
	require.Equal(t, src[:8], dst[4096:4104])
	a.Prog.Do(func() {
		require.Zero(t, a.Queue.groups.open+a.Queue.groups.all)
		require.False(t, a.holds())
	})
}

// A group that the target refuses ends as a refused put or get does: with the connection, also if
// it has fetched something before.
func TestRefusedGroup(t *testing.T) {
	for _, k := range []Kind{Put, Get} {
		t.Run(k.String(), func(t *testing.T) {
			a, b := pair(t, sim.Options{})
			grouping(t, a)
			_, err := a.do(t, pieces(a, k, 4, 8, 16))
			require.NoError(t, err)
			b.region.Bytes()[1] = 3 // looks like the header of an accumulate
			bad := New(&a.Queue, k)
			c := bad.Cursor()
			addr, rkey := a.at(0)
			c.AddLocal(onesided.Piece{Addr: fabric.Addr(a.region.Bytes()), Len: 64, Key: a.region.LKey(0)})
			c.AddRemote(onesided.Piece{Addr: addr, Len: 56, Key: rkey})
			c.AddRemote(onesided.Piece{Addr: addr + 1<<20, Len: 8, Key: rkey})
			c.End()
			_, err = a.do(t, bad)
			require.ErrorIs(t, err, fabric.ErrRemoteAccess)
			var down error
			var open int
			var held, over bool
			var more uint64
			a.Prog.Do(func() { down, open, held = a.Queue.down, a.Queue.groups.open+a.Queue.groups.all, a.holds() })
			require.ErrorIs(t, down, fabric.ErrRemoteAccess)
			require.Zero(t, open)
			require.False(t, held)
			b.Prog.Do(func() { // what comes behind is not looked at
				served := b.Queue.counts.Served
				b.Queue.serving.serve(noteGroup, 0)
				over, more = b.Queue.serving.over, b.Queue.counts.Served-served
			})
			require.True(t, over)
			require.Zero(t, more)
		})
	}
}

// A group that was posted ends with its connection, and lets messages go.
func TestGroupToAPeerThatLeaves(t *testing.T) {
	a, b := pair(t, sim.Options{})
	grouping(t, a)
	var wait func() error
	b.Prog.Do(func() {
		wait = a.post(t, pieces(a, Put, 10, 8, 16))
		_ = b.EP.Close()
	})
	require.Error(t, wait())
	a.Prog.Do(func() {
		require.Zero(t, a.Queue.groups.open+a.Queue.groups.all)
		require.False(t, a.holds())
	})
}

// A target that takes long for groups gets chains, until what was learned has faded.
func TestTargetsThatComputeGetChains(t *testing.T) {
	var g groups
	p := logp.Params{G: 1000, Ls: 100}
	g.params = &p
	way := func() logp.Way { return g.plan(Put, 64, 64*64).Way }
	require.Equal(t, logp.Group, way())
	g.pace.late = 1e6
	require.Equal(t, logp.Chain, way())
	n := 0
	for ; way() == logp.Chain; n++ {
		g.pace.passed()
	}
	require.Less(t, n, 200)
	g.forced, g.way = true, logp.Chain
	require.Equal(t, logp.Chain, way())
}

// One group that took long, because something else had a processor, does not end groups; a
// target that is late each time does.
func TestOneLateGroupIsNoPace(t *testing.T) {
	p := pace{want: 15e3}
	p.learn(1e9)
	require.InDelta(t, 15e3, p.late, 1)
	n := 1
	for ; p.late < 500e3; n++ {
		p.learn(1e6)
	}
	require.Less(t, n, 12)
}

// Chains that take longer to post than predicted make groups cheaper; a post that something
// interrupted does not by itself.
func TestSlowChainsGetGroups(t *testing.T) {
	var g groups
	p := logp.Params{Os: logp.Curve{}, G: 10, Ls: 1000}
	g.params = &p
	way := func(k Kind) logp.Way { return g.plan(k, 64, 64*64).Way }
	require.Equal(t, logp.Chain, way(Put))
	g.chains[Put].learn(1e6)
	require.InDelta(t, 1.75, g.chains[Put].factor, 1e-9)
	require.Equal(t, logp.Chain, way(Put))
	for range 20 {
		g.chains[Put].learn(24)
	}
	require.InDelta(t, 24, g.chains[Put].factor, 1)
	require.Equal(t, logp.Group, way(Put))
	require.Equal(t, logp.Chain, way(Get), "gets are another matter")
	for range 20 {
		g.chains[Put].learn(1)
	}
	require.Equal(t, logp.Chain, way(Put))
}

// Only chains of one operation are timed, and only where posting is all there is to them.
func TestWhichPostsAreTimed(t *testing.T) {
	a, _ := pair(t, sim.Options{})
	for _, immediate := range []bool{false, true} {
		a.Prog.Do(func() {
			a.Queue.immediate = immediate
			a.Queue.Plan(new(logp.Params), true, logp.Chain)
		})
		for range 3 {
			for _, k := range []Kind{Put, Get} {
				_, err := a.do(t, pieces(a, k, 10, 8, 16))
				require.NoError(t, err)
				o := a.op(k, 0)
				o.Local(fabric.NewSGE(a.region.Bytes()[:8], a.region.LKey(0)))
				_, err = a.do(t, o)
				require.NoError(t, err)
			}
		}
		var chains [Get + 1]chainPace
		a.Prog.Do(func() { chains = a.Queue.groups.chains })
		for k, c := range chains {
			require.Equal(t, immediate, c.posts == 3, "%v", Kind(k))
			require.Equal(t, immediate, c.factor > 0, "%v", Kind(k))
		}
	}
}

// A group that waits for a slot does not look through its pieces at every post.
func TestGroupWaitsForASlot(t *testing.T) {
	a, b := pair(t, sim.Options{})
	grouping(t, a)
	const n, size = 40, 8
	testutil.Fill(a.region.Bytes()[:n*size], 1, 0)
	o := pieces(a, Put, n, size, size)
	gen := o.Gen()
	var posted, looked bool
	a.Prog.Do(func() {
		a.Queue.requests.free = 0
		o.Start()
		posted = a.Queue.post()
		a.grouper = onesided.Grouper{} // View fills it
		for range 3 {
			posted = a.Queue.post() || posted
		}
		looked = !reflect.ValueOf(a.grouper).IsZero()
		a.Queue.requests.free = allSlots
	})
	require.False(t, posted)
	require.False(t, looked)
	require.NoError(t, a.Prog.Wait(testutil.Context(t, testutil.Limit), &o.Waiter))
	require.NoError(t, o.Err)
	require.True(t, o.Claim(gen))
	o.Release()
	for i := range n {
		require.Equal(t, a.region.Bytes()[i*size:][:size], b.region.Bytes()[(n-1-i)*size:][:size])
	}
}
