package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/event"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestFailAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, fabric.EndpointOptions{ID: 4})
	w.a.FailAt(3, fabric.StatusRemoteOp)
	testutil.Fill(w.ra.Bytes(), 1, 0)
	w.post(w.ea, w.write(1, 0, 8, 0), w.write(2, 8, 8, 0), w.write(3, 16, 8, 0), w.write(4, 24, 8, 0))
	cs := w.pollFor(w.a, 5)
	require.Equal(t, []fabric.Completion{
		{ID: 1, EP: 4, Op: fabric.OpWrite}, {ID: 2, EP: 4, Op: fabric.OpWrite},
		{ID: 3, EP: 4, Op: fabric.OpWrite, Status: fabric.StatusRemoteOp},
		{ID: 4, EP: 4, Op: fabric.OpWrite, Status: fabric.StatusFlushed},
		{EP: 4, Op: fabric.OpDown, Status: fabric.StatusRemoteOp},
	}, cs)
	require.NoError(t, testutil.Verify(w.rb.Bytes()[:16], 1, 0))
	require.Equal(t, make([]byte, 16), w.rb.Bytes()[16:32])
	require.ErrorIs(t, w.ea.Err(), fabric.ErrRemoteOp)
	require.NoError(t, w.eb.Err(), "the target has not noticed")
	// Its own requests fail.
	wr := w.write(9, 0, 8, 0)
	wr.Local, wr.RemoteAddr, wr.RKey = nil, w.ra.Addr(), w.ra.Key().RKey
	w.post(w.eb, wr)
	require.Equal(t, fabric.StatusFlushed, w.pollFor(w.b, 2)[0].Status)
	require.ErrorIs(t, w.eb.Err(), fabric.ErrRemoteOp, "what it has answered")
}

func TestTargetFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{TargetFails: true}, fabric.EndpointOptions{})
	bad := w.write(1, 0, 8, 0)
	bad.RKey = 0
	w.post(w.ea, bad)
	require.Len(t, w.pollFor(w.a, 2), 2)
	require.Equal(t, fabric.OpDown, w.pollFor(w.b, 1)[0].Op)
	require.ErrorIs(t, w.eb.Err(), fabric.ErrRemoteAccess)
}

func TestErrorRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{Seed: 1, ErrorRate: 0.3}, fabric.EndpointOptions{})
	failed := 0
	for range 100 {
		x, y := w.join(fabric.EndpointOptions{})
		w.post(x, w.write(1, 0, 8, 0))
		if cs := w.poll(w.a); cs[0].Status == fabric.StatusRemoteOp {
			failed++
		}
		require.NoError(t, x.Close())
		require.NoError(t, y.Close())
		w.poll(w.a)
		w.poll(w.b)
	}
	require.InDelta(t, 30, failed, 15)
}

// A link is killed at every step of a write in pieces: the target holds a part of it, the
// survivor's endpoint goes down, and nothing changes afterwards.
func TestKillAt(t *testing.T) {
	t.Parallel()
	partial := 0
	for step := uint64(1); step < 12; step++ {
		for _, initiator := range []bool{true, false} {
			w := newWorld(t, Options{Seed: step, Pieces: 8}, fabric.EndpointOptions{})
			testutil.Fill(w.ra.Bytes(), 1, 0)
			dies, lives, liveEP := w.b, w.a, w.ea
			if initiator {
				dies, lives, liveEP = w.a, w.b, w.eb
			}
			dies.KillAt(step)
			w.post(w.ea, w.write(1, 0, 1024, 0))
			w.net.Step(20)
			cs := w.poll(lives)
			require.NotEmpty(t, cs)
			require.Equal(t, fabric.OpDown, cs[len(cs)-1].Op)
			require.Equal(t, fabric.StatusPeerGone, cs[len(cs)-1].Status)
			require.ErrorIs(t, liveEP.Err(), fabric.ErrPeerGone)
			if !initiator && len(cs) == 2 && cs[0].Status == fabric.StatusPeerGone {
				if err := testutil.Verify(w.rb.Bytes()[:1024], 1, 0); err != nil && string(w.rb.Bytes()[:1024]) != string(make([]byte, 1024)) {
					partial++
				}
			}
			before := string(w.rb.Bytes())
			w.net.Step(20)
			require.Equal(t, before, string(w.rb.Bytes()))
			require.Zero(t, len(w.poll(dies)))
			_, err := dies.NewEndpoint(fabric.EndpointOptions{})
			require.ErrorIs(t, err, fabric.ErrClosed)
			ok, err := dies.Arm()
			require.NoError(t, err)
			require.False(t, ok)
		}
	}
	require.NotZero(t, partial, "no death fell into the middle of the write")
}

// An endpoint with a request outstanding detects a silent death after PeerTimeout.
func TestFreeze(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{StepTime: time.Millisecond}, fabric.EndpointOptions{PeerTimeout: 100 * time.Millisecond})
	idle, _ := w.join(fabric.EndpointOptions{PeerTimeout: time.Millisecond})
	w.b.Freeze()
	w.post(w.ea, w.write(1, 0, 8, 0), w.write(2, 0, 8, 0))
	for range 90 {
		require.Empty(t, w.poll(w.a))
	}
	w.b.Thaw()
	require.Len(t, w.pollFor(w.a, 2), 2, "it was only slow")

	w.b.Freeze()
	w.post(w.ea, w.write(3, 0, 8, 0), w.write(4, 0, 8, 0))
	start := w.net.Steps()
	cs := w.pollFor(w.a, 3)
	require.InDelta(t, 101, w.net.Steps()-start, 1)
	require.Equal(t, fabric.StatusPeerGone, cs[0].Status)
	require.Equal(t, fabric.StatusFlushed, cs[1].Status)
	require.Equal(t, fabric.OpDown, cs[2].Op)
	require.NoError(t, idle.Err(), "nothing outstanding, nothing noticed")
}

// The same by the process's clock, which synctest can advance.
func TestFreezeByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{}, fabric.EndpointOptions{PeerTimeout: time.Minute})
		w.b.Freeze()
		w.post(w.ea, w.write(1, 0, 8, 0))
		require.Empty(t, w.poll(w.a))
		time.Sleep(59 * time.Second) // sleep: the network's time is under test
		require.Empty(t, w.poll(w.a))
		time.Sleep(time.Second) // sleep: the network's time is under test
		require.Equal(t, fabric.StatusPeerGone, w.poll(w.a)[0].Status)
	})
}

// An endpoint that sleeps on FD when its peer falls silent is woken to give the peer up.
func TestFreezeWakesSleeper(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{Caps: CapsLike("tcp")}, fabric.EndpointOptions{PeerTimeout: 30 * time.Millisecond})
	w.b.Freeze()
	w.post(w.ea, w.write(1, 0, 8, 0))
	for end := time.Now().Add(testutil.Limit); ; {
		if cs := w.poll(w.a); len(cs) > 0 {
			require.Equal(t, fabric.StatusPeerGone, cs[0].Status)
			return
		}
		require.True(t, time.Now().Before(end))
		if ok, err := w.a.Arm(); ok {
			require.NoError(t, err)
			woken, err := event.Wait(w.a.FD(), testutil.Limit)
			require.NoError(t, err)
			require.True(t, woken)
		}
		w.a.Disarm()
	}
}

// Notifications that the target does not poll first delay writes, then end them.
func TestNotReady(t *testing.T) {
	t.Parallel()
	const depth = 4
	w := newWorld(t, Options{StepTime: time.Millisecond}, fabric.EndpointOptions{Depth: depth, PeerTimeout: 50 * time.Millisecond})
	note := func(id uint64) fabric.WR {
		wr := w.write(id, 0, 8, fabric.FlagNotify)
		wr.Imm = uint32(id)
		return wr
	}
	for i := range uint64(depth) {
		w.post(w.ea, note(i))
		w.pollFor(w.a, 1)
	}
	testutil.Store64(w.ra.Bytes(), 77)
	w.post(w.ea, note(depth))
	require.Empty(t, w.poll(w.a))
	require.NotEqual(t, uint64(77), testutil.Load64(w.rb.Bytes()), "no data without room for its notification")
	require.Len(t, w.poll(w.b), depth)
	require.Equal(t, fabric.StatusOK, w.pollFor(w.a, 1)[0].Status)
	require.Equal(t, uint64(77), testutil.Load64(w.rb.Bytes()))
	require.Equal(t, uint32(depth), w.pollFor(w.b, 1)[0].Imm)

	for i := range uint64(depth) {
		w.post(w.ea, note(i))
		w.pollFor(w.a, 1)
	}
	w.post(w.ea, note(depth))
	require.Equal(t, fabric.StatusNotReady, w.pollFor(w.a, 2)[0].Status)
}

// A write before Arm is not an event: sleepers check the memory once more after Arm.
func TestWriteBeforeArmIsNoEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, fabric.EndpointOptions{})
	readable := func() bool {
		ready, err := event.Wait(w.b.FD(), 0)
		require.NoError(t, err)
		return ready
	}
	w.post(w.ea, w.write(1, 0, 8, 0))
	ok, err := w.b.Arm()
	require.NoError(t, err)
	require.True(t, ok)
	require.False(t, readable())
	w.post(w.ea, w.write(2, 0, 8, 0))
	require.True(t, readable())
	w.b.Disarm()
	require.False(t, readable())
}

// Arm returns false while polling would advance a request.
func TestArmRefusesWhileThereIsWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{MaxDelay: 10, MaxCompletionDelay: 10, Seed: 2}, fabric.EndpointOptions{})
	refused := 0
	for i := range uint64(50) {
		w.post(w.ea, w.write(i, 0, 8, 0))
		got := 0
		for got == 0 {
			for _, l := range []*Link{w.a, w.b} {
				ok, err := l.Arm()
				require.NoError(t, err)
				if !ok {
					refused++
				}
				require.False(t, ok && l == w.a, "the initiator would sleep for ever")
				l.Disarm()
			}
			got = len(w.poll(w.a))
		}
		ok, err := w.a.Arm()
		require.NoError(t, err)
		require.True(t, ok)
		w.a.Disarm()
	}
	require.NotZero(t, refused)
}
