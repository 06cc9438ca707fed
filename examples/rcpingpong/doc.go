// Rcpingpong plays either side of ibv_rc_pingpong, the ping-pong example that
// every installation of libibverbs brings along: the same exchange of addresses
// over TCP, the same messages by Send and Receive on a reliable connected queue
// pair, the same options. It shows package verbs used on its own, and proves it
// against software written by others.
//
//	host1$ ibv_rc_pingpong -d rxe0 -g 1 -c
//	host2$ go run ./examples/rcpingpong -d rxe0 -c host1
//
// Files: main.go the options, dest.go the address as it goes over TCP,
// exchange.go who says what when, pingpong.go the queue pair and the loop,
// check.go the data. Its tests need a device; tests/softroce brings one.
package main
