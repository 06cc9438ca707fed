package offheap

import "golang.org/x/sys/unix"

// hugeShift is log2 of HugePage, for mmap's flags.
const hugeShift = 21

// mapHugeTLB maps reserved huge pages; it returns nil if there are not enough. The kernel
// reserves all of them at once, so a later access cannot fail.
func mapHugeTLB(size int) []byte {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|hugeShift<<unix.MAP_HUGE_SHIFT)
	if err != nil {
		return nil
	}
	return b
}

// adviseHuge requests transparent huge pages for b, which starts on a page boundary. The kernel
// uses them as it can.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
