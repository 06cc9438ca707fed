package ibv

import (
	"errors"
	"fmt"
	"sync"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/verbs"
)

// region is registered memory.
type region struct {
	l      *Link
	mr     *verbs.MR
	mem    []byte
	key    fabric.RemoteKey
	lkey   uint32
	access fabric.Access
	owned  bool // mem is from Alloc

	mu     sync.Mutex
	closed bool
}

func rights(a fabric.Access) (v verbs.Access) {
	if a&fabric.AccessLocalWrite != 0 {
		v |= verbs.AccessLocalWrite
	}
	if a&fabric.AccessRemoteRead != 0 {
		v |= verbs.AccessRemoteRead
	}
	// The library requires the local right with the remote one.
	if a&fabric.AccessRemoteWrite != 0 {
		v |= verbs.AccessRemoteWrite | verbs.AccessLocalWrite
	}
	if a&fabric.AccessRemoteAtomic != 0 {
		v |= verbs.AccessRemoteAtomic | verbs.AccessLocalWrite
	}
	return v
}

// pin registers memory with the port's device.
func (l *adapter) pin(mem []byte, access fabric.Access) (*verbs.MR, error) {
	may := rights(access)
	if l.noAtomics {
		may &^= verbs.AccessRemoteAtomic // the device would refuse it
	}
	return l.pd.Register(mem, may)
}

// Register implements fabric.Link.
func (l *Link) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	r, err := l.register(mem, access)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (l *Link) register(mem []byte, access fabric.Access) (*region, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.registerLocked(mem, access)
}

// registerLocked is register with mu held.
func (l *Link) registerLocked(mem []byte, access fabric.Access) (*region, error) {
	if l.closed.Load() {
		return nil, fmt.Errorf("register %d bytes: ibv link: %w", len(mem), fabric.ErrClosed)
	}
	mr, err := l.pin(mem, access)
	if err != nil {
		return nil, err
	}
	r := &region{l: l, mr: mr, mem: mem, lkey: mr.LKey(), access: access,
		key: fabric.RemoteKey{Addr: mr.Addr(), Len: uint64(len(mem)), RKey: mr.RKey()}}
	for _, x := range l.spares.opened() {
		if err := x.add(r); err != nil {
			return nil, errors.Join(err, r.forget())
		}
	}
	l.regions[r] = struct{}{}
	return r, nil
}

// Alloc implements fabric.Link.
func (l *Link) Alloc(size int, access fabric.Access) (fabric.Region, error) {
	mem, err := offheap.Alloc(size, offheap.Regions)
	if err != nil {
		return nil, err
	}
	r, err := l.register(mem, access)
	if err != nil {
		_ = offheap.Free(mem, offheap.Regions)
		return nil, err
	}
	r.owned = true
	return r, nil
}

func (r *region) Bytes() []byte         { return r.mem }
func (r *region) Addr() uint64          { return r.key.Addr }
func (r *region) LKey() uint32          { return r.lkey }
func (r *region) Key() fabric.RemoteKey { return r.key }
func (r *region) Access() fabric.Access { return r.access }

// Close implements fabric.Region.
func (r *region) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.l.mu.Lock()
	err := r.forget()
	r.l.mu.Unlock()
	if err != nil {
		return err
	}
	r.closed = true
	if !r.owned {
		return nil
	}
	return offheap.Free(r.mem, offheap.Regions)
}

// forget has the devices forget the region. Called with Link.mu held.
func (r *region) forget() error {
	for _, x := range r.l.spares.opened() {
		if err := x.remove(r); err != nil {
			return err
		}
	}
	if err := r.l.unlessGone(r.mr.Close()); err != nil {
		return err
	}
	delete(r.l.regions, r)
	return nil
}

// execute executes an atomic on a region of this side, if its key allows it.
func (l *Link) execute(x *letter) (old uint64, ok bool) {
	l.mu.Lock() // a region that is closed meanwhile stays
	defer l.mu.Unlock()
	for r := range l.regions {
		off := x.addr - r.key.Addr
		if r.key.RKey != x.key || r.access&fabric.AccessRemoteAtomic == 0 || x.addr%8 != 0 || off >= r.key.Len || r.key.Len-off < 8 {
			continue
		}
		if x.kind == letterFetchAdd {
			return softlink.FetchAdd(x.addr, x.operand), true
		}
		return softlink.CompareSwap(x.addr, x.compare, x.operand), true
	}
	return 0, false
}

// cellOf returns the memory of an atomic's local piece, nil if the device would refuse it.
func (l *Link) cellOf(p fabric.SGE) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.regions {
		if off := p.Addr - r.key.Addr; r.lkey == p.LKey && off < r.key.Len && r.key.Len-off >= 8 && rights(r.access)&verbs.AccessLocalWrite != 0 {
			return r.mem[off:][:8:8]
		}
	}
	return nil
}
