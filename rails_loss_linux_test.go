package rma

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/fallback"
	"github.com/seed33544411/rma/fabric/ibv"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/testutil"
)

// cutSockets shuts down the connected sockets of this process one end of which has this second byte
// of its address. It returns their number.
func cutSockets(net byte, how int) (n int) {
	list, _ := os.ReadDir("/proc/self/fd")
	for _, f := range list {
		fd, _ := strconv.Atoi(f.Name())
		mine, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) // fd may be another file's soon
		if err != nil {
			continue
		}
		of := func(a unix.Sockaddr) bool { in, is := a.(*unix.SockaddrInet4); return is && in.Addr[1] == net }
		here, _ := unix.Getsockname(mine)
		there, _ := unix.Getpeername(mine)
		if there != nil && (of(here) || of(there)) && unix.Shutdown(mine, how) == nil { // a listener has no other end
			n++
		}
		_ = unix.Close(mine)
	}
	return n
}

// lossy opens two ranks over tcp with one rail besides rail 0, whose addresses have that second byte.
// Vectors go in that way.
func lossy(t *testing.T, net byte, way Pieces) []*Engine {
	es := openWith(t, 2, "tcp", func(c *Config) {
		last := byte(c.Job.Rank + 1)
		c.Pieces, c.Bind = way, netip.AddrFrom4([4]byte{127, net, 0, last})
		c.Rails = fmt.Sprintf("127.%d.1.%d", net+1, last)
	})
	connectRails(t, es)
	return es
}

// lossyVerbs opens two ranks over verbs with one rail besides rail 0.
func lossyVerbs(t *testing.T) []*Engine {
	return patientVerbs(t, 20*time.Second) // a guest on a busy machine is slow to answer
}

func patientVerbs(t *testing.T, timeout time.Duration) []*Engine {
	a, b := testutil.RDMAPair(t)
	es := openWith(t, 2, "ibv", func(c *Config) { c.Device, c.Rails, c.PeerTimeout = a, b, timeout })
	connectRails(t, es)
	return es
}

// verbsOf returns the link over verbs to a peer.
func verbsOf(e *Engine, rank int) *ibv.Link {
	l := e.links[e.peers[rank].link]
	if f, is := l.(*fallback.Link); is {
		l = f.Link
	}
	return l.(*ibv.Link)
}

// failQueuePairs puts the queue pairs of rail 0 of one rank or both into the error state, or has them go on over
// the other device, now and then while they work: another one takes longer in a guest than losing pauses.
func failQueuePairs(es []*Engine) func() int {
	return func() (n int) {
		for r, e := range es {
			if !e.Peer(1 - r).Stats().Rails[0].Up || rand.IntN(2) == 0 {
				return 0
			}
		}
		which, silent := rand.IntN(3), rand.IntN(3) == 0
		for r, e := range es {
			if r != which {
				l := verbsOf(e, 1-r)
				e.prog.Do(func() { ibv.FailQueuePairs(l, silent) })
				n++
			}
		}
		return n
	}
}

// cutSocketsOf shuts down the sockets that cutSockets does, in some direction.
func cutSocketsOf(net byte) func() int {
	return func() int { return cutSockets(net, rand.IntN(3)) }
}

// losing runs f while rail 0 is cut again and again, until it has been cut at all, and checks that
// nothing but the events of rails shows that.
func losing(t *testing.T, es []*Engine, cut func() int, f func()) {
	ctx, stop := context.WithCancel(testutil.Context(t, testutil.Limit))
	var tasks sync.WaitGroup
	var cuts atomic.Int64
	tasks.Go(func() {
		for ctx.Err() == nil {
			cuts.Add(int64(cut()))
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(rand.ExpFloat64() * float64(10*time.Millisecond))): // deadline: pauses between losses
			}
		}
	})
	for f(); cuts.Load() == 0 && ctx.Err() == nil; f() { // f may end before the first loss
	}
	stop()
	tasks.Wait()
	t.Logf("%d sockets or queue pairs were cut", cuts.Load())
	require.Positive(t, cuts.Load())
	ctx = testutil.Context(t, testutil.Limit)
	for r, e := range es {
		testutil.Eventually(t, testutil.Limit, func() bool { return e.Peer(1 - r).Stats().Rails[0].Up }, "rail 0 is back")
		s := e.Peer(1 - r).Stats()
		require.NoError(t, s.Err)
		require.Positive(t, s.Rails[0].Lost)
		for ev := range WatchRails(ctx, e) {
			if ev.Rail == 0 && ev.Up {
				require.Positive(t, ev.Lost)
				break
			}
		}
		for ev := range e.Watch(ctx) {
			require.Equal(t, PeerUp, ev.State)
			break
		}
	}
}

// Rail 0 is lost again and again during scripts of all one-sided operations: the same memory and the
// same results as without.
func TestScriptsAcrossLosses(t *testing.T) {
	for i, way := range []Pieces{PiecesChain, PiecesGroup} {
		t.Run(string(way), func(t *testing.T) {
			t.Parallel()
			net := byte(90 + 2*i)
			es := lossy(t, net, way)
			losing(t, es, cutSocketsOf(net), func() { runScripts(t, es) })
		})
	}
}

// The same over verbs, where queue pairs fail. A device's atomic may lose its result there (ErrLostResult), so the
// scripts have none, unless the target's processor executes them.
func TestScriptsAcrossFailedQueuePairs(t *testing.T) {
	for who, without := range map[string][]int{"device": atomicSteps, "host": nil} {
		t.Run("ibv-atomics-"+who, func(t *testing.T) {
			t.Setenv(links.EnvAtomics, who)
			es := lossyVerbs(t)
			losing(t, es, failQueuePairs(es), func() { runScripts(t, es, without...) })
		})
	}
}

// The ports of rail 0 fail in silence, one after the other, until tcp carries the connection: scripts of all one-sided
// operations and messages go on, and other rails as well as memory registered later are used. Atomics of the device are
// refused alone, and those that the target's processor executes go on. Then it returns to verbs.
func TestScriptsCarriedOnByTCP(t *testing.T) {
	for who, without := range map[string][]int{"device": append([]int{4}, atomicSteps...), "host": nil} { // 4: signals that add
		t.Run("ibv-atomics-"+who, func(t *testing.T) {
			t.Setenv(links.EnvAtomics, who)
			carriedByTCP(t, without, map[string]error{"device": fabric.ErrNotSupported}[who])
		})
	}
}

// carriedByTCP does so with the steps that are not in without; atomics then end with want.
func carriedByTCP(t *testing.T, without []int, want error) {
	a, b := testutil.RDMAPair(t)
	es := openWith(t, 2, "", func(c *Config) {
		c.Device, c.Rails, c.PeerTimeout = a, b, 20*time.Second
		c.Settings, c.Bind = map[string]string{"host": fmt.Sprintf("host%d", c.Job.Rank)}, netip.AddrFrom4([4]byte{127, 0, 0, 1})
	})
	connectRails(t, es)
	mems, keys := share(t, es, cableMemory)
	works(t, es, mems, keys)
	carries(t, es, mems, keys, "ibv")
	cut := func() (n int) {
		for r, e := range es {
			if l := verbsOf(e, 1-r); e.Peer(1-r).Link() != "tcp" {
				e.prog.Do(func() { ibv.FailQueuePairs(l, true) })
				n++
			}
		}
		return n
	}
	losing(t, es, cut, func() { runScripts(t, es, without...) })
	testutil.Eventually(t, testutil.Limit, func() bool { return cut() == 0 }, "tcp carries the connection")
	runScripts(t, es, without...)
	carries(t, es, mems, keys, "tcp")
	lateMems, lateKeys := share(t, es, cableMemory)
	carries(t, es, lateMems, lateKeys, "tcp")
	ctx := testutil.Context(t, testutil.Limit)
	for r, e := range es {
		p := e.Peer(1 - r)
		_, err := p.FetchAdd(keys[1-r].At(8), 1).Wait(ctx)
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, p.Signal(keys[1-r].At(8), SignalAdd, 1).Wait(ctx), want)
		require.NoError(t, p.Signal(keys[1-r].At(8), SignalSet, 1).Wait(ctx))
	}
	messaging(t, es)
	carries(t, es, mems, keys, "tcp")
	losing(t, es, func() (n int) {
		for r, e := range es {
			if l := verbsOf(e, 1-r); e.Peer(1-r).Link() == "tcp" {
				e.prog.Do(func() { ibv.TryOwnPorts(l) })
				n++
			}
		}
		return n
	}, func() { runScripts(t, es, without...) })
	testutil.Eventually(t, testutil.Limit, func() bool { return es[0].Peer(1).Link() == "ibv" && es[1].Peer(0).Link() == "ibv" }, "verbs carries the connection again")
	carries(t, es, mems, keys, "ibv")
	carries(t, es, lateMems, lateKeys, "ibv")
	runScripts(t, es)
}

// TestRefusalOnARail over verbs: the target on rdma_rxe does not know that it has refused something, but hears that
// the peer has closed rail 0, long before PeerTimeout.
func TestRefusalOnARailOverVerbs(t *testing.T) {
	for what, err := range refusedOnARail(t, patientVerbs(t, 4*testutil.Limit)) {
		require.ErrorIs(t, err, ErrPeerGone, what)
	}
}

// TestRailsCarryMessages over verbs.
func TestRailsCarryMessagesOverVerbs(t *testing.T) { carryMessages(t, lossyVerbs(t), 12) }

// messaging sends a message of rank 0 and receives it, so that both sides have opened the channel.
func messaging(t *testing.T, es []*Engine) {
	ctx := testutil.Context(t, testutil.Limit)
	recv := es[1].Peer(0).Recv(nil)
	require.NoError(t, es[0].Peer(1).Send(nil).Wait(ctx))
	_, err := recv.Wait(ctx)
	require.NoError(t, err)
}

// Messages whose sends are complete arrive although queue pairs fail before the sender closes, or
// while it does, and Close knows that they have arrived.
func TestClosesAcrossFailedQueuePairs(t *testing.T) {
	for round := range 6 {
		es := lossyVerbs(t)
		messaging(t, es)
		ctx := testutil.Context(t, testutil.Limit)
		const most = 20
		var tasks sync.WaitGroup
		for i := range byte(most) {
			require.NoError(t, es[0].Peer(1).Send([]byte{i}).Wait(ctx))
			require.NoError(t, es[1].Peer(0).Send([]byte{i}).Wait(ctx)) // never received
		}
		fail := func(rank int) {
			l := verbsOf(es[rank], 1-rank)
			es[rank].prog.Do(func() { ibv.FailQueuePairs(l, round >= 4) })
		}
		if round&1 != 0 {
			fail(0)
		}
		if round&2 != 0 {
			fail(1)
		}
		if round&3 == 0 {
			tasks.Go(func() { fail(1) })
		}
		closed := make(chan error, 1)
		tasks.Go(func() { closed <- es[0].Close() })
		for i := range byte(most) {
			buf := []byte{most}
			_, err := es[1].Peer(0).Recv(buf).Wait(ctx)
			require.NoError(t, err, "round %d, message %d", round, i)
			require.Equal(t, []byte{i}, buf)
		}
		tasks.Wait()
		require.NoError(t, <-closed, "round %d", round)
		require.NoError(t, es[1].Close(), "round %d", round)
	}
}

// Close does not wait for the acknowledgement of a peer that has left, although the engine takes no report
// of that any longer, and the queue pair only fails when PeerTimeout has passed.
func TestClosesBesidePeerThatLeft(t *testing.T) {
	es := lossyVerbs(t)
	messaging(t, es)
	es[0].job.NotifyGone(func(int, string) {}) // as if Close had begun
	require.NoError(t, es[1].Close())
	require.NoError(t, es[0].Close())
}

// Messages of all lengths, in both directions and of both kinds of sends, arrive once and in order
// although rail 0 is lost again and again.
func TestMessagesAcrossLosses(t *testing.T) {
	const net, most, turns = 94, 1 << 20, 300
	es := lossy(t, net, PiecesAuto)
	ctx := testutil.Context(t, testutil.Limit)
	losing(t, es, cutSocketsOf(net), func() {
		var g errgroup.Group
		for r, e := range es {
			p := e.Peer(1 - r)
			length := func(rng *rand.Rand) int { return 1 + rng.IntN(most>>(2*rng.IntN(9))) }
			g.Go(func() error {
				rng := rand.New(rand.NewPCG(uint64(r), 1))
				var reqs []Request
				for i := range uint64(turns) {
					msg := make([]byte, length(rng))
					testutil.Fill(msg, i, 0)
					if i%3 == 0 { // several in flight
						b := p.Batch()
						b.Add(7, msg)
						reqs = append(reqs, b.Send())
						continue
					}
					if err := WaitAll(ctx, append(reqs, p.SendTag(7, msg))...); err != nil {
						return err
					}
					reqs = reqs[:0]
				}
				return WaitAll(ctx, reqs...)
			})
			g.Go(func() error {
				rng := rand.New(rand.NewPCG(uint64(1-r), 1))
				for i := range uint64(turns) {
					want, buf := length(rng), make([]byte, most)
					m, err := p.RecvTag(7, buf).Wait(ctx)
					if err != nil {
						return err
					}
					if m != want {
						return fmt.Errorf("message %d has %d bytes, want %d", i, m, want)
					}
					if err := testutil.Verify(buf[:want], i, 0); err != nil {
						return fmt.Errorf("message %d: %w", i, err)
					}
				}
				return nil
			})
		}
		require.NoError(t, g.Wait())
	})
}

// A rank that leaves is gone for the other one, although rail 0 was lost, or is while it leaves.
func TestLeavingAcrossLosses(t *testing.T) {
	const net = 96
	for _, last := range []int{unix.SHUT_RDWR, -1} {
		es := lossy(t, net, PiecesAuto)
		ctx := testutil.Context(t, testutil.Limit)
		require.Positive(t, cutSockets(net, unix.SHUT_RDWR))
		buf := make([]byte, 16)
		recv := es[1].Peer(0).Recv(buf)
		require.NoError(t, es[0].Peer(1).Send([]byte("last words")).Wait(ctx))
		n, err := recv.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, "last words", string(buf[:n]))
		if last >= 0 {
			require.Positive(t, cutSockets(net, last)+cutSockets(net+1, last)) // rail 0 may be on either network
		}
		require.NoError(t, es[0].Close())
		testutil.Eventually(t, testutil.Limit, func() bool { return es[1].Peer(0).Stats().Err != nil }, "the peer has left")
		require.ErrorIs(t, es[1].Peer(0).Stats().Err, ErrPeerGone)
	}
}
