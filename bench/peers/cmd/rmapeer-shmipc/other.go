//go:build !(linux && (amd64 || arm64))

// Command rmapeer-shmipc measures shmipc-go, which works on Linux, amd64 and arm64.
package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "shmipc: does not work on %s/%s\n", runtime.GOOS, runtime.GOARCH)
	os.Exit(1)
}
