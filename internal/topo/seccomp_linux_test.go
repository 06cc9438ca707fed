package topo

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forbid makes a system call of the calling thread fail with EPERM from now on.
func forbid(call uint32) error {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS // the call's number is at offset 0
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		result = unix.BPF_RET | unix.BPF_K
	)
	filter := []unix.SockFilter{
		{Code: load},
		{Code: equal, K: call, Jf: 1},
		{Code: result, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: result, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	runtime.KeepAlive(&prog)
	if err != nil {
		return fmt.Errorf("PR_SET_SECCOMP: %w", err)
	}
	return nil
}
