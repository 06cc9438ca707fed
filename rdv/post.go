package rdv

import (
	"github.com/seed33544411/rma/fabric"
)

// WR IDs of data requests: tag 16, unused 15, write 1, slot 16, end 1, upto 15.
const (
	idWrite     = 1 << 32
	idSlotShift = 16
	idSlotMask  = 1<<16 - 1
	idEnd       = 1 << 15 // reads: of a chunk; writes: of all
	idUptoMask  = 1<<15 - 1
)

// turnWrite marks a write job in the queue of turns.
const turnWrite = 1 << 15

// turnQueue says which transfers have requests to hand out, in turn. Every
// transfer is in it at most once.
type turnQueue struct {
	q       []uint16
	head, n int
}

func (q *turnQueue) init(capacity int) { q.q = make([]uint16, capacity) }

func (q *turnQueue) push(slot uint16) {
	q.q[(q.head+q.n)%len(q.q)] = slot
	q.n++
}

func (q *turnQueue) pop() uint16 {
	s := q.q[q.head]
	q.head = (q.head + 1) % len(q.q)
	q.n--
	return s
}

func (c *Channel) queueTurn(t *incoming) {
	if !t.queued {
		t.queued = true
		c.turns.push(uint16(t.id.slot()))
	}
}

// post hands requests of all transfers to the link, one of each in turn, as
// long as it takes them and no more reads are in flight than it carries: what
// the link had to queue would hold up the control messages behind. Short path.
func (c *Channel) post() bool {
	did := false
	for c.live {
		if c.first == c.staged {
			if c.refill(); c.staged == 0 {
				return did
			}
		}
		n, err := c.ep.Post(c.wrs[c.first:c.staged])
		for i := range n {
			c.posted(&c.wrs[c.first+i])
		}
		c.first += n
		did = did || n > 0
		if err != nil {
			c.fail(err)
			return did
		}
		if c.first != c.staged {
			c.stats.QueueFull++
			return did
		}
	}
	return did
}

// posted counts a request that the link took. What follows the last write of
// an advert on this endpoint is seen after it.
func (c *Channel) posted(w *fabric.WR) {
	if w.ID&idWrite == 0 {
		c.stats.Reads++
		return
	}
	c.stats.Writes++
	if w.ID&idEnd != 0 {
		j := &c.jobs[w.ID>>idSlotShift&idSlotMask]
		c.theirs[j.advert.slot()].state = theirsAnswered
		c.control.push(ctl{KindDone, j.advert, j.bytes})
	}
}

// refill builds the next requests. Reads that find the window full keep their
// turn while writes go on.
func (c *Channel) refill() {
	c.first, c.staged, c.pieces = 0, 0, 0
	for idle := 0; idle < c.turns.n && c.staged < len(c.wrs); {
		turn := c.turns.pop()
		var more, ok bool
		if turn&turnWrite != 0 {
			more, ok = c.requestWrite(&c.jobs[turn&^turnWrite], turn&^turnWrite)
		} else {
			more, ok = c.requestRead(&c.in[turn], turn)
		}
		if more {
			c.turns.push(turn)
		}
		if idle++; ok {
			idle = 0
		}
	}
}

// requestRead builds one read of t; ok is false if too many are in flight,
// more if there is nothing left to ask for now.
func (c *Channel) requestRead(t *incoming, slot uint16) (more, ok bool) {
	w := c.wrs[c.staged : c.staged+1]
	if t.plan.Next(fabric.OpRead, w, c.sges[c.pieces:], c.reads) == 0 {
		return true, false
	}
	c.pieces += len(w[0].Local)
	t.planned += w[0].Len()
	for t.upto < t.runEnd && t.msgs[t.upto].end <= t.planned {
		t.upto++
	}
	done := t.plan.Done()
	w[0].ID = uint64(c.opt.IDTag+1)<<48 | uint64(slot)<<idSlotShift | uint64(t.upto)
	if done && t.chunked {
		w[0].ID |= idEnd
		done = !t.feed()
	}
	w[0].Flags = fabric.FlagSignaled
	c.staged++
	c.reads++
	t.inflight++
	t.queued = !done
	return !done, true
}

// dropStaged takes back, after a failure, the requests that were not posted.
func (c *Channel) dropStaged() {
	for ; c.first < c.staged; c.first++ {
		c.retire(c.wrs[c.first].ID)
	}
	c.first, c.staged = 0, 0
}

// retire counts a request off.
func (c *Channel) retire(id uint64) {
	slot := id >> idSlotShift & idSlotMask
	if id&idWrite != 0 {
		c.jobs[slot].inflight--
		c.writes--
		return
	}
	c.in[slot].inflight--
	c.reads--
}

// onData takes the completion of a read or write. Short path.
func (c *Channel) onData(cpl *fabric.Completion) {
	c.retire(cpl.ID)
	if cpl.Status != fabric.StatusOK {
		c.fail(cpl.Err())
		return
	}
	// After a failure nothing is believed any more but that the pieces are
	// free; sweep ends the rest.
	if !c.live {
		return
	}
	slot := cpl.ID >> idSlotShift & idSlotMask
	if cpl.ID&idWrite != 0 {
		if cpl.ID&idEnd != 0 {
			c.stats.Written++
			c.endJob(int(slot), nil)
		}
		return
	}
	t := &c.in[slot]
	if cpl.ID&idEnd != 0 {
		t.fetched++
		if cpl.ID&idUptoMask == 0 && !t.acking { // else the FIN says it
			t.acking = true
			c.control.push(ctl{KindAck, t.id, 0})
		}
	}
	c.endRun(t, int(cpl.ID&idUptoMask))
	c.advance(t)
}
