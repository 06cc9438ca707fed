package offheap

import "golang.org/x/sys/unix"

// populate returns false if the system has no such call: before Linux 5.14.
func populate(pages []byte) bool {
	return unix.Madvise(pages, unix.MADV_POPULATE_WRITE) != unix.EINVAL
}
