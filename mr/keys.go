package mr

import (
	"sync"

	"github.com/seed33544411/rma/fabric"
)

// keys finds live registrations by their remote keys on links.
type keys struct {
	mu sync.RWMutex
	by map[linkKey]*Registration
}

// linkKey is a remote key of the rail with that index.
type linkKey struct {
	rail int
	rkey uint32
}

func (k *keys) add(r *Registration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil {
		k.by = map[linkKey]*Registration{}
	}
	for i, reg := range r.regs {
		if reg != nil {
			k.by[linkKey{i, reg.Key().RKey}] = r
		}
	}
}

func (k *keys) remove(r *Registration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, reg := range r.regs {
		if reg == nil {
			continue
		}
		if at := (linkKey{i, reg.Key().RKey}); k.by[at] == r { // the link may have reused the key
			delete(k.by, at)
		}
	}
}

// HoldKey returns the registration that has the remote key on the rail with that index,
// held: call Release when its memory is no longer accessed. It is for requests of peers
// that address memory as requests of links do. The error is a *KeyError. Does not allocate
// on success; safe beside registration and Close.
func (d *Domain) HoldKey(rail int, rkey uint32) (*Registration, error) {
	k := &d.table.keys
	k.mu.RLock()
	r := k.by[linkKey{rail, rkey}]
	k.mu.RUnlock()
	if r == nil || !r.Hold() {
		return nil, &KeyError{Err: ErrStale}
	}
	return r, nil
}

// Part returns n bytes of the registered memory from address addr on, if they are inside it
// and it grants need. The caller holds r. The error is a *KeyError. Does not allocate on
// success.
func (r *Registration) Part(addr, n uint64, need fabric.Access) ([]byte, error) {
	if err := r.key.Check(addr, n, need); err != nil {
		return nil, err
	}
	off := addr - r.key.Addr
	return r.mem[off : off+n : off+n], nil
}
