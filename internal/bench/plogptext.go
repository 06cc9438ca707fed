package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// WriteText writes the result as tables for people: single figures, then curves, then
// drift.
func (r *PlogpResult) WriteText(w io.Writer) error {
	b := bufio.NewWriter(w)
	p := &r.Tables.Both
	fmt.Fprintf(b, "%s: budget %v, used %.1f and %.1f ms; %d and %d samples, %d and %d outliers dropped%s\n",
		r.Fabric, r.Budget, r.Halves[0].Spent/1e6, r.Halves[1].Spent/1e6, r.Halves[0].Samples, r.Halves[1].Samples,
		r.Halves[0].Dropped, r.Halves[1].Dropped, r.cut())
	fmt.Fprintf(b, "\n%-34s %10s %10s %10s %6s\n", "ns", "0 to 1", "1 to 0", "both", "conf")
	f, k, c := &r.Tables.Forward, &r.Tables.Backward, &r.Tables.Conf
	for _, row := range []struct {
		name    string
		x, y, z float64
		conf    float64
	}{
		{"g     gap between operations", f.G, k.G, p.G, c.G},
		{"Ls    soft latency", f.Ls, k.Ls, p.Ls, c.Ls},
		{"Lh    hard latency", f.Lh, k.Lh, p.Lh, c.Lh},
		{"a     posting call", f.CPU.A, k.CPU.A, p.CPU.A, c.CPU},
		{"b     posting, each request", f.CPU.B, k.CPU.B, p.CPU.B, c.CPU},
		{"Or    receiving, each operation", f.Or.At(0), k.Or.At(0), p.Or.At(0), p.Or.Confidence(0)},
		{"      round trip of 8 bytes", r.Halves[0].RoundTrip, r.Halves[1].RoundTrip, (r.Halves[0].RoundTrip + r.Halves[1].RoundTrip) / 2, c.Ls},
		{"      read of 8 bytes", r.Halves[0].Read, r.Halves[1].Read, (r.Halves[0].Read + r.Halves[1].Read) / 2, c.Lh},
	} {
		fmt.Fprintf(b, "%-34s %10s %10s %10s %6.2f\n", row.name, ThreeDigits(row.x), ThreeDigits(row.y), ThreeDigits(row.z), row.conf)
	}
	if r.Tables.Fit.Probes > 0 {
		r.writeFit(b)
	} else if e, g := f.Extra[logp.Scatter].PerByte, k.Extra[logp.Scatter].PerByte; e != 0 || g != 0 {
		fmt.Fprintf(b, "%-34s %10.4f %10.4f %10.4f\n", "      a byte read beyond Os, ns", e, g, p.Extra[logp.Scatter].PerByte)
	}
	fmt.Fprintf(b, "\n%8s %10s %6s %10s %6s %10s %6s %10s %6s %10s %6s\n", "bytes", "Os", "conf", "memory", "conf", "one write", "conf", "copy C", "conf", "register R", "conf")
	for _, pt := range p.Os.Points() {
		fmt.Fprintf(b, "%8s", FormatSize(int(pt.Size)))
		for _, c := range []logp.Curve{p.Os, p.Memory, r.Halves[0].Complete, p.C, p.R} {
			if ps := c.Points(); len(ps) == 0 || pt.Size > ps[len(ps)-1].Size || pt.Size < ps[0].Size && len(ps) > 1 {
				fmt.Fprintf(b, " %10s %6s", "-", "")
				continue
			}
			fmt.Fprintf(b, " %10s %6.2f", ThreeDigits(c.At(pt.Size)), c.Confidence(pt.Size))
		}
		fmt.Fprintln(b)
	}
	if r.Changes != nil {
		r.writeChanges(b)
	}
	return b.Flush()
}

func (r *PlogpResult) cut() string {
	if r.Halves[0].Cut || r.Halves[1].Cut {
		return "; the budget ended it"
	}
	return ""
}

func (r *PlogpResult) writeChanges(b io.Writer) {
	against := "a sampling just before"
	if r.Saved {
		against = "the saved profile of " + r.Before.UTC().Format(time.RFC3339)
	}
	fmt.Fprintf(b, "\nagainst %s:\n%-16s %10s %10s %8s\n", against, "", "was", "now", "change")
	for _, c := range r.Changes {
		name, mark := c.Name, ""
		if c.Size > 0 {
			name = fmt.Sprintf("%s(%s)", c.Name, FormatSize(int(c.Size)))
		}
		if c.Drift {
			mark = "  drift"
		}
		fmt.Fprintf(b, "%-16s %10s %10s %+7.0f%%%s\n", name, ThreeDigits(c.Old), ThreeDigits(c.New), 100*c.Relative, mark)
	}
	if r.Drift {
		fmt.Fprintf(b, "drift: figures marked so moved by more than %.0f %% and are believed\n", 100*sampling.DriftLimit)
	} else {
		fmt.Fprintln(b, "no drift")
	}
}

// ThreeDigits formats a time with at least three digits.
func ThreeDigits(x float64) string {
	switch {
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// ReadPlogp reads results written as JSON lines.
func ReadPlogp(r io.Reader) ([]PlogpResult, error) {
	return ReadLines(r, func(p *PlogpResult) error {
		if p.Fabric == "" || p.Halves[0] == nil || p.Halves[1] == nil || !p.Tables.Both.Os.Known() {
			return errors.New("not a result of plogp")
		}
		return nil
	})
}
