package mr

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
)

// Registration is memory registered with all rails of a domain. Any goroutine may call its
// methods.
type Registration struct {
	dom   *Domain
	mem   []byte
	key   Key
	lkeys [MaxRails]uint32        // by rail index
	regs  [MaxRails]fabric.Region // by rail index
	state atomic.Int64            // holds, plus closing

	owner   int             // index of the region that owns mem, -1 if none
	owned   bool            // mem is from offheap, of purpose
	none    bool            // mem only supplies an address; the memory has no bytes
	purpose offheap.Purpose //
	pin     *runtime.Pinner // of the caller's memory

	// Guarded by the table's mu.
	within      []*Registration // that own memory in which mem lies
	parts, open int             // registrations within mem: not released; of these, not closed

	mu   sync.Mutex // guards release
	done bool
}

// closing marks a registration that cannot be held any longer.
const closing = 1 << 62

// Bytes returns the memory. It must not be used after Close, because it may be unmapped.
func (r *Registration) Bytes() []byte {
	if r.none {
		return nil
	}
	return r.mem
}

// Key returns the key that peers need to access the memory.
func (r *Registration) Key() Key { return r.key }

// RKey returns the part of the key for the rail with that number, and the rights.
func (r *Registration) RKey(number uint8) (rkey uint32, rights fabric.Access) {
	return r.key.RKeys[number], r.key.Rights
}

// LKey returns the local key for the rail with that index in NewDomain's list.
func (r *Registration) LKey(rail int) uint32 { return r.lkeys[rail] }

// SGE returns the entry for n bytes from off on, for the rail with that index. The error is
// ErrBounds or ErrNoRail. Does not allocate.
func (r *Registration) SGE(rail, off, n int) (fabric.SGE, error) {
	if uint64(off) > r.key.Len || uint64(n) > r.key.Len-uint64(off) || uint64(n) > 1<<32-1 {
		return fabric.SGE{}, ErrBounds
	}
	if uint(rail) >= uint(len(r.dom.rails)) {
		return fabric.SGE{}, ErrNoRail
	}
	return fabric.SGE{Addr: r.key.Addr + uint64(off), Len: uint32(n), LKey: r.lkeys[rail]}, nil
}

// owns reports whether closing r frees its memory.
func (r *Registration) owns() bool { return r.owned || r.owner >= 0 }

// Hold keeps the memory registered until Release. It reports whether that was
// still possible: not after Close. Does not allocate.
func (r *Registration) Hold() bool {
	for {
		s := r.state.Load()
		if s >= closing {
			return false
		}
		if r.state.CompareAndSwap(s, s+1) {
			return true
		}
	}
}

// Live reports whether neither Close nor Withdraw has been called.
func (r *Registration) Live() bool { return r.state.Load() < closing }

// Registrations is a list of registrations, neighbours that are equal once.
type Registrations []*Registration

// Add appends r.
func (l *Registrations) Add(r *Registration) {
	if n := len(*l); n == 0 || (*l)[n-1] != r {
		*l = append(*l, r)
	}
}

// Live reports whether all registrations are live.
func (l *Registrations) Live() bool {
	for _, r := range *l {
		if !r.Live() {
			return false
		}
	}
	return true
}

// Reset empties the list, keeping its memory.
func (l *Registrations) Reset() {
	clear(*l)
	*l = (*l)[:0]
}

// Release ends a Hold. The last one after Close withdraws the memory from the links, and
// frees it if the registration owns it. Without a Hold it returns ErrReleased.
func (r *Registration) Release() error {
	for {
		s := r.state.Load()
		if s&^closing == 0 {
			return fmt.Errorf("mr: release: %w", ErrReleased)
		}
		if r.state.CompareAndSwap(s, s-1) {
			if s-1 == closing {
				return r.release()
			}
			return nil
		}
	}
}

// Holds returns the number of operations that hold the memory at the moment.
func (r *Registration) Holds() int { return int(r.state.Load() &^ closing) }

// Close withdraws the registration: references to it are stale from now on, and unless
// operations hold it, the links refuse peers' requests when it returns. If operations of
// this side hold it, or a peer is in the middle of one (see fabric.Region), the error wraps
// ErrInUse; the memory stays pinned and mapped, and is released as soon as these end. Close
// may be called again to find out whether that has happened: the caller must not unmap or
// reuse the memory before Close has returned nil. Idempotent.
//
// Memory of Domain.Alloc must outlive the other registrations of parts of it: while one is
// open, Close changes nothing, and the error wraps ErrInUse.
func (r *Registration) Close() error {
	if err := r.Withdraw(); err != nil {
		return err
	}
	if n := r.Holds(); n != 0 {
		return &InUseError{Op: "mr: close registration", Holds: n}
	}
	return r.release()
}

// Withdraw is the part of Close that does not wait: the registration is not live from now on,
// and references to it are stale. The memory stays pinned and mapped, and Close must follow.
// Idempotent.
func (r *Registration) Withdraw() error {
	if r.Live() && r.dom.table.shared(r) {
		return &InUseError{Op: "mr: close registration"}
	}
	for {
		s := r.state.Load()
		if s&closing != 0 {
			return nil
		}
		if r.state.CompareAndSwap(s, s|closing) {
			r.dom.table.withdraw(r)
			return nil
		}
	}
}

// release withdraws the memory from the links. Memory that a peer is using is released
// later.
func (r *Registration) release() error {
	err := r.withdraw()
	if errors.Is(err, ErrInUse) {
		linger(r)
	}
	return err
}

// withdraw withdraws the memory from the links, the one that owns it last. A link that
// fails keeps the memory pinned and mapped, because its device or a peer may still write
// there. A later call retries.
func (r *Registration) withdraw() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return nil
	}
	var errs []error
	for i, reg := range r.regs {
		if reg == nil || i == r.owner {
			continue
		}
		if err := reg.Close(); err != nil {
			errs = append(errs, fmt.Errorf("mr: close registration with %s: %w", r.dom.rails[i].Link.Name(), err))
		}
	}
	if errs != nil {
		return errors.Join(errs...)
	}
	if !r.dom.table.vacate(r) {
		return &InUseError{Op: "mr: close registration"}
	}
	if r.owner >= 0 {
		if err := r.regs[r.owner].Close(); err != nil {
			return fmt.Errorf("mr: close registration with %s: %w", r.dom.rails[r.owner].Link.Name(), err)
		}
	}
	if r.owned {
		if err := offheap.Free(r.mem, r.purpose); err != nil {
			return err
		}
	}
	if r.pin != nil {
		r.pin.Unpin()
	}
	r.done = true
	r.dom.table.forget(r)
	return nil
}
