package rma

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/shm"
	"github.com/seed33544411/rma/internal/testutil"
)

// quietLink is a link over shared memory that counts what wakes its owner.
type quietLink struct {
	fabric.Link
	watch   bool
	sleeps  atomic.Int64 // twice their number, odd: the owner sleeps
	woken   atomic.Int64 // sleeps that an event has ended
	watches atomic.Int64 // of these of an owner that watches
}

func (l *quietLink) Name() string { return "sim" }

func (l *quietLink) Watch(on bool) {
	l.watch = on
	l.Link.(fabric.Watching).Watch(on)
}

func (l *quietLink) Arm() (bool, error) {
	ok, err := l.Link.Arm()
	if ok && err == nil {
		if l.watch {
			l.watches.Add(1)
		}
		l.sleeps.Add(1)
	}
	return ok, err
}

func (l *quietLink) Disarm() {
	if l.sleeps.Load()%2 == 1 {
		if l.readable() {
			l.woken.Add(1)
		}
		l.sleeps.Add(1)
	}
	l.Link.Disarm()
}

// readable reports whether something wakes an owner that sleeps.
func (l *quietLink) readable() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(l.FD()), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

// asleep waits until the owner sleeps, and returns the number of the sleep.
func (l *quietLink) asleep(t *testing.T) int64 {
	t.Helper()
	testutil.Eventually(t, testutil.Limit, func() bool { return l.sleeps.Load()%2 == 1 && !l.readable() }, "the rank to sleep")
	return l.sleeps.Load()
}

// One-sided operations do not wake a rank where nobody waits for a word, and wake one where somebody does.
func TestOperationsWakeWhoWatches(t *testing.T) {
	var links [2]quietLink
	var names [2]string
	for r := range links {
		l := &links[r]
		names[r] = device(t, "simquiet", func() (_ fabric.Link, err error) {
			l.watch = true
			l.Link, err = shm.Open(shm.Options{})
			return l, err
		})
	}
	es := openWith(t, 2, "", func(c *Config) { c.Device, c.Spin, c.Yields = names[c.Job.Rank], -1, -1 })
	meet(t, es[0], es[1])
	ctx := testutil.Context(t, testutil.Limit)
	mems, keys := share(t, es, 1<<16)
	target := &links[1]
	p := es[0].Peer(1)
	// often reports whether op leaves the rank as asked in most of its sleeps: some end for a heartbeat.
	often := func(op func() Request, woken bool) bool {
		good := 0
		for range 30 {
			sleep, was := target.asleep(t), target.woken.Load()
			require.NoError(t, op().Wait(ctx))
			if woken {
				testutil.Eventually(t, testutil.Limit, func() bool { return target.sleeps.Load() != sleep }, "the rank to wake")
			}
			if got := target.woken.Load() != was || target.sleeps.Load() == sleep && target.readable(); got == woken {
				good++
			}
		}
		return good > 20
	}
	ops := map[string]func() Request{
		"put":        func() Request { return p.Put(keys[1].At(8), mems[0].Slice(8, 8)) },
		"long put":   func() Request { return p.Put(keys[1].At(64), mems[0].Slice(64, 1<<15)) },
		"signal":     func() Request { return p.Signal(keys[1].At(0), SignalSet, 1) },
		"put signal": func() Request { return p.PutSignal(keys[1].At(8), mems[0].Slice(8, 8), keys[1].At(0), SignalAdd, 1) },
		"fetch-add":  func() Request { return p.FetchAdd(keys[1].At(16), 1).Request },
	}
	for name, op := range ops {
		require.True(t, often(op, false), "%s: nobody waits", name)
	}
	send := func() Request { return p.Send(nil) }
	require.True(t, often(send, true), "messages wake it in any case")

	waits := es[1].AwaitSignal(mems[1].Slice(32, 8), EQ, 1)
	testutil.Eventually(t, testutil.Limit, func() bool { return target.watches.Load() > 0 }, "the rank to watch")
	for name, op := range ops {
		require.True(t, often(op, true), "%s: somebody waits", name)
	}
	require.NoError(t, p.Signal(keys[1].At(32), SignalSet, 1).Wait(ctx))
	_, err := waits.Wait(ctx)
	require.NoError(t, err)
	for name, op := range ops {
		require.True(t, often(op, false), "%s: nobody waits any more", name)
	}
}

// Signals find their waiters, who come and go: wait, give up, and wait again while the rank falls asleep.
func TestSignalsFindWaitersThatComeAndGo(t *testing.T) {
	const words, rounds = 3, 300
	es := openWith(t, 2, string(FabricSHM), func(c *Config) { c.Spin, c.Yields = -1, -1 })
	ctx := testutil.Context(t, testutil.Limit)
	mems, keys := share(t, es, 64*words)
	var stalls atomic.Int64
	var late, ticks atomic.Int64 // ns by which sleeps of 10 ms have ended late: the process has not run
	go func() {
		for last := time.Now(); ctx.Err() == nil; ticks.Add(1) {
			time.Sleep(10 * time.Millisecond) // sleep: measures how late it ends
			now := time.Now()
			late.Add(int64(now.Sub(last)) - int64(10*time.Millisecond))
			last = now
		}
	}()
	var g errgroup.Group
	for w := range words {
		word := func(r int) Buffer { return mems[r].Slice(64*w, 8) }
		signal := func(r int, n uint64) error {
			return es[r].Peer(1-r).Signal(keys[1-r].At(64*w), SignalSet, n).Wait(ctx)
		}
		g.Go(func() error {
			for n := uint64(1); n <= rounds; n++ {
				begun, before := time.Now(), late.Load()
				if err := signal(0, n); err != nil {
					return err
				}
				if _, err := es[0].Peer(1).WaitSignal(ctx, word(0), EQ, n); err != nil {
					return fmt.Errorf("answer %d: %w", n, err)
				}
				if took := time.Since(begun); took > 700*time.Millisecond { // deadline: a lost wake-up costs a second
					for seen := ticks.Load(); ticks.Load() == seen && ctx.Err() == nil; {
						runtime.Gosched()
					}
					if took-time.Duration(late.Load()-before) > 700*time.Millisecond {
						stalls.Add(1)
					}
				}
			}
			return nil
		})
		g.Go(func() error {
			for n := uint64(1); n <= rounds; n++ {
				for i := 0; ; i++ {
					short, cancel := context.WithTimeout(ctx, time.Duration(n%7)*30*time.Microsecond) // deadline: it comes and goes
					_, err := es[1].Peer(0).WaitSignal(short, word(1), EQ, n)
					cancel()
					if err == nil {
						break
					}
					if ctx.Err() != nil {
						return err
					}
					if i == int(n%5) {
						r := es[1].AwaitSignal(word(1), EQ, n)
						if _, err := r.Wait(ctx); err != nil {
							return fmt.Errorf("signal %d: %w", n, err)
						}
						break
					}
					time.Sleep(time.Duration(n%3) * 40 * time.Microsecond) // sleep: nobody waits meanwhile
				}
				if err := signal(1, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.LessOrEqual(t, stalls.Load(), int64(2))
}
