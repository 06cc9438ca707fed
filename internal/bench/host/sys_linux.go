package host

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

func memlockLimit() (uint64, error) { return softLimit(unix.RLIMIT_MEMLOCK) }

func fileLimit() (uint64, error) { return softLimit(unix.RLIMIT_NOFILE) }

func softLimit(which int) (uint64, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(which, &r); err != nil {
		return 0, err
	}
	if r.Cur >= math.MaxInt64 { // RLIM_INFINITY, for any word size of the kernel
		return math.MaxUint64, nil
	}
	return r.Cur, nil
}

func tryMemfd(size int) error {
	fd, err := unix.MemfdCreate("rmabench-doctor", unix.MFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(fd)
	// fallocate, not ftruncate: a lack of pages is an error here instead of a SIGBUS
	// at the first access.
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

// readProcess copies len(buf) bytes from addr of process pid.
func readProcess(buf []byte, pid int, addr uint64) error {
	local := []unix.Iovec{{Base: &buf[0]}}
	local[0].SetLen(len(buf))
	got, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(buf)}}, 0)
	if err != nil {
		return fmt.Errorf("process_vm_readv: %w", err)
	}
	if got != len(buf) {
		return fmt.Errorf("process_vm_readv: %d of %d bytes", got, len(buf))
	}
	return nil
}
