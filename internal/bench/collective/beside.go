package collective

import "github.com/seed33544411/rma/internal/bench"

// Beside combines the results of several libraries that were measured in turn, in rounds: the
// medians of each cell of this library, before that of the others with their ratios. A round that
// another library did not complete does not count in its ratio.
func Beside(rs []Result) (out []Result) {
	cells := bench.GroupBy(rs, (*Result).cell)
	for ours, base := range cells {
		if ours.Peer != "" {
			continue
		}
		for k, rounds := range cells {
			if k.Op != ours.Op || k.Size != ours.Size || k.Ranks != ours.Ranks {
				continue
			}
			r := k
			r.US, _, _ = bench.Range(rounds, func(r *Result) float64 { return r.US })
			r.MaxUS, _, _ = bench.Range(rounds, func(r *Result) float64 { return r.MaxUS })
			if k.Peer != "" {
				var ratios []float64
				for i := range rounds {
					ratios = append(ratios, rounds[i].US/base[i].US)
				}
				r.Ratio, r.RatioMin, r.RatioMax = bench.Range(ratios, func(x *float64) float64 { return *x })
			}
			out = append(out, r)
		}
	}
	return out
}
