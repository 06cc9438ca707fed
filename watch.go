package rma

import (
	"errors"
	"sync"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// PeerState is the state of a peer.
type PeerState uint8

// States of peers.
const (
	// PeerUp says that there is a connection with the peer and that the peer makes progress.
	PeerUp PeerState = iota + 1

	// PeerSilent says that the peer has made no progress for half of
	// Config.HangTimeout. PeerUp or PeerHung follows.
	PeerSilent

	// PeerDown says that the connection was lost, though the peer may be alive: after an
	// operation that the target refused, for example.
	PeerDown

	// PeerHung says that the peer has made no progress for Config.HangTimeout, and that the
	// connection was closed.
	PeerHung

	// PeerGone says that the peer died or left the job.
	PeerGone
)

// String returns the state's name.
func (s PeerState) String() string {
	switch s {
	case PeerUp:
		return "up"
	case PeerSilent:
		return "silent"
	case PeerDown:
		return "down"
	case PeerHung:
		return "hung"
	case PeerGone:
		return "gone"
	}
	return "unknown"
}

// PeerEvent is a change of a peer's state.
type PeerEvent struct {
	Rank  int
	State PeerState
	Err   error     // the cause, as operations with the peer report it; nil for PeerUp
	Lost  int       // how often the rank was lost so far (PeerDown, PeerHung, PeerGone), including losses that this Watch has missed
	Time  time.Time // when this rank detected it
}

// errSilent is the cause of a PeerSilent event.
var errSilent = errors.New("no progress")

// watches holds the active Watch calls, and the last event of each rank.
type watches struct {
	mu   sync.Mutex
	last map[int]PeerEvent // by rank
	list map[*watcher]struct{}
}

// state returns the last event of a rank; zero if there was none.
func (ws *watches) state(rank int) PeerEvent {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.last[rank]
}

// watcher holds the events that one Watch has not yielded: at most one per rank.
type watcher struct {
	bell  chan struct{}
	ranks []int // in the order of their first event that was not seen
	event map[int]PeerEvent
}

func (ws *watches) add() *watcher {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := &watcher{bell: make(chan struct{}, 1), event: map[int]PeerEvent{}}
	for _, ev := range ws.last {
		w.push(ev)
	}
	if ws.list == nil {
		ws.list = map[*watcher]struct{}{}
	}
	ws.list[w] = struct{}{}
	return w
}

func (ws *watches) remove(w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.list, w)
}

// tell records a change. It does not wait for any watcher.
func (ws *watches) tell(ev PeerEvent) {
	ev.Time = time.Now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.last == nil {
		ws.last = map[int]PeerEvent{}
	}
	was := ws.last[ev.Rank]
	ev.Lost = was.Lost
	if ev.State >= PeerDown && was.State < PeerDown {
		ev.Lost++
	}
	ws.last[ev.Rank] = ev
	for w := range ws.list {
		w.push(ev)
	}
}

func (w *watcher) push(ev PeerEvent) {
	if _, waits := w.event[ev.Rank]; !waits {
		w.ranks = append(w.ranks, ev.Rank)
	}
	w.event[ev.Rank] = ev
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

// next takes the oldest event that the watcher has not yielded.
func (ws *watches) next(w *watcher) (PeerEvent, bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(w.ranks) == 0 {
		return PeerEvent{}, false
	}
	r := w.ranks[0]
	w.ranks = w.ranks[1:]
	ev := w.event[r]
	delete(w.event, r)
	return ev, true
}

// stateOf returns the state that an error of a connection stands for; 0 if none.
func stateOf(err error) PeerState {
	switch {
	case errors.Is(err, ErrPeerGone):
		return PeerGone
	case errors.Is(err, ErrPeerHung):
		return PeerHung
	case errors.Is(err, ErrClosed):
		return 0
	}
	return PeerDown
}

// reportDown notes the end of a connection that the link reports, with the
// endpoint's own reason.
func (p *Peer) reportDown(err error) {
	switch {
	case p.refused != nil: // on this side's request
		err = p.refused
	case p.ep != nil:
		switch why := p.ep.Err(); {
		case why != nil && errors.Is(err, fabric.ErrDown):
			err = why // ErrDown refers to it
		case why != nil:
			err = because(err, why)
		}
	}
	if err == nil {
		err = fabric.ErrDown
	}
	p.downWith(err)
}

// downWith records that the connection with p has ended, and fails the operations that have
// not been posted to the link. Posted ones are flushed.
//
// ErrPeerGone takes precedence, also if it is reported later: a device refuses access to a
// dying process before its death is known.
func (p *Peer) downWith(err error) {
	if p.down == nil || errors.Is(err, ErrPeerGone) && !errors.Is(p.down, ErrPeerGone) && !errors.Is(p.down, ErrClosed) {
		p.down = err
		if !errors.Is(err, ErrPeerGone) && !errors.Is(err, ErrPeerHung) && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNoConnection) {
			p.down = because(ErrFlushed, err)
		}
		if s := stateOf(err); s != 0 && !p.own {
			p.eng.watches.tell(PeerEvent{Rank: p.rank, State: s, Err: p.down})
		}
	}
	if p.noticed != nil {
		close(p.noticed)
		p.noticed = nil
	}
	p.one.Down(p.down)
	p.msg.Down(p.down)
	if end := p.hangUp; end != nil {
		p.hangUp = nil
		wait := min(lastWait, p.eng.cfg.PeerTimeout)
		if errors.Is(err, ErrNoConnection) {
			wait = 0 // a peer that has refused sends nothing
		}
		time.AfterFunc(wait, end)
	}
}

// close ends the connection; operations in flight are flushed. Owner's.
func (p *Peer) close() {
	p.eng.prog.AssertOwned()
	for _, ep := range []fabric.Endpoint{p.ep, p.self} {
		if ep != nil {
			_ = ep.Close() // errors are reported by the requests
		}
	}
	for i := range p.rails {
		if r := &p.rails[i]; r.ep != nil {
			_ = r.ep.Close()
			r.ep = nil
			p.one.Rails().Down(i)
		}
	}
}

// lastWait bounds how long the report that a rank is gone is held back for the data that
// the rank sent before.
const lastWait = 250 * time.Millisecond
