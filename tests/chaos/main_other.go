//go:build !linux

package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "chaos: stops and starves processes of Linux: not supported on %s\n", runtime.GOOS)
	os.Exit(2)
}
