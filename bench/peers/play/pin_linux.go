package play

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// pin keeps the process on processor cpu: all threads that it has, from which later
// ones inherit it. It repeats until it finds no further thread.
func pin(cpu int) error {
	var one unix.CPUSet
	one.Set(cpu)
	for again := true; again; {
		again = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return err
			}
			var has unix.CPUSet
			if unix.SchedGetaffinity(id, &has) != nil || has == one {
				continue // ended meanwhile, or done
			}
			if err := unix.SchedSetaffinity(id, &one); err != nil && err != unix.ESRCH {
				return fmt.Errorf("processor %d: %w", cpu, err)
			}
			again = true
		}
	}
	return nil
}
