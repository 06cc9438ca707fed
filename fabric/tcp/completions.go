//go:build linux || darwin || freebsd

package tcp

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
)

// maxNotes is the number of notifications that may wait for delivery. At this number the
// endpoint stops reading its socket, which in the end stops the peer.
const maxNotes = 256

// completions holds the completions and events that one endpoint has to deliver, in order.
// Its memory is bounded: requests and notifications are limited, and an endpoint goes down
// once.
type completions struct {
	ep     uint32 // ID of the endpoint
	owed   uint32 // completions of requests in q
	notes  int    // notifications in q
	paths  int    // events of lost and new connections in q, at most 1
	q      softlink.CompQ
	ready  *readyList // of the link
	queued bool       // in ready
	next   *completions
}

func (c *completions) init(ep uint32, depth int, ready *readyList) {
	c.ep, c.ready = ep, ready
	c.q.Reserve(depth + maxNotes + 2)
}

// full reports that no more notifications may be received now.
func (c *completions) full() bool { return c.notes >= maxNotes }

// request queues the completion of a request of this side.
// Hot path.
func (c *completions) request(id uint64, op fabric.Op, st fabric.Status) {
	c.owed++
	c.push(fabric.Completion{ID: id, EP: c.ep, Op: op, Status: st})
}

// notify queues the notification of a write of the peer.
// Hot path.
func (c *completions) notify(imm, bytes uint32) {
	c.notes++
	c.push(fabric.Completion{EP: c.ep, Op: fabric.OpNotify, Imm: imm, Bytes: bytes})
}

// down queues the event of the endpoint's end.
func (c *completions) down(st fabric.Status) {
	c.push(fabric.Completion{EP: c.ep, Op: fabric.OpDown, Status: st})
}

// path queues the event that the connection was lost, or that there is another one.
func (c *completions) path() {
	if c.paths == 0 {
		c.paths++
		c.push(fabric.Completion{EP: c.ep, Op: fabric.OpPath})
	}
}

func (c *completions) push(x fabric.Completion) {
	c.q.Push(x)
	if c.queued {
		return
	}
	c.queued, c.next = true, nil
	if r := c.ready; r.tail == nil {
		r.head, r.tail = c, c
	} else {
		r.tail.next = c
		r.tail = c
	}
}

// readyList holds the endpoints with completions to deliver, in order of arrival.
type readyList struct {
	head, tail *completions
}

func (r *readyList) empty() bool { return r.head == nil }

// deliver moves completions to cs.
// Hot path.
func (r *readyList) deliver(cs []fabric.Completion) int {
	n := 0
	for r.head != nil && n < len(cs) {
		c := r.head
		k := c.q.Pop(cs[n:])
		for i := range cs[n : n+k] {
			switch op := cs[n+i].Op; {
			case op < fabric.OpNotify:
				c.owed--
			case op == fabric.OpNotify:
				c.notes--
			case op == fabric.OpPath:
				c.paths--
			}
		}
		n += k
		if c.q.Len() > 0 {
			break
		}
		if r.head = c.next; c.next == nil {
			r.tail = nil
		}
		c.queued, c.next = false, nil
	}
	return n
}
