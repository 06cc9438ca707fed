//go:build !linux

package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "softroce: runs the guest on Linux with qemu or user mode linux: not supported on %s\n", runtime.GOOS)
	os.Exit(2)
}
