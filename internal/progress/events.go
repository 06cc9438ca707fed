package progress

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/event"
)

// sleepSlice bounds one wait. Nothing depends on it, but if a link failed to signal an
// event, a peer would lose a second and not wait for ever.
const sleepSlice = time.Second

// wakingAt is the place of the descriptor for wake-ups in the sets.
const wakingAt = 0

// events holds the descriptors on which the progress goroutine sleeps: those of the links
// and one for wake-ups.
type events struct {
	set    *event.Set
	waking event.Event
	alone  *event.Set // of waking

	mu       sync.RWMutex // no wake-up uses a descriptor that is closed, which may be another file's
	closed   bool
	closeErr error
}

func newEvents(links []fabric.Link) (*events, error) {
	waking, err := event.New()
	if err != nil {
		return nil, fabric.Shortage(err)
	}
	fds := []int{waking.FD()}
	for _, l := range links {
		fds = append(fds, l.FD())
	}
	set, err := event.NewSet(fds...)
	if err != nil {
		return nil, errors.Join(fabric.Shortage(err), waking.Close())
	}
	alone, err := event.NewSet(waking.FD())
	if err != nil {
		return nil, errors.Join(fabric.Shortage(err), set.Close(), waking.Close())
	}
	return &events{set: set, waking: waking, alone: alone}, nil
}

// wait returns when a descriptor is readable, or after d; and reports whether one was. For one
// goroutine.
func (ev *events) wait(d time.Duration) (ready bool, err error) {
	if ready, err = ev.set.Wait(d); ready {
		ev.clear(ev.set)
	}
	return ready, err
}

// waitRaw is wait for a goroutine that keeps its P, see [event.Set.WaitRaw]; without links it
// waits for wake-ups alone.
func (ev *events) waitRaw(d time.Duration, links bool, word *atomic.Uint32, bits uint32) (ready, interrupted bool, err error) {
	set := ev.set
	if !links {
		set = ev.alone
	}
	if ready, interrupted, err = set.WaitRaw(d, word, bits); ready {
		ev.clear(set)
	}
	return ready, interrupted, err
}

// clear makes waking unreadable if that has ended a wait for s. Most waits are ended by a link, and
// need no further system call.
func (ev *events) clear(s *event.Set) {
	if s.Readable(wakingAt) {
		ev.waking.Clear()
	}
}

// wake makes wait return, now or the next time. It has no effect after close.
func (ev *events) wake() {
	ev.mu.RLock()
	defer ev.mu.RUnlock()
	if !ev.closed {
		ev.waking.Set()
	}
}

func (ev *events) close() error {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if !ev.closed {
		ev.closed = true
		ev.closeErr = errors.Join(ev.set.Close(), ev.alone.Close(), ev.waking.Close())
	}
	return ev.closeErr
}
