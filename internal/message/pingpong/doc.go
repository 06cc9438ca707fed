// Package pingpong sends whole batches of messages back and forth over a message channel and
// times them: the real cost of a mode of the cost model, from the first Send to the last
// receive of the other side. [Side.Calibrate] fits the extra terms of the model to these
// times; rmabench compares modes with them.
//
// # What is timed
//
// One trip is half of a round trip: the first side posts a batch, the second receives all
// of it and posts the same batch, the first receives all of that. Receives are posted in
// advance, memory is registered, and both sides know the sizes. The messages of a batch are
// not adjacent in memory, so that they cannot be merged by accident of layout.
//
// # Concurrency, ownership, errors
//
// A Side belongs to the owner of its link, which it polls while it plays. Both
// sides call the same methods in the same order with the same arguments. Every
// wait ends: by the peer, by the link, by the context, or after Options.Stall.
// Playing allocates nothing.
//
// # Files
//
//	side.go       Side: memory, channel, set-up
//	play.go       Load, Play, Check
//	wait.go       polling and deadlines
//	rendezvous.go Rendezvous: single messages, read or receiver first
//	calibrate.go  Calibrate: logp.Params.Extra from forced batches
//	probes.go     which batches, how often: the budget; Outcome
//	words.go      control messages
//
// Imports internal/message, rdv, scatter, fabric, logp, internal/cpu.
package pingpong
