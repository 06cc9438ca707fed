package wireup

import (
	"fmt"
	"slices"
)

// Bounds of the server's memory for one rank.
const (
	maxStored = 16 << 20 // bytes of values, with keys
	maxSends  = 8        // open sends for one rank
	keyCost   = 128      // approximate cost of an entry besides its bytes
)

// maxPending bounds the open requests of one rank. It grows with the job: a rank may contact
// all others at once, and waits for each of them with its sends and a few other requests.
func maxPending(size int) int { return max(1024, 2*maxSends*size) }

// state is the state of the server. The Server's mutex guards it; answers are added to the
// clients' queues and never block.
type state struct {
	size    int
	clients []*client // by rank; nil before joining and after the end
	joined  []bool
	gone    []string // why the rank is gone; empty while it may still act
	nGone   int
	stored  []int

	vals    map[rankKey][]byte
	gets    map[rankKey]map[*wait]struct{}
	gathers map[string]*gather

	hung func(from, rank int, why string) // of ServerConfig

	refused refused  // connections that were not admitted
	aborted *message // the abort frame, once
}

type rankKey struct {
	rank int
	key  string
}

// wait is a request that has no answer yet.
type wait struct {
	c   *client
	id  uint32
	get rankKey // of a get
	key string  // of a gather, with g
	g   *gather
	to  *client // of a send
}

func newState(size int) *state {
	return &state{
		size: size, clients: make([]*client, size), joined: make([]bool, size), gone: make([]string, size),
		stored: make([]int, size), vals: map[rankKey][]byte{}, gets: map[rankKey]map[*wait]struct{}{},
		gathers: map[string]*gather{}, refused: refused{},
	}
}

// join enters c as its rank.
func (s *state) join(c *client) code {
	if s.joined[c.rank] || s.gone[c.rank] != "" {
		return codeDuplicate
	}
	s.joined[c.rank], s.clients[c.rank] = true, c
	return codeOK
}

// handle executes one frame of c. An error ends the client.
func (s *state) handle(c *client, m message) error {
	if m.typ == msgPut || m.typ == msgGet || m.typ == msgGather || m.typ == msgSend || m.typ == msgGiveUp || m.typ == msgMissing {
		if _, dup := c.waits[m.id]; dup || len(c.waits) >= maxPending(s.size) {
			return fmt.Errorf("%w: request %d while %d are open", ErrProtocol, m.id, len(c.waits))
		}
	}
	switch m.typ {
	case msgPut:
		s.put(c, m)
	case msgGet:
		s.get(c, m)
	case msgGather:
		s.gather(c, m)
	case msgGiveUp:
		s.giveUp(c, m)
	case msgMissing:
		s.missingFrom(c, m)
	case msgSend:
		return s.send(c, m)
	case msgTake:
		s.take(c, m.key)
	case msgHung:
		if m.rank >= uint32(s.size) {
			return fmt.Errorf("%w: rank %d of %d hangs", ErrProtocol, m.rank, s.size)
		}
		if s.hung != nil {
			s.hung(c.rank, int(m.rank), m.text)
		}
	case msgCancel:
		s.cancel(c, m.id)
	case msgAbort:
		s.abort(message{typ: msgAbort, rank: uint32(c.rank), text: m.text})
	default:
		return fmt.Errorf("%w: frame of type %d from a rank", ErrProtocol, m.typ)
	}
	return nil
}

// charge adds n bytes to the account of the rank; it returns false if that is more than it
// may store.
func (s *state) charge(rank, n int) bool {
	if s.stored[rank]+n > maxStored {
		return false
	}
	s.stored[rank] += n
	return true
}

func (s *state) put(c *client, m message) {
	k := rankKey{c.rank, m.key}
	if _, set := s.vals[k]; set {
		c.done(m.id, codeExists, nil, 0, "")
		return
	}
	if !s.charge(c.rank, storeCost(m.key, m.val)) {
		c.done(m.id, codeTooLarge, nil, 0, "")
		return
	}
	s.vals[k] = m.val
	c.done(m.id, codeOK, nil, 0, "")
	for w := range s.gets[k] {
		delete(w.c.waits, w.id)
		w.c.sendValue(w.id, m.val)
	}
	delete(s.gets, k)
}

// take removes the value that the rank has published under the key. Ranks that wait for it
// continue to wait.
func (s *state) take(c *client, key string) {
	k := rankKey{c.rank, key}
	if val, set := s.vals[k]; set {
		delete(s.vals, k)
		s.stored[c.rank] -= storeCost(key, val)
	}
}

func storeCost(key string, val []byte) int { return len(key) + len(val) + keyCost }

func (s *state) get(c *client, m message) {
	if m.rank >= uint32(s.size) {
		c.done(m.id, codeRank, nil, 0, "")
		return
	}
	k := rankKey{int(m.rank), m.key}
	if v, ok := s.vals[k]; ok {
		c.sendValue(m.id, v)
		return
	}
	if why := s.gone[k.rank]; why != "" {
		c.done(m.id, codeGone, []int{k.rank}, 0, why)
		return
	}
	w := &wait{c: c, id: m.id, get: k}
	c.waits[m.id] = w
	if s.gets[k] == nil {
		s.gets[k] = map[*wait]struct{}{}
	}
	s.gets[k][w] = struct{}{}
}

// send forwards a value to another rank. It is answered when that rank's connection has
// taken it: a fast sender waits, and the receiver loses nothing. Sends are not stored: a
// rank that has not joined does not receive them.
func (s *state) send(c *client, m message) error {
	switch to := int(m.rank); {
	case m.rank >= uint32(s.size):
		c.done(m.id, codeRank, nil, 0, "")
	case s.gone[to] != "":
		c.done(m.id, codeGone, []int{to}, 0, s.gone[to])
	case s.clients[to] == nil:
		c.done(m.id, codeGone, []int{to}, 0, "it has not joined")
	case c.sends[to] >= maxSends:
		return fmt.Errorf("%w: more than %d sends for rank %d are open", ErrProtocol, maxSends, to)
	default:
		d := message{typ: msgDeliver, rank: uint32(c.rank), key: m.key, val: m.val}
		w := &wait{c: c, id: m.id, to: s.clients[to]}
		c.waits[w.id] = w
		c.sends[to]++
		w.to.hears[w] = struct{}{}
		w.to.push(outFrame{head: d.append(nil), send: w})
	}
	return nil
}

// drop removes a send from the accounts.
func (w *wait) drop() {
	delete(w.c.waits, w.id)
	delete(w.to.hears, w)
	if w.c.sends[w.to.rank]--; w.c.sends[w.to.rank] == 0 {
		delete(w.c.sends, w.to.rank)
	}
}

// unqueue withdraws a send that is not being sent yet.
func (w *wait) unqueue() {
	w.to.queue = slices.DeleteFunc(w.to.queue, func(f outFrame) bool { return f.send == w })
}

// cancel ends a wait that its rank gives up, and answers with the missing ranks. A gather
// is given up for all. A wait that has been answered needs nothing: the answer is in
// flight.
func (s *state) cancel(c *client, id uint32) {
	w := c.waits[id]
	if w == nil {
		return
	}
	s.forget(w)
	rank, what := w.get.rank, "has not published it"
	switch {
	case w.g != nil:
		s.giveUpOn(c, id, w.key, w.g)
		return
	case w.to != nil:
		w.unqueue()
		rank, what = w.to.rank, "has not read it"
	}
	missing, more, text := s.missing([]int{rank}, what)
	c.done(id, codeTimeout, missing, more, text)
}

func (s *state) forget(w *wait) {
	delete(w.c.waits, w.id)
	switch {
	case w.to != nil:
		w.drop()
		return
	case w.g != nil:
		delete(w.g.waits, w)
		return
	}
	delete(s.gets[w.get], w)
	if len(s.gets[w.get]) == 0 {
		delete(s.gets, w.get)
	}
}

// end records that the rank left or died, and notifies all ranks that wait for it.
func (s *state) end(rank int, why string) {
	if s.gone[rank] != "" {
		return
	}
	s.gone[rank] = why
	s.nGone++
	if c := s.clients[rank]; c != nil {
		for _, w := range c.waits {
			s.forget(w)
		}
		for w := range c.hears {
			w.drop()
			w.c.done(w.id, codeGone, []int{rank}, 0, why)
		}
		s.clients[rank] = nil
	}
	for k, ws := range s.gets {
		if k.rank != rank {
			continue
		}
		for w := range ws {
			delete(w.c.waits, w.id)
			w.c.done(w.id, codeGone, []int{rank}, 0, why)
		}
		delete(s.gets, k)
	}
	s.lostFrom(rank)
	s.broadcast(message{typ: msgGone, rank: uint32(rank), text: why})
}

func (s *state) abort(m message) {
	if s.aborted != nil {
		return
	}
	s.aborted = &m
	s.broadcast(m)
}

func (s *state) broadcast(m message) {
	frame := m.append(nil)
	for _, c := range s.clients {
		if c != nil {
			c.push(outFrame{head: frame})
		}
	}
}
