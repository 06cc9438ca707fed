// Package pingpong plays whole batches of messages to and fro over a message
// channel, and takes the time: what a mode of the cost model really costs, from
// the first Send to the last receive of the other side. [Side.Calibrate] fits the
// extra terms of the model to it; rmabench compares modes with it.
//
// # What is timed
//
// One trip is half of a round trip: the first side hands in a batch, the second
// has received all of it and hands the same batch in, the first has received all.
// Receives are posted before, memory is registered, sizes are known to both. The
// messages of a batch do not touch in memory, so that nothing can be joined by
// accident of layout.
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
