// Package compare measures other libraries beside this one: the same test on the same link,
// in alternation within one run, so that disturbances by the machine affect both.
//
// A [Peer] is a table of functions: which program, how its two sides are started, how its
// output is parsed. The caller passes a function for the measurement of rma, so that this
// package starts only the processes of others.
//
// # Definitions
//
//   - lat: half a round trip of a message, the median, µs; less is better.
//   - bw: bytes of a stream of messages over its time, 1e6 bytes a second.
//   - rate: messages of such a stream, 1e6 a second.
//   - put, putbw: the same of one-sided writes; the target polls its memory, or does
//     nothing.
//   - ratio: ours over theirs, for lat and put theirs over ours, so that more than 1 is
//     always ahead. The ratio of a row is the median of the rounds' ratios.
//   - cpu: processor time for a message, of both processes together.
//
// # Files
//
//	test.go     Test, and its syntax
//	peer.go     Peer, Job, Place, Plan, the table of peers
//	need.go     programs and packages; install.go brings them
//	ucx.go, libfabric.go, mpi.go, netpipe.go (and a bare socket), perftest.go  the peers
//	csource.go  programs of ours in C, csrc; what parsers share
//	gopeer.go   libraries of Go, by the programs of bench/peers; gotool.go builds them
//	process.go  the processes of a run: group_unix.go ends them, pin_linux.go keeps them
//	            on processors, listen.go finds out when a server is ready
//	request.go  Request, Run: rounds, turns
//	cpu.go      processor time of theirs
//	row.go      Row: table and JSON lines; plot.go bars of text
//
// Output of the programs as it was recorded is in testdata. Every wait has a
// deadline; processes end with the context.
package compare
