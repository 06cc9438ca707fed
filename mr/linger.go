package mr

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// A link may report that a peer still uses memory of a closed registration
// (fabric.ErrInUse): the peer was stopped in the middle of a system call on it. Such memory
// stays pinned and mapped, and its registration is kept here, even if domain and links are
// no longer referenced, until the link releases it.
var lingering struct {
	mu     sync.Mutex
	regs   map[*Registration]struct{}
	asking bool // askAgain runs
}

// Intervals between two attempts: a running peer ends its access within a millisecond, a
// stopped one does not end it soon.
const (
	firstPause = time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// linger retries the release of r until it succeeds.
func linger(r *Registration) {
	l := &lingering
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.regs == nil {
		l.regs = map[*Registration]struct{}{}
	}
	if !l.asking {
		l.asking = true
		go askAgain()
	}
	l.regs[r] = struct{}{}
}

// askAgain ends when nothing lingers.
func askAgain() {
	l := &lingering
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		time.Sleep(pause)
		l.mu.Lock()
		all := slices.Collect(maps.Keys(l.regs))
		l.mu.Unlock()
		for _, r := range all {
			if errors.Is(r.release(), ErrInUse) {
				continue
			}
			l.mu.Lock()
			delete(l.regs, r)
			l.mu.Unlock()
		}
		l.mu.Lock()
		l.asking = len(l.regs) > 0
		done := !l.asking
		l.mu.Unlock()
		if done {
			return
		}
	}
}
