package wireup

import (
	"net"
	"time"
)

// flushTime is how long a connection that ends may take for what is queued.
const flushTime = time.Second

// outFrame is one frame on its way to a rank; body is shared between ranks.
type outFrame struct{ head, body []byte }

// client is the server's side of one rank. The Server's mutex guards it.
type client struct {
	s     *Server
	conn  net.Conn
	rank  int
	waits map[uint32]*wait

	queue []outFrame
	more  chan struct{} // the queue is not empty, or the client is to end
	why   string        // set once the client is to end
}

func newClient(s *Server, conn net.Conn, rank int) *client {
	return &client{s: s, conn: conn, rank: rank, waits: map[uint32]*wait{}, more: make(chan struct{}, 1)}
}

func (c *client) send(m message) { c.push(outFrame{head: m.append(nil)}) }

// sendValues answers a gather; body is what appendVals made.
func (c *client) sendValues(id uint32, body []byte) {
	head := make([]byte, 0, 9)
	head = le.AppendUint32(head, uint32(1+4+len(body)))
	head = append(head, byte(msgValues))
	head = le.AppendUint32(head, id)
	c.push(outFrame{head, body})
}

// answer sends what others were told under this client's id.
func (c *client) answer(id uint32, m message) {
	m.id = id
	c.send(m)
}

func (c *client) done(id uint32, why code, ranks []int, more int, text string) {
	m := message{typ: msgDone, id: id, code: why, size: uint32(more), text: text}
	for _, r := range ranks {
		m.ranks = append(m.ranks, uint32(r))
	}
	c.send(m)
}

// push queues a frame; a client that reads too slowly for the bound is dropped.
func (c *client) push(f outFrame) {
	if c.why != "" {
		return
	}
	if len(c.queue) > 4*maxPending+c.s.cfg.Size {
		c.queue = nil
		c.quit("it does not read its answers")
		return
	}
	c.queue = append(c.queue, f)
	c.wake()
}

// quit makes the reader and the writer of the connection end, the writer after
// one try to flush its queue.
func (c *client) quit(why string) {
	if c.why != "" {
		return
	}
	c.why = why
	c.conn.SetReadDeadline(time.Unix(1, 0))
	c.conn.SetWriteDeadline(time.Now().Add(flushTime))
	c.wake()
}

func (c *client) wake() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// write sends the queue until the client ends. It alone writes after the
// handshake and it alone closes the connection.
func (c *client) write() {
	defer c.s.wg.Done()
	defer c.conn.Close()
	for range c.more {
		c.s.mu.Lock()
		out, end := c.queue, c.why != ""
		c.queue = nil
		c.s.mu.Unlock()
		for _, f := range out {
			c.s.mu.Lock()
			limit := writeTime
			if c.why != "" {
				limit = flushTime
			}
			c.conn.SetWriteDeadline(time.Now().Add(limit))
			c.s.mu.Unlock()
			bufs := net.Buffers{f.head, f.body}
			if _, err := bufs.WriteTo(c.conn); err != nil {
				c.s.mu.Lock()
				c.quit(endText(err))
				c.s.mu.Unlock()
				return
			}
		}
		if end {
			return
		}
	}
}
