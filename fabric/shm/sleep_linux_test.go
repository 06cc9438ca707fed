package shm

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// sleepOn arms l, which has nothing to do.
func sleepOn(t *testing.T, l fabric.Link) {
	t.Helper()
	// Old wake-ups may still have to be read.
	testutil.Eventually(t, testutil.Limit, func() bool {
		poll(t, l)
		ok, err := l.Arm()
		require.NoError(t, err)
		if ok && !readable(t, l, 0) {
			return true
		}
		l.Disarm()
		return false
	}, "the link to become idle")
}

// Each event wakes a target that sleeps on the descriptor.
func TestWakes(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			x, y := pair(t, o, fabric.EndpointOptions{ID: 4})
			a, b := x.link, y.link
			la, lb := alloc(t, a, 4096), alloc(t, b, 4096)
			key := lb.Key()
			posted := func(wr fabric.WR) func() { return func() { post(t, x, wr) } }
			w := write(la, 0, 8, key, 0)
			odd := write(la, 1, 13, key, 3)
			zero := write(la, 0, 0, key, 0)
			note := write(la, 0, 16, key, 8)
			note.Flags |= fabric.FlagNotify
			zero.Flags |= fabric.FlagNotify
			add := w
			add.Op = fabric.OpFetchAdd
			for i, do := range []func(){posted(w), posted(odd), posted(note), posted(zero), posted(add), posted(w)} {
				sleepOn(t, b)
				do()
				require.True(t, readable(t, b, testutil.Limit), "event %d", i)
				b.Disarm()
				n := 0
				testutil.Eventually(t, testutil.Limit, func() bool {
					var cs [4]fabric.Completion
					n += b.Poll(cs[:])
					k := a.Poll(cs[:])
					require.True(t, k == 0 || cs[0].Status == fabric.StatusOK)
					return k == 1
				}, "event %d", i)
				if i == 2 || i == 3 {
					if n == 0 {
						require.Equal(t, fabric.OpNotify, await(t, b).Op)
					}
				}
			}
			// The poster sleeps until the answer.
			sleepOn(t, b)
			sleepOn(t, a)
			a.Disarm()
			post(t, x, add)
			if ok, err := a.Arm(); err == nil && ok { // else it was executed at once
				require.True(t, readable(t, b, testutil.Limit))
				b.Disarm()
				poll(t, b)
				require.True(t, readable(t, a, testutil.Limit))
			}
			a.Disarm()
			require.Equal(t, fabric.OpFetchAdd, await(t, a, b).Op)
			// Down.
			sleepOn(t, b)
			require.NoError(t, x.Close())
			require.True(t, readable(t, b, testutil.Limit))
			b.Disarm()
			c := await(t, b)
			require.Equal(t, fabric.Completion{EP: 4, Op: fabric.OpDown, Status: fabric.StatusPeerGone}, c)
			require.ErrorIs(t, y.Err(), fabric.ErrPeerGone)
		})
	}
}

// A target that watches nothing sleeps through requests with FlagQuiet, which make no system call,
// by whatever method, and through nothing else.
func TestQuietRequestsWakeWatchersOnly(t *testing.T) {
	for _, way := range []string{"mapped", "cma"} {
		t.Run(way, func(t *testing.T) {
			x, y := pair(t, ways[way], fabric.EndpointOptions{})
			la, lb := alloc(t, x.link, 4096), alloc(t, y.link, 4096)
			wakes := 0
			x.link.sendWake = func(sock int) error { wakes++; return sendWake(sock) }
			req := func(op fabric.Op, n int, f fabric.Flags) func() {
				wr := write(la, 0, n, lb.Key(), 0)
				wr.Op, wr.Flags = op, f
				return func() { post(t, x, wr) }
			}
			do := func(f fabric.Flags) func() {
				wr := write(la, 0, 8, lb.Key(), 0)
				wr.Flags = f
				return func() { require.True(t, x.Do(&wr)) }
			}
			store := func(quiet bool) func() {
				return func() {
					b := x.Reach(fabric.AccessRemoteWrite, lb.Key().RKey, lb.Key().Addr, 8)
					require.NotNil(t, b)
					testutil.Store64(b, 1)
					x.Stored(quiet)
				}
			}
			const q = fabric.FlagQuiet
			cases := []struct {
				what  string
				watch bool
				do    func()
				wakes int
			}{
				{"quiet write", false, req(fabric.OpWrite, 8, q), 0},
				{"long one", false, req(fabric.OpWrite, 4096, q), 0},
				{"write", false, req(fabric.OpWrite, 8, 0), 1},
				{"notification", false, req(fabric.OpWrite, 8, q|fabric.FlagNotify), 1},
				{"list with one write", false, func() {
					wrs := []fabric.WR{write(la, 0, 8, lb.Key(), 0), write(la, 0, 8, lb.Key(), 8), write(la, 0, 8, lb.Key(), 16)}
					wrs[0].Flags, wrs[1].Flags, wrs[2].Flags = q, 0, q
					n, err := x.Post(wrs)
					require.True(t, n == 3 && err == nil)
				}, 1},
				{"watched quiet write", true, req(fabric.OpWrite, 8, q), 1},
				{"quiet write after that", false, req(fabric.OpWrite, 8, q), 0},
			}
			if way == "mapped" {
				cases = append(cases, []struct {
					what  string
					watch bool
					do    func()
					wakes int
				}{
					{"quiet atomic", false, req(fabric.OpFetchAdd, 8, q), 0},
					{"atomic", false, req(fabric.OpFetchAdd, 8, 0), 1},
					{"watched quiet atomic", true, req(fabric.OpFetchAdd, 8, q), 1},
					{"quiet Do", false, do(q), 0},
					{"Do", false, do(0), 1},
					{"watched quiet Do", true, do(q), 1},
					{"quiet store", false, store(true), 0},
					{"store", false, store(false), 1},
					{"watched quiet store", true, store(true), 1},
				}...)
			}
			for _, c := range cases {
				y.link.Watch(c.watch)
				sleepOn(t, y.link)
				wakes = 0
				c.do()
				c.do()
				require.Equal(t, c.wakes, wakes, c.what)
				require.Equal(t, c.wakes != 0, readable(t, y.link, 0), c.what)
				y.link.Disarm()
				var cs [16]fabric.Completion
				for range 2 {
					y.link.Poll(cs[:])
					x.link.Poll(cs[:])
				}
			}
		})
	}
}

// Arm refuses while something is pending.
func TestArmSeesWhatIsPending(t *testing.T) {
	x, y := pair(t, Options{}, fabric.EndpointOptions{})
	la, lb := alloc(t, x.link, 64), alloc(t, y.link, 64)
	wr := write(la, 0, 8, lb.Key(), 0)
	wr.Flags |= fabric.FlagNotify
	post(t, x, wr)
	for _, l := range []*link{x.link, y.link} {
		ok, err := l.Arm()
		require.NoError(t, err)
		require.False(t, ok)
		await(t, l)
	}
	ok, err := x.link.Arm()
	require.NoError(t, err)
	require.True(t, ok)
	x.link.Disarm()
}

// A full ring refuses, and the poster is woken when there is room again.
func TestFullRing(t *testing.T) {
	x, y := pair(t, Options{}, fabric.EndpointOptions{Depth: 4 * minSlots})
	a, b := x.link, y.link
	la, lb := alloc(t, a, 64), alloc(t, b, 64)
	sent := uint32(0)
	fill := func() {
		for {
			wr := write(la, 0, 8, lb.Key(), 0)
			wr.Flags, wr.Imm = fabric.FlagNotify, sent
			n, err := x.Post([]fabric.WR{wr})
			require.NoError(t, err)
			if n == 0 {
				return
			}
			sent++
		}
	}
	fill()
	require.EqualValues(t, 4*minSlots, sent)
	var cs [16]fabric.Completion
	got := uint32(0)
	for round := range 50 {
		sleepOn(t, a)
		for !readable(t, a, 0) {
			n := b.Poll(cs[:])
			require.NotZero(t, n, "round %d: everything read and the poster not woken", round)
			for _, c := range cs[:n] {
				require.Equal(t, fabric.Completion{Op: fabric.OpNotify, Imm: got, Bytes: 8}, c)
				got++
			}
		}
		a.Disarm()
		before := sent
		fill()
		require.Greater(t, sent, before)
	}
	for got < sent {
		require.Equal(t, got, await(t, b).Imm)
		got++
	}
	poll(t, b)
}

// Neither side ever misses a wake-up: a ping-pong that sleeps at every turn.
func TestSleepingPingPong(t *testing.T) {
	x, y := pair(t, Options{}, fabric.EndpointOptions{})
	const rounds = 2000
	run := func(ep *endpoint, local, remote fabric.Region, first bool) error {
		l := ep.link
		wr := write(local, 8, 8, remote.Key(), 0)
		wr.Flags = 0
		in, out := local.Bytes()[:8], local.Bytes()[8:16]
		var cs [1]fabric.Completion
		for i := uint64(1); i <= rounds; i++ {
			turn := func() error {
				testutil.Store64(out, i)
				if n, err := ep.Post([]fabric.WR{wr}); n != 1 || err != nil {
					return fmt.Errorf("round %d: post: %d, %v", i, n, err)
				}
				return nil
			}
			if first {
				if err := turn(); err != nil {
					return err
				}
			}
			for end := time.Now().Add(testutil.Limit); testutil.Load64(in) != i; {
				if n := l.Poll(cs[:]); n != 0 {
					return fmt.Errorf("round %d: %v", i, cs[0])
				}
				ok, err := l.Arm()
				if err != nil {
					return err
				}
				if ok && testutil.Load64(in) != i && !readable(t, l, time.Until(end)) {
					return fmt.Errorf("round %d: slept for ever, the word is %d", i, testutil.Load64(in))
				}
				l.Disarm()
			}
			if !first {
				if err := turn(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	la, lb := alloc(t, x.link, 64), alloc(t, y.link, 64)
	errs := make(chan error, 1)
	go func() { errs <- run(y, lb, la, false) }()
	require.NoError(t, run(x, la, lb, true))
	require.NoError(t, <-errs)
}

// A peer that lives but does not poll is waited for, however long: what was asked of it
// is carried out when it goes on.
func TestPeerThatDoesNotPoll(t *testing.T) {
	for name, notify := range map[string]bool{"request": false, "behind a full ring": true} {
		t.Run(name, func(t *testing.T) {
			x, y := pair(t, ways["by-peer"], fabric.EndpointOptions{PeerTimeout: 10 * time.Millisecond})
			la, lb := alloc(t, x.link, 64), alloc(t, y.link, 64)
			notes := 0
			if notify {
				wr := write(la, 0, 0, lb.Key(), 0)
				wr.Flags = fabric.FlagNotify
				for range len(x.out.slots) {
					post(t, x, wr)
					notes++
				}
			}
			testutil.Store64(la.Bytes(), 4711)
			post(t, x, write(la, 0, 8, lb.Key(), 0))
			post(t, x, write(la, 0, 8, lb.Key(), 8))
			for range 10 { // asleep, and awake
				sleepOn(t, x.link)
				require.False(t, readable(t, x.link, 20*time.Millisecond))
				x.link.Disarm()
				poll(t, x.link)
			}
			var cs [8]fabric.Completion
			done := 0
			testutil.Eventually(t, testutil.Limit, func() bool {
				for _, c := range cs[:y.link.Poll(cs[:])] {
					require.Equal(t, fabric.OpNotify, c.Op)
					notes--
				}
				for _, c := range cs[:x.link.Poll(cs[:])] {
					require.NoError(t, c.Err())
					done++
				}
				return done == 2 && notes == 0
			}, "what was asked for")
			require.EqualValues(t, 4711, testutil.Load64(lb.Bytes()[8:]))
		})
	}
}

// A wake-up that the kernel had no memory for is sent again, whether the side that owes it
// polls or sleeps.
func TestWakeUpThatFails(t *testing.T) {
	for _, asleep := range []bool{false, true} {
		for _, errno := range []unix.Errno{unix.ENOBUFS, unix.ENOMEM} {
			t.Run(fmt.Sprintf("asleep %v, %v", asleep, errno), func(t *testing.T) {
				x, y := pair(t, Options{}, fabric.EndpointOptions{})
				la, lb := alloc(t, x.link, 64), alloc(t, y.link, 64)
				poll(t, y.link)
				left := 3
				x.link.sendWake = func(sock int) error {
					if left--; left >= 0 {
						return errno
					}
					return sendWake(sock)
				}
				sleepOn(t, y.link)
				wr := write(la, 0, 8, lb.Key(), 0)
				wr.Flags = 0
				post(t, x, wr)
				require.False(t, readable(t, y.link, 0))
				testutil.Eventually(t, testutil.Limit, func() bool {
					if asleep {
						if ok, err := x.link.Arm(); ok && err == nil {
							readable(t, x.link, testutil.Limit)
						}
						x.link.Disarm()
					}
					poll(t, x.link)
					return readable(t, y.link, 0)
				}, "the sleeper to be woken")
				require.Negative(t, left)
				y.link.Disarm()
			})
		}
	}
}
