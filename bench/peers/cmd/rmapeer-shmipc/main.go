//go:build linux && (amd64 || arm64)

// Command rmapeer-shmipc measures shmipc-go: shared memory with a queue each way, and
// a Unix socket that wakes whoever does not read its queue. See package play.
package main

import (
	"os"

	"github.com/seed33544411/rma/bench/peers/play"
)

func main() { os.Exit(play.Main(transport{}, os.Args[1:], os.Stdout, os.Stderr)) }
