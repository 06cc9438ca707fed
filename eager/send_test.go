package eager

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/internal/testutil"
)

var bothModes = []Mode{ModeLap, ModeCursor}

// fillUp sends small messages of class cl until there is no room and returns
// how many went.
func fillUp(t *testing.T, s *side, cl flowctl.Class) int {
	for n := 0; ; n++ {
		res, err := s.ch.Send(Envelope{Class: cl}, []byte{byte(n)})
		require.NoError(t, err)
		s.poll()
		if res == NoCredit {
			return n
		}
		require.Equal(t, Accepted, res)
		require.Less(t, n, 1000)
	}
}

func TestOutOfCreditIsAValue(t *testing.T) {
	t.Parallel()
	for _, mode := range bothModes {
		o := Options{Blocks: 16, BlockSize: 64, Mode: mode, Control: 3, Every: 4}
		a, b := pair(t, simLinks(sim.Options{}), o, o)
		require.Equal(t, 13, fillUp(t, a, flowctl.Data))
		require.Equal(t, 3, fillUp(t, a, flowctl.Control), "control has its reserve")
		require.Equal(t, uint64(2), a.ch.Stats().NoCredit)
		// Credit comes back in lots of Every, and data leaves the reserve alone.
		for i := range 4 {
			require.Zero(t, b.ch.Stats().Credits)
			var buf [1]byte
			_, ok, err := b.ch.Recv(buf[:])
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, byte(i), buf[0])
		}
		require.Equal(t, uint64(1), b.ch.Stats().Credits)
		require.Equal(t, 1, fillUp(t, a, flowctl.Data))
		require.Equal(t, 3, fillUp(t, a, flowctl.Control))
		// Force returns what Every holds back.
		b.drop(t)
		done, err := b.ch.Progress(true)
		require.NoError(t, err)
		require.True(t, done)
		require.Equal(t, 1, fillUp(t, a, flowctl.Control))
	}
}

// noRegister is a link that registers no memory.
type noRegister struct{ fabric.Link }

var errNoRegister = fmt.Errorf("no registrations left: %w", syscall.ENOMEM)

func (noRegister) Register([]byte, fabric.Access) (fabric.Region, error) { return nil, errNoRegister }

// With Late the mirror comes with the first message, or the first credit, and a channel that
// does not get it fails; the lists of requests always come then.
func TestFirstRequestAllocates(t *testing.T) {
	t.Parallel()
	for _, mode := range bothModes {
		o := Options{Blocks: 4, BlockSize: 64, Mode: mode, Every: 2, Late: true}
		a, b := pair(t, simLinks(sim.Options{}), o, o)
		first, mirror := a.ch.Stats().Memory, mirrorMemory(&a.ch.txRing)
		for i := range 2 {
			require.Nil(t, b.ch.wrs)
			require.Equal(t, first, b.ch.Stats().Memory)
			res, err := a.ch.Send(Envelope{}, []byte{byte(i)})
			require.NoError(t, err)
			require.Equal(t, Accepted, res)
			require.Equal(t, first+mirror, a.ch.Stats().Memory)
			b.drop(t)
		}
		require.Equal(t, uint64(1), b.ch.Stats().Credits)
		require.Equal(t, first+mirror, b.ch.Stats().Memory)

		a, b = pair(t, simLinks(sim.Options{}), o, o)
		a.ch.link, b.ch.link = noRegister{a.link}, noRegister{b.link}
		_, err := a.ch.Send(Envelope{}, []byte{1})
		require.ErrorIs(t, err, errNoRegister)
		require.ErrorIs(t, a.ch.Err(), errNoRegister)
		require.ErrorIs(t, a.ch.Err(), fabric.ErrResources)
		_, res, err := b.ch.StageVec(Envelope{}, nil)
		require.ErrorIs(t, err, errNoRegister)
		require.NotEqual(t, Accepted, res)
		require.Equal(t, first, b.ch.Stats().Memory)
	}
}

// The staging copy of a block belongs to the link until a completion says
// otherwise, even if the peer has long consumed it.
func TestCreditAloneDoesNotFreeTheMirror(t *testing.T) {
	t.Parallel()
	o := Options{Blocks: 8, BlockSize: 64, Control: 1, Every: 1}
	a, b := pair(t, simLinks(sim.Options{}), o, o)
	for range 8 {
		res, err := a.ch.Send(Envelope{Class: flowctl.Control}, []byte("x"))
		require.NoError(t, err)
		require.Equal(t, Accepted, res)
		b.drop(t)
	}
	res, err := a.ch.Send(Envelope{}, []byte("x"))
	require.NoError(t, err)
	require.Equal(t, NoCredit, res)
	require.Equal(t, uint64(8), a.ch.word>>1, "credit is there")
	a.poll()
	res, err = a.ch.Send(Envelope{}, []byte("x"))
	require.NoError(t, err)
	require.Equal(t, Accepted, res)
}

func TestQueueFullIsAValue(t *testing.T) {
	t.Parallel()
	o := Options{Blocks: 256, BlockSize: 64, Depth: 16, Batch: 8}
	a, b := pair(t, simLinks(sim.Options{Caps: sim.CapsLike("tcp")}), o, o)
	n := 0
	for ; ; n++ {
		res, err := a.ch.Send(Envelope{}, []byte{byte(n)})
		require.NoError(t, err)
		if res == QueueFull {
			break
		}
		require.Less(t, n, 200)
	}
	require.GreaterOrEqual(t, n, 16)
	done, err := a.ch.Flush()
	require.NoError(t, err)
	require.False(t, done)
	for range 200 {
		b.poll()
		a.poll()
		_, err := a.ch.Progress(false)
		require.NoError(t, err)
	}
	for i := range n {
		var buf [1]byte
		_, ok, err := b.ch.Recv(buf[:])
		require.NoError(t, err)
		require.True(t, ok, "message %d", i)
		require.Equal(t, byte(i), buf[0])
	}
	require.Equal(t, uint64(n), a.ch.Stats().Sent)
}

// How many requests and posts a message costs.
func TestCost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode          Mode
		sizes         []int
		writes, posts uint64
	}{
		{ModeLap, []int{8}, 1, 1},
		{ModeLap, []int{8, 0, 16}, 3, 1},
		{ModeLap, []int{56}, 1, 1},
		{ModeLap, []int{57}, 2, 1},
		{ModeLap, []int{300}, 2, 1},
		{ModeCursor, []int{8}, 2, 1},
		{ModeCursor, []int{8, 0, 16}, 4, 1},
		{ModeCursor, []int{300}, 2, 1},
	} {
		o := Options{Blocks: 32, BlockSize: 64, Mode: c.mode, Control: 1}
		a, b := pair(t, simLinks(sim.Options{}), o, o)
		for _, n := range c.sizes {
			res, err := a.ch.Stage(Envelope{}, make([]byte, n))
			require.NoError(t, err)
			require.Equal(t, Accepted, res)
			_, ok, err := b.ch.Peek()
			require.NoError(t, err)
			require.False(t, ok, "staged only")
		}
		done, err := a.ch.Flush()
		require.NoError(t, err)
		require.True(t, done)
		st := a.ch.Stats()
		require.Equal(t, c.writes, st.Writes, "%+v", c)
		require.Equal(t, c.posts, st.Posts, "%+v", c)
	}
	// An 8-byte message is one inline write of 16 bytes.
	a, _ := pair(t, simLinks(sim.Options{}), Options{}, Options{})
	_, err := a.ch.Stage(Envelope{}, make([]byte, 8))
	require.NoError(t, err)
	require.Equal(t, uint64(16), a.ch.wrs[0].Len())
	require.Equal(t, fabric.FlagInline, a.ch.wrs[0].Flags)
}

func TestEverySize(t *testing.T) {
	t.Parallel()
	for _, mode := range bothModes {
		o := Options{Blocks: 8, BlockSize: 64, Mode: mode, Control: 1, Every: 2}
		a, b := pair(t, simLinks(sim.Options{Pieces: 4}), o, o)
		buf := make([]byte, 1000)
		for _, meta := range []bool{false, true} {
			limit := a.ch.MaxPayload(flowctl.Data, meta)
			require.Greater(t, limit, 6*56-9)
			for n := range limit + 1 {
				p := testutil.Payload(n, uint64(n), 0)
				for {
					res, err := a.ch.Send(Envelope{HasMeta: meta, Meta: uint64(n) << 20, Kind: uint8(n)}, p)
					require.NoError(t, err)
					if res == Accepted {
						break
					}
					a.poll()
					b.poll()
				}
				for {
					a.poll()
					b.poll()
					h, ok, err := b.ch.Recv(buf)
					require.NoError(t, err)
					if !ok {
						continue
					}
					require.Equal(t, n, h.Len)
					require.Equal(t, uint8(n), h.Kind)
					if meta {
						require.Equal(t, uint64(n)<<20, h.Meta)
					}
					require.NoError(t, testutil.Verify(buf[:n], uint64(n), 0))
					break
				}
			}
			_, err := a.ch.Send(Envelope{HasMeta: meta}, make([]byte, limit+1))
			require.ErrorIs(t, err, ErrTooLarge)
			require.NoError(t, a.ch.Err(), "that concerns the message only")
		}
		_, err := a.ch.Send(Envelope{Class: flowctl.Control}, make([]byte, 57))
		require.ErrorIs(t, err, ErrTooLarge)
	}
}

// The lap number wraps after 65536 laps.
func TestLapWraps(t *testing.T) {
	t.Parallel()
	o := Options{Blocks: 2, BlockSize: 64, Control: 1, Every: 1}
	a, b := pair(t, simLinks(sim.Options{}), o, o)
	var buf [8]byte
	for i := range 2*65536*2 + 10 {
		buf = [8]byte{byte(i), byte(i >> 8), byte(i >> 16)}
		res, err := a.ch.Send(Envelope{}, buf[:])
		a.poll()
		if err != nil || res != Accepted {
			t.Fatal(i, res, err)
		}
		var got [8]byte
		_, ok, err := b.ch.Recv(got[:])
		b.poll()
		if err != nil || !ok || got != buf {
			t.Fatal(i, ok, err, got)
		}
	}
}

func TestShortBufferKeepsTheMessage(t *testing.T) {
	t.Parallel()
	a, b := pair(t, simLinks(sim.Options{}), Options{}, Options{})
	_, err := a.ch.Send(Envelope{}, []byte("hello"))
	require.NoError(t, err)
	buf := []byte{1, 2, 3, 4}
	_, ok, err := b.ch.Recv(buf)
	require.ErrorIs(t, err, ErrShortBuffer)
	require.False(t, ok)
	require.Equal(t, []byte{1, 2, 3, 4}, buf)
	b.drop(t)
	_, _, ok, err = b.ch.Lease()
	require.NoError(t, err)
	require.False(t, ok)
}

func TestLeaseMisuse(t *testing.T) {
	t.Parallel()
	a, b := pair(t, simLinks(sim.Options{}), Options{}, Options{})
	for _, m := range []string{"one", "two"} {
		_, err := a.ch.Send(Envelope{}, []byte(m))
		require.NoError(t, err)
	}
	l, h, ok, err := b.ch.Lease()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 3, h.Len)
	require.Equal(t, 1, l.Segments())
	seg, err := l.Segment(0)
	require.NoError(t, err)
	require.Equal(t, "one", string(seg))
	require.Equal(t, 3, cap(seg), "no way to the trailer")
	require.Panics(t, func() { _, _ = l.Segment(1) })

	_, _, err = b.ch.Recv(make([]byte, 8))
	require.ErrorIs(t, err, ErrLeased)
	_, _, _, err = b.ch.Lease()
	require.ErrorIs(t, err, ErrLeased)

	require.NoError(t, l.Release())
	require.ErrorIs(t, l.Release(), ErrLeaseEnded)
	require.Zero(t, l.Segments())
	_, err = l.Segment(0)
	require.ErrorIs(t, err, ErrLeaseEnded)

	// A lease that ended stays ended while the next one is open.
	l2, _, ok, err := b.ch.Lease()
	require.NoError(t, err)
	require.True(t, ok)
	require.ErrorIs(t, l.Release(), ErrLeaseEnded)
	seg, err = l2.Segment(0)
	require.NoError(t, err)
	require.Equal(t, "two", string(seg))
	require.NoError(t, l2.Release())
	require.ErrorIs(t, Lease{}.Release(), ErrLeaseEnded)
}

func TestHotPathAllocatesNothing(t *testing.T) {
	for _, mode := range bothModes {
		o := Options{Mode: mode}
		a, b := pair(t, simLinks(sim.Options{}), o, o)
		small, large := make([]byte, 8), make([]byte, 20000)
		buf := make([]byte, len(large))
		round := func(p []byte) {
			if res, err := a.ch.Send(Envelope{Kind: 1, HasMeta: true, Meta: 2}, p); res != Accepted || err != nil {
				t.Fatal(res, err)
			}
			if res, err := a.ch.Stage(Envelope{}, small, small); res != Accepted || err != nil {
				t.Fatal(res, err)
			}
			if _, err := a.ch.Flush(); err != nil {
				t.Fatal(err)
			}
			if _, ok, err := b.ch.Recv(buf); !ok || err != nil {
				t.Fatal(ok, err)
			}
			l, _, ok, err := b.ch.Lease()
			if !ok || err != nil || l.Release() != nil {
				t.Fatal(ok, err)
			}
			a.poll()
			b.poll()
			if _, err := b.ch.Progress(true); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			round(small)
			round(large)
		}
		require.Zero(t, testutil.AllocsPerRun(300, func() { round(small) }), "%v", mode)
		require.Zero(t, testutil.AllocsPerRun(300, func() { round(large) }), "%v", mode)
		// Refusals do not allocate either.
		for {
			if res, _ := a.ch.Send(Envelope{}, small); res == NoCredit {
				break
			}
			a.poll()
		}
		require.Zero(t, testutil.AllocsPerRun(100, func() {
			if res, _ := a.ch.Send(Envelope{}, small); res != NoCredit {
				t.Fatal(res)
			}
		}))
	}
}
