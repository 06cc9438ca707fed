//go:build linux || darwin || freebsd

package tcp

import (
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/cpu"
)

// guard lets Region.Close wait for an access that the owner makes for a peer. The count is
// odd during an access. An access increments it, then looks its key up; Close withdraws the
// key, then loads the count: the later one sees the other (both are sequentially
// consistent).
type guard struct {
	_ [64]byte
	n atomic.Uint64
	_ [56]byte
}

func (g *guard) enter() { g.n.Add(1) }
func (g *guard) exit()  { g.n.Add(1) }

// wait returns when no access that began before the call is in progress. An access is one
// system call or one copy of at most maxAccess bytes.
func (g *guard) wait() {
	was := g.n.Load()
	if was&1 == 0 {
		return
	}
	for sp := (cpu.Spinner{}); g.n.Load() == was; {
		sp.Wait()
	}
}

// memory holds the registered regions of a link, and the guards of accesses to them.
type memory struct {
	keys    softlink.KeyTable
	guard   guard
	own     guard // of direct accesses
	reached bool  // such an access is in progress; the owner's
}

// enter begins an access for a peer to n bytes at addr, which guard.exit ends. It returns
// false if the region with that key does not permit it, or is closed.
func (m *memory) enter(key uint32, addr, n uint64, need fabric.Access) bool {
	m.guard.enter()
	if m.keys.Allows(key, addr, n, need) {
		return true
	}
	m.guard.exit()
	return false
}

// maxAccess bounds one access to a region for a peer, in bytes: 1 MiB takes about 100 µs,
// which is little compared with the system calls of closing a region, and is large enough
// that the cost of the system call is negligible.
const maxAccess = 1 << 20

// longCall is the size in bytes from which a system call is announced to the Go scheduler:
// below it, the copy takes less time than the announcement and its consequences (at worst
// 20 µs without a processor for the other goroutines).
const longCall = 64 << 10

// maxIov is the largest number of pieces that one send gathers or one receive scatters.
const maxIov = 64
