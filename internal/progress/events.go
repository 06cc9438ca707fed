package progress

import (
	"errors"
	"sync"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/event"
)

// sleepSlice bounds one wait. Nothing depends on it, but if a link failed to signal an
// event, a peer would lose a second and not wait for ever.
const sleepSlice = time.Second

// events holds the descriptors on which the progress goroutine sleeps: those of the links
// and one for wake-ups.
type events struct {
	set    *event.Set
	waking event.Event

	once     sync.Once
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
	return &events{set: set, waking: waking}, nil
}

// wait returns when a descriptor is readable, or after d; at the latest, and if d is 0,
// after sleepSlice. For one goroutine.
func (ev *events) wait(d time.Duration) error {
	if d <= 0 || d > sleepSlice {
		d = sleepSlice
	}
	err := ev.set.Wait(d)
	ev.waking.Clear()
	return err
}

// wake makes wait return, now or the next time.
func (ev *events) wake() { ev.waking.Set() }

func (ev *events) close() error {
	ev.once.Do(func() { ev.closeErr = errors.Join(ev.set.Close(), ev.waking.Close()) })
	return ev.closeErr
}
