// Package pending holds what the operations of an engine have in common, whatever they
// do: an [Operation] from the call to the end of its request, the [Inbox] in which
// applications hand operations to the owner of the engine, and the [Receipts] of those
// that were complete when the call returned.
//
// An operation embeds Operation and implements [Work]. Its life:
//
//	taken    from the pool of its package; Begin
//	posted   started by the owner at once, or pushed to the Inbox, whose TakeOver calls Work.Start
//	counted  in the Budget of its peer, from Spend to Finish, if it is one that moves data
//	ended    Finish, once, by the owner of the engine
//	used     Claim and Release by the goroutine that waited, or by Finish if Then gave it up
//
// A request means one use of an operation, told by its generation: an operation that was
// given back, and one that is used again, is not meant by the requests of earlier uses.
//
// It imports internal/progress.
package pending
