package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/report"
	"github.com/seed33544411/rma/internal/bench/session"
)

// Default sizes of a report's curves: powers of two, for latency over the whole range of
// messages, for bandwidth from the size at which it becomes meaningful.
const (
	reportLatSizes = "8:4M"
	reportBWSizes  = "64:4M"
)

// ringable returns the sizes that fit into the bare eager ring.
func ringable(sizes []int) []int {
	return slices.DeleteFunc(slices.Clone(sizes), func(n int) bool { return n > bench.MaxEager })
}

const reportPage = "report.html" // in the directory

// reportFlags are the flags of report.
type reportFlags struct {
	fabrics, tests, ops []string
	sizes               string
	time, budget        time.Duration
	count               int
	format, out, label  string
	add                 []string
	quiet, pin, valid   bool
	choice, progress    string
	verbsBy             string
}

func reportCommand(s streams) *cobra.Command {
	f := &reportFlags{}
	cmd := &cobra.Command{
		Use: "report", Aliases: []string{"sweep"}, Short: "Measure everything and write a report with plots", Args: startsRanks,
		Long: `Measure latency, bandwidth and rate of every operation over every fabric that
works on this host, and write to the directory --out:

  report.html    plots and tables in one self-contained file
  results.jsonl  the same as JSON, one object per line

A summary is printed to standard output. --add includes results measured elsewhere
(on another machine, or in a virtual one) in the report; --fabrics none measures
nothing. With --format json only the lines are written, to the file --out or to
standard output, to be included in another report.

The report also shows the parameters of the cost model for every fabric, the quality
of its choices (heat maps), bandwidth where the choice changes, the explanation of
one batch, messages of 1 MiB beside computation, and latencies beside computing and waiting goroutines and a stream;
--choice none omits these, --choice full measures the whole grid.

--verbs-by COMMAND measures verbs on another machine, or a virtual one: rmabench runs
COMMAND followed by this program and its arguments; COMMAND must run it with the same
files. The output goes to verbs.log in the directory --out.

Fabrics named by --fabrics must work; by default those that do not are omitted.`,
		Example: `  rmabench report
  rmabench report --fabrics shm,tcp --out out/ --time 500ms
  rmabench report --fabrics verbs --format json --out verbs.jsonl    # in a VM
  rmabench report --fabrics none --add out/results.jsonl --add verbs.jsonl --out out/
  rmabench report --verbs-by "tests/softroce/run -timeout 30m -out out --"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reqs, err := f.requests(cmd.Flags().Changed)
			if err != nil {
				return usage(err)
			}
			return f.run(cmd.Context(), s, reqs)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.fabrics, "fabrics", nil, "shm, tcp, verbs, or none (default: those that work here)")
	fl.StringSliceVar(&f.fabrics, "fabric", nil, "same as --fabrics")
	fl.StringSliceVar(&f.tests, "tests", []string{"lat", "bw", "rate"}, "lat, bw, rate")
	fl.StringSliceVar(&f.ops, "ops", []string{"put", "get", "send", "fadd", "cas"}, "put, get, send, eager, fadd, cas")
	fl.StringVar(&f.sizes, "sizes", "", "message sizes of lat and bw (default lat "+reportLatSizes+", bw "+reportBWSizes+"; of eager up to "+bench.FormatSize(bench.MaxEager)+")")
	fl.DurationVar(&f.time, "time", 100*time.Millisecond, "time per size")
	fl.IntVar(&f.count, "count", 1, "number of repetitions; plots show the median")
	fl.StringVar(&f.format, "format", "html", "html (a directory with the page and the JSON lines) or json (the lines only)")
	fl.StringVar(&f.out, "out", "", "for html, the directory (default out/); for json, the file (default: standard output)")
	fl.StringVar(&f.label, "label", "", "free text in every result, to distinguish merged results")
	fl.StringArrayVar(&f.add, "add", nil, "merge results from this file of JSON lines (may be repeated)")
	fl.DurationVar(&f.budget, "choice-budget", reportBudget, "start no more batches of --choice small after this time")
	fl.StringVar(&f.choice, "choice", "small", "grid of the comparison of modes: none, small or full")
	fl.BoolVar(&f.valid, "validate", false, "check every byte received (the results include the time for this)")
	fl.BoolVar(&f.pin, "pin", true, "pin each rank to its own processor")
	fl.StringVar(&f.verbsBy, "verbs-by", "", "measure verbs by running this program under the given command")
	fl.StringVar(&f.progress, "progress", "auto", "progress on standard error: auto (a bar, or a line at intervals) or all (a line per point)")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "no progress on standard error")
	return cmd
}

// oneOf checks the values of a list flag.
func oneOf(flag string, values, allowed []string) error {
	for i, v := range values {
		if !slices.Contains(allowed, v) {
			return fmt.Errorf("--%s %q: want some of %s", flag, v, strings.Join(allowed, ", "))
		}
		if slices.Contains(values[:i], v) {
			return fmt.Errorf("--%s: %s occurs twice", flag, v)
		}
	}
	if len(values) == 0 {
		return fmt.Errorf("--%s: want some of %s", flag, strings.Join(allowed, ", "))
	}
	return nil
}

// requests builds one request for each fabric from the flags; its errors are usage
// errors.
func (f *reportFlags) requests(changed func(string) bool) ([]bench.Request, error) {
	named := changed("fabrics") || changed("fabric")
	if named {
		if err := oneOf("fabrics", f.fabrics, []string{"shm", "tcp", "verbs", "none"}); err != nil {
			return nil, err
		}
		if slices.Contains(f.fabrics, "none") {
			if len(f.fabrics) > 1 {
				return nil, errors.New("--fabrics none excludes other fabrics")
			}
			if len(f.add) == 0 {
				return nil, errors.New("--fabrics none without --add: want something to report")
			}
			f.fabrics = nil
		}
	}
	if f.format != "html" && f.format != "json" {
		return nil, fmt.Errorf("--format %q: want html or json", f.format)
	}
	if err := errors.Join(oneOf("tests", f.tests, []string{"lat", "bw", "rate"}), oneOf("ops", f.ops, []string{"put", "get", "send", "eager", "fadd", "cas"})); err != nil {
		return nil, err
	}
	if f.time <= 0 || f.count <= 0 {
		return nil, errors.New("--time and --count: want positive values")
	}
	if f.budget <= 0 {
		return nil, fmt.Errorf("--choice-budget %v: want a positive time", f.budget)
	}
	if f.progress != "auto" && f.progress != "all" {
		return nil, fmt.Errorf("--progress %q: want auto or all", f.progress)
	}
	if changed("verbs-by") && (f.format != "html" || len(strings.Fields(f.verbsBy)) == 0) {
		return nil, errors.New("--verbs-by: want a command, and --format html")
	}
	plans, err := f.plans(changed("sizes"))
	if err != nil {
		return nil, err
	}
	if !slices.Contains([]string{"none", "small", "full"}, f.choice) {
		return nil, fmt.Errorf("--choice %q: want none, small or full", f.choice)
	}
	check := bench.Request{Plans: slices.Clone(plans), Label: f.label}
	if err := check.Check(); err != nil {
		return nil, err
	}
	if !named {
		f.fabrics = session.Usable()
	}
	if f.verbsBy != "" && !slices.Contains(f.fabrics, "verbs") {
		f.fabrics = append(f.fabrics, "verbs")
	}
	var out []bench.Request
	for _, fabric := range f.fabrics {
		out = append(out, bench.Request{Fabric: fabric, Plans: slices.Clone(plans), Label: f.label, Pin: f.pin})
	}
	return out, nil
}

// plans returns the series that are measured over every fabric.
func (f *reportFlags) plans(sized bool) ([]bench.Plan, error) {
	sizes := map[bench.Test]string{bench.Lat: reportLatSizes, bench.BW: reportBWSizes}
	if sized {
		sizes = map[bench.Test]string{bench.Lat: f.sizes, bench.BW: f.sizes}
	}
	var out []bench.Plan
	for _, t := range f.tests {
		for _, o := range f.ops {
			p := bench.Plan{Test: bench.Test(t), Op: bench.Op(o), Time: f.time, Count: f.count, Validate: f.valid}
			atomic := p.Op == bench.FAdd || p.Op == bench.CAS
			if atomic && p.Test == bench.BW {
				continue
			}
			if s := sizes[p.Test]; s != "" && !atomic || sized && s == "" && p.Test != bench.Rate {
				var err error
				if p.Size, err = bench.ParseSizes(s); err != nil {
					return nil, fmt.Errorf("--sizes: %w", err)
				}
				if p.Op == bench.Eager {
					if p.Size = ringable(p.Size); len(p.Size) == 0 {
						continue
					}
				}
			}
			out = append(out, p)
		}
	}
	return out, nil
}

// run measures and writes the report.
func (f *reportFlags) run(ctx context.Context, s streams, reqs []bench.Request) error {
	rep := &report.Report{When: time.Now()}
	for _, name := range f.add {
		if err := readFile(name, rep.Add); err != nil {
			return fmt.Errorf("--add: %w", err)
		}
	}
	if f.format == "json" {
		return f.lines(ctx, s, reqs, rep)
	}
	var err error
	if f.out, err = outDir(f.out, reportPage); err != nil {
		return err
	}
	failed := f.measure(ctx, s, reqs, rep)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(failed, f.write(s, rep))
}

// measure adds the results of every request. The failure of a fabric becomes a note, and
// the other fabrics are still measured.
func (f *reportFlags) measure(ctx context.Context, s streams, reqs []bench.Request, rep *report.Report) error {
	total := 0
	for i := range reqs {
		_ = reqs[i].Check() // checked before; it sets the defaults that Points counts
		total += reqs[i].Points() + f.modelSteps()
	}
	var bar io.Writer
	if !f.quiet {
		bar = s.err
	}
	p := newProgress(bar, total)
	p.all = f.progress == "all"
	var failed error
	for _, req := range reqs {
		if req.Fabric == "verbs" && f.verbsBy != "" {
			if err := f.elsewhere(ctx, req, rep, p); err != nil {
				rep.Notes = append(rep.Notes, "verbs was not measured")
				failed = errors.Join(failed, err)
			}
			continue
		}
		n := 0
		// A progress bar and other text would mix on one terminal.
		var said bytes.Buffer
		err := session.Local(ctx, req, &said, func(r bench.Result) error {
			n++
			p.step(pointText(&r))
			rep.Results = append(rep.Results, r)
			return nil
		})
		if err != nil {
			text := strings.TrimSpace(said.String())
			if text == "" {
				text = err.Error()
			}
			note := fmt.Sprintf("%s: %d of %d points measured: %s", req.Fabric, n, req.Points(), strings.TrimPrefix(text, "rmabench: "))
			rep.Notes = append(rep.Notes, note)
			failed = errors.Join(failed, errors.New(note))
			p.skip(req.Points() - n + f.modelSteps())
		} else if err := f.model(ctx, req.Fabric, rep, p); err != nil {
			rep.Notes = append(rep.Notes, err.Error())
			failed = errors.Join(failed, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	p.close(failed == nil)
	return failed
}

// write writes the files of the directory, and the summary.
func (f *reportFlags) write(s streams, rep *report.Report) error {
	bench.Sort(rep.Results)
	var html, lines bytes.Buffer
	if err := rep.WriteHTML(&html); err != nil {
		return err
	}
	if err := rep.WriteLines(&lines); err != nil {
		return err
	}
	page := filepath.Join(f.out, reportPage)
	if err := errors.Join(writeFile(page, html.Bytes()), writeFile(filepath.Join(f.out, "results.jsonl"), lines.Bytes())); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if err := rep.WriteSummary(s.out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.out, "\n%s: %d points, with plots; every number: results.jsonl beside it\n", page, len(rep.Results))
	return err
}

// lines writes the results of --format json.
func (f *reportFlags) lines(ctx context.Context, s streams, reqs []bench.Request, rep *report.Report) error {
	k, err := newSink(s.out, "json", f.out)
	if err != nil {
		return err
	}
	defer k.discard()
	failed := f.measure(ctx, s, reqs, rep)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case len(rep.Results) == 0:
		return failed
	}
	if err := rep.WriteLines(k.w); err != nil {
		return err
	}
	return errors.Join(failed, k.commit()) // measured results are kept
}
