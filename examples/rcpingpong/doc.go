// Rcpingpong plays either side of ibv_rc_pingpong, the ping-pong example of
// libibverbs: the same exchange of addresses over TCP, the same messages by Send and
// Receive on a reliable connected queue pair, the same options. It shows the use of
// package verbs alone, and tests it against independent software.
//
//	host1$ ibv_rc_pingpong -d rxe0 -g 1 -c
//	host2$ go run ./examples/rcpingpong -d rxe0 -c host1
//
// Files: main.go the options, dest.go the encoding of addresses, exchange.go their
// exchange over TCP, pingpong.go the queue pair and the loop, check.go the validation of
// data. The tests need a device; tests/softroce provides one.
package main
