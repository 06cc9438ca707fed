package bulk

import (
	"encoding/binary"
	"fmt"
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
	// gain is what a way has to bring, and to go on bringing, before it is taken:
	// differences below it come and go with where the pages of a process happen to be.
	gain = 0.05
	// most bounds the largest block that is tried. Larger caches exist, but touching the
	// memory would take longer than all the rest.
	most = 8 << 20
	// tries is how often each way copies a block at least; medians are compared.
	tries = 3
)

// Measure finds a plan by trying, from base on, within about the given budget of time.
// What counts is copying and then reading the copy from the caches where it lies by
// then, which is what a peer has to do as well: a way that leaves nothing in the cache
// is not preferred for that. Ways take turns, so that a busy moment meets all of them.
//
// Stream is moved down to where it begins to win, and up to twice the larger of
// base.Stream and the largest block tried if it wins nowhere up to there. Sizes that
// the budget did not reach leave base as it is. The error is of memory not to be had.
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
	for i := 0; i < len(mem); i += offheap.PageSize {
		mem[i] = 1
	}
	end := cpu.Ticks() + int64(float64(budget.Nanoseconds())/cpu.NsPerTick())
	m := Measured{Plan: base}
	for size := MinString; size <= int(top); size *= 2 {
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
	rounds := min(max(tries, 2<<20/len(src)), 33)
	var took [ways][]float64
	for r := -1; r < rounds; r++ { // the first round warms up
		for w := range ways {
			if w == Stream && !hasStream() || w == String && !hasString() {
				continue
			}
			start := cpu.Ticks()
			Copy(w, dst, src)
			runtime.KeepAlive(read(dst))
			stop := cpu.Ticks()
			if r >= 0 {
				took[w] = append(took[w], float64(stop-start)*cpu.NsPerTick())
			}
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

// decide moves the switch points of base to where the points say. A way is taken from
// the least size on from which it wins at every larger one that was tried.
func decide(base Plan, points []Point) Plan {
	plan := base
	if len(points) == 0 {
		return plan
	}
	from := func(w Way, against ...Way) uint64 {
		at := uint64(Never)
		for i := len(points) - 1; i >= 0; i-- {
			p := &points[i]
			for _, v := range against {
				if p.NS[v] > 0 && p.NS[w] > (1-gain)*p.NS[v] {
					return at
				}
			}
			at = uint64(p.Size)
		}
		return at
	}
	last := uint64(points[len(points)-1].Size)
	if base.String != Never {
		plan.String = from(String, Cached)
	}
	if base.Stream != Never {
		switch plan.Stream = from(Stream, Cached, String); {
		case plan.Stream == Never && 2*last > base.Stream:
			// It has lost where the formula has it win. Beyond twice that the copy
			// overflows the cache whoever else uses it.
			plan.Stream = 2 * max(base.Stream, last)
		case plan.Stream == Never:
			plan.Stream = base.Stream
		}
		plan.Stream = max(plan.Stream, MinStream)
	}
	if plan.String != Never {
		plan.String = max(plan.String, MinString)
	}
	return plan
}
