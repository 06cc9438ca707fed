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

// Holder records which goroutine owns something. The zero Holder has no owner.
type Holder struct {
	goroutine atomic.Uintptr // 0: none

	mu    sync.Mutex
	since [4]uintptr // call path of Take; a failing assertion reads it while another Take may write it
}

// Take makes the calling goroutine the owner.
func (h *Holder) Take() {
	h.mu.Lock()
	clear(h.since[:])
	runtime.Callers(2, h.since[:])
	h.mu.Unlock()
	h.goroutine.Store(current())
}

// Drop ends the ownership. The owner calls it.
func (h *Holder) Drop() {
	h.Assert()
	h.goroutine.Store(0)
}

// Assert panics unless the calling goroutine is the owner. On a nil Holder it does nothing.
func (h *Holder) Assert() {
	if h == nil {
		return
	}
	switch owner := h.goroutine.Load(); owner {
	case current():
	case 0:
		panic("owned: caller is not the owner; there is no owner")
	default:
		panic("owned: caller is not the owner; another goroutine took over at" + h.path())
	}
}

// path returns the call path by which the owner took ownership.
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
