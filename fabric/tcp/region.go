//go:build linux || darwin || freebsd

package tcp

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
)

// guard lets Region.Close wait for an access that the owner makes for a peer.
// The count is odd inside an access. An access enters, then looks its key up;
// Close withdraws the key, then looks at the count: whichever comes second sees
// the other (both are sequentially consistent).
type guard struct {
	_ [64]byte
	n atomic.Uint64
	_ [56]byte
}

func (g *guard) enter() { g.n.Add(1) }
func (g *guard) exit()  { g.n.Add(1) }

// wait returns when no access that began before the call is under way. An
// access is one system call or one copy of at most maxAccess bytes.
func (g *guard) wait() {
	was := g.n.Load()
	if was&1 == 0 {
		return
	}
	for sp := (cpu.Spinner{}); g.n.Load() == was; {
		sp.Wait()
	}
}

// maxAccess bounds one access to a region for a peer, in bytes: 1 MiB takes
// some 100 µs, small change next to the system calls of closing a region, and
// large enough that the system call's own cost does not show.
const maxAccess = 1 << 20

var errEmptyRegion = errors.New("tcp: register: no memory given")

// region implements fabric.Region.
type region struct {
	l      *link
	mem    []byte
	addr   uint64
	lkey   uint32
	access fabric.Access
	owned  bool // memory came from Alloc
	closed atomic.Bool
}

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

// Close withdraws the key and waits for an access under way: when it returns,
// peers neither read nor write the memory any more.
func (r *region) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	r.l.keys.Remove(r.lkey)
	r.l.guard.wait()
	r.l.mu.Lock()
	delete(r.l.regions, r)
	r.l.mu.Unlock()
	if r.owned {
		return offheap.Free(r.mem, offheap.Regions)
	}
	return nil
}
