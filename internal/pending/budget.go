package pending

import "sync/atomic"

// Budget bounds the operations that are posted and not complete, of one peer and, in
// portions, of all. From any goroutine. The zero value bounds nothing.
type Budget struct {
	n    atomic.Int64
	most int64
	all  *atomic.Int64 // of all peers, in portions
	sum  int64         // that it may reach
}

// portion is how many operations a peer takes from the budget of all at once: the word that
// all share is written once in so many operations.
const portion = 1024

// Bound sets the bounds: of this peer, and of the sum in all. Once, before the first use.
func (b *Budget) Bound(most int, all *atomic.Int64, sum int) {
	b.most, b.all, b.sum = int64(most), all, int64(sum)
}

// Outstanding is how many operations are posted and not complete. 0 if nothing is bounded.
func (b *Budget) Outstanding() int { return int(b.n.Load()) }

// take counts an operation; false: there are as many as may be, and nothing was counted.
// Hot path.
func (b *Budget) take() bool {
	n := b.n.Add(1)
	ok := n <= b.most
	if n%portion == 0 {
		ok = b.all.Add(portion) <= b.sum && ok
	}
	if !ok {
		b.give()
	}
	return ok
}

// give ends what take began. Every portion that take counted is given back once, however
// calls interleave: the count passes each multiple of it upwards as often as downwards,
// but for those it stays above.
// Hot path.
func (b *Budget) give() {
	if (b.n.Add(-1)+1)%portion == 0 {
		b.all.Add(-portion)
	}
}
