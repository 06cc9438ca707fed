// Package mr manages registered memory: its keys, the rights of peers, and its lifetime.
//
// The package is a part of the engine below package rma. Applications use rma; the exported
// names may change in any release.
//
// A [Domain] is the set of links that memory is registered with (its rails), and the table
// of registrations. [Domain.Alloc] and [Domain.Register] make a [Registration], visible on
// all rails at once.
//
// # Keys and their enforcement
//
// A [Key] names registered memory to peers: address and length, rights, the remote key of
// each rail, and a [Ref], which is a slot of the domain's table and the epoch of the slot's
// present user. Up to three parties check an access by key:
//
//   - The holder, before it posts ([Key.Check]): because a refusal by the target takes the
//     endpoint down, mistakes are better detected here. Only this check knows the bounds of
//     a key narrowed by [Key.Slice].
//   - The link of the target, for one-sided operations: the rail's remote key stands for one
//     registration, with its bounds and rights (an adapter checks them in hardware). It
//     knows neither narrowed keys nor epochs; an old key is stale there because links do not
//     reuse a remote key for a long time.
//   - This package, for descriptors that the target executes itself (a rendezvous descriptor
//     that names memory of the side that executes it, a destination offset in a gather
//     header): [Domain.Resolve] looks the reference up among the live registrations,
//     compares the epoch, checks bounds and rights, and holds the registration during the
//     copy. Memory of the far side that a descriptor names needs no check here: the far
//     side's link checks it.
//
// At the target, the bounds and rights are always those of the registration. A grant of less
// memory, or for a shorter time, needs a separate registration of that part. A refused
// access is a [*KeyError] (ErrStale, ErrBounds, ErrRights; always fabric.ErrRemoteAccess
// too) and accesses nothing.
//
// An epoch is a count of registrations and 32 random bits. A stale reference is detected
// with certainty for 2^32 registrations; a guess hits with probability 2^-32, and only in a
// slot in use. The epoch is not secret from holders of the key: peers of one job trust each
// other with the memory that they share.
//
// # Lifetime
//
// Operations in flight hold the registrations that they use ([Registration.Hold], Release).
// [Registration.Close] makes the reference stale at once, and withdraws the memory from the
// links when no operation holds it. Memory of the Go heap stays pinned, and memory of Alloc
// stays mapped, until then, and until links report that no peer is in the middle of an
// access to it: a peer that was stopped in one keeps it for as long. Memory of Alloc cannot
// be closed before other registrations of parts of it; Domain.Close closes these first.
//
// # Arenas
//
// An [Arena] divides registered slabs into pieces, without allocation and in some tens of
// ns, for rings, staging buffers and small memory of the application. It is bounded, counts
// by purpose, and detects the use of a freed piece.
//
// # Cache
//
// A [Cache] keeps memory of the application registered between operations. A hit takes some
// tens of ns. There are no memory hooks: call [Cache.Invalidate] before foreign memory is
// unmapped.
//
// # Concurrency
//
// Domain and Registration may be used from any goroutine, Arena and Cache by one goroutine
// at a time, the owner of their data path; they have no locks. Both make their registrations
// through the domain, so that several owners may share one.
//
// # Files
//
//	domain.go        Domain, Rail: registering, resolving
//	registration.go  Registration: holds, closing
//	linger.go        closed memory that peers still use
//	table.go         slots and epochs
//	keys.go          registrations by the remote keys of links
//	key.go           Key, Ref and their marshalled form (docs/wire.md)
//	arena.go         Arena, Piece: slabs by size class, limit, purposes, writes to free memory
//	slab.go          size classes; one slab: slots, generations, free list
//	cache.go         Cache: hits and misses
//	index.go         finding an entry, the list of idle ones
//	evict.go         making room, retiring, invalidating
//	lease.go         Lease
//	errors.go        sentinels, KeyError, InUseError
package mr
