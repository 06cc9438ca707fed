package collective

import (
	"slices"

	"github.com/seed33544411/rma/internal/bench"
)

// Beside combines the results of several libraries that are measured in turn, in rounds.
type Beside struct {
	cells map[Result][]Result // by library and cell; the results of the rounds
	order []Result
}

// Add adds the results of one round of one library; those of this library come first.
func (b *Beside) Add(rs ...Result) {
	if b.cells == nil {
		b.cells = map[Result][]Result{}
	}
	for _, r := range rs {
		k := r.cell()
		if b.cells[k] == nil {
			b.order = append(b.order, k)
		}
		b.cells[k] = append(b.cells[k], r)
	}
}

// Results returns the medians of the rounds, each cell of this library before that of the others,
// with their ratios. A round that another library did not complete does not count in its ratio.
func (b *Beside) Results() (out []Result) {
	for _, ours := range b.order {
		if ours.Peer != "" {
			continue
		}
		for _, k := range b.order {
			if k.Op != ours.Op || k.Size != ours.Size || k.Ranks != ours.Ranks {
				continue
			}
			var us, most, ratios []float64
			for i, r := range b.cells[k] {
				us, most = append(us, r.US), append(most, r.MaxUS)
				ratios = append(ratios, r.US/b.cells[ours][i].US)
			}
			r := k
			r.US, r.MaxUS = bench.Median(us), bench.Median(most)
			if k.Peer != "" {
				r.Ratio, r.RatioMin, r.RatioMax = bench.Median(ratios), slices.Min(ratios), slices.Max(ratios)
			}
			out = append(out, r)
		}
	}
	return out
}
