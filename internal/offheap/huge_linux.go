package offheap

import "golang.org/x/sys/unix"

// hugeShift is log2 of HugePage, for mmap's flags.
const hugeShift = 21

// mapHugeTLB maps reserved huge pages; it returns nil if there are not enough, or this
// process may not use them.
func mapHugeTLB(size int) []byte {
	return mapBacked(-1, size, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|hugeShift<<unix.MAP_HUGE_SHIFT)
}

// mapBacked maps memory in whole huge pages, all of which it has the kernel provide; it returns
// nil if the kernel cannot. mmap alone does not tell: it reserves huge pages, but the limit of
// a cgroup, as of containers that request none, counts only those that are accessed, and the
// access that exceeds it ends in SIGBUS.
func mapBacked(fd, size, flags int) []byte {
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return nil
	}
	if !backed(b) {
		_ = unix.Munmap(b)
		return nil
	}
	return b
}

// backed reports whether the kernel could provide all huge pages of b, which are zero. The kernel
// itself writes to each: that fails with EFAULT where an access would raise the signal.
// MADV_POPULATE_WRITE does the same, but only since Linux 5.14.
func backed(b []byte) bool {
	zero, err := unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(zero)
	for i := 0; i < len(b); i += HugePage {
		if n, err := unix.Read(zero, b[i:i+1]); n != 1 || err != nil {
			return false
		}
	}
	return true
}

// adviseHuge requests transparent huge pages for b, which starts on a page boundary. The kernel
// uses them as it can.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
