package message

import (
	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/logp"
)

// transmit sends what can be sent of the backlog. Short path.
func (c *Channel) transmit() (did bool) {
	for c.backlog.n > 0 && c.err == nil {
		if c.blocked() {
			break
		}
		c.ringBusy, c.queueFull, c.longBusy, c.writeBusy = false, false, false, false
		learn := false
		if c.learn.left--; c.learn.left <= 0 {
			learn = c.timeNext()
		}
		if !learn && c.backlog.n == 1 && len(c.backlog.head.Data) <= c.alone {
			if !c.sendAlone() {
				break
			}
			did = true
			continue
		}
		moved, all, ok := false, false, false
		if !learn {
			moved, ok = c.sendTrain()
			all = moved // what did not fit, or came meanwhile, goes next
		}
		if !ok {
			moved, all = c.sendBatch(learn)
		}
		did = did || moved
		if !all {
			break
		}
	}
	return did
}

// blocked reports that what was refused would be refused again, so that planning it
// once more would be in vain: the ring has no more room than it had, or the peer
// keeps as many transfers as it may. A full queue of the link is not waited for:
// nothing tells when it has room.
func (c *Channel) blocked() bool {
	if c.queueFull {
		return false
	}
	if c.ringBusy {
		return c.ring.Free(flowctl.Data) == c.freeWas
	}
	return c.longBusy && c.long.Full() || c.writeBusy && !c.long.MayWrite()
}

// sendBatch plans the first of the backlog and carries the plan out as far as
// the two streams take it. moved: some messages went; all: none is left over. learn:
// the backlog is to be signalled or timed, see learner.
func (c *Channel) sendBatch(learn bool) (moved, all bool) {
	err := c.view()
	if err == nil {
		if learn {
			c.begin()
		} else {
			c.learn.left -= learnPlanned - 1
		}
		var stop uint64
		var stop2 uint64
		var all2 bool
		stop, all = c.write()
		stop2, all2 = c.announce()
		c.flushLong() // before the ring: data moves while messages are staged
		all = c.fill(min(stop, stop2)) && all && all2
		if learn {
			c.timed(all)
		}
	} else {
		c.fail(err)
	}
	announced := false
	for i := len(c.first) - 1; i >= 0; i-- {
		if c.gone[i] {
			moved = true
			announced = announced || c.modes[i] == logp.Scatter
			continue
		}
		o := c.first[i]
		if announced && !o.overtaken {
			o.overtaken, o.mode = true, c.modes[i]
		}
		if c.err != nil {
			c.gone[i] = true
			c.sent(o, c.err)
		}
	}
	c.backlog.restore(c.first, c.gone)
	return moved, all && c.err == nil
}

// flushLong posts what was handed to the rendezvous channel.
func (c *Channel) flushLong() {
	if !c.longNew {
		return
	}
	c.longNew = false
	if err := c.long.Flush(); err != nil {
		c.fail(err)
	}
}

// taken reports whether the ring took a message. It notes that it failed, or took
// nothing more, and why.
func (c *Channel) taken(r eager.Result, err error) bool {
	switch {
	case err != nil:
		c.fail(err)
		return false
	case r != eager.Accepted:
		c.queueFull = r != eager.NoCredit
		c.ringBusy, c.freeWas = r == eager.NoCredit, c.ring.Free(flowctl.Data)
		return false
	}
	return true
}

// count counts messages handed to a stream.
func (c *Channel) count(m logp.Mode, n int) { c.stats.Messages[m] += uint64(n) }
