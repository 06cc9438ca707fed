package fabric

// Direct is an optional interface of endpoints: it executes requests with this processor's
// own loads and stores if the peer's memory is mapped here. It is intended for single small
// requests, for which Post and Poll would cost more than the requests themselves. Such a
// link has Caps.AtomicCPU. Its methods are the owner's, like Post; none blocks or
// allocates.
type Direct interface {
	// Do executes wr before it returns, in the order of requests posted and without a
	// completion. It returns false, without any effect, if it cannot execute wr, or not now
	// (a request posted before is not complete, the target has to help, the key is not
	// valid, the endpoint is down): Post it instead. wr has one local piece, of at least
	// one byte; of its flags only FlagInline has a meaning.
	Do(wr *WR) bool

	// Reach returns n bytes of the peer's memory that its key allows this for, to be
	// loaded from and stored to by the caller, in order behind all that was posted;
	// nil where Do would return false. They may be used until the next call of a
	// method of the link or of one of its endpoints, other than Reach and Local.
	// Stored must follow stores, once for any number of them.
	Reach(need Access, rkey uint32, addr uint64, n int) []byte

	// Local returns the memory of a local piece, nil if a request that needs these
	// rights must not name it. As long as that of Reach.
	Local(need Access, piece SGE) []byte

	// Stored ends stores to what Reach returned: it wakes the peer if it sleeps.
	Stored()
}
