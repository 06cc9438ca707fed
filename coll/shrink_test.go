package coll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
)

// part takes the connection of two ranks down, by an access with a stale key, and returns when both know.
func part(t testing.TB, ts []*Team, a, b int) {
	t.Helper()
	ea, eb := ts[a].t.eng, ts[b].t.eng
	mem, err := eb.Alloc(64)
	require.NoError(t, err)
	mine, err := ea.Alloc(64)
	require.NoError(t, err)
	stale := mem.Key()
	require.NoError(t, mem.Close())
	require.ErrorIs(t, ea.Peer(b).Put(stale.At(0), mine.Slice(0, 8)).Wait(testutil.Context(t, testutil.Limit)), rma.ErrRemoteAccess)
	require.NoError(t, mine.Close())
	lost := func(s *service, r int) bool { s.mu.Lock(); defer s.mu.Unlock(); return s.lost[r] != nil }
	testutil.Eventually(t, testutil.Limit, func() bool { return lost(ts[a].t.s, b) && lost(ts[b].t.s, a) }, "the loss")
}

// Ranks that live, of which some have lost their connections with each other: those that can reach each other
// go on, and the others learn why they cannot.
func TestShrinkApart(t *testing.T) {
	for name, c := range map[string]struct {
		ranks int
		apart [][2]int
		teams [][]int
		out   map[int][]int // the ranks of which the error names one
	}{
		"one pair":    {4, [][2]int{{1, 2}}, [][]int{{0, 1, 3}}, map[int][]int{2: {1}}},
		"two pairs":   {4, [][2]int{{0, 1}, {2, 3}}, [][]int{{0, 2}}, map[int][]int{1: {0}, 3: {2}}},
		"one rank":    {4, [][2]int{{2, 0}, {2, 1}, {2, 3}}, [][]int{{0, 1, 3}, {2}}, nil},
		"first rank":  {4, [][2]int{{0, 1}, {0, 2}, {0, 3}}, [][]int{{0}, {1, 2, 3}}, nil},
		"except one":  {4, [][2]int{{0, 2}, {0, 3}}, [][]int{{1, 2, 3}}, map[int][]int{0: {2, 3}}},
		"last except": {4, [][2]int{{3, 1}, {3, 2}}, [][]int{{0, 1, 2}}, map[int][]int{3: {1, 2}}},
		"two halves":  {4, [][2]int{{0, 1}, {0, 3}, {2, 1}, {2, 3}}, [][]int{{0, 2}, {1, 3}}, nil},
		"a line":      {3, [][2]int{{0, 2}}, [][]int{{0, 1}}, map[int][]int{2: {0}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testutil.Context(t, testutil.Limit)
			ts := worlds(t, job(t, c.ranks, "shm"))
			each(t, ts, func(_ int, team *Team) error { return Barrier(ctx, team) })
			for _, p := range c.apart {
				part(t, ts, p[0], p[1])
			}
			each(t, ts, func(r int, world *Team) error {
				rest, err := world.Shrink(ctx)
				for _, ranks := range c.teams {
					if !slices.Contains(ranks, r) {
						continue
					}
					switch {
					case err != nil:
						return err
					case !slices.Equal(rest.t.ranks, ranks):
						return fmt.Errorf("team of %v", rest.t.ranks)
					}
					return conform(ctx, rest, 0, 5, 1)
				}
				for range 2 {
					var out *ExcludedError
					if !errors.As(err, &out) || out.Ranks[0] != r || !slices.Contains(c.out[r], out.Ranks[1]) || !errors.Is(err, rma.ErrNoConnection) {
						return fmt.Errorf("%v", err)
					}
					_, err = world.Shrink(ctx) // the same
				}
				return nil
			})
		})
	}
}

// A rank that gives Shrink up is left out by the others, also by the next call, and in the team that follows if
// that was made meanwhile. One that closes the team is, too.
func TestShrinkGivenUp(t *testing.T) {
	given, end := context.WithCancel(t.Context())
	end()
	for _, who := range []int{0, 2} {
		ctx := testutil.Context(t, testutil.Limit)
		es := job(t, 4, "shm")
		each(t, worlds(t, es), func(r int, world *Team) error {
			first, err := New(ctx, es[r], []int{0, 1, 2, 3}, "first")
			if err != nil {
				return err
			}
			if r == who {
				_, err := first.Shrink(given)
				if !errors.Is(err, context.Canceled) {
					return fmt.Errorf("given up: %v", err)
				}
				var out *ExcludedError
				if _, err = first.Shrink(ctx); !errors.As(err, &out) || out.Ranks != [2]int{r, r} || !errors.Is(err, rma.ErrGivenUp) {
					return fmt.Errorf("again: %v", err)
				}
				return first.Close()
			}
			for range 2 {
				rest, err := first.Shrink(ctx)
				if err != nil {
					return err
				}
				if rest.Size() != 3 || rest.RankOf(who) >= 0 {
					return fmt.Errorf("team of %v", rest.t.ranks)
				}
				if err := conform(ctx, rest, 1, 5, 1); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// Shrink of a team that this rank has closed fails at once, whether the team was revoked before or not, and a call
// that waits fails when the team is closed. The others go on without the rank.
func TestShrinkClosed(t *testing.T) {
	for name, revoked := range map[string]bool{"working": false, "revoked": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testutil.Context(t, testutil.Limit)
			es := job(t, 2, "shm")
			ts := make([]*Team, 2)
			each(t, worlds(t, es), func(r int, _ *Team) (err error) {
				ts[r], err = New(ctx, es[r], []int{0, 1}, "team")
				return err
			})
			if revoked {
				req := StartBarrier(ts[0])
				req.Cancel()
				require.ErrorIs(t, req.Wait(ctx), ErrRevoked)
			}
			ended := make(chan error, 1)
			go func() { _, err := ts[0].Shrink(ctx); ended <- err }()
			f := ts[0].t.next
			waits := func() bool { f.t.s.mu.Lock(); defer f.t.s.mu.Unlock(); return f.calling() }
			testutil.Eventually(t, testutil.Limit, waits, "the call of rank 0")
			require.NoError(t, ts[0].Close())
			require.ErrorIs(t, <-ended, rma.ErrClosed)
			require.NoError(t, ts[0].Close())
			_, err := ts[0].Shrink(ctx)
			require.ErrorIs(t, err, rma.ErrClosed)

			rest, err := ts[1].Shrink(ctx)
			require.NoError(t, err)
			require.Equal(t, []int{1}, rest.t.ranks)
		})
	}
}

// The first rank is lost when it has told one of the others who the members are: all the others get
// to the same team, and from there to one without it, also if the other one has closed the old team.
func TestShrinkLosesFirst(t *testing.T) {
	for name, do := range map[string]func(old *Team) error{
		"open":   func(*Team) error { return nil },
		"closed": (*Team).Close,
		"closing": func(old *Team) error { // while memory of its board may be in use
			testutil.Holding(&old.t.s.mu, old.t.next.close)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testutil.Context(t, testutil.Limit)
			es := job(t, 3, "shm")
			ts := make([]*Team, 3)
			each(t, worlds(t, es), func(r int, _ *Team) (err error) {
				ts[r], err = New(ctx, es[r], []int{0, 1, 2}, "old")
				return err
			})
			name, s := followerOf(ts[0].t), ts[0].t.s
			got := make([]*Team, 3)
			ended := make(chan error, 2)
			for r := 1; r < 3; r++ {
				go func() {
					var err error
					got[r], err = ts[r].Shrink(ctx)
					ended <- err
				}()
			}
			// Rank 0 takes part by hand.
			for r := 1; r < 3; r++ {
				v := frame{kind: frameView, number: ts[r].t.number, name: name, nonce: 5<<32 | uint64(ts[0].t.number)}
				require.NoError(t, es[0].Peer(r).SendTag(tagControl, v.bytes()).Wait(ctx))
			}
			var table [][2]uint32
			all := func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				table = [][2]uint32{{0, 5}}
				for r := 1; r < 3; r++ {
					v := ts[0].t.next.views[r]
					if v == nil || !v.complete {
						return false
					}
					table = append(table, [2]uint32{uint32(r), v.number})
				}
				return true
			}
			testutil.Eventually(t, testutil.Limit, all, "the views")
			f := frame{kind: frameFollow, number: ts[1].t.number, name: name, table: table}
			require.NoError(t, es[0].Peer(1).SendTag(tagControl, f.bytes()).Wait(ctx))
			require.NoError(t, <-ended)
			require.NoError(t, do(ts[1]))
			require.NoError(t, es[0].Close())
			require.NoError(t, <-ended)
			each(t, got[1:], func(_ int, team *Team) error {
				if !slices.Equal(team.t.ranks, []int{0, 1, 2}) {
					return fmt.Errorf("team of %v", team.t.ranks)
				}
				rest, err := team.Shrink(ctx)
				if err != nil {
					return err
				}
				if !slices.Equal(rest.t.ranks, []int{1, 2}) {
					return fmt.Errorf("rest of %v", rest.t.ranks)
				}
				return conform(ctx, rest, 0, 5, 1)
			})
		})
	}
}

// A rank that has closed the old team is told the members once more, as a view of it has come late, and when it has closed the
// new one as well: that stays.
func TestShrinkToldAgain(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	es := job(t, 2, "tcp")
	old, got := make([]*Team, 2), make([]*Team, 2)
	each(t, worlds(t, es), func(r int, _ *Team) (err error) {
		if old[r], err = New(ctx, es[r], []int{0, 1}, "old"); err == nil {
			got[r], err = old[r].Shrink(ctx)
		}
		return err
	})
	require.NoError(t, old[1].Close())
	late := frame{kind: frameView, number: old[0].t.number, name: followerOf(old[0].t), nonce: uint64(got[1].t.number)<<32 | uint64(old[1].t.number)}
	old[0].t.s.control(rma.Envelope{From: 1, Tag: tagControl}, [][]byte{late.bytes()})
	each(t, got, func(_ int, team *Team) error { return errors.Join(Barrier(ctx, team), Barrier(ctx, team)) })

	again := frame{kind: frameFollow, number: old[1].t.number, name: followerOf(old[0].t), table: membersOf(got[0].t)}
	require.NoError(t, got[1].Close())
	old[1].t.s.control(rma.Envelope{From: 0, Tag: tagControl}, [][]byte{again.bytes()})
	each(t, worlds(t, es), func(_ int, world *Team) error { return Barrier(ctx, world) }) // behind what that has sent
	require.NoError(t, got[0].Err())
}

// A rank that gives up when the team has been made revokes it, and takes no part in the one that follows.
func TestShrinkGivenUpLate(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	es := job(t, 3, "shm")
	ts := worlds(t, es)
	each(t, ts, func(_ int, world *Team) error { return Barrier(ctx, world) })
	got := make([]*Team, 3)
	ended := make(chan error, 2)
	for r := range 2 {
		go func() {
			var err error
			got[r], err = ts[r].Shrink(ctx)
			ended <- err
		}()
	}
	// Rank 2 takes part by hand, but no longer when the members come.
	by := ts[2].t.s
	testutil.Holding(&by.mu, func() { by.drop(77, &dropped{[]int{0, 1, 2}, []int{0, 1}}) })
	v := frame{kind: frameView, name: followerOf(ts[0].t), nonce: 77 << 32}
	require.NoError(t, es[2].Peer(1).SendTag(tagControl, v.bytes()).Wait(ctx))
	v.members = 1
	require.NoError(t, es[2].Peer(0).SendTag(tagControl, v.bytes()).Wait(ctx))
	require.NoError(t, errors.Join(<-ended, <-ended))
	each(t, got[:2], func(_ int, team *Team) error {
		if err := Barrier(ctx, team); !errors.Is(err, rma.ErrGivenUp) {
			return fmt.Errorf("barrier: %v", err)
		}
		rest, err := team.Shrink(ctx)
		if err != nil {
			return err
		}
		if !slices.Equal(rest.t.ranks, []int{0, 1}) {
			return fmt.Errorf("team of %v", rest.t.ranks)
		}
		return conform(ctx, rest, 0, 5, 1)
	})
}

// Frames about a team that follows which are wrong do no harm.
func TestShrinkLies(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	es := job(t, 3, "shm")
	ts := worlds(t, es)
	pair := make([]*Team, 2)
	each(t, ts[:2], func(r int, _ *Team) (err error) { pair[r], err = New(ctx, es[r], []int{0, 1}, "pair"); return err })
	for _, f := range []frame{
		{kind: frameView, name: "x", number: 50, nonce: 1},
		{kind: frameView, name: "x"},
		{kind: frameOut, name: followerOf(pair[0].t), number: pair[0].t.number, table: [][2]uint32{{0, 1}}}, // of a team that it is not in
		{kind: frameView, name: followerOf(pair[0].t), number: pair[0].t.number, members: 1},
		{kind: frameFollow, name: followerOf(pair[0].t), number: pair[0].t.number, table: [][2]uint32{{2, 1}, {0, 1}}},
	} {
		ts[0].t.s.control(rma.Envelope{From: 2, Tag: tagControl}, [][]byte{f.bytes()})
	}
	member := frame{kind: frameOut, name: followerOf(ts[0].t), table: [][2]uint32{{1, 1}}} // about another one
	ts[0].t.s.control(rma.Envelope{From: 2, Tag: tagControl}, [][]byte{member.bytes()})
	testutil.Holding(&ts[0].t.s.mu, func() { require.Empty(t, ts[0].t.next.out) })
	require.NoError(t, ts[0].Err())
	require.NoError(t, pair[0].Err())
	each(t, pair, func(_ int, team *Team) error {
		rest, err := team.Shrink(ctx)
		if err != nil {
			return err
		}
		return conform(ctx, rest, 1, 3, 1)
	})
	for _, f := range []frame{
		{kind: frameView, name: "x", table: [][2]uint32{{3, viewLost}}},
		{kind: frameView, name: "x", table: [][2]uint32{{0, viewOut + 1}}},
		{kind: frameView, name: "x", table: make([][2]uint32, 4)},
		{kind: frameView, name: "x", nonce: (lowBits + 1) << 32},
		{kind: frameView, name: "x", nonce: lowBits + 1},
		{kind: frameOut, name: "x"},
		{kind: frameOut, name: "x", table: [][2]uint32{{0, 3}}},
		{kind: frameFollow, name: "x"},
		{kind: frameFollow, name: "x", table: [][2]uint32{{0, lowBits + 1}}},
	} {
		require.False(t, f.sane(3), "%+v", f)
	}
	f := frame{kind: frameOut, name: "x"}
	ts[0].t.s.control(rma.Envelope{From: 2, Tag: tagControl}, [][]byte{f.bytes()})
	require.ErrorIs(t, ts[0].Err(), ErrProtocol)
}
