// Package play is the common code of the benchmark programs in bench/peers: two
// processes, a server and a client, exchange messages over a [Transport] and measure the
// exchange by the definitions of `rmabench compare`.
//
//	rmapeer-net serve --port 7000 &
//	rmapeer-net run --port 7000 --test lat --size 8 --iters 20000
//
// # Definitions
//
//   - lat: half of the round trip of a message and an answer of the same size; the
//     median of all round trips.
//   - bw, rate: a stream of messages, each sent by its own call, from before the first
//     call to the server's answer that all have arrived.
//
// A warm-up of a fifth of the operations precedes both and is not timed.
//
// # Contract
//
// The server listens on a TCP port for one client, which sends the [Plan]: a line
// of JSON. The server listens on the transport, answers with its address there, and
// both sides run the measurement. Data from the other side is checked. The measurement
// ends within the time limit of both sides, and when either process ends.
//
// Each side runs Go code on one thread, so that the library's goroutines do not wake
// another processor. A side is pinned to its own processor if that helps the library
// ([Transport.Pins]); libraries that sleep wake each other faster on one processor. The
// garbage collector starts at 512 MiB.
//
// # Files
//
//	main.go      Main: flags and commands
//	plan.go      Plan: the measurement and its bounds
//	transport.go Transport, Conn; local.go their listeners
//	control.go   the connection of the two sides: Serve, Run
//	loop.go      the timed loops; call.go those of calls
//	result.go    Result: the line that the client prints
//	pin_*.go     pins a process to a processor
package play
