package flowctl

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two peers that answer: each data block consumed asks for one control block
// back. With the answers kept and consumption going on, nothing ever locks up;
// a reader that waits with consuming until it can answer locks up, which is
// why the rule is in the package comment.
type replyState struct {
	side [2]replySide
}

type replySide struct {
	s    Sender   // ring towards the other side
	r    Receiver // ring from the other side
	debt int      // answers kept
	sent int      // data blocks sent so far
	runs string   // towards the other side, unread: 'd' or 'c'
}

func exploreReplies(g Geometry, wait bool, total int) (int, error) {
	mk := func() replySide { return replySide{s: NewSender(g), r: NewReceiver(g)} }
	first := replyState{[2]replySide{mk(), mk()}}
	seen := map[replyState]bool{first: true}
	queue := []replyState{first}
	for len(queue) > 0 {
		x := queue[0]
		queue = queue[1:]
		var next []replyState
		for i := range 2 {
			me, you := &x.side[i], &x.side[1-i]
			if me.sent < total {
				y := x
				if _, ok := y.side[i].s.Reserve(1, Data); ok {
					y.side[i].sent++
					y.side[i].runs += "d"
					next = append(next, y)
				}
			}
			if me.debt > 0 {
				y := x
				if _, ok := y.side[i].s.Reserve(1, Control); ok {
					y.side[i].debt--
					y.side[i].runs += "c"
					next = append(next, y)
				}
			}
			if len(you.runs) > 0 && (!wait || you.runs[0] == 'c' || me.debt == 0) {
				y := x
				if y.side[1-i].runs[0] == 'd' {
					y.side[i].debt++
				}
				y.side[1-i].runs = y.side[1-i].runs[1:]
				y.side[i].r.Consume(1)
				if y.side[i].r.Due(false) {
					if err := y.side[1-i].s.Apply(y.side[i].r.Word()); err != nil {
						return len(seen), err
					}
					if err := y.side[1-i].s.Complete(y.side[1-i].s.credit); err != nil {
						return len(seen), err
					}
				}
				next = append(next, y)
			}
		}
		a, b := &x.side[0], &x.side[1]
		if len(next) == 0 && (a.sent < total || b.sent < total || a.debt+b.debt > 0 || len(a.runs)+len(b.runs) > 0) {
			return len(seen), fmt.Errorf("deadlock: %+v", x)
		}
		for _, y := range next {
			if !seen[y] {
				seen[y] = true
				queue = append(queue, y)
			}
		}
	}
	return len(seen), nil
}

func TestRepliesNeverDeadlock(t *testing.T) {
	t.Parallel()
	gs := []Geometry{{2, 1, 1}, {4, 1, 2}, {4, 1, 3}, {4, 2, 2}}
	for _, g := range gs {
		n, err := exploreReplies(g, false, 3)
		require.NoError(t, err, "%+v", g)
		t.Logf("%+v: %d states", g, n)
	}
	require.True(t, slices.ContainsFunc(gs, func(g Geometry) bool {
		_, err := exploreReplies(g, true, 5)
		return err != nil
	}), "a reader that waits with consuming must lock up in some ring")
}
