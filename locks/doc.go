// Package locks gives the ranks of a job locks: for one holder that writes, or for many that
// read. A lock is named by a rank, its home, and a number, and takes no memory while nobody
// holds it or waits for it. It protects whatever the ranks agree that it protects: mostly
// memory of its home that several ranks read, change and write back.
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
// next holder therefore sees in memory, of any rank, what the holders before it wrote. What
// a rank stores in its own memory while it holds a lock is visible to the next holder, too.
//
// # Order
//
// Requests for one lock are granted in the order in which they reach its home. Readers hold
// a lock together, but not ahead of a writer that came first.
//
// # Failures
//
// If a rank that holds a lock for writing is gone or loses its connection with the home, the
// memory that it was changing may be inconsistent. The lock is broken then: Lock, RLock and
// TryLock fail with ErrBroken until a rank takes the lock with Recover and mends the memory.
// A lost reader, or a lost rank that waits, leaves nothing. If the home is gone, its locks
// are gone: what waits fails with the error of the peer.
//
// A wait that its context ends is withdrawn from the home and takes no lock.
//
// # Stability
//
// To be imported by applications. The interface may change before version 1.
//
// # Files
//
//	locks.go  Locks, Held: what an application calls; answers of homes
//	table.go  the locks of which this rank is the home
//	frame.go  requests and answers as messages
//
// It imports the root package.
package locks
