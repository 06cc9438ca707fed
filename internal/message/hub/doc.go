// Package hub manages the messages of a rank with all ranks of its job. A [Conversation] is
// the state for one of them: its channel (package message), which is opened at the first
// message in either direction, the operations that wait for it, and the copies of messages
// to this rank itself. The [Hub] polls the conversations that have work, and serves receives
// from any rank. It is internal to rma.
//
//	hub.go          Hub: steps, receives from any rank, cancellation, the end
//	receiving.go    Receiving: a receive for many messages of all ranks
//	conversation.go Conversation
//	poll_list.go    which conversations are polled, and how often
//	op.go           Op: a send, a receive or a batch in flight
//	uses.go         whether messages or receives use some memory
//
// The engine's peer implements [Host]: its connection and its errors. Everything belongs to
// the owner of the progress engine, except for methods documented otherwise.
package hub
