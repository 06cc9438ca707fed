package bulk

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
)

// Point is what one size costs in each way: copying it and reading the copy, ns.
// NaN-free; 0 where the budget ended before.
type Point struct {
	Size int                `json:"size"`
	NS   [int(ways)]float64 `json:"ns"` // by Way
}

// Measured is the outcome of Measure.
type Measured struct {
	Plan   Plan    `json:"plan"`
	Points []Point `json:"points"`
}

const (
	// gain is what another plan has to bring before it is taken, summed over the sizes:
	// differences below it come and go with where the pages of a process happen to be.
	gain = 0.05
	// most bounds the largest block that is tried. Larger caches exist, but touching the
	// memory would take longer than all the rest.
	most = 8 << 20
	// tries is how often each way is timed at least; medians are compared.
	tries = 3
)

// Measure finds a plan by trying, from base on, within about the given budget of time.
// What counts is copying and then reading the copy from the caches where it lies by
// then, which is what a peer has to do as well: a way that leaves nothing in the cache
// is not preferred for that. Ways take turns, so that a busy moment meets all of them.
//
// Sizes that the budget did not reach leave base as it is there. The error is of memory
// not to be had.
func Measure(base Plan, budget time.Duration) (Measured, error) {
	top := uint64(most)
	if base.Stream != Never {
		top = min(top, base.Stream)
	}
	top = max(top, 4*MinStream)
	mem, err := offheap.Alloc(2*int(top)+offheap.PageSize, offheap.Scratch)
	if err != nil {
		return Measured{Plan: base}, fmt.Errorf("bulk: measure: %w", err)
	}
	defer func() { _ = offheap.Free(mem, offheap.Scratch) }() // fails only for memory that is not ours
	// Destination and source are a page and a bit apart, as two allocations are.
	from, to := mem[:top], mem[int(top)+offheap.PageSize:]
	end := cpu.Ticks() + int64(float64(budget.Nanoseconds())/cpu.NsPerTick())
	m := Measured{Plan: base}
	for size := MinString; size <= int(top); size *= 2 {
		for i := size / 2; i < size; i += 4096 {
			from[i] = 1 // what is read must not be the kernel's page of zeroes
		}
		p, ok := measure(to[:size], from[:size], end)
		if !ok {
			break
		}
		m.Points = append(m.Points, p)
	}
	m.Plan = decide(base, m.Points)
	return m, nil
}

// measure tries one size until the medians are of tries each at least, or more where
// the blocks are small. ok is false if the time ended before.
func measure(dst, src []byte, end int64) (p Point, ok bool) {
	p.Size = len(src)
	rounds := min(max(tries, 1<<20/len(src)), 17)
	var took [ways][]float64
	for range rounds {
		for w := range ways {
			if w == Stream && !hasStream() || w == String && !hasString() {
				continue
			}
			// Twice, and the second counts: the first one pays for what the way before
			// has left in the caches, dirty lines above all.
			var start int64
			for range 2 {
				start = cpu.Ticks()
				Copy(w, dst, src)
				runtime.KeepAlive(read(dst))
			}
			stop := cpu.Ticks()
			took[w] = append(took[w], float64(stop-start)*cpu.NsPerTick())
			if stop > end {
				return p, false
			}
		}
	}
	for w := range ways {
		if len(took[w]) > 0 {
			slices.Sort(took[w])
			p.NS[w] = took[w][len(took[w])/2]
		}
	}
	return p, true
}

// read looks at every line of b.
func read(b []byte) (sum uint64) {
	for ; len(b) >= 8*line; b = b[8*line:] {
		for i := range 8 {
			sum += binary.NativeEndian.Uint64(b[i*line:])
		}
	}
	return sum
}

// decide moves the switch points of base to where the points say: to the pair of sizes,
// of those that were tried, with the least product of times over all points, so that one
// size that met a busy moment does not decide alone. base stays if that brings less than
// gain in all. A way that is best put behind the largest block tried is taken as far
// beyond as base says, but Stream, where base has it begin within what was tried, from
// twice that on: there the copy overflows the cache whoever else uses it.
func decide(base Plan, points []Point) Plan {
	if len(points) == 0 {
		return base
	}
	last := uint64(points[len(points)-1].Size)
	strings, streams := candidates(base.String, points, MinString), candidates(base.Stream, points, MinStream)
	best, least := base, logCost(base, points)-gain
	for _, p := range strings {
		for _, q := range streams {
			plan := Plan{String: p, Stream: q}
			if c := logCost(plan, points); c < least {
				best, least = plan, c
			}
		}
	}
	if base.Stream != Never && best.Stream == Never {
		best.Stream = max(base.Stream, 2*last)
	}
	return best
}

// candidates are the sizes that a switch point may be moved to.
func candidates(base uint64, points []Point, least uint64) []uint64 {
	if base == Never { // the processor lacks it
		return []uint64{Never}
	}
	sizes := []uint64{base, Never}
	for i := range points {
		if n := uint64(points[i].Size); n >= least {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// logCost is the sum of the logarithms of what the points cost by the plan.
func logCost(plan Plan, points []Point) (sum float64) {
	for i := range points {
		sum += math.Log(points[i].NS[plan.Way(uint64(points[i].Size))])
	}
	return sum
}
