package sim

import (
	"fmt"
	"slices"
	"sync"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/offheap"
)

type region struct {
	link  *Link
	mem   []byte
	entry *softlink.Entry
	own   bool // the region owns mem
	once  sync.Once
	err   error
}

// Register adds mem to the link's regions.
func (l *Link) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	if len(mem) == 0 {
		return nil, fmt.Errorf("register: no memory: want at least 1 byte")
	}
	return l.register(mem, access, false)
}

// Alloc returns registered memory outside the Go heap.
func (l *Link) Alloc(size int, access fabric.Access) (fabric.Region, error) {
	mem, err := offheap.Alloc(size, offheap.Regions)
	if err != nil {
		return nil, err
	}
	r, err := l.register(mem, access, true)
	if err != nil {
		_ = offheap.Free(mem, offheap.Regions)
		return nil, err
	}
	return r, nil
}

func (l *Link) register(mem []byte, access fabric.Access, own bool) (fabric.Region, error) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("register: link %w", fabric.ErrClosed)
	}
	if err := l.gone(); err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	e, err := l.keys.Add(fabric.Addr(mem), uint64(len(mem)), access)
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	r := &region{link: l, mem: mem, entry: e, own: own}
	l.regions = append(l.regions, r)
	return r, nil
}

func (r *region) Bytes() []byte         { return r.mem }
func (r *region) Addr() uint64          { return r.entry.Base }
func (r *region) LKey() uint32          { return r.entry.Key }
func (r *region) Access() fabric.Access { return r.entry.Access }

func (r *region) Key() fabric.RemoteKey {
	return fabric.RemoteKey{Addr: r.entry.Base, Len: r.entry.Len, RKey: r.entry.Key}
}

func (r *region) Close() error {
	r.once.Do(func() {
		n := r.link.net
		n.mu.Lock() // no copy is in progress while the mutex is held
		defer n.mu.Unlock()
		r.link.keys.Remove(r.entry.Key)
		r.link.regions = slices.DeleteFunc(r.link.regions, func(x *region) bool { return x == r })
		if r.own {
			r.err = offheap.Free(r.mem, offheap.Regions)
		}
	})
	return r.err
}
