//go:build unix

package jobenv

import (
	"net"
	"os"
	"syscall"
)

// connOf returns a connection over a copy of the descriptor, which stays open.
func connOf(fd int) (net.Conn, error) {
	syscall.ForkLock.RLock() // no child may inherit the copy: not all systems have F_DUPFD_CLOEXEC
	dup, err := syscall.Dup(fd)
	if err == nil {
		syscall.CloseOnExec(dup)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(dup), "PMI_FD")
	defer f.Close()
	return net.FileConn(f)
}
