package rma

import "github.com/seed33544411/rma/fabric"

// Access is what peers may do with a region. Its owner may do everything. An operation
// without the right fails with ErrRemoteAccess and changes nothing: at the peer, which
// sees from the key that it has no right, or, if it believes something else, at the owner,
// whose link looks at its own table; that costs the connection, like all that is refused.
//
// Over shm the peer's own process looks, as it does all else over shared memory: rights
// keep peers from mistakes there, and not a process of the same user from malice.
//
// Rights are those of every rank that has the key; there are none for named ranks, which no link
// but tcp could hold. Memory may be registered several times, with different rights, and
// each key given only to the ranks that it is for. Memory whose key nobody was given is reached by
// nobody who does not guess one, and a wrong guess costs the connection.
type Access uint8

// Rights. Several can be joined, or given one by one.
const (
	PeersRead   = Access(fabric.AccessRemoteRead)   // Get
	PeersWrite  = Access(fabric.AccessRemoteWrite)  // Put, PutSignal; with PeersAtomic also Accumulate
	PeersAtomic = Access(fabric.AccessRemoteAtomic) // atomics, SignalAdd

	PeersNothing = Access(fabric.AccessLocalWrite) // for operations of the owner
)

// rights is what the links are told.
func rights(access []Access) fabric.Access {
	if len(access) == 0 {
		return fabric.AccessAll
	}
	all := fabric.AccessLocalWrite
	for _, a := range access {
		all |= fabric.Access(a)
	}
	return all & fabric.AccessAll
}

func (a Access) has(right Access) bool { return a&right == right }
