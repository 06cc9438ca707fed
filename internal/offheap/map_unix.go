//go:build unix

package offheap

import "golang.org/x/sys/unix"

func mapPrivate(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

func mapShared(fd, size int, write bool) ([]byte, error) {
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	return unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED)
}

func unmap(b []byte) error { return unix.Munmap(b) }
