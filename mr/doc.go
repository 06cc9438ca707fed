// Package mr is registered memory: who may reach it, under which key, and
// until when.
//
// The package is a part of the engine below package rma. Applications use rma; what
// is exported here may change in any release.
//
// A [Domain] is the set of links that memory is registered with, called rails
// here, and the table of what is registered. [Domain.Alloc] and [Domain.Register]
// make a [Registration], visible on all rails at once.
//
// # Keys, and who enforces them
//
// A [Key] names registered memory to peers: address and length, rights, the
// remote key of each rail, and a [Ref], which is a slot of the domain's table
// and the epoch of the slot's present user. An access by key is checked up to
// three times:
//
//   - By its holder, before it posts ([Key.Check]): a refusal by the target
//     takes the endpoint down, so that an honest mistake is better found here.
//     It is the only check that knows of a key narrowed by [Key.Slice].
//   - By the link of the target, for one-sided operations: the rail's remote
//     key stands for one registration, with its bounds and rights (an adapter
//     does this in hardware). It knows neither narrowed keys nor epochs; what
//     makes an old key stale there is that links do not give a remote key
//     twice within a long time.
//   - By this package, for descriptors that the target carries out itself
//     (a rendezvous descriptor that names memory of the side that executes it,
//     a destination offset in a gather header): [Domain.Resolve] looks the
//     reference up among the live registrations, compares the epoch, checks
//     bounds and rights, and holds the registration so that it cannot go away
//     under the copy. What a descriptor names at the far side needs no check
//     here: the far side's link makes it.
//
// Bounds and rights are those of the registration, at the target always. A
// grant that must be narrower, or must end sooner, needs a registration of its
// own over that part. A refused access is a [*KeyError] (ErrStale, ErrBounds,
// ErrRights; always fabric.ErrRemoteAccess too) and touches nothing.
//
// An epoch is a count of registrations and 32 random bits. A stale reference
// misses for certain for 2^32 registrations; a guess hits with probability
// 2^-32, and only in a slot in use. It is not a secret from who was given the
// key: peers of one job trust each other with the memory they were shown.
//
// # Lifetime
//
// Operations under way hold what they use ([Registration.Hold], Release).
// [Registration.Close] makes the reference stale at once, and withdraws the
// memory from the links when nobody holds it. Memory of the Go heap is pinned,
// memory of Alloc stays mapped, until then, and until links say that no peer is in the
// middle of an access to it: a peer that was stopped there keeps it for as long.
//
// # Arenas
//
// An [Arena] cuts registered slabs into pieces, without allocation and in some
// tens of ns, for rings, staging buffers and small memory of the application;
// it is bounded, counts by purpose, and knows a piece that was freed.
//
// # Cache
//
// A [Cache] keeps memory of the application registered between operations. A
// hit takes some tens of ns. There are no hooks: who unmaps foreign memory calls
// [Cache.Invalidate] before.
//
// # Concurrency
//
// Domain and Registration: any goroutine. Arena and Cache: one goroutine at a
// time, the owner of the data path that uses them; there is no lock inside.
// Both make their registrations through the domain, so that several owners may
// share one.
//
// # Files
//
//	domain.go        Domain, Rail: registering, resolving
//	registration.go  Registration: holds, closing
//	linger.go        what peers still use when it is closed
//	table.go         slots and epochs
//	key.go           Key, Ref and their marshalled form (docs/wire.md)
//	arena.go         Arena, Piece: slabs by size class, limit, purposes, writes to free memory
//	slab.go          size classes; one slab: slots, generations, free list
//	cache.go         Cache: hits and misses
//	index.go         finding an entry, the list of idle ones
//	evict.go         making room, retiring, invalidating
//	lease.go         Lease
//	errors.go        sentinels, KeyError, InUseError
package mr
