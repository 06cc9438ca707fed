// Command rmapeer-net measures Go's package net: a connection over TCP
// loopback or a Unix socket, without delay, one write per message (or per batch of them)
// and a reader that takes as much as is available. See package play.
package main

import (
	"os"

	"github.com/seed33544411/rma/bench/peers/play"
)

func main() { os.Exit(play.Main(transport{}, os.Args[1:], os.Stdout, os.Stderr)) }
