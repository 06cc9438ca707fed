//go:build !amd64 && !arm64

package cpu

import "sync/atomic"

// StoreRelease stores v at p, which must be aligned, behind all stores before it.
func StoreRelease(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

// StoreRelease32 is StoreRelease for four bytes.
func StoreRelease32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
