package bulk

import (
	"fmt"
	"math"

	"github.com/seed33544411/rma/internal/topo"
)

// Way is how a block is copied.
type Way uint8

// Ways of copying.
const (
	Cached Way = iota // vector loads and stores, as the runtime does
	String            // the processor's string instruction
	Stream            // non-temporal stores
	ways              // number of ways
)

// String returns the name that explanations use.
func (w Way) String() string {
	switch w {
	case Cached:
		return "cached"
	case String:
		return "string"
	case Stream:
		return "stream"
	}
	return fmt.Sprintf("way(%d)", uint8(w))
}

// Never as a size of a plan: that way is not taken.
const Never = math.MaxUint64

// Plan says how blocks are copied. From String bytes on, and from Stream bytes on,
// the ways of these names are taken, Stream first; below both it is Cached. The zero
// value streams everything: use Default.
type Plan struct {
	String uint64
	Stream uint64
}

// Way is how n bytes are copied.
func (p *Plan) Way(n uint64) Way {
	switch {
	case n >= p.Stream:
		return Stream
	case n >= p.String:
		return String
	}
	return Cached
}

// Default is the plan for a process on the processors on, of a host where users
// processes use its largest cache: Stream from topo.DMAMin on, String from the size
// of the first cache on, which source and destination then overflow together. What
// the processor lacks is Never, and so is Stream where the host tells of no cache.
func Default(h *topo.Host, on topo.Set, users int) Plan {
	p := Plan{String: Never, Stream: Never}
	if c, ok := h.Shared(on); ok && hasStream() {
		p.Stream = max(topo.DMAMin(c.Size, min(users, c.CPUs.Len())), MinStream)
	}
	if l1 := h.Level1(on); l1 > 0 && hasString() {
		p.String = max(l1, MinString)
	}
	return p
}

// Sizes below which no plan that this package makes takes a way.
const (
	// MinString is that of String: below it its start-up
	// (some 30 ns, more for odd alignments) is not won back anywhere.
	MinString = 16 << 10
	// MinStream is that of Stream: draining the write-combining buffers at the
	// end waits for memory, some 100 ns, and the reader misses every line.
	MinStream = 128 << 10
)

// Kernel names what Stream uses on this processor: "avx512", "avx2", "sse2", or "none".
func Kernel() string { return kernelName() }
