package bulk

import (
	"math"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/enum"

	"github.com/seed33544411/rma/internal/topo"
)

// Way is a method of copying a block.
type Way uint8

// Methods of copying.
const (
	Cached Way = iota // vector loads and stores, as in the runtime
	String            // the processor's string instruction
	Stream            // non-temporal stores
	ways              // number of ways
)

var wayNames = []string{"cached", "string", "stream"}

// String returns the name used in explanations.
func (w Way) String() string { return enum.Name("way", wayNames, w) }

// Never as a size in a plan disables the method.
const Never = math.MaxUint64

// Plan selects the method by the block's size. Stream is used from Stream bytes on,
// otherwise String from String bytes on, and Cached below both. The zero value streams
// everything: use Default.
type Plan struct {
	String uint64
	Stream uint64
}

// Way returns the method for n bytes.
func (p *Plan) Way(n uint64) Way {
	switch {
	case n >= p.Stream:
		return Stream
	case n >= p.String:
		return String
	}
	return Cached
}

// Default returns the plan for a process on the processors on, of a host where users
// processes use its largest cache: Stream from topo.DMAMin on, String from the size of the
// first cache on, which source and destination then overflow together. Methods that the
// processor lacks are Never, and so is Stream if the host reports no cache.
func Default(h *topo.Host, on cpu.Set, users int) Plan {
	p := Plan{String: Never, Stream: Never}
	if c, ok := h.Shared(on); ok && hasStream() {
		p.Stream = max(topo.DMAMin(c.Size, min(users, c.CPUs.Len())), MinStream)
	}
	if l1 := h.Level1(on); l1 > 0 && hasString() {
		p.String = max(l1, MinString)
	}
	return p
}

// Sizes below which no plan of this package selects a method.
const (
	// MinString is the bound for String: below it, its start-up (some 30 ns, more for odd
	// alignments) is never amortised.
	MinString = 16 << 10
	// MinStream is the bound for Stream: draining the write-combining buffers at the end
	// waits for memory, some 100 ns, and the reader misses every line.
	MinStream = 128 << 10
)

// Kernel returns the instructions that Stream uses on this processor: "avx512", "avx2",
// "sse2", or "none".
func Kernel() string { return kernelName() }
