package eager

import "github.com/seed33544411/rma/fabric"

// Drain ends sending and lets Peek, Recv and Lease go on with what the peer had sent
// before the channel failed: nothing is posted any more, not even credit. It reports
// false where the ring is what failed, or is closed.
func (c *Channel) Drain() bool {
	c.live = false
	if c.left == 0 && !c.corrupt && !c.closed {
		c.left = c.rx.Next() + uint64(c.rxRing.Blocks) // an honest peer has written no more
	}
	return c.left != 0
}

// Settle reports whether all that was handed over is placed at the peer, or never will
// be because the channel has failed. Call it, and poll the link, until it does: it has
// the link say so.
func (c *Channel) Settle() bool {
	if !c.live {
		return true
	}
	head := c.tx.Head()
	told := !c.cursorOut || c.told == head
	switch {
	case c.first != c.staged || !told:
		c.borrowed = true // signals the last request
	case c.Done(head):
		return true
	case c.signaled != head && c.makeRoom(1, 0):
		c.wrs[c.staged] = fabric.WR{ID: c.id(head), Op: fabric.OpWrite, Flags: fabric.FlagSignaled}
		c.staged++
		c.quiet, c.signaled = 0, head
	}
	_ = c.flush(false) // a failure stays in c.err
	return !c.live
}
