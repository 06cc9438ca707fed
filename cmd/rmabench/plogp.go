package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/report"
	"github.com/seed33544411/rma/internal/bench/session"
	"github.com/seed33544411/rma/internal/jobenv"
	"github.com/seed33544411/rma/sampling"
)

const plogpPage = "plogp.html" // in the directory of --format html

// plogpFlags are the flags of plogp.
type plogpFlags struct {
	outFlags
	partnerFlags
	fabric, label, profiles, max string
	budget, calibrate            time.Duration
	compare, save, pin, startup  bool
	rounds                       int
	add                          []string
}

func plogpCommand(s streams) *cobra.Command {
	f := &plogpFlags{}
	cmd := &cobra.Command{
		Use: "plogp", Short: "Measure the parameters of the cost model for a link", Args: noArgs,
		Long: `Measure the parameters of the cost model for the link between two ranks, as the
engine does when it starts: the time for which an operation of m bytes occupies the
sender (Os), the gap between operations (g), the latency including both sides' software
(Ls), the latency of reads (Lh), the processor time of posting (a + b per request), of
copies (C), of registration (R) and of a poll without result at the receiver (Or).

Every parameter has a confidence from 0 (a guess) to 1. Sampling ends when the
confidence of all is high, or when the budget is used up.

With --compare, sample the link and compare the result with the saved profile, or with
another sampling just before if there is none; exit code 1 if the link has drifted.

With --startup, start the engines of two ranks without sampling, with a saved profile,
and without sampling again, in alternation; the difference is the cost of a saved profile.

  --format table   for reading; html: a page with plots in the directory --out
  --format json    one object per line; --format html --add shows such lines, for
                   example from a virtual machine, beside the others`,
		Example: `  rmabench plogp
  rmabench plogp --fabric tcp --budget 200ms --format json
  rmabench plogp --fabric shm --budget 1s --calibrate 2s --save
  rmabench plogp --fabric shm --save && rmabench plogp --fabric shm --compare
  rmabench plogp --fabric shm --startup
  rmabench plogp --connect a:7471 --compare      # between two hosts
  rmabench plogp --fabric shm --format html --add verbs.jsonl --out out/`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := f.request()
			if err != nil {
				return usage(err)
			}
			if !f.startup && cmd.Flags().Changed("rounds") {
				return usage(errors.New("--rounds requires --startup"))
			}
			if f.startup {
				return f.runStartup(cmd.Context(), s, cmd.Flags().Changed("budget"))
			}
			return f.run(cmd.Context(), s, req)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.fabric, "fabric", "auto", "shm, tcp, verbs, or auto: the first that works between the ranks; none: only the results of --add")
	fl.DurationVar(&f.budget, "budget", sampling.DefaultBudget, "time for both directions together")
	fl.DurationVar(&f.calibrate, "calibrate", 0, "also measure whole batches for this time, and fit the terms that single operations do not show")
	fl.StringVar(&f.max, "max", bench.FormatSize(sampling.DefaultMaxSize), "largest size, a power of two")
	f.outFlags.flags(fl, "table, json or html")
	fl.Lookup("out").Usage = "write to this file instead of standard output; for html, the directory (default out/)"
	fl.Lookup("quiet").Usage = "print only errors on standard error"
	fl.StringVar(&f.label, "label", "", "free text in the result")
	f.partnerFlags.flags(fl, "sample")
	fl.BoolVar(&f.compare, "compare", false, "report the changes, and whether they are drift")
	fl.BoolVar(&f.startup, "startup", false, "measure how much sampling, and a saved profile, add to the start of an engine")
	fl.IntVar(&f.rounds, "rounds", bench.DefaultStartupRounds, "--startup: number of starts of each kind")
	fl.BoolVar(&f.save, "save", false, "save the result as the profile of the fabric")
	fl.StringVar(&f.profiles, "profiles", "", "directory of saved profiles (default: rma in the user's cache directory)")
	fl.StringArrayVar(&f.add, "add", nil, "html: also show the results in this file of JSON lines (may be repeated)")
	fl.BoolVar(&f.pin, "pin", true, "pin each rank to its own processor")
	return cmd
}

// request builds the request from the flags; its errors are usage errors.
func (f *plogpFlags) request() (bench.PlogpRequest, error) {
	req := bench.PlogpRequest{Fabric: f.fabric, Budget: f.budget, Calibrate: f.calibrate, Compare: f.compare, Save: f.save, Pin: f.pin, Label: f.label, Profiles: f.profiles}
	if f.fabric != "none" && !slices.Contains(bench.Fabrics, f.fabric) {
		return req, fmt.Errorf("--fabric %q: want %s or none", f.fabric, strings.Join(bench.Fabrics, ", "))
	}
	if err := f.check([]string{"table", "json", "html"}); err != nil {
		return req, err
	}
	if len(f.add) > 0 && f.format != "html" {
		return req, errors.New("--add is for --format html")
	}
	if f.fabric == "none" && len(f.add) == 0 {
		return req, errors.New("--fabric none without --add: want something to show")
	}
	if f.budget == 0 {
		return req, errors.New("--budget 0: want a positive value")
	}
	sizes, err := bench.ParseSizes(f.max)
	if err != nil {
		return req, fmt.Errorf("--max: %w", err)
	}
	if len(sizes) != 1 || sizes[0]&(sizes[0]-1) != 0 || sizes[0] < 4<<10 || sizes[0] > 64<<20 {
		return req, fmt.Errorf("--max %q: want one power of two from 4K to 64M", f.max)
	}
	req.MaxSize = sizes[0]
	if req.Profiles == "" && (f.compare || f.save) {
		if req.Profiles, err = sampling.DefaultDir(); err != nil {
			return req, fmt.Errorf("--profiles: %w", err)
		}
	}
	return req, req.Check()
}

// run samples and writes the results.
func (f *plogpFlags) run(ctx context.Context, s streams, req bench.PlogpRequest) error {
	if _, silent := f.inJob(); silent { // this rank has no files to read or write
		if f.fabric == "none" {
			return nil
		}
		_, shows, err := session.PlogpInJob(ctx, req)
		return shown(shows, err)
	}
	all, err := addLines(f.add, bench.ReadPlogp)
	if err == nil && f.format == "html" {
		f.out, err = outDir(f.out, plogpPage)
	}
	if err != nil {
		return err
	}
	drift := false
	if f.fabric != "none" {
		if !f.quiet && isTerminal(s.err) {
			fmt.Fprintf(s.err, "sampling %s, %v\n", f.fabric, f.budget)
		}
		var res *bench.PlogpResult
		switch {
		case f.connect != "":
			var secret []byte
			if secret, err = f.token.read(s.err); err == nil {
				res, err = session.PlogpConnect(ctx, f.connect, secret, req)
			}
			if err != nil {
				return err
			}
		case jobenv.InJob():
			if res, _, err = session.PlogpInJob(ctx, req); err != nil {
				return err
			}
		default:
			if res, err = session.PlogpLocal(ctx, req, s.err); err != nil {
				return err
			}
		}
		drift = res.Drift
		all = append([]bench.PlogpResult{*res}, all...)
	}
	if err := f.show(s, all); err != nil {
		return err
	}
	if drift {
		return errSilent // the output contains the reason
	}
	return nil
}

// show writes the results in the format of the flags.
func (f *plogpFlags) show(s streams, rs []bench.PlogpResult) error {
	var text, lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	for i := range rs {
		if i > 0 {
			text.WriteByte('\n')
		}
		if err := errors.Join(rs[i].WriteText(&text), enc.Encode(&rs[i])); err != nil {
			return err
		}
	}
	if f.format == "html" {
		return f.page(s, rs, text.Bytes(), lines.Bytes())
	}
	b := text.Bytes()
	if f.format == "json" {
		b = lines.Bytes()
	}
	if f.out == "" {
		_, err := s.out.Write(b)
		return err
	}
	return f.file(b)
}

// page writes plogp.html and plogp.jsonl to the directory, and the tables to standard
// output.
func (f *plogpFlags) page(s streams, rs []bench.PlogpResult, text, lines []byte) error {
	var html bytes.Buffer
	if err := report.WritePlogp(&html, rs, time.Now()); err != nil {
		return err
	}
	page := filepath.Join(f.out, plogpPage)
	if err := errors.Join(writeFile(page, html.Bytes()), writeFile(filepath.Join(f.out, "plogp.jsonl"), lines)); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	_, err := fmt.Fprintf(s.out, "%s\n%s\n", text, page)
	return err
}
