package bench

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// RendezvousGoal is the share of the raw read bandwidth that rendezvous messages should
// reach.
const RendezvousGoal = 0.95

// RendezvousRequest asks for a stream of messages between two of raw reads, interleaved,
// with the sizes, window, time and rounds of p.
func RendezvousRequest(fabric string, p Plan) Request {
	p.Test, p.Op = BW, Send
	read := p
	read.Op, read.Mode = Get, ""
	return Request{Fabric: fabric, Plans: []Plan{read, p, read}, Interleave: true}
}

// Beside compares a stream of messages of one size with raw reads. Its JSON form is one
// line; fields are only ever added.
type Beside struct {
	Fabric   string  `json:"fabric"`
	Size     int     `json:"size"`
	Mode     string  `json:"mode"`
	Ways     *Ways   `json:"ways"` // of all rounds
	Window   int     `json:"window"`
	SendMBs  float64 `json:"send_mb_s"` // median of the rounds
	GetMBs   float64 `json:"get_mb_s"`  // median over all rounds, each of which has two
	Ratio    float64 `json:"ratio"`     // median of the rounds' ratios
	RatioMin float64 `json:"ratio_min"`
	RatioMax float64 `json:"ratio_max"`
	Noise    float64 `json:"noise"` // median deviation of a round's two from their mean
	Rounds   int     `json:"rounds"`
	Machine  Machine `json:"machine"`
}

// Reached reports whether the ratio is at least RendezvousGoal, or below it by no more
// than the noise.
func (b *Beside) Reached() bool { return b.Ratio+b.Noise >= RendezvousGoal }

// BesideReads combines the results of a RendezvousRequest.
func BesideReads(rs []Result) ([]Beside, error) {
	var out []Beside
	for size, all := range GroupBy(rs, func(r *Result) int { return r.Size }) {
		b := Beside{Fabric: all[0].Fabric, Size: size, Window: all[0].Window, Ways: new(Ways), Machine: all[0].Machine}
		var send, get, ratio, noise []float64
		for round, rs := range GroupBy(all, func(r *Result) int { return r.Round }) {
			var reads []float64
			var sent *Result
			for i := range rs {
				switch r := &rs[i]; r.Op {
				case Get:
					reads = append(reads, r.MBs)
				case Send:
					sent = r
				}
			}
			if sent == nil || sent.Ways == nil || len(reads) != 2 || reads[0] <= 0 || reads[1] <= 0 {
				return nil, fmt.Errorf("%s, round %d: %w", FormatSize(size), round, errors.New("results are missing"))
			}
			mean := (reads[0] + reads[1]) / 2
			send, get, ratio = append(send, sent.MBs), append(get, reads...), append(ratio, sent.MBs/mean)
			noise = append(noise, math.Abs(reads[0]/mean-1))
			b.Mode, b.Rounds = sent.Mode, b.Rounds+1
			b.Ways.Eager, b.Ways.Gather, b.Ways.Scatter = b.Ways.Eager+sent.Ways.Eager, b.Ways.Gather+sent.Ways.Gather, b.Ways.Scatter+sent.Ways.Scatter
		}
		b.SendMBs, b.GetMBs, b.Ratio, b.Noise = Median(send), Median(get), Median(ratio), Median(noise)
		b.RatioMin, b.RatioMax = slices.Min(ratio), slices.Max(ratio)
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b Beside) int { return a.Size - b.Size })
	return out, nil
}

// WriteBeside writes rows as a table.
func WriteBeside(w io.Writer, rows []Beside) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "fabric\tsize\twindow\tmessages MB/s\treads MB/s\tratio\trange\tnoise\trounds\twent\t")
	for i := range rows {
		b := &rows[i]
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%.3f\t%.2f–%.2f\t%.1f %%\t%d\t%s\t\n", b.Fabric, FormatSize(b.Size), b.Window, digits(b.SendMBs), digits(b.GetMBs),
			b.Ratio, b.RatioMin, b.RatioMax, 100*b.Noise, b.Rounds, b.Ways)
	}
	return t.Flush()
}
