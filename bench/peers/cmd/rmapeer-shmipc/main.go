//go:build linux && (amd64 || arm64)

// Command rmapeer-shmipc measures shmipc-go: shared memory with a queue in each direction,
// and a Unix socket that wakes a side that does not read its queue. See package play.
package main

import (
	"os"

	"github.com/seed33544411/rma/bench/peers/play"
)

func main() { os.Exit(play.Main(transport{}, os.Args[1:], os.Stdout, os.Stderr)) }
