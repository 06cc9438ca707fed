package rma

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

// PeerState is what has become of a peer.
type PeerState uint8

// States of peers.
const (
	// PeerUp says that there is a connection, and that the peer makes progress.
	PeerUp PeerState = iota + 1

	// PeerSilent says that the peer has made no progress for half of
	// Config.HangTimeout. PeerUp or PeerHung follows.
	PeerSilent

	// PeerDown says that the connection is no more, though the peer may live:
	// after an operation that the target refused, say.
	PeerDown

	// PeerHung says that the peer has made no progress for Config.HangTimeout,
	// and that the connection was given up.
	PeerHung

	// PeerGone says that the peer died or left the job.
	PeerGone
)

// String is the state's name.
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
	Err   error     // why, as operations with the peer would say; nil for PeerUp
	Time  time.Time // when this side found out
}

// errSilent is the cause of a PeerSilent.
var errSilent = errors.New("no progress")

// Watch yields what becomes of this rank's peers: first the present state of those that
// anything has happened to, then each change, until ctx ends, the loop is left, or the
// engine is closed. It needs no operation under way: while somebody watches, the engine looks
// at all peers that it is connected with as if it waited for them. Peers that it is not connected
// with are found to be gone through the job, but not to hang: an operation with such a peer
// finds that.
//
// Any number of goroutines may watch. Who is slow misses states that have been overtaken, but
// never the last one of a rank, and holds up nobody.
//
//	for ev := range eng.Watch(ctx) {
//		if ev.State >= rma.PeerHung {
//			log.Printf("rank %d is %v: %v", ev.Rank, ev.State, ev.Err)
//		}
//	}
func (e *Engine) Watch(ctx context.Context) iter.Seq[PeerEvent] {
	return func(yield func(PeerEvent) bool) {
		e.attention.Add(1)
		defer e.attention.Add(-1)
		w := e.watches.add()
		defer e.watches.remove(w)
		for {
			ev, ok := e.watches.next(w)
			switch {
			case ok && !yield(ev):
				return
			case ok:
				continue
			}
			select {
			case <-w.bell:
			case <-ctx.Done():
				return
			case <-e.tasks.Life().Done():
				return
			}
		}
	}
}

// watches are those who watch, and what they were told last.
type watches struct {
	mu   sync.Mutex
	last map[int]PeerEvent // by rank
	list map[*watcher]struct{}
}

// state is the last event of a rank; zero if there was none.
func (ws *watches) state(rank int) PeerEvent {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.last[rank]
}

// watcher is what one of them has not seen: at most one event a rank.
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

// tell notes a change. It does not wait for anybody.
func (ws *watches) tell(ev PeerEvent) {
	ev.Time = time.Now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.last == nil {
		ws.last = map[int]PeerEvent{}
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

// next takes the oldest event that was not seen.
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

// stateOf is the state that an error of a connection means; 0 if it means none.
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
