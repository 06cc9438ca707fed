package compare

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/seed33544411/rma/internal/bench"
)

// Row compares one test with one peer. Its JSON form is one line of --format json; fields
// are only ever added.
type Row struct {
	Peer   string  `json:"peer"`
	Fabric string  `json:"fabric"`
	Test   Kind    `json:"test"`
	Size   int     `json:"size"`
	Ours   float64 `json:"ours"` // median of the rounds, in Unit
	Theirs float64 `json:"theirs"`
	Ratio  float64 `json:"ratio"`           // median of the rounds' ratios; above 1: ours is ahead
	Rounds int     `json:"rounds"`          // completed by both libraries
	Ranks  int     `json:"ranks,omitempty"` // of either library that ran at once, in pairs

	// Medians of the user and system time of both processes for a message or a put, of the
	// rounds in which it is known. Zero: in none.
	OursCPU   float64 `json:"ours_cpu_ns,omitempty"`
	TheirsCPU float64 `json:"theirs_cpu_ns,omitempty"`

	Unit     string        `json:"unit"`
	RatioMin float64       `json:"ratio_min"`
	RatioQ1  float64       `json:"ratio_q1"` // quartiles of the rounds' ratios
	RatioQ3  float64       `json:"ratio_q3"`
	RatioMax float64       `json:"ratio_max"`
	Mode     string        `json:"mode"`              // of ours
	Ways     *bench.Ways   `json:"ways,omitempty"`    // modes of our messages
	Version  string        `json:"version,omitempty"` // of the peer
	Failed   int           `json:"failed,omitempty"`  // rounds that the peer did not complete
	Why      string        `json:"why,omitempty"`     // reason of the last of them
	Machine  bench.Machine `json:"machine"`
}

// pair is the figures of one round.
type pair struct{ ours, theirs, oursCPU, theirsCPU float64 }

// fill computes the figures derived from the rounds.
func (r *Row) fill(t Test, ps []pair) {
	var ours, theirs, ratios, oursCPU, theirsCPU []float64
	for _, p := range ps {
		ours, theirs = append(ours, p.ours), append(theirs, p.theirs)
		if p.oursCPU > 0 { // it is known
			oursCPU = append(oursCPU, p.oursCPU)
		}
		if p.theirsCPU > 0 {
			theirsCPU = append(theirsCPU, p.theirsCPU)
		}
		ratios = append(ratios, t.ratio(p.ours, p.theirs))
	}
	r.Test, r.Size, r.Unit, r.Rounds = t.Kind, t.Size, t.Unit(), len(ps)
	if len(ps) == 0 {
		return
	}
	r.Ours, r.Theirs, r.Ratio = bench.Median(ours), bench.Median(theirs), bench.Median(ratios)
	slices.Sort(ratios)
	r.RatioMin, r.RatioMax = ratios[0], ratios[len(ratios)-1]
	half := (len(ratios) + 1) / 2 // the median of an odd number belongs to both halves
	r.RatioQ1, r.RatioQ3 = bench.Median(ratios[:half]), bench.Median(ratios[len(ratios)-half:])
	r.OursCPU, r.TheirsCPU = bench.Median(oursCPU), bench.Median(theirsCPU)
}

// cpuText formats processor time for people, in µs.
func cpuText(ns float64) string {
	if ns <= 0 {
		return "?"
	}
	return fmt.Sprintf("%.3g", ns/1000)
}

// WriteText writes rows as a table.
func WriteText(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "peer\tfabric\ttest\tsize\tours\ttheirs\tunit\tratio\trange\trounds\tcpu, µs\ttheirs\t\t")
	for i := range rows {
		r := &rows[i]
		verdict := "ahead"
		switch {
		case r.Rounds == 0:
			verdict = "not measured"
		case r.Ratio < 1:
			verdict = "behind"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.4g\t%.4g\t%s\t%.2f\t%.2f–%.2f\t%d\t%s\t%s\t%s\t\n", r.Peer, r.Fabric, r.Test, bench.FormatSize(r.Size),
			r.Ours, r.Theirs, r.Unit, r.Ratio, r.RatioMin, r.RatioMax, r.Rounds, cpuText(r.OursCPU), cpuText(r.TheirsCPU), verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(rows) > 0 && rows[0].Ranks > 2 {
		fmt.Fprintf(w, "%d ranks at once, %d pairs: rates are sums over the pairs, latencies medians\n", rows[0].Ranks, rows[0].Ranks/2)
	}
	for i := range rows {
		if r := &rows[i]; r.Failed > 0 {
			fmt.Fprintf(w, "%s, %s %s: %d rounds failed: %s\n", r.Peer, r.Test, bench.FormatSize(r.Size), r.Failed, r.Why)
		}
	}
	return nil
}
