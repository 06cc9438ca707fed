package ibv

import "golang.org/x/sys/unix"

// readyFDs returns the readable descriptors among those that ep joins. If a signal
// interrupts it, it returns none; the next call reports them.
func readyFDs(ep int) (fds [1 + maxPorts]int, n int) {
	var evs [1 + maxPorts]unix.EpollEvent
	got, _ := unix.EpollWait(ep, evs[:], 0)
	for i := range max(got, 0) {
		fds[i] = int(evs[i].Fd)
	}
	return fds, max(got, 0)
}
