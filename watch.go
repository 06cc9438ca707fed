package rma

import (
	"context"
	"errors"
	"sync"
	"time"
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

	// PeerGone says that the peer died or left the job, or has closed the connection because
	// this process was stopped for longer than the peer's HangTimeout.
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

// RailEvent is a change of one of several connections with a peer (Config.Rails).
type RailEvent struct {
	Rank int
	Rail int // as RailStats.Number: 0 is that of everything that is not divided
	Up   bool
	Err  error     // why the rail was lost; nil if it is up
	Lost uint64    // how often it was lost so far, including losses that this WatchRails has missed
	Time time.Time // when this rank detected it
}

// railName names a rail of a peer.
type railName struct{ rank, rail int }

// feed holds the active watchers of events about things that K names, and the last event of
// each of these.
type feed[K comparable, E any] struct {
	mu   sync.Mutex
	last map[K]E
	list map[*watcher[K, E]]struct{}
}

// state returns the last event of k; zero if there was none.
func (f *feed[K, E]) state(k K) E {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[k]
}

// watcher holds the events that one watcher has not yielded: at most one for each name.
type watcher[K comparable, E any] struct {
	bell  chan struct{}
	names []K // in the order of their first event that was not seen
	event map[K]E
}

func (f *feed[K, E]) add() *watcher[K, E] {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &watcher[K, E]{bell: make(chan struct{}, 1), event: map[K]E{}}
	for k, ev := range f.last {
		w.push(k, ev)
	}
	if f.list == nil {
		f.list = map[*watcher[K, E]]struct{}{}
	}
	f.list[w] = struct{}{}
	return w
}

func (f *feed[K, E]) remove(w *watcher[K, E]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.list, w)
}

// note records a change of k: next returns the event that follows the last one. It does not
// wait for any watcher.
func (f *feed[K, E]) note(k K, next func(was E) E) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		f.last = map[K]E{}
	}
	ev := next(f.last[k])
	f.last[k] = ev
	for w := range f.list {
		w.push(k, ev)
	}
}

func (w *watcher[K, E]) push(k K, ev E) {
	if _, waits := w.event[k]; !waits {
		w.names = append(w.names, k)
	}
	w.event[k] = ev
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

// next takes the oldest event that the watcher has not yielded.
func (f *feed[K, E]) next(w *watcher[K, E]) (ev E, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(w.names) == 0 {
		return ev, false
	}
	k := w.names[0]
	w.names = w.names[1:]
	ev = w.event[k]
	delete(w.event, k)
	return ev, true
}

// watch yields events until ctx or life ends.
func (f *feed[K, E]) watch(ctx, life context.Context, yield func(E) bool) {
	w := f.add()
	defer f.remove(w)
	for {
		ev, ok := f.next(w)
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
		case <-life.Done():
			return
		}
	}
}

// peerFeed is the feed of the states of peers, by rank.
type peerFeed struct{ feed[int, PeerEvent] }

// tell records a change of a peer's state.
func (f *peerFeed) tell(ev PeerEvent) {
	ev.Time = time.Now()
	f.note(ev.Rank, func(was PeerEvent) PeerEvent {
		ev.Lost = was.Lost
		if ev.State >= PeerDown && was.State < PeerDown {
			ev.Lost++
		}
		return ev
	})
}

// railFeed is the feed of rails.
type railFeed struct{ feed[railName, RailEvent] }

// tell records that a rail is up, or was lost because of err.
func (f *railFeed) tell(rank, rail int, lost uint64, err error) {
	ev := RailEvent{Rank: rank, Rail: rail, Up: err == nil, Err: err, Lost: lost, Time: time.Now()}
	f.note(railName{rank, rail}, func(RailEvent) RailEvent { return ev })
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
