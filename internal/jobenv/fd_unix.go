//go:build unix

package jobenv

import (
	"net"
	"os"
	"syscall"
)

// connOf returns a connection over a copy of the descriptor, which stays open.
func connOf(fd int) (net.Conn, error) {
	dup, err := syscall.Dup(fd)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(dup)
	f := os.NewFile(uintptr(dup), "PMI_FD")
	defer f.Close()
	return net.FileConn(f)
}
