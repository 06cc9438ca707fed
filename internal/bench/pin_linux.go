package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// pin locks the calling goroutine to its thread, and the thread to a processor that is
// rank's alone, until undo is called. With fewer than two processors it pins nothing.
// Without pinning a scheduler may leave two ranks that poll and yield on one processor,
// and the latency becomes the length of their time slices.
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
		_ = unix.SchedSetaffinity(0, &old) // the former mask: allowed
		runtime.UnlockOSThread()
	}
}

// Cores returns two processors, one for each rank or measured side; none if fewer than
// two are available.
func Cores() []int {
	var old unix.CPUSet
	if unix.SchedGetaffinity(0, &old) != nil {
		return nil
	}
	return twoCPUs(&old, coreOf)
}

// spareProcessor gives the runtime a second P where the machine has one CPU, unless the
// user set GOMAXPROCS. The runtime takes a P away from a call into C that lasts longer
// than 20 µs, as a post of 64 KiB does on a software device, and with a single P the call
// waits to get it back: the median of 64 KiB gets in a one-CPU VM was 165 and 177 µs, with
// a second P 89 µs three times of four.
func spareProcessor() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == 1 {
		runtime.GOMAXPROCS(2)
	}
}

// twoCPUs chooses two allowed processors: of two cores of one package if possible, else
// any two.
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
