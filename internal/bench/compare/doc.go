// Package compare compares this library with others: it runs the same test on the same link,
// in alternation within one run, so that disturbances by the machine affect both.
//
// A [Peer] is a table of functions: which program, how its two sides are started, how its
// output is parsed. The caller passes a function for the measurement of rma, so that this
// package starts only processes of other libraries.
//
// # Definitions
//
//   - lat: half a round trip of a message, the median, µs; less is better.
//   - bw: bytes of a stream of messages over its time, 1e6 bytes a second.
//   - rate: messages of such a stream, 1e6 a second.
//   - put, putbw: the same of one-sided writes; the target polls its memory (put) or does
//     nothing (putbw).
//   - ratio: ours over theirs, inverted for lat and put, so that a ratio above 1 always means
//     that we are ahead. The ratio of a row is the median of the rounds' ratios.
//   - cpu: processor time for a message, of both processes together.
//
// # Files
//
//	test.go     Test, and its syntax
//	peer.go     Peer, Job, Place, Plan, the table of peers
//	need.go     programs and packages; install.go installs them
//	ucx.go, libfabric.go, mpi.go, netpipe.go (and a bare socket), perftest.go  the peers
//	csource.go  own C programs in csrc; shared functions of parsers
//	gopeer.go   Go libraries, by the programs of bench/peers; gotool.go builds them
//	process.go  the processes of a run: group_unix.go ends them, pin_linux.go pins them
//	            to processors, listen.go waits until a server is ready
//	mpiprogram.go  programs of csrc with several MPI libraries: overlap.go transfers and
//	            small operations beside other work, collective.go collective operations
//	request.go  Request, Run: rounds in alternation
//	cpu.go      processor time of peers
//	row.go      Row: table and JSON lines; plot.go bars of text
//
// Recorded output of the programs is in testdata. Every wait has a deadline; processes end
// with the context.
package compare
