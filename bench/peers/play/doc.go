// Package play is what the measuring programs of bench/peers have in common: two
// processes, a server and a client, that exchange messages over a [Transport] and time
// it by the definitions of `rmabench compare`.
//
//	rmapeer-net serve --port 7000 &
//	rmapeer-net run --port 7000 --test lat --size 8 --iters 20000
//
// # Definitions
//
//   - lat: a message goes, one of the same size comes back; half of that, the median
//     of all trips.
//   - bw, rate: a stream of messages, each handed in by a call of its own, from before
//     the first to the server's answer that all have arrived.
//
// A warm-up of a fifth comes before either and is not timed.
//
// # Contract
//
// The server listens on a TCP port for one client, which sends the [Plan]: a line
// of JSON. The server listens on the transport, answers with its address there, and
// both sides play. What comes from the other side is checked; everything ends
// within the limit of both sides, and with the process of either.
//
// Each side has one thread that runs Go code: the library's goroutines hand over to
// each other without waking another processor. The side is kept on a processor of its
// own where that is of use to the library ([Transport.Pins]); libraries that sleep wake
// each other faster on one. The garbage collector waits for 512 MiB.
//
// # Files
//
//	main.go      Main: flags, what a process does
//	plan.go      Plan: what is played; its bounds
//	transport.go Transport, Conn; local.go where they listen
//	control.go   the two sides meet: Serve, Run
//	loop.go      the timed loops; call.go those of calls
//	result.go    Result: the line that the client prints; what is measured
//	pin_*.go     a process on one processor
package play
