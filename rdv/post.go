package rdv

import (
	"github.com/seed33544411/rma/fabric"
)

// WR IDs of data requests: tag 16, unused 15, write 1, slot 16, upto 16.
const (
	idSlotShift = 16
	idUptoMask  = 1<<16 - 1
)

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
		c.first += n
		c.stats.Reads += uint64(n)
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

// refill builds the next requests.
func (c *Channel) refill() {
	c.first, c.staged, c.pieces = 0, 0, 0
	for c.turns.n > 0 && c.staged < len(c.wrs) {
		slot := c.turns.pop()
		t := &c.in[slot]
		if !c.request(t, slot) {
			c.turns.push(slot)
			return // the window is full
		}
		if t.plan.Done() {
			t.queued = false
			continue
		}
		c.turns.push(slot)
	}
}

// request builds one read of t; false: too many are in flight.
func (c *Channel) request(t *incoming, slot uint16) bool {
	w := c.wrs[c.staged : c.staged+1]
	if t.plan.Next(fabric.OpRead, w, c.sges[c.pieces:], c.reads) == 0 {
		return false
	}
	c.pieces += len(w[0].Local)
	t.planned += w[0].Len()
	for t.upto < t.runEnd && t.msgs[t.upto].end <= t.planned {
		t.upto++
	}
	w[0].ID = uint64(c.opt.IDTag+1)<<48 | uint64(slot)<<idSlotShift | uint64(t.upto)
	w[0].Flags = fabric.FlagSignaled
	c.staged++
	c.reads++
	t.inflight++
	return true
}

// dropStaged takes back, after a failure, the requests that were not posted.
func (c *Channel) dropStaged() {
	for ; c.first < c.staged; c.first++ {
		c.retire(c.wrs[c.first].ID)
	}
	c.first, c.staged = 0, 0
}

// retire counts a request off and returns its transfer.
func (c *Channel) retire(id uint64) *incoming {
	t := &c.in[id>>idSlotShift&idUptoMask]
	t.inflight--
	c.reads--
	return t
}

// onData takes the completion of a read. Short path.
func (c *Channel) onData(cpl *fabric.Completion) {
	t := c.retire(cpl.ID)
	if cpl.Status != fabric.StatusOK {
		c.fail(cpl.Err())
		return
	}
	// After a failure nothing is believed any more but that the pieces are
	// free; sweep ends the messages.
	if !c.live {
		return
	}
	c.endRun(t, int(cpl.ID&idUptoMask))
	c.advance(t)
}
