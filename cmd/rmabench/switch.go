package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
	"github.com/seed33544411/rma/internal/bench/report"
)

// switchFlags are the flags of switch in addition to those of choice.
type switchFlags struct {
	choiceFlags
	n     []int
	most  string
	check bool
}

func switchCommand(s streams) *cobra.Command {
	f := &switchFlags{}
	cmd := &cobra.Command{
		Use: "switch", Short: "Find steps in bandwidth where the model's choice changes", Args: noArgs,
		Long: `Find the sizes at which the cost model's choice for batches of n equal messages
changes, and measure bandwidth at every size within 3 bytes of each, and at every power
of two, in alternation. A good model changes the mode where both modes take the same
time: bandwidth must not step down.

  step   bandwidth at and above the switch over bandwidth below it, less 1; the median
         of the rounds
  noise  the uncertainty of the step: twice its standard error, or the difference of two
         sizes on one side, whichever is larger

A step down is a step of less than -2 % beyond noise. Bandwidth is the number of bytes of
a batch over half a round trip.`,
		Example: `  rmabench switch --fabric shm
  rmabench switch --fabric tcp -n 1,64 --rounds 15 --check
  rmabench switch --fabric verbs --format json --out switch.jsonl    # in a VM
  rmabench switch --fabric shm --html switch.html --add switch.jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := f.request(cmd.Flags().Changed, f.curves)
			if err != nil {
				return usage(err)
			}
			return f.take(cmd.Context(), s, req, f.run)
		},
	}
	f.common(cmd)
	fl := cmd.Flags()
	fl.Lookup("time").DefValue, f.time = (100 * time.Millisecond).String(), 100*time.Millisecond
	fl.Lookup("time").Usage = "time per size"
	fl.IntSliceVarP(&f.n, "batches", "n", choice.DefaultCurves, "messages in a batch")
	fl.StringVar(&f.most, "max", bench.FormatSize(choice.DefaultMost), "largest message; batches have at most 16M")
	f.quietFlag(fl)
	fl.BoolVar(&f.check, "check", false, "exit code 1 if there is a step down")
	fl.StringVar(&f.html, "html", "", "also write a page with plots to this file")
	fl.StringArrayVar(&f.add, "add", nil, "also show the results in this file of JSON lines on the page (may be repeated)")
	return cmd
}

// curves sets the request from the flags of switch.
func (f *switchFlags) curves(r *choice.Request) error {
	var errs error
	if r.Curves = f.n; len(f.n) == 0 {
		errs = errors.New("-n: want batch sizes such as 1,16")
	}
	sizes, err := bench.ParseSizes(f.most)
	switch {
	case err != nil:
		errs = errors.Join(errs, fmt.Errorf("--max: %w", err))
	case len(sizes) != 1:
		errs = errors.Join(errs, fmt.Errorf("--max %q: want one size", f.most))
	default:
		r.Most = sizes[0]
	}
	return errs
}

// run measures and writes the curves.
func (f *switchFlags) run(ctx context.Context, s streams, req choice.Request) error {
	added, err := addLines(f.add, choice.ReadCurves)
	if err != nil {
		return err
	}
	cs, err := gatherChoice(ctx, &f.choiceFlags, s, req, f.bar(s), len(req.Curves), func(c *choice.Curve) string { return c.Fabric + " n=" + strconv.Itoa(c.N) },
		func(emit func(choice.Curve) error) choice.Emit { return choice.Emit{Curve: emit} })
	if err != nil {
		return err
	}
	if err := writeRows(&f.outFlags, s, cs, choice.WriteCurves); err != nil {
		return err
	}
	page := func(w io.Writer) error { return report.WriteCurves(w, slices.Concat(cs, added), time.Now()) }
	if err := writePage(f.html, page); err != nil {
		return err
	}
	if f.check && slices.ContainsFunc(cs, func(c choice.Curve) bool { return c.Down() }) {
		return errSilent // the output contains the reason
	}
	return nil
}
