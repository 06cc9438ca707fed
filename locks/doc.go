// Package locks provides read-write locks between the ranks of a job: one holder may write,
// or many may read. A lock is named by a rank, its home, and a number. It takes no memory
// while no rank holds it or waits for it. What a lock protects is for the ranks to agree on:
// mostly memory of its home that several ranks read, change and write back.
//
//	ls, err := locks.New(eng) // on every rank
//	id := locks.ID{Home: 3, Key: row}
//	held, err := ls.Lock(ctx, id)
//	...get, compute, put...
//	err = held.Unlock(ctx)
//
// # Memory
//
// Unlock flushes the one-sided operations of the engine before it releases the lock. The
// next holder therefore sees, in the memory of any rank, the writes of the holders before
// it, and also the stores of a holder in its own memory.
//
// # Order
//
// Requests for one lock are granted in the order in which they reach its home. Readers hold
// a lock together, but not ahead of a writer that came first.
//
// # Failures
//
// If a rank that holds a lock for writing is gone or loses its connection with the home,
// the memory that it was changing may be inconsistent. The lock is then broken: Lock, RLock
// and TryLock fail with ErrBroken until a rank takes the lock with Recover and repairs the
// memory. A lost reader, or a lost rank that waits, has no effect. If the home is gone, its
// locks are gone: waits fail with the error of the peer.
//
// Requests made after rma.Peer.Reset are not affected by the loss before it. One that is made while the
// connection is lost may end with that loss, with an error that wraps rma.ErrFlushed.
//
// A wait that ends with its context is withdrawn from the home and takes no lock.
//
// Requests and answers wait behind the messages that the application sends: while no receive
// takes more than 1 MiB of messages of a rank, they may wait as well. If the home takes so few
// that the bound of libraries is reached (rma.Config.Outstanding), requests fail with
// rma.ErrBusy, and releases are sent when it has taken some.
//
// # Stability
//
// The package is meant to be imported by applications. Its interface may change before
// version 1.
//
// # Files
//
//	locks.go  Locks, Held: what an application calls; answers of homes
//	table.go  the locks of which this rank is the home
//	frame.go  requests and answers as messages
//
// It imports the root package.
package locks
