package collective

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
)

// WriteText writes results as a table.
func WriteText(w io.Writer, rs []Result) error {
	beside := slices.ContainsFunc(rs, func(r Result) bool { return r.Peer != "" })
	head := fmt.Sprintf("%-14s%8s%7s%8s%9s%13s%13s", "operation", "bytes", "ranks", "link", "bind", "us", "slowest us")
	if beside {
		head += fmt.Sprintf("  %-12s%8s  %-14s", "library", "ratio", "range")
	}
	if _, err := fmt.Fprintln(w, strings.TrimRight(head, " ")); err != nil {
		return err
	}
	for _, r := range rs {
		line := fmt.Sprintf("%-14s%8s%7d%8s%9s%13.2f%13.2f", r.Op, bench.FormatSize(r.Size), r.Ranks, r.Fabric, r.Bind, r.US, r.MaxUS)
		switch {
		case r.Peer != "":
			verdict := "ahead"
			if r.Ratio < 1 {
				verdict = "behind"
			}
			line += fmt.Sprintf("  %-12s%8.2f  %-14s%s", r.Peer, r.Ratio, fmt.Sprintf("%.2f–%.2f", r.RatioMin, r.RatioMax), verdict)
		case beside:
			line += "  rma"
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// WriteHidden writes a table of medians over the rounds.
func WriteHidden(w io.Writer, hs []Hidden) error {
	if _, err := fmt.Fprintf(w, "%-14s%8s%7s%8s  %-14s%12s%12s%12s%10s  %s\n", "operation", "bytes", "ranks", "link", "library",
		"pure us", "cpu us", "both us", "hidden %", "range"); err != nil {
		return err
	}
	for _, c := range HiddenCells(hs) {
		if _, err := fmt.Fprintf(w, "%-14s%8s%7d%8s  %-14s%12.2f%12.2f%12.2f%10.0f  %.0f–%.0f\n", c.Op, bench.FormatSize(c.Size), c.Ranks, c.Fabric, c.Series(),
			c.Pure, c.CPU, c.Both, c.Overlap, c.Least, c.Most); err != nil {
			return err
		}
	}
	return nil
}

// NewChoiceWriter returns a writer of the comparisons of algorithms.
func NewChoiceWriter(w io.Writer, format string) choice.Writer[ChoiceResult, ChoiceSummary] {
	if format == "json" {
		return choiceLines{json.NewEncoder(w)}
	}
	return &choiceTable{w: w}
}

// choiceLine is one algorithm of a cell, or the automatic choice.
type choiceLine struct {
	ChoiceCell
	Time
}

// choiceLines writes a line for each algorithm, and one for the automatic choice.
type choiceLines struct{ enc *json.Encoder }

func (l choiceLines) Write(r ChoiceResult) error {
	for _, a := range append(r.Forced, r.Auto) {
		if err := l.enc.Encode(choiceLine{r.ChoiceCell, a}); err != nil {
			return err
		}
	}
	return nil
}

func (l choiceLines) Close(s ChoiceSummary) error { return l.enc.Encode(s) }

type choiceTable struct {
	w io.Writer
	n int
}

func (t *choiceTable) Write(r ChoiceResult) error {
	if t.n%40 == 0 {
		if _, err := fmt.Fprintf(t.w, "%-14s%7s%7s%7s%12s%9s %17s%8s  %-14s %s\n", "operation", "bytes", "ranks", "link",
			"auto us", "regret", "95 %", "noise", "chosen", "algorithms: us (predicted), * best"); err != nil {
			return err
		}
	}
	t.n++
	text := ""
	for _, a := range r.Forced {
		best := ""
		if a.Algorithm == r.Best {
			best = "*"
		}
		text += fmt.Sprintf(" %s%s %.2f (%.2f)", a.Algorithm, best, a.US, a.PredictedUS)
	}
	_, err := fmt.Fprintf(t.w, "%-14s%7s%7d%7s%12.2f%+8.1f%% %+7.1f%%…%+7.1f%%%7.1f%%  %-14s%s\n", r.Op, bench.FormatSize(r.Size), r.Ranks, r.Fabric,
		r.Auto.US, 100*r.Regret, 100*r.Regret95.Lo, 100*r.Regret95.Hi, 100*r.Noise, r.Chosen, text)
	return err
}

func (t *choiceTable) Close(s ChoiceSummary) error {
	_, err := fmt.Fprintf(t.w, `
%s: %d cells with a choice
regret             mean %.1f %% (%v), p95 %.1f %%, max %.1f %%
within 10 %%        %.1f %% of the cells (%v)
choosing           %+.1f %% in the median: the automatic choice over the same algorithm when it is forced
noise              %.1f %% in the median: the interquartile range of the rounds of the best algorithm
prediction error   %.1f %% in the median (of the chosen algorithm %.1f)
(a … b) is an interval of 95 %%, by a bootstrap of the rounds
`, s.Fabric, s.Cells, 100*s.MeanRegret, s.MeanRegret95, 100*s.P95Regret, 100*s.MaxRegret, 100*s.Within10pct, s.Within10pct95,
		100*s.MedianChoosing, 100*s.MedianNoise, 100*s.MedianAbsPredictionError, 100*s.Chosen)
	return err
}
