package host

import (
	"math"
	"os"
	"runtime"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/settings"
)

// Real returns the machine of this process. Links and Verbs are nil; the caller sets
// them.
func Real() System {
	return System{
		Root:      os.DirFS("/"),
		Memlock:   memlockLimit,
		Files:     fileLimit,
		OpenRW:    openRW,
		Memfd:     tryMemfd,
		CMA:       CheckCMA,
		ClockCost: clockCost,
		CPUs:      runtime.NumCPU(),
		Allowed:   cpu.Allowed(),
		Settings:  settings.Environment,
	}
}

func openRW(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// clockCost is the least mean of several series of clock readings.
func clockCost() time.Duration {
	const row = 200
	best := time.Duration(math.MaxInt64)
	for range 10 {
		t0 := cpu.Ticks()
		for range row {
			_ = time.Now()
		}
		best = min(best, cpu.Duration(cpu.Ticks()-t0)/row)
	}
	return best
}
