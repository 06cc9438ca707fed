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
	r := &region{mem: mem, access: access}
	return l.register(r, r.pick)
}

// RegisterAs implements fabric.Namer.
func (l *link) RegisterAs(mem []byte, access fabric.Access, local, remote uint32) (fabric.Region, error) {
	r := &region{mem: mem, access: access, lkey: local, rkey: remote}
	return l.register(r, func() error {
		if l.keys.Named == nil {
			return fabric.ErrNotSupported
		}
		return l.keys.Named.Add(r.addr, uint64(len(mem)), access, local, remote)
	})
}

// register registers r with the keys that keys gives it.
func (l *link) register(r *region, keys func() error) (fabric.Region, error) {
	if len(r.mem) == 0 {
		return nil, errEmptyRegion
	}
	r.l, r.addr = l, fabric.Addr(r.mem)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return nil, fmt.Errorf("tcp: register: link %w", fabric.ErrClosed)
	}
	if err := keys(); err != nil {
		return nil, fmt.Errorf("tcp: register: %w", err)
	}
	l.regions[r] = struct{}{}
	return r, nil
}

// pick gives r a key of its own.
func (r *region) pick() error {
	if x := r.l.keys.Named; x != nil {
		r.lkey = x.AddNew(r.addr, uint64(len(r.mem)), r.access)
		r.rkey = r.lkey
		return nil
	}
	ent, err := r.l.keys.Add(r.addr, uint64(len(r.mem)), r.access)
	if err == nil {
		r.lkey, r.rkey = ent.Key, ent.Key
	}
	return err
}

// withdraw withdraws the keys of r.
func (r *region) withdraw() {
	if x := r.l.keys.Named; x != nil {
		x.Remove(r.lkey, r.rkey)
		return
	}
	r.l.keys.Remove(r.lkey)
}

func (l *link) Alloc(size int, access fabric.Access) (fabric.Region, error) {
	mem, err := offheap.Alloc(size, offheap.Regions)
	if err != nil {
		return nil, fmt.Errorf("tcp: alloc: %w", err)
	}
	x := &region{mem: mem, access: access, owned: true}
	r, err := l.register(x, x.pick)
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
	return fabric.RemoteKey{Addr: r.addr, Len: uint64(len(r.mem)), RKey: r.rkey}
}

// Close withdraws the key and waits for accesses in progress: when any call of it returns,
// peers neither read nor write the memory any longer.
func (r *region) Close() error {
	r.once.Do(func() {
		r.withdraw()
		r.l.guard.wait()
		r.l.own.wait()
		r.l.mu.Lock()
		delete(r.l.regions, r)
		r.l.mu.Unlock()
		if r.owned {
			r.err = offheap.Free(r.mem, offheap.Regions)
		}
	})
	return r.err
}
