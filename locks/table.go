package locks

import (
	"slices"

	"github.com/seed33544411/rma"
)

// maxRequests bounds what a home keeps of one peer: its requests, granted and waiting, and the locks that it
// has left broken.
const maxRequests = 4096

// table is the locks of which this rank is the home. It is not safe for concurrent use.
type table struct {
	locks map[uint64]*lock // by key: those that are held, waited for, or broken
	asked map[claim]entry
	count map[int]int // by rank: requests, and broken locks
	broke map[int]int // by rank: broken locks
}

// claim identifies a request at its home.
type claim struct {
	rank   int
	serial uint64
}

// entry is what the table has about a request.
type entry struct {
	key   uint64
	epoch int // of the connection over which it came
}

// lock is the state of one lock: at most one holder, or any number of readers.
type lock struct {
	holders []claim
	shared  bool // the holders read
	queue   []waiting
	broken  int // rank of the writer that was lost, or rma.AnyRank
}

// waiting is a request that is not granted yet.
type waiting struct {
	claim
	mode mode
}

// outgoing is a frame for a rank.
type outgoing struct {
	to int
	frame
}

func newTable() table {
	return table{locks: map[uint64]*lock{}, asked: map[claim]entry{}, count: map[int]int{}, broke: map[int]int{}}
}

// handle executes a request of rank, which came over the connection after epoch losses, and appends
// the answers to out. It ignores requests that refer to nothing in the table: a loss of the
// connection may have removed it.
func (t *table) handle(rank, epoch int, f frame, out []outgoing) []outgoing {
	c := claim{rank, f.serial}
	e, known := t.asked[c]
	switch f.kind {
	case kindLock:
		if known {
			return out // a violation: the first one stays
		}
		return t.lock(c, epoch, f, out)
	case kindUnlock, kindCancel:
		l := t.locks[e.key]
		if !known {
			return out
		}
		if f.kind == kindUnlock {
			i := slices.Index(l.holders, c)
			if i < 0 {
				return out // a violation: it still waits
			}
			l.holders = slices.Delete(l.holders, i, i+1)
		} else {
			if !l.withdraw(c) {
				return out // it is granted, and the grant is on its way
			}
			out = append(out, c.answer(kindCancelled, 0))
		}
		t.forget(c)
		return t.advance(e.key, l, out)
	}
	return out
}

func (t *table) lock(c claim, epoch int, f frame, out []outgoing) []outgoing {
	l := t.locks[f.key]
	if l == nil {
		l = &lock{broken: rma.AnyRank}
	}
	w := waiting{c, f.mode}
	switch {
	case l.broken != rma.AnyRank && f.mode != modeRecover:
		return append(out, c.answer(kindBroken, l.broken))
	case f.mode&modeTry != 0 && (len(l.queue) > 0 || !l.admits(w)):
		return append(out, c.answer(kindTaken, 0))
	case t.count[c.rank] >= maxRequests && l.broken != c.rank: // else it recovers a lock of its own
		return append(out, c.answer(kindFull, 0))
	}
	t.locks[f.key], t.asked[c] = l, entry{f.key, epoch}
	t.count[c.rank]++
	l.queue = append(l.queue, w)
	return t.advance(f.key, l, out)
}

// lost removes the locks and requests of rank that came over connections before epoch, and appends
// the frame that reports this to it.
func (t *table) lost(rank, epoch int, out []outgoing) []outgoing {
	if t.count[rank] == t.broke[rank] {
		return out // it has no requests
	}
	of := func(c claim) bool { return c.rank == rank && t.asked[c].epoch < epoch }
	for key, l := range t.locks {
		l.queue = slices.DeleteFunc(l.queue, func(w waiting) bool { return of(w.claim) })
		had := len(l.holders)
		l.holders = slices.DeleteFunc(l.holders, of)
		if len(l.holders) < had && !l.shared {
			l.broken = rank
			t.count[rank]++
			t.broke[rank]++
			l.queue = slices.DeleteFunc(l.queue, func(w waiting) bool {
				if w.mode == modeRecover {
					return false
				}
				out = append(out, w.answer(kindBroken, rank))
				t.forget(w.claim)
				return true
			})
		}
		out = t.advance(key, l, out)
	}
	last := uint64(0)
	for c := range t.asked {
		if of(c) {
			last = max(last, c.serial)
			t.forget(c)
		}
	}
	if last == 0 {
		return out
	}
	return append(out, outgoing{rank, frame{kind: kindForgotten, serial: last}})
}

// advance grants the requests that the lock admits now, in order, and drops an unused lock.
func (t *table) advance(key uint64, l *lock, out []outgoing) []outgoing {
	n := 0
	for ; n < len(l.queue) && l.admits(l.queue[n]); n++ {
		w := l.queue[n]
		if l.broken != rma.AnyRank {
			t.uncount(l.broken)
			if t.broke[l.broken]--; t.broke[l.broken] == 0 {
				delete(t.broke, l.broken)
			}
		}
		l.holders, l.shared, l.broken = append(l.holders, w.claim), w.mode&modeShared != 0, rma.AnyRank
		out = append(out, w.answer(kindGranted, 0))
	}
	l.queue = slices.Delete(l.queue, 0, n)
	if len(l.holders) == 0 && len(l.queue) == 0 && l.broken == rma.AnyRank {
		delete(t.locks, key)
	}
	return out
}

func (t *table) forget(c claim) {
	delete(t.asked, c)
	t.uncount(c.rank)
}

func (t *table) uncount(rank int) {
	if t.count[rank]--; t.count[rank] == 0 {
		delete(t.count, rank)
	}
}

// admits reports whether w may hold the lock together with its present holders.
func (l *lock) admits(w waiting) bool {
	return len(l.holders) == 0 || l.shared && w.mode&modeShared != 0
}

// withdraw removes c from the queue.
func (l *lock) withdraw(c claim) bool {
	had := len(l.queue)
	l.queue = slices.DeleteFunc(l.queue, func(w waiting) bool { return w.claim == c })
	return len(l.queue) < had
}

func (c claim) answer(k kind, rank int) outgoing {
	return outgoing{c.rank, frame{kind: k, rank: uint32(rank), serial: c.serial}}
}
