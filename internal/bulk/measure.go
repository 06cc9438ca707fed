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

// Point holds the costs of one size by each method: copying and reading the copy, ns. Never
// NaN; 0 if the budget ended before.
type Point struct {
	Size int                `json:"size"`
	NS   [int(ways)]float64 `json:"ns"` // by Way
}

// Measured is the result of Measure.
type Measured struct {
	Plan   Plan    `json:"plan"`
	Points []Point `json:"points"`
}

const (
	// gain is the least improvement, summed over the sizes, for which another plan is chosen:
	// smaller differences vary with the placement of a process's pages.
	gain = 0.05
	// most bounds the largest block measured. Larger caches exist, but touching the memory
	// would take longer than all the rest.
	most = 8 << 20
	// tries is the least number of measurements of each method; medians are compared.
	tries = 3
)

// Measure determines a plan by measurement, from base on, within about the given budget of
// time. It measures copying and then reading the copy from the caches where it lies by
// then, as a peer does: a method that leaves nothing in the cache has no advantage from
// that. Methods take turns, so that a disturbance affects all of them.
//
// For sizes that the budget did not reach, base stays. The error reports that memory could
// not be allocated.
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
	defer func() { _ = offheap.Free(mem, offheap.Scratch) }() // fails only for memory that is not from Alloc
	// Destination and source are a little over a page apart, like two allocations.
	from, to := mem[:top], mem[int(top)+offheap.PageSize:]
	end := cpu.Ticks() + int64(float64(budget.Nanoseconds())/cpu.NsPerTick())
	m := Measured{Plan: base}
	for size := MinString; size <= int(top); size *= 2 {
		for i := size / 2; i < size; i += 4096 {
			from[i] = 1 // otherwise the source would be the kernel's zero page
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

// measure measures one size until each median has at least tries values, or more for small
// blocks. ok is false if the time ended before.
func measure(dst, src []byte, end int64) (p Point, ok bool) {
	p.Size = len(src)
	rounds := min(max(tries, 1<<20/len(src)), 17)
	var took [ways][]float64
	for range rounds {
		for w := range ways {
			if w == Stream && !hasStream() || w == String && !hasString() {
				continue
			}
			// Twice, and the second run is measured: the first one absorbs the effect of the
			// cache content that the method before has left, mainly dirty lines.
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

// read reads one byte of every line of b.
func read(b []byte) (sum uint64) {
	for ; len(b) >= 8*line; b = b[8*line:] {
		for i := range 8 {
			sum += binary.NativeEndian.Uint64(b[i*line:])
		}
	}
	return sum
}

// decide moves the switch points of base to the pair of measured sizes with the least
// product of times over all points, so that one disturbed size does not decide alone. It
// keeps base if the gain in all is less than gain. If a method is best put behind the
// largest block measured, base's point beyond remains; but if base starts Stream within the
// measured range, Stream then starts at twice the largest block: there the copy overflows
// the cache whatever other processes use it.
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

// candidates returns the sizes that a switch point may be moved to.
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

// logCost returns the sum of the logarithms of the points' costs by the plan.
func logCost(plan Plan, points []Point) (sum float64) {
	for i := range points {
		sum += math.Log(points[i].NS[plan.Way(uint64(points[i].Size))])
	}
	return sum
}
