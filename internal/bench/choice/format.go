package choice

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/seed33544411/rma/internal/bench"
)

// Writer writes results of type R as they arrive, and their summary of type S at the end.
type Writer[R, S any] interface {
	Write(R) error
	Close(S) error
}

// NewWriter returns a writer of results for messages, as JSON lines or as a table.
func NewWriter(w io.Writer, format string) Writer[Result, Summary] {
	if format == "json" {
		return newLines[Result, Summary](w)
	}
	return &table{w: w}
}

// NewPiecesWriter returns a writer of results for pieces.
func NewPiecesWriter(w io.Writer, format string) Writer[PiecesResult, PiecesSummary] {
	if format == "json" {
		return newLines[PiecesResult, PiecesSummary](w)
	}
	return &piecesTable{w: w}
}

// newLines returns a writer of JSON lines.
func newLines[R, S any](w io.Writer) Writer[R, S] { return &lines[R, S]{json.NewEncoder(w)} }

type lines[R, S any] struct{ enc *json.Encoder }

func (l *lines[R, S]) Write(r R) error { return l.enc.Encode(r) }
func (l *lines[R, S]) Close(s S) error { return l.enc.Encode(s) }

// Read reads the output of a json writer; a file may hold several runs.
func Read(r io.Reader) (rs []Result, ss []Summary, err error) {
	err = bench.EachLine(r, func(line []byte) error {
		var kind struct{ Summary bool }
		if err := json.Unmarshal(line, &kind); err != nil {
			return err
		}
		if kind.Summary {
			var s Summary
			err := json.Unmarshal(line, &s)
			ss = append(ss, s)
			return err
		}
		var x Result
		if err := json.Unmarshal(line, &x); err != nil {
			return err
		}
		if x.Fabric == "" || x.N < 1 {
			return errors.New("neither a cell nor a summary")
		}
		rs = append(rs, x)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return rs, ss, nil
}

type table struct {
	w     io.Writer
	n     int
	rules bool // there is a column for a table of thresholds
	ref   bool // there are columns for two-sided messages
}

func (t *table) Write(r Result) error {
	t.rules = t.rules || r.TableUS > 0
	t.ref = t.ref || r.SendRecvUS > 0
	byTable := ""
	if t.n%40 == 0 {
		if t.rules {
			byTable = fmt.Sprintf(" %11s %8s", "table µs", "gain")
		}
		if t.ref {
			byTable += fmt.Sprintf(" %12s %8s %6s", "send/recv µs", "gain", "error")
		}
		if _, err := fmt.Fprintf(t.w, "%-6s %4s %-8s %11s %11s %11s %11s%s %8s %17s %8s %7s %21s %6s  %s\n", "fabric", "n", "mix",
			"eager µs", "gather µs", "scatter µs", "auto µs", byTable, "regret", "95 %", "choosing", "noise", "error e/g/s", "auto", "plan"); err != nil {
			return err
		}
	}
	t.n++
	e, choosing := r.Error, "-"
	byTable = ""
	if r.Choosing != nil {
		choosing = fmt.Sprintf("%+.1f%%", 100**r.Choosing)
	}
	if t.rules {
		byTable = fmt.Sprintf(" %11.2f %+7.1f%%", r.TableUS, 100*r.OverTable)
	}
	if t.ref {
		byTable += fmt.Sprintf(" %12.2f %+7.1f%% %+5.0f%%", r.SendRecvUS, 100*r.OverSendRecv, 100*r.ErrorSendRecv)
	}
	_, err := fmt.Fprintf(t.w, "%-6s %4d %-8s %11.2f %11.2f %11.2f %11.2f%s %+7.1f%% %+7.1f%%…%+7.1f%% %8s %6.1f%% %+6.0f%%/%+5.0f%%/%+5.0f%% %+5.0f%%  %s\n", r.Fabric, r.N, r.Mix,
		r.Modes.Eager, r.Modes.Gather, r.Modes.Scatter, r.AutoUS, byTable, 100*r.Regret, 100*r.Regret95.Lo, 100*r.Regret95.Hi, choosing, 100*r.Noise,
		100*e.Eager, 100*e.Gather, 100*e.Scatter, 100*r.ErrorAuto, r.Plan)
	return err
}

func (t *table) Close(s Summary) error {
	cut, gain := "", ""
	if s.Cut {
		cut = " (cut by the budget)"
	}
	if s.OverTable != nil {
		gain = fmt.Sprintf("gain over the table %v\n", *s.OverTable)
	}
	if s.OverSendRecv != nil {
		gain += fmt.Sprintf("gain over send/recv %v, whose prediction error is %.1f %% in the median\n", *s.OverSendRecv, 100*s.SendRecv)
	}
	_, err := fmt.Fprintf(t.w, `
%s: %d cells%s, seed %d
regret             mean %.1f %% (%v), p95 %.1f %%, max %.1f %%
within 10 %%        %.1f %% of the cells (%v)
choosing           %.1f %% in the mean, max %.1f %%, of the cells where a forced mode has the same plan
noise              %.1f %% in the median
against eager      at most %+.1f %%
%sprediction error   %.1f %% in the median (eager %.1f, gather %.1f, scatter %.1f, chosen plan %.1f)
(a … b) is an interval of 95 %%, by a bootstrap of the rounds
`, s.Fabric, s.Cells, cut, s.Seed, 100*s.MeanRegret, s.MeanRegret95, 100*s.P95Regret, 100*s.MaxRegret, 100*s.Within10pct, s.Within10pct95,
		100*s.MeanChoosing, 100*s.MaxChoosing, 100*s.MedianNoise,
		100*s.MaxVsEager, gain, 100*s.MedianAbsPredictionError, 100*s.PerMode.Eager, 100*s.PerMode.Gather, 100*s.PerMode.Scatter, 100*s.Auto)
	return err
}

type piecesTable struct {
	w io.Writer
	n int
}

func (t *piecesTable) Write(r PiecesResult) error {
	if t.n%40 == 0 {
		if _, err := fmt.Fprintf(t.w, "%-6s %4s %4s %-8s %-10s %11s %11s %11s %11s %8s %17s %8s %15s %6s %7s\n", "fabric", "op", "n", "size", "layout",
			"each µs", "chain µs", "group µs", "auto µs", "regret", "95 %", "noise", "error c/g", "auto", "groups"); err != nil {
			return err
		}
	}
	t.n++
	_, err := fmt.Fprintf(t.w, "%-6s %4s %4d %-8s %-10s %11.2f %11.2f %11.2f %11.2f %+7.1f%% %+7.1f%%…%+7.1f%% %7.1f%% %+6.0f%%/%+6.0f%% %+5.0f%% %7.1f\n", r.Fabric, r.Op, r.N, r.Size, r.Layout,
		r.EachUS, r.Ways.Chain, r.Ways.Group, r.AutoUS, 100*r.Regret, 100*r.Regret95.Lo, 100*r.Regret95.Hi, 100*r.Noise,
		100*r.Error.Chain, 100*r.Error.Group, 100*r.ErrorAuto, r.GroupsAuto)
	return err
}

func (t *piecesTable) Close(s PiecesSummary) error {
	cut := ""
	if s.Cut {
		cut = " (cut by the budget)"
	}
	_, err := fmt.Fprintf(t.w, `
%s, %s: %d cells%s, seed %d
regret             mean %.1f %% (%v), p95 %.1f %%, max %.1f %%
within 10 %%        %.1f %% of the cells (%v)
noise              %.1f %% in the median
against chains     %+.1f %% in the mean, at most %+.1f %%
prediction error   %.1f %% in the median (chain %.1f, group %.1f, chosen way %.1f)
(a … b) is an interval of 95 %%, by a bootstrap of the rounds
`, s.Fabric, s.Op, s.Cells, cut, s.Seed, 100*s.MeanRegret, s.MeanRegret95, 100*s.P95Regret, 100*s.MaxRegret, 100*s.Within10pct, s.Within10pct95,
		100*s.MedianNoise, 100*s.MeanVsChain, 100*s.MaxVsChain,
		100*s.MedianAbsPredictionError, 100*s.PerWay.Chain, 100*s.PerWay.Group, 100*s.Auto)
	return err
}
