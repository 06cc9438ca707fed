// Package sockets measures programs written for package net over rmanet and over sockets:
// the same workload, between the same two processes, over a Unix socket, over TCP through
// the loopback interface, and over rmanet on shm and on tcp.
//
//	echo    write one byte, read one byte
//	http    GET of a few bytes on a kept connection, server and client of net/http
//	stream  write 64 KiB; the server reads and discards
//
// A program that links more software adds workloads and calls [Child] when it is started
// with [Arg]; examples/grpc does so. In a series each connection has a goroutine that makes
// one operation after the other. A series counts all operations from a common start, at which
// the server has read everything of the warm-up, to the moment at which it has read everything,
// and the processor time of both processes meanwhile.
//
//	sockets.go    requests, results, the series
//	workload.go   the workloads
//	transport.go  how the two processes reach each other
//	rank.go       the two processes
//	format.go     table and JSON
package sockets
