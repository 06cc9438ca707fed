package eager

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/event"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestSleepBitAsksForNotification(t *testing.T) {
	t.Parallel()
	for _, mode := range bothModes {
		o := Options{Mode: mode, Imm: 77}
		a, b := pair(t, simLinks(sim.Options{Caps: sim.CapsLike("ibv")}), o, o)
		send := func(n int) {
			t.Helper()
			res, err := a.ch.Send(Envelope{}, make([]byte, n))
			require.NoError(t, err)
			require.Equal(t, Accepted, res)
			b.poll()
		}
		send(8)
		require.Zero(t, b.notes)
		done, err := b.ch.Sleep(true)
		require.NoError(t, err)
		require.True(t, done)
		send(8)
		require.Equal(t, 1, b.notes)
		send(10000) // several writes, one notification: the last
		require.Equal(t, 2, b.notes)
		require.Equal(t, uint64(2), a.ch.Stats().Notifies)
		require.Equal(t, uint64(2), b.ch.Stats().Wakeups)

		// Credit wakes as well: b's peer may wait for it.
		for range 3 {
			require.NoError(t, a.ch.Err())
			res, err := b.ch.Send(Envelope{}, nil)
			require.NoError(t, err)
			require.Equal(t, Accepted, res)
			a.drop(t)
		}
		_, err = a.ch.Progress(true)
		require.NoError(t, err)
		b.poll()
		require.Equal(t, 3, b.notes)

		done, err = b.ch.Sleep(false)
		require.NoError(t, err)
		require.True(t, done)
		send(8)
		require.Equal(t, 3, b.notes)
	}

	// Where plain writes wake, nothing is asked for.
	a, b := pair(t, simLinks(sim.Options{}), Options{}, Options{})
	done, err := b.ch.Sleep(true)
	require.NoError(t, err)
	require.True(t, done)
	_, err = a.ch.Send(Envelope{}, []byte("x"))
	require.NoError(t, err)
	require.Zero(t, a.ch.Stats().Notifies)
	require.Zero(t, b.ch.Stats().Credits)
}

// A side that tells that it sleeps, or no longer, does not wake a peer that sleeps.
func TestSleepersDoNotWakeEachOther(t *testing.T) {
	t.Parallel()
	for _, mode := range bothModes {
		o := Options{Mode: mode}
		a, b := pair(t, simLinks(sim.Options{Caps: sim.CapsLike("ibv")}), o, o)
		for _, on := range []bool{true, false, true} {
			for _, s := range []*side{a, b} {
				done, err := s.ch.Sleep(on)
				require.NoError(t, err)
				require.True(t, done)
				a.poll()
				b.poll()
				require.Zero(t, a.notes+b.notes)
			}
		}
		res, err := a.ch.Send(Envelope{}, []byte("x"))
		require.NoError(t, err)
		require.Equal(t, Accepted, res)
		b.poll()
		require.Equal(t, 1, b.notes)

		// a hears of credit that is owed with such a word: it may wait for it.
		b.drop(t)
		done, err := b.ch.Sleep(false)
		require.NoError(t, err)
		require.True(t, done)
		a.poll()
		require.Equal(t, 1, a.notes)
	}
}

// Every way of interleaving, step by step, two messages with a reader that
// goes to sleep, on a network with delay where plain writes do not wake. What
// must hold: a reader that sleeps on a silent descriptor with something unread
// is a reader whose peer had not seen the bit when it sent. And after a
// time-out, everything is there.
func TestSleepInterleavings(t *testing.T) {
	t.Parallel()
	const (
		send  = iota // a sends
		net          // a step of the network
		look         // a looks at its cell (Progress)
		sleep        // b: next step of going to sleep: bit, arm and last look, then asleep
		acts
	)
	const depth = 7
	total := 1
	for range depth {
		total *= acts
	}
	lost, woken := 0, 0
	for _, mode := range bothModes {
		for delay := range 2 {
			links := sim.Options{Caps: sim.CapsLike("ibv"), MaxDelay: delay * 3, Seed: uint64(delay)}
			net1 := sim.NewNetwork(links)
			open := func(tb testing.TB) (fabric.Link, fabric.Link) {
				x, err := net1.NewLink()
				require.NoError(tb, err)
				y, err := net1.NewLink()
				require.NoError(tb, err)
				tb.Cleanup(func() { require.NoError(tb, x.Close()); require.NoError(tb, y.Close()) })
				return x, y
			}
			o := Options{Blocks: 16, BlockSize: 64, Mode: mode}
			a, b := pair(t, open, o, o)
			for code := range total {
				sent, phase, knew := 0, 0, false
				for c, k := code, 0; k < depth; k, c = k+1, c/acts {
					switch c % acts {
					case send:
						if sent < 2 {
							res, err := a.ch.Send(Envelope{}, []byte{byte(sent)})
							require.NoError(t, err)
							if res == Accepted {
								sent++
								knew = a.ch.tx.PeerSleeps() && a.ch.first == a.ch.staged
							}
						}
					case net:
						net1.Step(1)
					case look:
						_, err := a.ch.Progress(false)
						require.NoError(t, err)
					case sleep:
						switch phase {
						case 0:
							_, err := b.ch.Sleep(true)
							require.NoError(t, err)
							phase = 1
						case 1:
							phase = 2
						}
					}
				}
				net1.Step(20)
				// b sleeps now if it got that far. Does its descriptor tell?
				if phase == 2 {
					quiet, err := b.link.Arm()
					require.NoError(t, err)
					b.link.Disarm()
					_, unread, err := b.ch.Peek()
					require.NoError(t, err)
					if quiet && unread {
						require.False(t, knew, "%v: a peer that knew did not wake: script %d", mode, code)
						lost++
					} else if !quiet {
						woken++
					}
				}
				// The time-out: b polls, clears the bit, and finds everything.
				for n := 0; n < sent; {
					a.poll()
					b.poll()
					_, err := a.ch.Progress(false)
					require.NoError(t, err)
					var buf [1]byte
					_, ok, err := b.ch.Recv(buf[:])
					require.NoError(t, err)
					if ok {
						require.Equal(t, byte(n), buf[0])
						n++
					}
				}
				for done := false; !done; {
					var err error
					done, err = b.ch.Sleep(false)
					require.NoError(t, err)
					b.poll()
				}
				for settled := false; !settled; settled = !a.ch.tx.PeerSleeps() {
					net1.Step(20)
					a.poll()
					b.poll()
					_, err := b.ch.Progress(true)
					require.NoError(t, err)
					_, err = a.ch.Progress(true)
					require.NoError(t, err)
				}
			}
		}
	}
	require.Positive(t, lost, "the race that the time-outs are for was not met")
	require.Positive(t, woken)
}

// A reader that really sleeps, with Backoff's time-outs, against a sender in
// another goroutine: on a link where plain writes do not wake.
func TestSleepingReaderGetsEverything(t *testing.T) {
	t.Parallel()
	for _, mode := range bothModes {
		napTest(t, simLinks(sim.Options{Caps: sim.CapsLike("ibv"), MaxDelay: 2}), Options{Blocks: 8, BlockSize: 64, Mode: mode}, 250)
	}
}

func napTest(t *testing.T, open opener, o Options, total int) {
	a, b := pair(t, open, o, o)
	errs := make(chan error, 1)
	go func() {
		rng := rand.New(rand.NewPCG(1, 2))
		end := time.Now().Add(testutil.Limit)
		for i := 0; i < total; {
			res, err := a.ch.Send(Envelope{Meta: uint64(i), HasMeta: true})
			if err != nil {
				errs <- err
				return
			}
			if res == Accepted {
				i++
			}
			for range rng.IntN(40) {
				a.poll()
			}
			if time.Now().After(end) {
				errs <- fmt.Errorf("sender stuck at %d: %v", i, res)
				return
			}
		}
		for range 1000 {
			a.poll()
			if done, err := a.ch.Progress(false); done || err != nil {
				errs <- err
				return
			}
		}
		errs <- fmt.Errorf("sender cannot flush")
	}()
	var backoff Backoff
	slept := 0
	end := time.Now().Add(testutil.Limit)
	for got := uint64(0); got < uint64(total); {
		require.False(t, time.Now().After(end), "reader stuck at %d after %d naps", got, slept)
		b.poll()
		h, ok, err := b.ch.Recv(nil)
		require.NoError(t, err)
		if ok {
			require.Equal(t, got, h.Meta)
			got++
			backoff.Reset()
			continue
		}
		if done, err := b.ch.Sleep(true); !done {
			require.NoError(t, err)
			continue
		}
		quiet, err := b.link.Arm()
		require.NoError(t, err)
		_, unread, err := b.ch.Peek()
		require.NoError(t, err)
		if quiet && !unread {
			_, err := event.Wait(b.link.FD(), backoff.Next())
			require.NoError(t, err)
			slept++
		}
		b.link.Disarm()
		_, err = b.ch.Sleep(false)
		require.NoError(t, err)
	}
	require.NoError(t, <-errs)
	t.Logf("%d naps, %d wake-ups", slept, b.ch.Stats().Wakeups)
}

func TestNap(t *testing.T) {
	var n Backoff
	require.Equal(t, firstNap, n.Next())
	require.Equal(t, 2*firstNap, n.Next())
	for range 100 {
		require.LessOrEqual(t, n.Next(), longestNap)
	}
	require.Equal(t, longestNap, n.Next())
	n.Reset()
	require.Equal(t, firstNap, n.Next())
	require.Zero(t, testing.AllocsPerRun(10, func() { n.Next() }))
}
