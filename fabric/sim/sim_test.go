package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// history runs a random script on a network with all faults, in one goroutine, and returns
// all observable results.
func history(t *testing.T, netSeed uint64) string {
	w := newWorld(t, Options{
		Seed: netSeed, MaxDelay: 4, MaxCompletionDelay: 4, QueueFull: 0.3, Pieces: 6, Overtake: 0.4, ErrorRate: 0.002,
	}, fabric.EndpointOptions{ID: 1, Depth: 32})
	e2, _ := w.join(fabric.EndpointOptions{ID: 2, Depth: 32})
	rng := rand.New(rand.NewPCG(1, 1)) // of the script: always the same
	testutil.Fill(w.ra.Bytes(), 1, 0)
	var out []byte
	for i := range uint64(2000) {
		ep := []fabric.Endpoint{w.ea, e2}[rng.IntN(2)]
		off := 8 * rng.IntN(400)
		wr := w.write(i, off, 8*rng.IntN(60), 0)
		if rng.IntN(3) == 0 {
			wr.Op = fabric.OpRead
		}
		n, err := ep.Post([]fabric.WR{wr})
		out = fmt.Append(out, n, err, ";")
		l := []*Link{w.a, w.b}[rng.IntN(2)]
		out = fmt.Append(out, w.poll(l), testutil.Load64(w.rb.Bytes()[off:]))
	}
	return string(out)
}

func TestSameSeedSameHistory(t *testing.T) {
	t.Parallel()
	first := history(t, 7)
	require.Equal(t, first, history(t, 7))
	require.NotEqual(t, first, history(t, 8))
}

func TestDelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{MaxDelay: 10, MaxCompletionDelay: 10}, fabric.EndpointOptions{})
	seen, done := map[int]bool{}, map[int]bool{}
	for i := range uint64(200) {
		testutil.Store64(w.ra.Bytes(), i+1)
		w.post(w.ea, w.write(i, 0, 8, 0))
		visible := -1
		for step := 0; ; step++ {
			require.Less(t, step, 25)
			if visible < 0 && testutil.Load64(w.rb.Bytes()) == i+1 {
				visible = step
			}
			if len(w.poll(w.a)) == 1 {
				if testutil.Load64(w.rb.Bytes()) == i+1 && visible < 0 {
					visible = step
				}
				require.NotEqual(t, -1, visible, "completed before it was visible")
				seen[visible], done[step-visible] = true, true
				break
			}
		}
	}
	require.Greater(t, len(seen), 5, "delays before the start: %v", seen)
	require.Greater(t, len(done), 5, "delays of the completion: %v", done)
}

// The words of a write in pieces appear whole, in any order; the last one comes last if
// that is promised.
func TestPieces(t *testing.T) {
	t.Parallel()
	for _, promised := range []bool{true, false} {
		o := Options{Seed: 3, Pieces: 8}
		if !promised {
			o.Caps = unordered("sim")
		}
		w := newWorld(t, o, fabric.EndpointOptions{})
		flagEarly, outOfOrder, partial := 0, 0, 0
		for i := range uint64(200) {
			const n = 256
			clear(w.rb.Bytes())
			testutil.Fill(w.ra.Bytes(), i, 0)
			w.post(w.ea, w.write(i, 0, n, 0))
			for done := false; !done; {
				have := make([]bool, n/8)
				all, gap := true, false
				for k := range have {
					word := testutil.Load64(w.rb.Bytes()[8*k:])
					have[k] = word == testutil.Load64(w.ra.Bytes()[8*k:])
					require.True(t, have[k] || word == 0, "torn word")
					gap = gap || have[k] && !all
					all = all && have[k]
				}
				switch {
				case !all && have[n/8-1]:
					flagEarly++
				case gap:
					outOfOrder++
				case !all && have[0]:
					partial++
				}
				done = len(w.poll(w.a)) == 1
			}
			require.NoError(t, testutil.Verify(w.rb.Bytes()[:n], i, 0))
		}
		require.NotZero(t, outOfOrder)
		require.NotZero(t, partial)
		require.Equal(t, promised, flagEarly == 0, "%d times", flagEarly)
	}
}

// The source is read as late as the contract allows, so that early reuse shows.
func TestSourceIsReadLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{Seed: 1, MaxDelay: 10}, fabric.EndpointOptions{})
	changed := 0
	for i := range uint64(50) {
		testutil.Store64(w.ra.Bytes(), 1)
		w.post(w.ea, w.write(i, 0, 8, 0))
		testutil.Store64(w.ra.Bytes(), 2)
		w.pollFor(w.a, 1)
		if testutil.Load64(w.rb.Bytes()) == 2 {
			changed++
		}
	}
	require.NotZero(t, changed)
}

func TestOvertaking(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{Seed: 1, Overtake: 0.5}, fabric.EndpointOptions{})
	for _, fence := range []fabric.Flags{0, fabric.FlagFence} {
		overtaken := 0
		for i := range uint64(100) {
			testutil.Store64(w.rb.Bytes(), 1)
			testutil.Store64(w.ra.Bytes(), 2)
			rd := w.write(2*i, 0, 8, 0)
			rd.Op = fabric.OpRead
			rd.Local[0].Addr += 64
			w.post(w.ea, rd, w.write(2*i+1, 0, 8, fence))
			cs := w.pollFor(w.a, 2)
			require.Equal(t, []uint64{2 * i, 2*i + 1}, []uint64{cs[0].ID, cs[1].ID}, "completions in order all the same")
			if testutil.Load64(w.ra.Bytes()[64:]) == 2 {
				overtaken++
			}
		}
		require.Equal(t, fence == 0, overtaken > 10, "%d of 100 overtaken, fence %v", overtaken, fence)
	}
}

// Completions of different endpoints may come in any order.
func TestOrderAcrossEndpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{Seed: 1, MaxCompletionDelay: 3}, fabric.EndpointOptions{ID: 1})
	e2, _ := w.join(fabric.EndpointOptions{ID: 2})
	first := map[uint32]int{}
	for i := range uint64(100) {
		w.post(w.ea, w.write(i, 0, 8, 0))
		w.post(e2, w.write(i, 8, 8, 0))
		first[w.pollFor(w.a, 2)[0].EP]++
	}
	require.Greater(t, first[1], 10)
	require.Greater(t, first[2], 10)
}

// Without ConnectWaits, Connect returns at once and requests wait for the peer.
func TestConnectOneSided(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{StepTime: time.Millisecond}, fabric.EndpointOptions{})
	o := fabric.EndpointOptions{PeerTimeout: 50 * time.Millisecond}
	x, y := w.endpoint(w.a, o), w.endpoint(w.b, o)
	require.NoError(t, x.Connect(t.Context(), y.Address()))
	testutil.Fill(w.ra.Bytes(), 1, 0)
	w.post(x, w.write(1, 0, 100, 0))
	require.Empty(t, w.poll(w.a))
	require.Error(t, testutil.Verify(w.rb.Bytes()[:100], 1, 0), "before the peer connected")
	require.NoError(t, y.Connect(t.Context(), x.Address()))
	require.Equal(t, fabric.StatusOK, w.pollFor(w.a, 1)[0].Status)
	require.NoError(t, testutil.Verify(w.rb.Bytes()[:100], 1, 0))

	x, y = w.endpoint(w.a, o), w.endpoint(w.b, o)
	require.NoError(t, x.Connect(t.Context(), y.Address()))
	w.post(x, w.write(2, 0, 100, 0))
	cs := w.pollFor(w.a, 2)
	require.Equal(t, fabric.StatusPeerGone, cs[0].Status)
	require.Equal(t, fabric.OpDown, cs[1].Op)
	require.ErrorIs(t, y.Connect(context.Background(), w.endpoint(w.a, o).Address()), fabric.ErrBadAddress, "claimed by x")
}

// With ConnectWaits, Connect waits until the peer connects or closes, or the time is up.
func TestConnectWaits(t *testing.T) {
	w := newWorld(t, Options{}, fabric.EndpointOptions{})
	w.net.opt.ConnectWaits = true
	pair := func() (x, y fabric.Endpoint) {
		return w.endpoint(w.a, fabric.EndpointOptions{}), w.endpoint(w.b, fabric.EndpointOptions{})
	}
	x, y := pair()
	require.ErrorIs(t, x.Connect(testutil.Context(t, 20*time.Millisecond), y.Address()), context.DeadlineExceeded) // deadline: it has to end
	// Connect may be tried again after a time-out.
	errs := make(chan error, 1)
	go func() { errs <- x.Connect(testutil.Context(t, 10*time.Second), y.Address()) }()
	require.NoError(t, y.Connect(testutil.Context(t, 10*time.Second), x.Address()))
	require.NoError(t, <-errs)

	for _, end := range []func(x, y fabric.Endpoint) error{
		func(x, _ fabric.Endpoint) error { return x.Close() },
		func(_, y fabric.Endpoint) error { return y.Close() },
		func(_, _ fabric.Endpoint) error { w.b.Kill(); return nil },
	} {
		x, y := pair()
		go func() { errs <- x.Connect(testutil.Context(t, 10*time.Second), y.Address()) }()
		testutil.Eventually(t, 10*time.Second, func() bool {
			w.net.mu.Lock()
			defer w.net.mu.Unlock()
			return y.(*Endpoint).claimed != nil
		}, "x to wait")
		require.NoError(t, end(x, y))
		require.Error(t, <-errs)
	}
}

func TestNotForUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, fabric.EndpointOptions{})
	_, err := w.a.Register(nil, fabric.AccessAll)
	require.Error(t, err)
	_, err = w.a.Alloc(0, fabric.AccessAll)
	require.Error(t, err)
	require.Panics(t, func() { CapsLike("nonesuch") })
	require.Equal(t, "sim", w.a.Name())
	l, err := w.net.NewLink()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = l.Arm()
	require.ErrorIs(t, err, fabric.ErrClosed)
	require.Zero(t, l.Poll(make([]fabric.Completion, 1)))
	l.Disarm()
	// An address of another network is refused like any bad address.
	other := newWorld(t, Options{}, fabric.EndpointOptions{})
	x, y := w.endpoint(w.a, fabric.EndpointOptions{}), other.endpoint(other.a, fabric.EndpointOptions{})
	require.ErrorIs(t, x.Connect(t.Context(), y.Address()), fabric.ErrBadAddress)
}

func FuzzParseAddress(f *testing.F) {
	f.Add(addrKey{1, 2}.marshal())
	f.Add([]byte{})
	f.Add([]byte("simA"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := parseAddress(b)
		if err != nil {
			require.ErrorIs(t, err, fabric.ErrBadAddress)
			return
		}
		require.Equal(t, b, k.marshal())
	})
}
