package bringup

import (
	"context"
	"sync"

	"github.com/seed33544411/rma/internal/bubble"
	"github.com/seed33544411/rma/internal/progress"
)

// Tasks are the goroutines of an engine other than the progress goroutine. They run outside
// all bubbles of testing/synctest: the clock of a bubble would stand still while they wait
// for peers, and these would wait for the clock. Its methods may be called from any
// goroutine.
type Tasks struct {
	prog *progress.Engine
	life context.Context
	die  context.CancelFunc

	mu sync.Mutex // guards against Go concurrent with End
	wg sync.WaitGroup
}

// NewTasks begins the life of an engine, outside of all bubbles.
func NewTasks() *Tasks {
	t := &Tasks{}
	t.life, t.die = context.WithCancel(context.Background())
	t.life.Done() // creates the context's channel outside of bubbles
	return t
}

// Life is done when End is called.
func (t *Tasks) Life() context.Context { return t.life }

// Go runs f in a goroutine of its own, unless the tasks have ended; a call inside a bubble
// starts it soon afterwards, outside.
func (t *Tasks) Go(f func()) {
	if t.outside(func() { t.Go(f) }) {
		t.begin(f)
	}
}

// begin is Go outside of all bubbles. It reports whether f runs.
func (t *Tasks) begin(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life.Err() != nil {
		return false
	}
	t.wg.Go(f)
	return true
}

// outside reports whether the caller is outside of all bubbles. If not, again is called
// there soon.
func (t *Tasks) outside(again func()) bool {
	if !bubble.Inside() {
		return true
	}
	t.prog.Outside(again)
	return false
}

// End ends the life, and returns when all goroutines have ended. It is idempotent.
func (t *Tasks) End() {
	t.mu.Lock()
	t.die()
	t.mu.Unlock()
	t.wg.Wait()
}
