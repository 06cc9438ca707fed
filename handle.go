package rma

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/seed33544411/rma/internal/message"
)

// HandlerOptions selects the messages of a handler, the goroutines that run it, and its
// limits. The zero value selects messages with tag 0, handled in the progress engine.
type HandlerOptions struct {
	// The handler gets messages whose tag equals Tag, except in the bits set in Ignore.
	Tag, Ignore uint32

	// Workers is the number of goroutines that call the handler, which may then wait, but
	// must not call Handler.Close or Engine.Close: both wait until it has returned.
	// Messages of one peer go to one worker, in the order in which they were sent; those of
	// several peers may be handled at the same time. Zero: the progress engine calls the
	// handler, which must not wait for anything, nor call methods of the engine that wait
	// (see Concurrency in the package's comment); it may send by Peer.SendFunc.
	Workers int

	// Backlog is the number of messages that may wait for each worker. Further messages
	// stay at their peer, whose sends wait. Zero means 64, which keeps a worker busy while
	// another one wakes up, at a microsecond per message; more only costs memory. Without
	// workers Backlog has no effect.
	Backlog int

	// MaxSize is the size in bytes of the largest message that the handler takes. It bounds
	// the memory that one message of a peer can allocate here. A larger message is dropped;
	// if it was only announced, its send fails with ErrUnwanted. Zero means 16 MiB.
	MaxSize int

	// Memory bounds the bytes of messages of all peers that were copied or are being
	// fetched for the handler and have not been handled; one peer may use half of it.
	// Further messages stay at their peer, whose sends wait. Zero means 64 MiB, four
	// messages of 16 MiB; values below MaxSize mean MaxSize.
	Memory int
}

const (
	defaultBacklog = 64
	defaultMaxSize = 16 << 20
	defaultMemory  = 64 << 20
)

// HandleMany is Engine.HandleWith for many small messages: f is called once for all
// messages of one peer and tag that have arrived together, such as those of a Batch, which
// costs less than a call for each. The order of the messages, the goroutine that calls f
// and what f may do are those of HandleWith. With Workers, f gets the messages one by one.
func HandleMany(e *Engine, o HandlerOptions, f func(ms *Messages)) (*Handler, error) {
	h := &Handler{many: f}
	if f != nil {
		h.f = h.single
	}
	return handle(e, 0, o, h)
}

// handle starts h, which has its function, for messages of the rank only-1, or of all ranks
// if only is 0.
func handle(e *Engine, only int, o HandlerOptions, h *Handler) (*Handler, error) {
	switch {
	case h.f == nil:
		return nil, fmt.Errorf("rma: handle: %w: no function", ErrInvalid)
	case o.Workers < 0 || o.Backlog < 0 || o.MaxSize < 0 || o.Memory < 0:
		return nil, fmt.Errorf("rma: handle: %w: negative option in %+v", ErrInvalid, o)
	}
	o.Backlog = cmp.Or(o.Backlog, defaultBacklog)
	o.MaxSize = cmp.Or(o.MaxSize, defaultMaxSize)
	o.Memory = cmp.Or(o.Memory, defaultMemory)
	o.Memory = max(o.Memory, o.MaxSize)
	h.eng, h.opt, h.peers, h.held.peers, h.quit = e, o, make([]sequence, e.Size()), make([]held, e.Size()), make(chan struct{})
	for range o.Workers {
		w := &worker{work: make(chan *landed, o.Backlog)}
		h.workers = append(h.workers, w)
		h.running.Go(func() { h.serve(w) })
	}
	r, err := receive(e, o.Tag, o.Ignore, only, (*handlerEnd)(h))
	if err != nil {
		h.stop()
		return nil, err
	}
	h.mu.Lock()
	h.r = r
	owed := h.owed
	h.mu.Unlock()
	if owed {
		r.Resume()
	}
	e.mu.Lock()
	closed := e.closed.Load()
	if !closed {
		e.handlers = append(e.handlers, h)
	}
	e.mu.Unlock()
	if closed {
		h.stop() // a call of the handler may wait for e.mu
	}
	return h, nil
}

// Handler is a registered message handler.
type Handler struct {
	eng    *Engine
	opt    HandlerOptions
	f      func(Envelope, [][]byte)
	many   func(*Messages) // of HandleMany
	peers  []sequence      // by rank; the engine's
	held   holding
	closed bool // the engine's

	// Scratch of the engine's calls: the messages of one; a message in place, and one that
	// had several parts.
	ms    Messages
	part  [1][]byte
	whole [1][]byte

	workers []*worker
	running sync.WaitGroup
	once    sync.Once
	quit    chan struct{}

	mu   sync.Mutex // guards r until handle returns
	r    *Receiving
	owed bool // a call of Resume, until r is set
}

// Messages are one or more messages of one peer with one tag, in the order in which they
// were sent, for a handler of HandleMany. They are valid until its function returns.
type Messages struct {
	From int    // rank of the sender
	Tag  uint32 // of each

	run *message.Run // nil: there is only one
	one []byte
	n   int // messages of one peer that are left
}

// Len returns the number of messages that Next has not returned yet.
func (ms *Messages) Len() int {
	if ms.run != nil {
		return ms.run.Len()
	}
	return ms.n
}

// Next returns the next message; ok is false if there is none. msg is valid until the
// handler's function returns; it may lie in the ring, where a dishonest peer may change it
// meanwhile. Messages that the function does not take by Next are dropped.
// Hot path.
func (ms *Messages) Next() (msg []byte, ok bool) {
	if ms.run != nil {
		return ms.run.Next()
	}
	ms.n--
	return ms.one, ms.n >= 0
}

// worker is a goroutine that handles the messages of some peers.
type worker struct {
	work    chan *landed
	mu      sync.Mutex
	n       int // messages admitted for it and not handled yet
	stalled bool
}

// landed is a message that has not been passed to the handler's function.
type landed struct {
	m    Envelope
	buf  []byte
	done bool
	err  error
	next *landed
}

// sequence holds the messages of a peer that have not been passed to the function, in
// order. Behind a message that was lost with its connection, none of that connection is passed.
type sequence struct {
	head, tail *landed
	broken     bool
	lost       uint32 // if broken: Peer.id of the connection
}

// Close ends the handler: it gets no more messages, and those that wait for a worker are
// dropped. Messages that had no room go to the receives behind it. When Close returns, no call of the handler's function is running or will
// follow; the function itself must therefore not call Close. Engine.Close closes all
// handlers. Close may be called any number of times.
func (h *Handler) Close() {
	e := h.eng
	e.prog.Do(func() {
		h.closed = true
		e.proto.hub.Stop(h.r.r)
	})
	h.stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handlers = slices.DeleteFunc(e.handlers, func(x *Handler) bool { return x == h })
}

// stop ends the workers.
func (h *Handler) stop() {
	h.once.Do(func() { close(h.quit) })
	h.running.Wait()
}

func (h *Handler) serve(w *worker) {
	var parts [1][]byte
	for {
		select {
		case <-h.quit:
			return
		case l := <-w.work:
			parts[0] = l.buf
			h.f(l.m, parts[:])
			h.handled(w, l.m)
		}
	}
}

// handled gives the places of a message back, its worker's as well, whether it was handled or lost.
func (h *Handler) handled(w *worker, m Envelope) {
	h.release(m)
	w.mu.Lock()
	w.n--
	resume := w.stalled && w.n <= h.opt.Backlog/2
	if resume {
		w.stalled = false
	}
	w.mu.Unlock()
	if resume {
		h.resume()
	}
}

// resume asks the engine to offer messages again that the handler left.
func (h *Handler) resume() {
	h.mu.Lock()
	r := h.r
	h.owed = r == nil
	h.mu.Unlock()
	if r != nil {
		r.Resume()
	}
}

// holding counts the bytes of messages that have memory here and have not been handled.
type holding struct {
	mu    sync.Mutex
	bytes int
	peers []held
}

type held struct {
	bytes int
	left  bool // a message of the peer was left for lack of room
}

// landedSize is the memory of a message in addition to its bytes, so that empty messages
// count.
const landedSize = 128

// hold reserves room for a message; it returns false if there is none.
func (h *Handler) hold(m Envelope) bool {
	x := &h.held
	x.mu.Lock()
	defer x.mu.Unlock()
	p, n := &x.peers[m.From], m.Len+landedSize
	if x.bytes > 0 && x.bytes+n > h.opt.Memory || p.bytes > 0 && p.bytes+n > h.opt.Memory/2 {
		p.left = true
		return false
	}
	x.bytes += n
	p.bytes += n
	return true
}

// release returns the room of a message, and asks for messages that were left when half of
// the memory is free, or the peer has no message here.
func (h *Handler) release(m Envelope) {
	x := &h.held
	x.mu.Lock()
	n := m.Len + landedSize
	x.bytes -= n
	x.peers[m.From].bytes -= n
	again := false
	for i := range x.peers {
		if p := &x.peers[i]; p.left && (x.bytes <= h.opt.Memory/2 || p.bytes == 0) {
			p.left, again = false, true
		}
	}
	x.mu.Unlock()
	if again {
		h.resume()
	}
}

// handlerEnd is a Handler as seen by the engine.
type handlerEnd Handler

// Arriving implements Receiver.
func (h *handlerEnd) Arriving(m Envelope, inPlace bool) Landing {
	s := &h.peers[m.From]
	if m.Len > h.opt.MaxSize {
		return Landing{Unwanted: true}
	}
	if len(h.workers) == 0 {
		if inPlace && s.head == nil {
			return Landing{}
		}
	}
	if !(*Handler)(h).hold(m) {
		return Landing{Later: true}
	}
	if len(h.workers) > 0 {
		w := h.workers[m.From%len(h.workers)]
		w.mu.Lock()
		full := w.n >= h.opt.Backlog
		if full {
			w.stalled = true
		} else {
			w.n++
		}
		w.mu.Unlock()
		if full {
			(*Handler)(h).release(m)
			return Landing{Later: true}
		}
	}
	l := &landed{m: m, buf: make([]byte, m.Len)}
	if s.tail == nil {
		s.head = l
	} else {
		s.tail.next = l
	}
	s.tail = l
	return Landing{Buf: l.buf, Token: l}
}

// Arrived implements Receiver.
func (h *handlerEnd) Arrived(m Envelope, token any, parts [][]byte, err error) {
	l, ok := token.(*landed)
	if !ok {
		if !h.closed {
			h.f(m, parts)
		}
		return
	}
	l.done, l.err = true, err
	s := &h.peers[m.From]
	for s.head != nil && s.head.done {
		l := s.head
		if s.head = l.next; s.head == nil {
			s.tail = nil
		}
		h.pass(l, s)
	}
}

// pass gives the next message in order to the function or its worker.
func (h *handlerEnd) pass(l *landed, s *sequence) {
	p := h.eng.peers[l.m.From]
	// The channel is gone already if the message ends with the release of the connection.
	if l.err != nil && (p.msg.Channel() == nil || p.msg.Ended()) {
		s.broken, s.lost = true, p.id
	}
	if s.broken && s.lost == p.id {
		l.err = cmp.Or(l.err, ErrPeerGone)
	}
	if len(h.workers) == 0 {
		if l.err == nil && !h.closed {
			part := [1][]byte{l.buf}
			h.f(l.m, part[:])
		}
		(*Handler)(h).release(l.m)
		return
	}
	w := h.workers[l.m.From%len(h.workers)]
	if l.err == nil {
		w.work <- l // never blocks: the channel has room for every message admitted
		return
	}
	(*Handler)(h).handled(w, l.m)
}

// Gone implements Receiver. Messages that were arriving end through Arrived.
func (h *handlerEnd) Gone(int, error) {}

// Use implements hub.Taker, for handlers that run in the progress engine and see messages
// in place.
func (r *receivingEnd) Use(run *message.Run) {
	h, ok := r.to.(*handlerEnd)
	if !ok || len(h.workers) > 0 || h.opt.MaxSize < message.RunSize || h.peers[run.From].head != nil {
		return
	}
	n, bytes := run.Len(), run.Bytes()
	if !h.closed {
		(*Handler)(h).use(run)
	}
	run.Drop()
	r.eng.peers[run.From].msg.Received(n, bytes)
}

// single passes one message to a handler of many. The engine's messages in several parts
// are put together in memory that the handler keeps; those of workers have one part.
func (h *Handler) single(m Envelope, parts [][]byte) {
	one := parts[:1]
	if len(parts) != 1 {
		h.whole[0] = h.whole[0][:0]
		for _, p := range parts {
			h.whole[0] = append(h.whole[0], p...)
		}
		one = h.whole[:]
	}
	ms := &h.ms
	if len(h.workers) > 0 {
		ms = new(Messages)
	}
	*ms = Messages{From: m.From, Tag: m.Tag, one: one[0], n: 1}
	h.many(ms)
	*ms = Messages{}
}

// use passes the messages of a run to the handler's function, in place.
// Hot path.
func (h *Handler) use(run *message.Run) {
	if h.many != nil {
		h.ms = Messages{From: run.From, Tag: run.Tag, run: run}
		h.many(&h.ms)
		h.ms = Messages{}
		return
	}
	m := Envelope{From: run.From, Tag: run.Tag}
	for msg, ok := run.Next(); ok; msg, ok = run.Next() {
		h.part[0], m.Len = msg, len(msg)
		h.f(m, h.part[:])
	}
	h.part[0] = nil
}
