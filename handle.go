package rma

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// HandlerOptions says which messages a handler gets and where it runs.
type HandlerOptions struct {
	// Tag and Ignore: messages whose tag is Tag but for the bits in Ignore.
	Tag, Ignore uint32

	// Workers is how many goroutines call the handler. Zero: none, the progress
	// engine does, so that it must not wait for anything, nor call methods of
	// the engine that wait (it may send: see Peer.SendFunc). Messages of one
	// peer go to one worker, in the order in which they were sent; those of
	// several peers may be handled at once.
	Workers int

	// Backlog is how many messages may wait for each worker. What is beyond
	// stays at its peer, whose sends wait. Zero means 64: enough to cover the
	// time in which a goroutine is woken, at messages of a microsecond each;
	// more only costs memory. It has no meaning without workers.
	Backlog int

	// MaxSize is the longest message taken, in bytes; those longer are dropped,
	// and fail at the sender where they were not here yet. It bounds what a
	// peer can make this side allocate. Zero means 16 MiB.
	MaxSize int
}

const (
	defaultBacklog = 64
	defaultMaxSize = 16 << 20
)

// Handle calls f with every message of any peer that has this tag, from now on,
// until Close of what it returns. f runs in the progress engine, on whatever
// goroutine drives it: it must not wait for anything. Messages of a peer come in
// the order in which it sent them. parts, one to three, are valid during the call;
// where the message is seen in place a dishonest peer may change them meanwhile.
func (e *Engine) Handle(tag uint32, f func(m Envelope, parts [][]byte)) (*Handler, error) {
	return e.HandleWith(HandlerOptions{Tag: tag}, f)
}

// Handle is Engine.Handle for messages of this peer alone.
func (p *Peer) Handle(tag uint32, f func(m Envelope, parts [][]byte)) (*Handler, error) {
	return p.eng.handle(p.rank+1, HandlerOptions{Tag: tag}, f)
}

// HandleWith is Handle with options: goroutines that may wait, several tags.
func (e *Engine) HandleWith(o HandlerOptions, f func(m Envelope, parts [][]byte)) (*Handler, error) {
	return e.handle(0, o, f)
}

func (e *Engine) handle(only int, o HandlerOptions, f func(m Envelope, parts [][]byte)) (*Handler, error) {
	if o.Workers < 0 || o.Backlog < 0 || o.MaxSize < 0 {
		return nil, fmt.Errorf("rma: handle: negative option in %+v", o)
	}
	if o.Backlog == 0 {
		o.Backlog = defaultBacklog
	}
	if o.MaxSize == 0 {
		o.MaxSize = defaultMaxSize
	}
	h := &Handler{eng: e, opt: o, f: f, peers: make([]sequence, e.Size()), quit: make(chan struct{})}
	for range o.Workers {
		w := &worker{work: make(chan *landed, o.Backlog)}
		h.workers = append(h.workers, w)
		h.running.Go(func() { h.serve(w) })
	}
	r, err := e.receive(o.Tag, o.Ignore, only, (*handlerEnd)(h))
	if err != nil {
		h.stop()
		return nil, err
	}
	h.mu.Lock()
	h.r = r
	h.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		h.stop()
	} else {
		e.handlers = append(e.handlers, h)
	}
	return h, nil
}

// Handler is a function that messages are given to.
type Handler struct {
	eng    *Engine
	opt    HandlerOptions
	f      func(Envelope, [][]byte)
	peers  []sequence // by rank; the engine's
	closed bool       // the engine's

	workers []*worker
	running sync.WaitGroup
	once    sync.Once
	quit    chan struct{}

	mu sync.Mutex // guards r until handle returns
	r  *Receiving
}

// worker is a goroutine that handles the messages of some peers.
type worker struct {
	work    chan *landed
	mu      sync.Mutex
	n       int // messages that it is to handle
	stalled bool
}

// landed is a message on its way to the function.
type landed struct {
	m    Envelope
	buf  []byte
	done bool
	err  error
	next *landed
}

// sequence is the messages of a peer that have not been handed over, in order. Behind one
// that was lost with its peer there is none.
type sequence struct {
	head, tail *landed
	broken     bool
}

// Close ends it: later messages are not for it, those that wait for a worker are
// dropped. It returns when no call of the function is under way or to come, so the
// function must not call it. Engine.Close does the same. Idempotent.
func (h *Handler) Close() {
	e := h.eng
	e.prog.Do(func() {
		h.closed = true
		e.proto.stopReceiving(h.r)
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
			w.mu.Lock()
			w.n--
			resume := w.stalled && w.n <= h.opt.Backlog/2
			if resume {
				w.stalled = false
			}
			w.mu.Unlock()
			if resume {
				h.mu.Lock()
				r := h.r
				h.mu.Unlock()
				if r != nil {
					r.Resume()
				}
			}
		}
	}
}

// handlerEnd is the Handler as the engine sees it.
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
	} else {
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

// pass hands a message over whose turn it is.
func (h *handlerEnd) pass(l *landed, s *sequence) {
	if ch := h.eng.peers[l.m.From].talk.ch; l.err != nil && ch != nil && ch.Err() != nil {
		s.broken = true
	}
	if s.broken {
		l.err = cmp.Or(l.err, ErrPeerGone)
	}
	if len(h.workers) == 0 {
		if l.err == nil && !h.closed {
			part := [1][]byte{l.buf}
			h.f(l.m, part[:])
		}
		return
	}
	w := h.workers[l.m.From%len(h.workers)]
	if l.err == nil {
		w.work <- l // never waits: as many places as messages were let in
		return
	}
	w.mu.Lock()
	w.n--
	w.mu.Unlock()
}

// Gone implements Receiver. What was arriving ends by itself.
func (h *handlerEnd) Gone(int, error) {}
