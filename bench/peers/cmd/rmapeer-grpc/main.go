// Command rmapeer-grpc measures gRPC: one connection over TCP loopback or a Unix
// socket, without encryption, and on it one stream in both directions, or calls
// (--unary). Messages are plain bytes without an encoding. See package play.
package main

import (
	"os"

	"github.com/seed33544411/rma/bench/peers/play"
)

func main() { os.Exit(play.Main(transport{}, os.Args[1:], os.Stdout, os.Stderr)) }
