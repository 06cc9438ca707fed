// Command rmapeer-net measures what Go's package net has: a connection over TCP
// loopback or a Unix socket, without delay, one write a message (or a batch of them)
// and a reader that takes as much as there is. See package play.
package main

import (
	"os"

	"github.com/seed33544411/rma/bench/peers/play"
)

func main() { os.Exit(play.Main(transport{}, os.Args[1:], os.Stdout, os.Stderr)) }
