package fabric

// Direct is what the endpoints of some links offer besides: to carry requests out with
// this processor's own loads and stores, where the peer's memory is mapped here. It is
// for small requests one at a time, which Post and Poll would cost more than they do
// themselves. Such a link has Caps.AtomicCPU. Its methods are the owner's, like Post; none blocks or allocates.
type Direct interface {
	// Do carries wr out before it returns, in the order of requests posted and with
	// no completion. false means that it cannot, or not now (something posted before is
	// not done, the target has to help, the key is not valid, the endpoint is down), and
	// that nothing has happened: Post it, and see. wr has one local piece, of at least
	// one byte; of its flags only FlagInline means anything.
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
