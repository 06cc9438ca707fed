package bench

import (
	"runtime"

	"github.com/seed33544411/rma/internal/cpu"
)

// waiter is cpu.Spinner that can be used by a goroutine locked to its thread
// (pin) as well: the same steps, where alone is set without runtime.Gosched,
// which costs such a goroutine two changes of threads. Other goroutines of a
// measuring rank have nothing to do while it measures; the runtime's preemption
// lets them run where there is one processor. The zero value is ready.
type waiter struct {
	n     int
	alone bool
}

// The steps of a wait, in looks at what is waited for: at once, after a pause,
// after a yield. As in cpu.Spinner, where the numbers are argued.
const (
	waitPolls  = 64
	waitPauses = waitPolls + 256
)

var multi = runtime.NumCPU() > 1

// wait waits a moment and returns how often it has yielded. Short.
func (w *waiter) wait() int {
	w.n++
	if multi {
		switch {
		case w.n <= waitPolls:
			return 0
		case w.n <= waitPauses:
			cpu.Pause()
			return 0
		}
		return w.yield(w.n - waitPauses)
	}
	return w.yield(w.n)
}

func (w *waiter) yield(n int) int {
	cpu.Yield()
	if !w.alone && n&3 == 0 {
		runtime.Gosched()
	}
	return n
}

func (w *waiter) reset() { w.n = 0 }
