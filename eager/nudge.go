package eager

import "github.com/seed33544411/rma/fabric"

// Nudge has the peer notified behind all that was handed over, with the next Flush or
// Progress, whether it sleeps or not: for who needs an answer from a peer that may have
// stopped looking at its ring. Short path.
func (c *Channel) Nudge() { c.nudge = true }

// stageNudge makes the last staged request notify, or appends one that does nothing
// else. Without room, or as long as the write cursor is not out, it is still due.
func (c *Channel) stageNudge() {
	head := c.tx.Head()
	switch {
	case c.cursorOut && c.told != head:
		return
	case c.first != c.staged:
	case c.makeRoom(1, 0):
		c.wrs[c.staged] = fabric.WR{ID: c.id(head), Op: fabric.OpWrite}
		c.staged++
		c.quiet++
		c.sign(c.staged-1, head)
	default:
		return
	}
	c.nudge = false
	w := &c.wrs[c.staged-1]
	w.Flags |= fabric.FlagNotify
	w.Imm = c.peer.Imm
	c.stats.Notifies++
}
