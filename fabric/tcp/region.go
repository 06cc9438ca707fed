//go:build linux || darwin || freebsd

package tcp

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
)

var errEmptyRegion = errors.New("tcp: register: no memory: want at least 1 byte")

func (l *link) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	return l.register(mem, access, false)
}

func (l *link) register(mem []byte, access fabric.Access, owned bool) (fabric.Region, error) {
	if len(mem) == 0 {
		return nil, errEmptyRegion
	}
	r := &region{l: l, mem: mem, addr: fabric.Addr(mem), access: access, owned: owned}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return nil, fmt.Errorf("tcp: register: link %w", fabric.ErrClosed)
	}
	ent, err := l.keys.Add(r.addr, uint64(len(mem)), access)
	if err != nil {
		return nil, fmt.Errorf("tcp: register: %w", err)
	}
	r.lkey = ent.Key
	l.regions[r] = struct{}{}
	return r, nil
}

func (l *link) Alloc(size int, access fabric.Access) (fabric.Region, error) {
	mem, err := offheap.Alloc(size, offheap.Regions)
	if err != nil {
		return nil, fmt.Errorf("tcp: alloc: %w", err)
	}
	r, err := l.register(mem, access, true)
	if err != nil {
		return nil, errors.Join(err, offheap.Free(mem, offheap.Regions))
	}
	return r, nil
}

func (r *region) Bytes() []byte         { return r.mem }
func (r *region) Addr() uint64          { return r.addr }
func (r *region) LKey() uint32          { return r.lkey }
func (r *region) Access() fabric.Access { return r.access }

func (r *region) Key() fabric.RemoteKey {
	return fabric.RemoteKey{Addr: r.addr, Len: uint64(len(r.mem)), RKey: r.lkey}
}

// Close withdraws the key and waits for accesses in progress: when it returns, peers
// neither read nor write the memory any longer.
func (r *region) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	r.l.keys.Remove(r.lkey)
	r.l.guard.wait()
	r.l.own.wait()
	r.l.mu.Lock()
	delete(r.l.regions, r)
	r.l.mu.Unlock()
	if r.owned {
		return offheap.Free(r.mem, offheap.Regions)
	}
	return nil
}
