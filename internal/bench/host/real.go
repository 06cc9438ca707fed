package host

import (
	"errors"
	"math"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/cpu"
)

// Real is the machine that the process runs on. Links and Verbs are nil: the
// caller knows them.
func Real() System {
	return System{
		Root:      os.DirFS("/"),
		Memlock:   func() (uint64, error) { return softLimit(unix.RLIMIT_MEMLOCK) },
		Files:     func() (uint64, error) { return softLimit(unix.RLIMIT_NOFILE) },
		OpenRW:    openRW,
		Memfd:     tryMemfd,
		CMA:       CheckCMA,
		ClockCost: clockCost,
		CPUs:      runtime.NumCPU(),
	}
}

func softLimit(which int) (uint64, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(which, &r); err != nil {
		return 0, err
	}
	if r.Cur >= math.MaxInt64 { // RLIM_INFINITY, whatever the kernel's word size
		return math.MaxUint64, nil
	}
	return r.Cur, nil
}

func openRW(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func tryMemfd(size int) error {
	fd, err := unix.MemfdCreate("rmabench-doctor", unix.MFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(fd)
	// fallocate, not ftruncate: pages that cannot be had show as an error
	// here and as SIGBUS at the first touch there.
	if err := unix.Fallocate(fd, 0, 0, int64(size)); err != nil {
		return os.NewSyscallError("fallocate", err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	mem[0], mem[size-1] = 1, 1
	return errors.Join(os.NewSyscallError("munmap", unix.Munmap(mem)))
}

// clockCost is the smallest average of several rows of clock readings.
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
