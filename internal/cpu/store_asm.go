//go:build amd64 || arm64

package cpu

// StoreRelease stores v at p, which must be aligned, behind all stores before it, and does
// not wait for them: unlike sync/atomic's store it does not order later accesses behind
// itself. On amd64 that store is an exchange, which begins when the stores before it have
// left the processor: a cache line that a peer polls is then fetched twice for one message,
// once for the data and, since the peer's poll has fetched it meanwhile, once more for the
// word that ends it.
//
//go:noescape
func StoreRelease(p *uint64, v uint64)

// StoreRelease32 is StoreRelease for four bytes.
//
//go:noescape
func StoreRelease32(p *uint32, v uint32)
