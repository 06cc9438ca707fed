package wireup

import (
	"net"
	"time"
)

const (
	// flushTime is how long a connection that ends may take to send its queue.
	flushTime = time.Second

	// maxOwed is the number of bytes of answers that may wait for a rank to read them;
	// while there are more, the server reads nothing from it.
	maxOwed = 1 << 20
)

// outFrame is a frame to be sent to a rank; body, which may be nil, is shared.
type outFrame struct {
	head, body []byte
	send       *wait // of a delivery: the send to be answered when this is sent
	owed       bool  // an answer to a request of the rank
}

func (f *outFrame) size() int { return len(f.head) + len(f.body) }

// client is the server's side of one rank. The Server's mutex guards it.
type client struct {
	s     *Server
	conn  net.Conn
	out   *sealer // used by the writer
	in    *opener // used by the reader
	hail  []byte  // the welcome, which precedes sealed data
	rank  int
	waits map[uint32]*wait
	sends map[int]int // number of sends without an answer, by destination rank

	queue []outFrame
	hears map[*wait]struct{} // sends for this rank that are not sent yet
	owed  int                // bytes of answers that are not sent yet
	more  chan struct{}      // signals that the queue is not empty, or the client must end
	room  chan struct{}      // signals that owed has decreased, or the client must end
	why   string             // set when the client must end
}

func newClient(s *Server, conn net.Conn, rank int) *client {
	return &client{
		s: s, conn: conn, rank: rank, waits: map[uint32]*wait{}, sends: map[int]int{}, hears: map[*wait]struct{}{},
		more: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
}

// send queues a frame that is not an answer.
func (c *client) send(m message) { c.push(outFrame{head: m.append(nil)}) }

// answer queues the answer to request id.
func (c *client) answer(id uint32, m message) {
	m.id = id
	c.push(outFrame{head: m.append(nil), owed: true})
}

// sendValue answers a get. The value is not copied: thousands of ranks may wait for it.
func (c *client) sendValue(id uint32, val []byte) {
	head := frameHead(msgValue, id, 4+len(val))
	c.push(outFrame{head: le.AppendUint32(head, uint32(len(val))), body: val, owed: true})
}

// sendValues answers a gather; body is the result of appendVals.
func (c *client) sendValues(id uint32, body []byte) {
	c.push(outFrame{head: frameHead(msgValues, id, len(body)), body: body, owed: true})
}

// frameHead encodes the start of a frame with the given type and id, followed by rest more
// bytes.
func frameHead(t msgType, id uint32, rest int) []byte {
	head := make([]byte, 0, 13)
	head = le.AppendUint32(head, uint32(1+4+rest))
	head = append(head, byte(t))
	return le.AppendUint32(head, id)
}

func (c *client) done(id uint32, why code, ranks []int, more int, text string) {
	m := message{typ: msgDone, code: why, size: uint32(more), text: text}
	for _, r := range ranks {
		m.ranks = append(m.ranks, uint32(r))
	}
	c.answer(id, m)
}

// push queues a frame. The queue is bounded by the rank's outstanding requests (maxOwed),
// by sends of other ranks (maxSends each), and by one frame for every rank that ends.
func (c *client) push(f outFrame) {
	if c.why != "" {
		return
	}
	if f.owed {
		c.owed += f.size()
	}
	c.queue = append(c.queue, f)
	signal(c.more)
}

// quit makes the reader and the writer of the connection end. The writer first tries once
// to flush its queue.
func (c *client) quit(why string) {
	if c.why != "" {
		return
	}
	c.why = why
	c.conn.SetReadDeadline(time.Unix(1, 0))
	c.conn.SetWriteDeadline(time.Now().Add(flushTime))
	signal(c.more)
	signal(c.room)
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// awaitRoom returns when the rank has read enough of its answers for further requests, or
// must end.
func (c *client) awaitRoom() {
	for {
		c.s.mu.Lock()
		full := c.owed > maxOwed && c.why == ""
		c.s.mu.Unlock()
		if !full {
			return
		}
		<-c.room
	}
}

// write sends the queue until the client ends. Only it writes after the handshake, and only
// it closes the connection.
func (c *client) write() {
	defer c.s.wg.Done()
	defer c.conn.Close()
	_, err := c.out.to.Write(c.hail)
	for end := false; err == nil && !end; {
		<-c.more
		for err == nil {
			c.s.mu.Lock()
			out := c.take()
			end = c.why != ""
			c.s.mu.Unlock()
			if len(out) == 0 {
				break
			}
			err = c.writeFrames(out)
			c.s.mu.Lock()
			c.sent(out, err == nil)
			c.s.mu.Unlock()
		}
	}
	if err == nil {
		err = c.out.Close()
	}
	if err != nil {
		c.s.mu.Lock()
		c.quit(endText(err))
		c.s.mu.Unlock()
	}
}

// take removes about one record of frames from the queue: later ones can still be
// withdrawn.
func (c *client) take() []outFrame {
	n := 0
	for size := 0; n < len(c.queue) && size < maxRecord; n++ {
		size += c.queue[n].size()
	}
	out := c.queue[:n:n]
	if c.queue = c.queue[n:]; len(c.queue) == 0 {
		c.queue = nil
	}
	return out
}

func (c *client) writeFrames(out []outFrame) error {
	for _, f := range out {
		if _, err := c.out.Write(f.head); err != nil {
			return err
		}
		if _, err := c.out.Write(f.body); err != nil {
			return err
		}
	}
	return c.out.Flush()
}

// sent records frames that are sent, and answers their sends. Sends of a broken connection
// are answered by state.end.
func (c *client) sent(out []outFrame, well bool) {
	for _, f := range out {
		if f.owed {
			c.owed -= f.size()
		}
		if _, open := c.hears[f.send]; open && well {
			f.send.drop()
			f.send.c.done(f.send.id, codeOK, nil, 0, "")
		}
	}
	signal(c.room)
}

// patientWriter writes to a rank for as long as its host is alive: a process that is
// stopped, or too busy to read, keeps its connection. If the network does not acknowledge
// written data, the write ends with os.ErrDeadlineExceeded.
type patientWriter struct {
	conn  net.Conn
	every time.Duration // interval between calls of alive
	alive func() bool
}

func (w *patientWriter) Write(p []byte) (int, error) {
	var t *time.Timer
	set := make(chan struct{})
	t = time.AfterFunc(w.every, func() {
		<-set
		if w.alive() {
			t.Reset(w.every)
		} else {
			w.conn.SetWriteDeadline(time.Unix(1, 0))
		}
	})
	close(set)
	defer t.Stop()
	return w.conn.Write(p)
}
