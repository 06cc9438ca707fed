package rdv

import (
	"github.com/seed33544411/rma/scatter"
)

// advance starts the next run of t, or ends t. Short path.
func (c *Channel) advance(t *incoming) {
	for t.state == inActive && !t.matching && t.run == t.runEnd && t.left > 0 && c.live {
		if !t.nextRun(c.lim) {
			return
		}
		if t.chunked {
			c.control.push(ctl{KindReady, t.id, 0})
			return
		}
		if t.plan.Done() { // empty messages only
			t.upto = t.runEnd
			c.endRun(t, t.runEnd)
			continue
		}
		c.queueTurn(t)
		return
	}
	if t.state == inActive && !t.matching && t.left == 0 && t.inflight == 0 && c.live {
		t.state = inEnding
		c.stats.Transfers++
		if t.waited && t.status == statusOK {
			t.status = statusWaited
		}
		c.control.push(ctl{KindFIN, t.id, t.status})
	}
}

// nextRun makes the first stretch of matched messages the current run. Their
// pieces must be neighbours in dest as well.
func (t *incoming) nextRun(lim scatter.Limits) bool {
	i := 0
	for i < len(t.msgs) && t.msgs[i].state != msgMatched {
		i++
	}
	if i == len(t.msgs) {
		return false
	}
	first := t.msgs[i].dst
	next := first
	t.run, t.upto, t.planned = i, i, t.start(i)
	for i < len(t.msgs) && t.msgs[i].state == msgMatched && t.msgs[i].dst == next {
		t.msgs[i].state = msgRunning
		next += t.msgs[i].n
		i++
	}
	t.runEnd = i
	t.plan.Reset(t.dest[first:next], lim)
	if !t.chunked {
		t.plan.Feed(t.d.Regions, t.planned)
	}
	return true
}

// endRun ends the messages of the current run before upto, which are read.
func (c *Channel) endRun(t *incoming, upto int) {
	for t.run < upto {
		i := t.run
		// The last one ends the run only after the handler has been told, so
		// that what it does finds the run still under way.
		c.endMessage(t, i, nil)
		t.run = i + 1
	}
}
