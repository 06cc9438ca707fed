package bench

import (
	"runtime"

	"github.com/seed33544411/rma/internal/cpu"
)

// spinner waits as the measuring loops do: as patiently as fits the ranks on the
// processors that they are kept on, or may use. A goroutine that pin has locked to
// its thread gives no turn to others of its process, which have nothing to do while
// it measures; the runtime's preemption lets them run where there is one processor.
func (r *Request) spinner() cpu.Spinner {
	s := cpu.Spinner{Locked: r.Pin}
	if r.Ranks > 0 {
		n := runtime.NumCPU()
		if k := len(Cores()); r.Pin && k > 1 {
			n = k
		}
		p := cpu.For(float64(r.Ranks)/float64(n), n)
		s.Patience = &p
	}
	return s
}
