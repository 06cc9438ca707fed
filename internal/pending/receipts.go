package pending

import "sync/atomic"

// receipts is how many receipts are told apart once they are used up. One that is used
// twice, with as many others used in between, passes for one that is not: nothing hangs
// on it.
const receipts = 1024

// Receipts number operations that were complete when the call returned: they have no
// Operation, and their requests are used up once all the same. The zero value is ready.
type Receipts struct {
	last uint64
	used [receipts]atomic.Uint64 // those used up last
}

// Issue is the next receipt; none is 0. Owner's.
// Hot path.
func (r *Receipts) Issue() uint64 {
	r.last++
	return r.last
}

// Redeem uses n up. It returns false if it was already, or is 0. From any goroutine.
func (r *Receipts) Redeem(n uint64) bool { return n != 0 && r.used[n%receipts].Swap(n) != n }

// Redeemable reports whether Redeem would return true.
func (r *Receipts) Redeemable(n uint64) bool { return n != 0 && r.used[n%receipts].Load() != n }
