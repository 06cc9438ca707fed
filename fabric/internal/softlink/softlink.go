package softlink

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
)

// A key is an index into the table in its low bits and a random tag above. A lookup is one
// load and one comparison; a stale key misses because the slot's next user has another tag,
// and a forged one hits with probability 2^-18 per guess (a wrong guess takes the endpoint
// down).
const (
	indexBits = 14
	indexMask = 1<<indexBits - 1

	// MaxRegions is the capacity of a table.
	MaxRegions = 1 << indexBits
)

// ErrTooManyRegions reports a full table.
var ErrTooManyRegions = fmt.Errorf("%w: too many registered regions (limit %d): close some, or register larger ones", fabric.ErrResources, MaxRegions)

// Entry is one registered region, immutable.
type Entry struct {
	Base   uint64
	Len    uint64
	Key    uint32
	Access fabric.Access
}

// contains reports whether [addr, addr+n) lies inside the entry.
func (e *Entry) contains(addr, n uint64) bool {
	off := addr - e.Base // below Base it wraps to a huge value
	return off <= e.Len && n <= e.Len-off
}

// KeyTable maps keys to regions. Lookups are lock-free and may run while other
// goroutines add and remove. The zero value is ready.
type KeyTable struct {
	slots [MaxRegions]atomic.Pointer[Entry]

	// Named, if it is not nil, holds the regions instead. Set before the first use.
	Named *Names

	mu   sync.Mutex
	free []uint32 // released indices, oldest first
	next uint32   // first index never used
	live int
}

// Add registers [base, base+n) and returns its entry.
func (t *KeyTable) Add(base, n uint64, access fabric.Access) (*Entry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var idx uint32
	switch {
	case t.next < MaxRegions:
		// Prefer fresh slots: the slot of a stale key is then reused late.
		idx = t.next
		t.next++
	case len(t.free) > 0:
		idx = t.free[0]
		t.free = t.free[1:]
	default:
		return nil, ErrTooManyRegions
	}
	var r [4]byte
	_, _ = rand.Read(r[:]) // never fails
	e := &Entry{Base: base, Len: n, Access: access, Key: idx | binary.LittleEndian.Uint32(r[:])<<indexBits}
	if old := t.slots[idx].Load(); e.Key == 0 || old != nil && old.Key == e.Key {
		e.Key ^= 1 << indexBits // 0 is never a key; nor does a slot get the same key twice in a row
	}
	t.slots[idx].Store(e)
	t.live++
	return e, nil
}

// Remove withdraws the key and reports whether it was in the table.
func (t *KeyTable) Remove(key uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	idx := key & indexMask
	e := t.slots[idx].Load()
	if e == nil || e.Key != key || e.Len == deadLen {
		return false
	}
	// The dead entry stays because the next Add of this slot needs its key.
	t.slots[idx].Store(&Entry{Key: key, Base: 1, Len: deadLen})
	t.free = append(t.free, idx)
	t.live--
	return true
}

// deadLen marks a withdrawn entry, whose Base 1 and missing rights allow no access.
const deadLen = ^uint64(0)

// Live returns the number of regions registered.
func (t *KeyTable) Live() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live
}

// Allows reports whether key names a region that contains [addr, addr+n) and has all the
// rights in need; for n = 0, addr may be the region's end as well. Links do not check
// remote accesses of zero bytes, which need no key.
func (t *KeyTable) Allows(key uint32, addr, n uint64, need fabric.Access) bool {
	if t.Named != nil {
		return t.Named.allows(t.Named.remote, key, addr, n, need)
	}
	e := t.slots[key&indexMask].Load()
	return e != nil && e.Key == key && e.Len != deadLen && e.Access&need == need && e.contains(addr, n)
}

// AllowsLocal is Allows for the local key of memory of this side, which differs from the key of peers
// only in Named.
func (t *KeyTable) AllowsLocal(key uint32, addr, n uint64, need fabric.Access) bool {
	if t.Named != nil {
		return t.Named.allows(t.Named.local, key, addr, n, need)
	}
	return t.Allows(key, addr, n, need)
}

// CheckShape returns the error in the form of wr under caps, "" if there is none: requests
// that every link refuses at Post. It checks no key and no memory.
func CheckShape(wr *fabric.WR, caps *fabric.Caps) string {
	n := wr.Len()
	switch wr.Op {
	case fabric.OpWrite:
		if wr.Flags&fabric.FlagInline != 0 && n > uint64(caps.MaxInline) {
			return "inline payload larger than Caps.MaxInline"
		}
	case fabric.OpRead:
		if wr.Flags&(fabric.FlagInline|fabric.FlagNotify) != 0 {
			return "FlagInline and FlagNotify are for writes"
		}
	case fabric.OpFetchAdd, fabric.OpCompareSwap:
		if wr.Flags&(fabric.FlagInline|fabric.FlagNotify) != 0 {
			return "FlagInline and FlagNotify are for writes"
		}
		if len(wr.Local) != 1 || wr.Local[0].Len != 8 {
			return "an atomic takes one local piece of 8 bytes"
		}
		if wr.RemoteAddr%8 != 0 {
			return "remote address of an atomic must be a multiple of 8"
		}
	default:
		return "not an operation"
	}
	if n > caps.MaxMessage {
		return "longer than Caps.MaxMessage"
	}
	return ""
}

// CheckLocal reports whether all local pieces of wr lie in regions of this side
// with the rights the operation needs.
func (t *KeyTable) CheckLocal(wr *fabric.WR) bool {
	if wr.Flags&fabric.FlagInline != 0 {
		return true
	}
	var need fabric.Access
	if wr.Op != fabric.OpWrite {
		need = fabric.AccessLocalWrite
	}
	for i := range wr.Local {
		s := &wr.Local[i]
		if s.Len != 0 && !t.AllowsLocal(s.LKey, s.Addr, uint64(s.Len), need) {
			return false
		}
	}
	return true
}

// RemoteNeed returns the right that op needs at the target.
func RemoteNeed(op fabric.Op) fabric.Access {
	switch op {
	case fabric.OpWrite:
		return fabric.AccessRemoteWrite
	case fabric.OpRead:
		return fabric.AccessRemoteRead
	default:
		return fabric.AccessRemoteAtomic
	}
}

// CompQ is a FIFO of completions for one owner. It grows in Reserve, never in Push: if a
// place is reserved for each accepted request, Push never fails.
type CompQ struct {
	buf  []fabric.Completion // length a power of two
	head uint64              // next to pop
	tail uint64              // next to push
	need int                 // places reserved in all
}

// Reserve adds n places to the queue's capacity; a negative n releases places.
func (q *CompQ) Reserve(n int) {
	q.need += n
	size := 64
	for size < q.need {
		size *= 2
	}
	if size <= len(q.buf) {
		return
	}
	buf := make([]fabric.Completion, size)
	k := uint64(0)
	for i := q.head; i != q.tail; i++ {
		buf[k] = q.buf[i&uint64(len(q.buf)-1)]
		k++
	}
	q.buf, q.head, q.tail = buf, 0, k
}

// Len returns the number of completions in the queue.
func (q *CompQ) Len() int { return int(q.tail - q.head) }

// Free returns the number of further calls of Push that will succeed.
func (q *CompQ) Free() int { return len(q.buf) - q.Len() }

// Push appends c. It reports false if the queue is full.
func (q *CompQ) Push(c fabric.Completion) bool {
	if q.Free() == 0 {
		return false
	}
	q.buf[q.tail&uint64(len(q.buf)-1)] = c
	q.tail++
	return true
}

// Pop moves up to len(cs) completions to cs and returns their number.
func (q *CompQ) Pop(cs []fabric.Completion) int {
	n := 0
	for n < len(cs) && q.head != q.tail {
		cs[n] = q.buf[q.head&uint64(len(q.buf)-1)]
		q.head++
		n++
	}
	return n
}

// Gather copies the pieces of sgl, in order, to dst, as far as they fit, and returns the
// number of bytes copied.
func Gather(dst []byte, sgl []fabric.SGE) int {
	n := 0
	for i := range sgl {
		n += copy(dst[n:], fabric.BytesAt(sgl[i].Addr, int(sgl[i].Len)))
	}
	return n
}

// Scatter copies src to the pieces of sgl, in order, as far as it fits, and returns the
// number of bytes copied.
func Scatter(sgl []fabric.SGE, src []byte) int {
	n := 0
	for i := range sgl {
		if n == len(src) {
			break
		}
		n += copy(fabric.BytesAt(sgl[i].Addr, int(sgl[i].Len)), src[n:])
	}
	return n
}
