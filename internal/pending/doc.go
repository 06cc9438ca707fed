// Package pending holds the state common to all operations of an engine: an [Operation] from
// the call to the end of its request, the [Inbox] through which applications pass operations
// to the owner of the engine, and the [Receipts] of operations that were complete when the
// call returned.
//
// An operation embeds Operation and implements [Work]. Its life:
//
//	taken    from the pool of its package; Begin
//	posted   started by the owner at once, or pushed to the Inbox, whose TakeOver calls Work.Start
//	counted  in the Budget of its peer, from Spend to Finish, if it moves data
//	ended    Finish, once, by the owner of the engine
//	used     Claim and Release by the goroutine that waited, or by Finish after Then
//
// A request refers to one use of an operation, identified by its generation: after an
// operation has been returned to the pool, or reused, requests of earlier uses do not refer
// to it.
//
// It imports internal/progress.
package pending
