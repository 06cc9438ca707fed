// Package hub carries the messages of a rank with all ranks of its job. A [Conversation]
// is the messages with one of them: it has the channel (package message), opened at the
// first message in either direction, what waits for it, and the copies of messages to
// oneself. The [Hub] polls those that have something to do, and serves receives from any
// rank. It is internal to rma.
//
//	hub.go          Hub: what drives it, receives from any rank, cancellation, the end
//	receiving.go    Receiving: a receive for many messages of all ranks
//	conversation.go Conversation
//	poll_list.go    which conversations are polled, and how often
//	op.go           Op: a send, a receive or a batch under way
//
// The rest of an engine's peer is a [Host]: its connection and its errors. All but the
// methods that say otherwise belongs to the owner of the progress engine.
package hub
