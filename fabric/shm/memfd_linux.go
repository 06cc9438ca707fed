package shm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/offheap"
)

// newMemfd creates a segment of size bytes whose size cannot change; seal completes it. The
// first commit bytes of its memory are allocated now, so that a later access to them cannot
// fail.
func newMemfd(name string, size, commit int) (fd int, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, fmt.Errorf("shm: memfd_create: %w", err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil && commit > 0 {
		err = commitMemory(fd, int64(commit))
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("shm: memfd of %d bytes: %w", size, err)
	}
	return fd, nil
}

// commitMemory allocates the pages of the file. A signal (the runtime sends some) makes the
// kernel undo the allocation and stop, so it proceeds in steps that are small enough to
// finish. The kernel has no bound for these pages: it would end processes of the host, any of them,
// before it refused one. So each step looks for the rest first.
func commitMemory(fd int, size int64) error {
	const step = 16 << 20
	for off := int64(0); off < size; {
		n := min(size-off, step)
		if n == step && size-off > availableMemory() {
			return unix.ENOMEM
		}
		switch err := unix.Fallocate(fd, 0, off, n); err {
		case nil:
			off += n
		case unix.EINTR:
		default:
			return err
		}
	}
	return nil
}

// availableMemory returns the bytes that the host can still give to processes, by its estimate;
// the largest number if it has none.
func availableMemory() (sum int64) {
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		if name == "MemAvailable" || name == "SwapFree" {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			sum += kib << 10
		}
	}
	if sum <= 0 {
		return math.MaxInt64
	}
	return sum
}

// hostMemory returns the bytes of the host's memory and swap space, 0 if the system does not say, but at
// most a quarter of what this processor addresses.
func hostMemory() uint64 {
	var s unix.Sysinfo_t
	_ = unix.Sysinfo(&s)
	return min((uint64(s.Totalram)+uint64(s.Totalswap))*uint64(s.Unit), math.MaxInt/2) //nolint:unconvert // of 4 bytes on some systems
}

// seal sets the final seals. With readOnly, later mappings of the file cannot be writable
// (before Linux 5.1 this is not enforced).
func seal(fd int, readOnly bool) error {
	if readOnly {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE)
		if err != nil && err != unix.EINVAL {
			return fmt.Errorf("shm: seal: %w", err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("shm: seal: %w", err)
	}
	return nil
}

// checkMemfd checks that mapping size bytes of a descriptor from a peer can never fault: it
// is an ordinary memfd of at least that size that cannot shrink.
func checkMemfd(fd int, size uint64) error {
	s, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || s&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("%w: descriptor is no memfd sealed against shrinking (seals %#x, %v)", ErrCorrupt, s, err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		return fmt.Errorf("%w: descriptor lies on file system %#x (%v), want tmpfs", ErrCorrupt, fs.Type, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size < 0 || uint64(st.Size) < size {
		return fmt.Errorf("%w: memfd of %d bytes (%v), want %d", ErrCorrupt, st.Size, err, size)
	}
	return nil
}

// mapPeer maps a descriptor from a peer after checking it. The descriptor stays open.
func mapPeer(fd int, size uint64, p offheap.Purpose) ([]byte, error) {
	if err := checkMemfd(fd, size); err != nil {
		return nil, err
	}
	return offheap.Map(fd, int(size), p)
}
