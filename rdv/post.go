package rdv

import "github.com/seed33544411/rma/fabric"

// post posts requests of all transfers, one of each in turn, while the link takes them and
// no more reads are in flight than it executes at once: further reads would wait in the
// link's queue and delay the control messages behind them.
//
// Hot path.
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
			if id := c.wrs[c.first+i].ID; id&idWrite != 0 {
				c.onPosted(id)
			} else {
				c.stats.Reads++
			}
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

// refill builds the next requests. Reads that find the window full keep their turn while
// writes continue.
func (c *Channel) refill() {
	c.first, c.staged, c.pieces = 0, 0, 0
	if c.wrs == nil && c.turns.Len() > 0 {
		c.wrs, c.sges = make([]fabric.WR, batchWRs), make([]fabric.SGE, batchWRs*c.link.Caps().MaxSGE)
	}
	for idle := 0; idle < c.turns.Len() && c.staged < len(c.wrs); {
		turn := c.turns.Pop()
		var more bool
		ok := true
		if turn&turnWrite != 0 {
			more = c.requestWrite(turn &^ turnWrite)
		} else {
			more, ok = c.requestRead(turn)
		}
		if more {
			c.turns.Push(turn)
		}
		if idle++; ok {
			idle = 0
		}
	}
}

// dropStaged undoes, after a failure, the requests that were not posted.
func (c *Channel) dropStaged() {
	for ; c.first < c.staged; c.first++ {
		c.retire(c.wrs[c.first].ID)
	}
	c.first, c.staged = 0, 0
}

// retire records that a request is no longer in flight.
func (c *Channel) retire(id uint64) {
	slot := id >> idSlotShift & idSlotMask
	if id&idShare != 0 {
		c.shares.all[slot].state = sliceCopied
		return
	}
	if id&idWrite != 0 {
		c.jobs[slot].inflight--
		c.writes--
		return
	}
	c.in[slot].inflight--
	c.reads--
}

// onData handles the completion of a read or write.
//
// Hot path.
func (c *Channel) onData(cpl *fabric.Completion) {
	c.retire(cpl.ID)
	switch {
	case cpl.Status != fabric.StatusOK:
		c.fail(cpl.Err())
	case !c.live:
		// After a failure a completion only frees the pieces; sweep ends the rest.
	case cpl.ID&idShare != 0: // the next Progress counts it
	case cpl.ID&idWrite != 0:
		c.onWritten(cpl.ID)
	default:
		c.onRead(cpl.ID)
	}
}
