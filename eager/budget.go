package eager

import "sync/atomic"

// Budget bounds the memory of the rings and mirrors that replace the first ones of the
// channels that share it. Any goroutine may call its methods.
type Budget struct {
	limit   int64
	used    atomic.Int64
	grown   atomic.Uint64
	shrunk  atomic.Uint64
	refused atomic.Uint64

	// Short, if set, is called by the owner of a channel, from within its methods, when
	// memory was refused: channels without traffic should shrink. Set it before use.
	Short func()
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// BudgetStats describes the use of a Budget.
type BudgetStats struct {
	Used, Limit   int64  // bytes
	Grown, Shrunk uint64 // rings, of either direction, replaced by larger and by smaller ones
	Refused       uint64 // requests that did not fit
}

// Stats returns the counters.
func (b *Budget) Stats() BudgetStats {
	return BudgetStats{
		Used: b.used.Load(), Limit: b.limit, Grown: b.grown.Load(), Shrunk: b.shrunk.Load(), Refused: b.refused.Load(),
	}
}

// take reserves n bytes if they fit.
func (b *Budget) take(n int) bool {
	if b.used.Add(int64(n)) <= b.limit {
		return true
	}
	b.give(n)
	return false
}

func (b *Budget) give(n int) { b.used.Add(-int64(n)) }

// short counts a refusal.
func (b *Budget) short() {
	b.refused.Add(1)
	if b.Short != nil {
		b.Short()
	}
}

// count counts a ring of the given size that takes the place of one of size before.
func (b *Budget) count(before, size int) {
	if size > before {
		b.grown.Add(1)
	} else {
		b.shrunk.Add(1)
	}
}
