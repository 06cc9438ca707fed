package choice

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/seed33544411/rma/internal/bench"
)

// Cell is one batch of n messages, or of n pieces, with a mix of sizes.
type Cell struct {
	N   int    `json:"n"`
	Mix string `json:"mix"`

	Layout string `json:"layout,omitempty"` // of pieces
}

// Layouts of pieces. Pieces that are not contiguous are scattered in random order.
const (
	Scattered = "scattered" // on both sides
	Spread    = "spread"    // contiguous at the initiator
	Collected = "collected" // contiguous at the target
)

var layouts = []string{Scattered, Spread, Collected}

// Mixes of random sizes. Other mixes are a fixed size, by its name.
const (
	Bimodal = "bimodal" // 64 bytes or 16 KiB, equally likely
	Heavy   = "heavy"   // Pareto from 64 bytes with exponent 0.9, up to 1 MiB
	Huge    = "huge"    // one of 1 MiB at a random position among messages of 64 bytes
)

var mixNames = []string{Bimodal, Heavy, Huge}

// Grid is the set of batches to compare.
type Grid struct {
	N     []int    `json:"n"`
	Mixes []string `json:"mixes"`
	// Bytes is the size of the largest batch; larger ones are skipped. Zero means 64 MiB.
	Bytes int `json:"bytes,omitempty"`
	// Layouts are the layouts of pieces, with a cell for each. Empty for messages.
	Layouts []string `json:"layouts,omitempty"`
}

// Bounds of a grid, which rank 1 receives from the wire.
const (
	maxN     = 256 // the most that are planned together, see message.Options.Batch
	maxBytes = 256 << 20
	maxCells = 1024
)

// ErrGrid is wrapped by all errors about a grid or a request.
var ErrGrid = errors.New("cannot compare that")

// Default is the grid named "default", for messages.
func Default() Grid {
	return Grid{
		N:     []int{1, 2, 4, 8, 16, 32, 64, 128},
		Mixes: []string{"8", "64", "512", "4K", "32K", "256K", "1M", Bimodal, Heavy, Huge},
		Bytes: 64 << 20,
	}
}

// Small is a sixth of Default, for tests and slow machines.
func Small() Grid {
	return Grid{N: []int{1, 8, 64}, Mixes: []string{"64", "4K", "256K", Bimodal, Huge}, Bytes: 4 << 20}
}

// DefaultPieces is the default grid for puts and gets of several pieces. A group has at
// most 8 KiB; larger operations have one way only.
func DefaultPieces() Grid {
	return Grid{
		N:       []int{2, 4, 8, 16, 32, 64, 128, 256},
		Mixes:   []string{"8", "64", "256", "1K", "4K", "16K", Bimodal},
		Bytes:   4 << 20,
		Layouts: layouts,
	}
}

// SmallPieces is a twelfth of DefaultPieces.
func SmallPieces() Grid {
	return Grid{N: []int{4, 16, 64}, Mixes: []string{"8", "64", "1K", "4K"}, Bytes: 1 << 20, Layouts: []string{Scattered}}
}

// ParseGrid returns the grid of this name, for messages or pieces, or reads it from the JSON
// file of this name: {"n":[1,8],"mixes":["64","4K","bimodal"],"bytes":1048576}.
func ParseGrid(name string, pieces bool) (Grid, error) {
	switch {
	case name == "" || name == "default":
		if pieces {
			return DefaultPieces(), nil
		}
		return Default(), nil
	case name == "small":
		if pieces {
			return SmallPieces(), nil
		}
		return Small(), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return Grid{}, fmt.Errorf("%w: neither default nor small, nor a file: %w", ErrGrid, err)
	}
	defer f.Close()
	var g Grid
	d := json.NewDecoder(io.LimitReader(f, 1<<20))
	d.DisallowUnknownFields()
	if err := d.Decode(&g); err != nil {
		return Grid{}, fmt.Errorf("%w: %s: %w", ErrGrid, name, err)
	}
	return g, g.Check()
}

// Check fills in defaults and reports why the grid cannot be measured.
func (g *Grid) Check() error {
	if g.Bytes == 0 {
		g.Bytes = 64 << 20
	}
	if g.Bytes < 0 || g.Bytes > maxBytes {
		return fmt.Errorf("%w: batches of up to %d bytes, want 1 to %d", ErrGrid, g.Bytes, maxBytes)
	}
	if n := len(g.N) * len(g.Mixes) * max(len(g.Layouts), 1); n == 0 || n > maxCells {
		return fmt.Errorf("%w: %d × %d cells, want 1 to %d", ErrGrid, len(g.N), n/max(len(g.N), 1), maxCells)
	}
	for _, l := range g.Layouts {
		if !slices.Contains(layouts, l) {
			return fmt.Errorf("%w: layout %q: want %s", ErrGrid, l, strings.Join(layouts, ", "))
		}
	}
	for _, n := range g.N {
		if n < 1 || n > maxN {
			return fmt.Errorf("%w: batch of %d messages, want 1 to %d", ErrGrid, n, maxN)
		}
	}
	for _, m := range g.Mixes {
		if _, err := (Cell{N: 1, Mix: m}).Sizes(0); err != nil {
			return err
		}
	}
	if len(g.Cells(0)) == 0 {
		return fmt.Errorf("%w: no batch of at most %d bytes", ErrGrid, g.Bytes)
	}
	return nil
}

// Cells returns the batches within Bytes, mix by mix.
func (g *Grid) Cells(seed uint64) (cs []Cell) {
	for _, m := range g.Mixes {
		for _, n := range g.N {
			c := Cell{N: n, Mix: m}
			if s, err := c.Sizes(seed); err != nil || sum(s) > g.Bytes {
				continue
			}
			if len(g.Layouts) == 0 {
				cs = append(cs, c)
			}
			for _, c.Layout = range g.Layouts {
				cs = append(cs, c)
			}
		}
	}
	return cs
}

func sum(sizes []int) (t int) {
	for _, n := range sizes {
		t += n
	}
	return t
}

// random reports whether the sizes depend on the seed.
func (c Cell) random() bool { return slices.Contains(mixNames, c.Mix) }

// Sizes returns the sizes of the messages; they depend on the cell and seed only.
func (c Cell) Sizes(seed uint64) ([]int, error) {
	out := make([]int, c.N)
	var h uint64
	for _, b := range []byte(c.Mix) {
		h = h*131 + uint64(b)
	}
	rnd := rand.New(rand.NewPCG(seed, h<<16|uint64(c.N)))
	switch c.Mix {
	case Bimodal:
		for i := range out {
			out[i] = 64
			if rnd.IntN(2) == 1 {
				out[i] = 16 << 10
			}
		}
	case Heavy:
		for i := range out {
			out[i] = int(min(64*math.Pow(1-rnd.Float64(), -1/0.9), 1<<20))
		}
	case Huge:
		for i := range out {
			out[i] = 64
		}
		out[rnd.IntN(c.N)] = 1 << 20
	default:
		size, err := bench.ParseSizes(c.Mix)
		if err != nil || len(size) != 1 {
			return nil, fmt.Errorf("%w: mix %q: want a size, %s", ErrGrid, c.Mix, strings.Join(mixNames, ", "))
		}
		if size[0] > maxBytes {
			return nil, fmt.Errorf("%w: messages of %d bytes, at most %d", ErrGrid, size[0], maxBytes)
		}
		for i := range out {
			out[i] = size[0]
		}
	}
	return out, nil
}

// ParseBatch reads a batch such as 64x128,2x1M: 64 messages of 128 bytes, followed by 2
// of 1 MiB.
func ParseBatch(s string) ([]int, error) {
	var out []int
	for _, part := range strings.Split(s, ",") {
		count, size := 1, strings.TrimSpace(part)
		if a, b, ok := strings.Cut(size, "x"); ok {
			if _, err := fmt.Sscanf(a, "%d", &count); err != nil || fmt.Sprint(count) != a {
				return nil, fmt.Errorf("%w: batch %q: %q is not a number of messages", ErrGrid, s, a)
			}
			size = b
		}
		n, err := bench.ParseSizes(size)
		if err != nil || len(n) != 1 {
			return nil, fmt.Errorf("%w: batch %q: want parts such as 64x128 or 2x1M", ErrGrid, s)
		}
		if count < 1 || len(out)+count > maxN || n[0] > maxBytes {
			return nil, fmt.Errorf("%w: batch %q: want 1 to %d messages of up to %d bytes", ErrGrid, s, maxN, maxBytes)
		}
		for range count {
			out = append(out, n[0])
		}
	}
	if sum(out) > maxBytes {
		return nil, fmt.Errorf("%w: batch %q: %d bytes, at most %d", ErrGrid, s, sum(out), maxBytes)
	}
	return out, nil
}
