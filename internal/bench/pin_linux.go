package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// pin keeps the calling goroutine on one thread and that on one processor, of
// its own for each of the two ranks, until undo is called. Where two processors
// are not to be had nothing is pinned. Without it a scheduler may leave two
// ranks that poll and yield on one processor, and latency is the length of
// their turns.
func pin(rank int) (undo func()) {
	spareProcessor()
	runtime.LockOSThread()
	var old unix.CPUSet
	if unix.SchedGetaffinity(0, &old) != nil {
		return runtime.UnlockOSThread
	}
	cpus := twoCPUs(&old, coreOf)
	if len(cpus) < 2 {
		return runtime.UnlockOSThread
	}
	var one unix.CPUSet
	one.Set(cpus[rank&1])
	if unix.SchedSetaffinity(0, &one) != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		_ = unix.SchedSetaffinity(0, &old) // as it was: allowed
		runtime.UnlockOSThread()
	}
}

// Cores are two processors, one for each of two sides that are measured, as the
// ranks have them; none where there are not two to be had.
func Cores() []int {
	var old unix.CPUSet
	if unix.SchedGetaffinity(0, &old) != nil {
		return nil
	}
	return twoCPUs(&old, coreOf)
}

// spareProcessor gives the runtime a second P where the machine has one CPU,
// unless the user chose. With a single P the runtime takes it from a call into
// C that lasts longer than 20 µs, as a post of 64 KiB does on a device made of
// software, and the call waits to get it back: the median of 64 KiB gets
// in a one-CPU VM was 165 and 177 µs, with a second P 89 µs three times of four.
func spareProcessor() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == 1 {
		runtime.GOMAXPROCS(2)
	}
}

// twoCPUs picks two allowed processors: on two cores of one package if there
// are such, else any two.
func twoCPUs(allowed *unix.CPUSet, core func(cpu int) (pkg, core string)) []int {
	var all []int
	for c := range len(allowed) * 64 {
		if allowed.IsSet(c) {
			all = append(all, c)
		}
	}
	if len(all) < 2 {
		return nil
	}
	pkg0, core0 := core(all[0])
	for _, c := range all[1:] {
		if p, k := core(c); p == pkg0 && k != core0 {
			return []int{all[0], c}
		}
	}
	return all[:2]
}

func coreOf(cpu int) (pkg, core string) {
	read := func(name string) string {
		b, _ := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/%s", cpu, name))
		return strings.TrimSpace(string(b))
	}
	return read("physical_package_id"), read("core_id")
}
