//go:build linux || darwin || freebsd

package tcp

import (
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/cpu"
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

// memory is the registered regions of a link, and the guard of peers' accesses to them.
type memory struct {
	keys  softlink.KeyTable
	guard guard
}

// enter begins an access for a peer to n bytes at addr, which guard.exit ends. It
// reports false if the region that key names does not admit it, or is closed.
func (m *memory) enter(key uint32, addr, n uint64, need fabric.Access) bool {
	m.guard.enter()
	if m.keys.Allows(key, addr, n, need) {
		return true
	}
	m.guard.exit()
	return false
}

// maxAccess bounds one access to a region for a peer, in bytes: 1 MiB takes
// some 100 µs, small change next to the system calls of closing a region, and
// large enough that the system call's own cost does not show.
const maxAccess = 1 << 20

// longCall is the bytes from which a system call is announced to the Go
// scheduler: below, the copy takes less than the announcement and its
// consequences (20 µs without a processor for the other goroutines at worst).
const longCall = 64 << 10

// maxIov is the most pieces one send gathers or one receive scatters.
const maxIov = 64
