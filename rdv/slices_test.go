package rdv

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
)

// Slices cover a message once, in order, and both ends divide it alike.
func TestSlices(t *testing.T) {
	t.Parallel()
	for _, n := range []uint32{
		1, 64 << 10, leastShared - 1, leastShared, leastShared + 1, 1 << 20, 1<<20 + 7, 100<<20 + 1,
		claimMask * leastSlice, claimMask*leastSlice + 1, 1 << 31, math.MaxUint32,
	} {
		s := slice(n)
		require.True(t, s.n >= 1 && s.n <= claimMask, "%d: %+v", n, s)
		require.Equal(t, n >= leastShared, s.n > 1, "%d: %+v", n, s)
		end := uint64(0)
		for i := range s.n {
			off, k := s.at(i)
			require.Equal(t, end, uint64(off), "%d: slice %d of %+v", n, i, s)
			require.Positive(t, k)
			end += uint64(k)
		}
		require.Equal(t, uint64(n), end, "%+v", s)
	}
	require.Equal(t, slicing{1 << 20, 128 << 10, 8}, slice(1<<20))
}

// step lets an end take the next step of a transfer: count the slice that it has copied, or claim
// one. It returns false if there is nothing to do.
func (e *modelEnd) step(t *testing.T, word *atomic.Uint64) bool {
	if e.holds {
		last, r := e.c.count(word)
		require.Equal(t, claimDone, r)
		e.holds, e.last = false, e.last || last
		return true
	}
	i, r := e.c.claim(word)
	if r != claimDone {
		require.Equal(t, claimNone, r)
		return false
	}
	e.holds, e.mine = true, append(e.mine, i)
	return true
}

type modelEnd struct {
	c     claimant
	holds bool
	last  bool
	mine  []int
}

// Every order of the steps of two ends copies each slice once, and exactly one end sees the last.
func TestEveryOrderOfClaims(t *testing.T) {
	t.Parallel()
	orders := 0
	for n := 1; n <= 6; n++ {
		// A choice is replayed from the beginning: path[i] is the end that takes step i.
		var walk func(path []int)
		walk = func(path []int) {
			var word atomic.Uint64
			word.Store(7)
			ends := [2]modelEnd{{c: claimant{name: 7, n: n}}, {c: claimant{name: 7, n: n, back: true}}}
			for _, e := range path {
				if !ends[e].step(t, &word) {
					return // the other choice reaches the same states
				}
			}
			if !ends[0].last && !ends[1].last {
				require.LessOrEqual(t, len(path), 2*n)
				for e := range ends {
					walk(append(path[:len(path):len(path)], e))
				}
				return
			}
			orders++
			require.NotEqual(t, ends[0].last, ends[1].last)
			seen := map[int]bool{}
			for _, e := range ends {
				require.False(t, e.holds)
				for _, i := range e.mine {
					require.False(t, seen[i] || i < 0 || i >= n)
					seen[i] = true
				}
			}
			require.Len(t, seen, n)
			for i := range ends { // what comes late changes nothing
				require.False(t, ends[i].step(t, &word))
				require.True(t, ends[i].c.complete())
			}
		}
		walk(nil)
	}
	require.Greater(t, orders, 1000)
}

// Two processors share a message: each part is written once, and the end that counts the last one
// sees all of them (under the race detector: in order).
func TestClaimsInParallel(t *testing.T) {
	t.Parallel()
	for round := range 200 {
		const n = 40
		var word atomic.Uint64
		word.Store(3)
		parts := make([]int, n) // written without any other synchronisation
		var lasts atomic.Int32
		var g sync.WaitGroup
		for e := range 2 {
			g.Go(func() {
				c := claimant{name: 3, n: n, back: e == 1}
				for {
					i, r := c.claim(&word)
					if r == claimAgain {
						continue
					}
					if r == claimNone {
						return
					}
					parts[i]++
					last, r := c.count(&word)
					for r == claimAgain {
						last, r = c.count(&word)
					}
					if r != claimDone {
						t.Errorf("count: result %d", r)
						return
					}
					if last {
						lasts.Add(1)
						for i := range parts {
							if parts[i] != 1 {
								t.Errorf("round %d: part %d written %d times", round, i, parts[i])
							}
						}
					}
				}
			})
		}
		g.Wait()
		require.EqualValues(t, 1, lasts.Load())
	}
}

// A peer may store anything into the word. It is refused, or this end copies slices of its own
// message, each once; nothing else.
func TestHostileWords(t *testing.T) {
	t.Parallel()
	const n, id = 8, 5
	w := func(front, back, copied uint64) uint64 {
		return id | front<<frontShift | back<<backShift | copied<<copiedShift
	}
	for name, x := range map[string]struct {
		word  uint64
		front bool // a receiver accepts it that has claimed 2 and counted 1, and seen 3 and 2 of the peer's
		back  bool // and such a sender
	}{
		"honest":               {w(2, 3, 3), true, false},
		"honest to the sender": {w(3, 2, 3), false, true},
		"more":                 {w(2, 6, 7), true, false},
		"too many":             {w(2, 7, 3), false, false},
		"far too many":         {w(2, 1023, 3), false, false},
		"backwards":            {w(2, 2, 3), false, false},
		"uncounted":            {w(2, 3, 2), false, false},
		"counted too much":     {w(2, 3, 5), false, false},
		"my claim undone":      {w(1, 3, 3), false, false},
		"my claim made":        {w(3, 3, 3), false, false},
		"another id":           {w(2, 3, 3) + 1, false, false},
		"nothing":              {0, false, false},
		"everything":           {math.MaxUint64, false, false},
		"an advert":            {w(2, 3, 3) | claimAdvert, false, false},
		"the high bit":         {w(2, 3, 3) | 1<<63, false, false},
	} {
		for _, back := range []bool{false, true} {
			c := claimant{name: id, n: n, back: back, claimed: 2, copied: 1, theirs: 3, placed: 2}
			want := x.front
			if back {
				want = x.back
			}
			require.Equal(t, want, c.read(x.word), "%s, sender %v", name, back)
		}
	}
}

func FuzzClaimWord(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 5}, true)
	f.Fuzz(func(t *testing.T, script []byte, back bool) {
		const n = 8
		var word atomic.Uint64
		word.Store(5)
		c := claimant{name: 5, n: n, back: back}
		claimed := map[int]bool{}
		for ; len(script) >= 9; script = script[9:] {
			var x uint64
			for i, b := range script[1:9] {
				x |= uint64(b) << (8 * i)
			}
			if script[0]&1 != 0 {
				word.Store(x)
			}
			if script[0]&2 != 0 {
				word.Add(x << frontShift)
			}
			if c.owned() {
				_, _ = c.count(&word)
			} else if i, r := c.claim(&word); r == claimDone {
				if claimed[i] || i < 0 || i >= n {
					t.Fatalf("slice %d claimed, after %v", i, claimed)
				}
				claimed[i] = true
			}
			if c.copied > c.claimed || c.claimed > n || c.claimed+c.theirs > n || c.placed > c.theirs {
				t.Fatalf("%+v", c)
			}
		}
	})
}

// sharingLinks are links over which two ends share a transfer.
func sharingLinks() map[string]opener {
	links := map[string]opener{"sim": simLinks(sim.Options{Caps: caps("ibv", mapped)})}
	if open := realLinks["shm"]; open != nil {
		links["shm"] = open
	}
	return links
}

// check checks a transfer that is over.
func (x *transfer) check(t *testing.T, size int) {
	require.NoError(t, x.hb.received[0])
	require.NoError(t, testutil.Verify(x.hb.mem.mem[:size], 5, 0))
	require.NoError(t, x.ha.sent[0])
	x.idle(t)
	a, b := x.a.ch.Stats(), x.b.ch.Stats()
	require.EqualValues(t, slice(uint32(size)).n, a.Slices+b.Slices)
	require.Zero(t, a.Writes+b.Reads, "requests for the whole")
}

// Both ends copy an announced message; either end alone does if the other one does nothing.
func TestBothEndsCopyAnAnnouncedMessage(t *testing.T) {
	t.Parallel()
	const size = 1<<20 + 12345
	for name, open := range sharingLinks() {
		for who, turns := range map[string][2]int{"both": {1, 1}, "sender": {1, 0}, "receiver": {0, 1}, "mostly sender": {3, 1}} {
			t.Run(fmt.Sprintf("%s/%s", name, who), func(t *testing.T) {
				t.Parallel()
				x := offered(t, open, size)
				x.play(t, turns, func() bool { return len(x.ha.sent)*turns[0] >= turns[0] && len(x.hb.received)*turns[1] >= turns[1] })
				x.play(t, [2]int{1, 1}, func() bool { return len(x.ha.sent) == 1 && len(x.hb.received) == 1 })
				x.check(t, size)
				a, b := x.a.ch.Stats().Slices, x.b.ch.Stats().Slices
				require.Equal(t, turns[0] > 0, a > 0, "sender: %d", a)
				require.Equal(t, turns[1] > 0, b > 0, "receiver: %d", b)
			})
		}
	}
}

// play lets the two ends take so many turns each, in turn, until done.
func (x *transfer) play(t *testing.T, turns [2]int, done func() bool) {
	testutil.Eventually(t, testutil.Limit, func() bool {
		for i, s := range []*side{x.a, x.b} {
			for range turns[i] {
				require.NoError(t, s.turn())
			}
		}
		return done()
	}, "the transfer")
}

// shared is a message of a that is to be written to an advert of b, and of which no slice is
// copied.
func shared(t *testing.T, open opener, size int) transfer {
	la, lb := open(t)
	x := transfer{ha: newCarrier(t, la, size), hb: newCarrier(t, lb, size)}
	x.a, x.b = pairOn(t, la, lb, x.ha, x.hb, Options{}, Options{})
	testutil.Fill(x.ha.mem.mem, 5, 0)
	_, res, err := x.b.ch.Advertise(Want{Pos: 1}, x.hb.mem.reg.Key(), 9)
	require.NoError(t, err)
	require.Equal(t, Accepted, res)
	require.NoError(t, x.b.ch.Flush())
	x.a.until(t, "the advert", func() bool { return len(x.ha.adverts) > 0 })
	s, _, _ := x.ha.Source(3)
	res, err = x.a.ch.Write(x.ha.adverts[0].ID, 1, 2, []fabric.SGE{s}, 3)
	require.NoError(t, err)
	require.Equal(t, Accepted, res)
	require.NoError(t, x.a.ch.Flush())
	require.NotNil(t, x.a.ch.shares.of(shareWrite, x.ha.adverts[0].ID.slot()))
	require.Zero(t, x.a.ch.Stats().Slices, "the call copies nothing")
	return x
}

// The same for a receive that was advertised before.
func TestBothEndsCopyToAnAdvert(t *testing.T) {
	t.Parallel()
	const size = 1<<20 + 12345
	for name, open := range sharingLinks() {
		for who, turns := range map[string][2]int{"both": {1, 1}, "sender": {1, 0}, "receiver": {0, 1}, "mostly receiver": {1, 3}} {
			t.Run(fmt.Sprintf("%s/%s", name, who), func(t *testing.T) {
				t.Parallel()
				x := shared(t, open, size)
				x.play(t, turns, func() bool { return len(x.ha.sent)*turns[0] >= turns[0] && len(x.hb.filled)*turns[1] >= turns[1] })
				x.play(t, [2]int{1, 1}, func() bool { return len(x.ha.sent) == 1 && len(x.hb.filled) == 1 })
				require.NoError(t, x.hb.filled[0])
				require.EqualValues(t, []uint32{size}, x.hb.filledBytes)
				x.hb.received = append(x.hb.received, nil)
				x.check(t, size)
				a, b := x.a.ch.Stats().Slices, x.b.ch.Stats().Slices
				require.Equal(t, turns[0] > 0, a > 0, "sender: %d", a)
				require.Equal(t, turns[1] > 0, b > 0, "receiver: %d", b)
			})
		}
	}
}

// The receiver ends the use of a word and begins another one, with the same id, between any two steps
// of a sender that has not heard of the end: the sender claims nothing of the other transfer.
func TestWordInUseForAnother(t *testing.T) {
	t.Parallel()
	const n, id = 4, 7
	for _, advert := range []bool{false, true} {
		for own := range n { // slices that the sender has copied before
			for theirs := range n + 1 { // claimed by the receiver of the other transfer
				var word atomic.Uint64
				word.Store(claimName(id, advert))
				s := modelEnd{c: claimant{name: claimName(id, advert), n: n, back: true}}
				for range 2 * own {
					require.True(t, s.step(t, &word))
				}
				word.Store(claimName(id, !advert))
				r := modelEnd{c: claimant{name: claimName(id, !advert), n: n}}
				for range 2 * theirs {
					require.True(t, r.step(t, &word))
				}
				before := word.Load()
				require.False(t, s.step(t, &word))
				require.Equal(t, before, word.Load())
				for !r.last {
					require.True(t, r.step(t, &word))
				}
			}
		}
	}
}
