//go:build rmadebug

package owned

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

// On reports whether assertions are compiled in.
const On = true

// Holder knows which goroutine owns something. The zero Holder is nobody's.
type Holder struct {
	goroutine atomic.Uintptr // 0: none

	mu    sync.Mutex
	since [4]uintptr // where Take was called; an assertion that fails reads it beside the next Take
}

// Take says that the calling goroutine is the owner from now on.
func (h *Holder) Take() {
	h.mu.Lock()
	clear(h.since[:])
	runtime.Callers(2, h.since[:])
	h.mu.Unlock()
	h.goroutine.Store(current())
}

// Drop says that nobody is. The owner calls it.
func (h *Holder) Drop() {
	h.Assert()
	h.goroutine.Store(0)
}

// Assert panics unless the calling goroutine is the owner. A nil Holder is everybody's.
func (h *Holder) Assert() {
	if h == nil {
		return
	}
	switch owner := h.goroutine.Load(); owner {
	case current():
	case 0:
		panic("owned: the caller is not the owner, nobody is")
	default:
		panic("owned: the caller is not the owner, but another goroutine, by way of" + h.path())
	}
}

// path is how the owner became it.
func (h *Holder) path() string {
	h.mu.Lock()
	frames := runtime.CallersFrames(h.since[:])
	h.mu.Unlock()
	var b strings.Builder
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&b, "\n\t%s (%s:%d)", f.Function, f.File, f.Line)
	}
	return b.String()
}
