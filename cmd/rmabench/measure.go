package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/session"
)

// measureFlags are the flags of lat, bw and rate.
type measureFlags struct {
	test   bench.Test
	fabric string
	op     string
	sizes  string
	time   time.Duration
	iters  int64
	window int
	count  int
	valid  bool
	stall  time.Duration
	outFlags
	partnerFlags
	label string
	pin   bool
	mode  string
	tags  int
	batch int

	sampling, calibration time.Duration
}

func measureCommands(s streams) []*cobra.Command {
	var out []*cobra.Command
	for _, c := range []struct {
		test           bench.Test
		short, example string
		ops            string
	}{
		{bench.Lat, "Latency of an operation", "  rmabench lat\n  rmabench lat --op get --fabric tcp --sizes 8,4K,1M --time 500ms\n  rmabench lat --op fadd --format json\n  rmabench lat --fabric verbs --validate", "put, get, send, eager, fadd or cas"},
		{bench.BW, "Bandwidth of an operation", "  rmabench bw --sizes 4K:4M\n  rmabench bw --op get --window 16 --format csv --out bw.csv\n  rmabench bw --op send --mode scatter --sizes 64K:16M --fabric tcp", "put, get, send or eager"},
		{bench.Rate, "Message rate of an operation", "  rmabench rate\n  rmabench rate --op fadd --window 256\n  rmabench rate --sizes 8,64 --format go --count 10\n  rmabench rate --op send --mode gather --sizes 64\n  rmabench rate --op send --batch 32 --sizes 8,64", "put, get, send, eager, fadd or cas"},
	} {
		f := &measureFlags{test: c.test}
		cmd := &cobra.Command{
			Use: string(c.test), Short: c.short, Example: c.example, Args: noArgs,
			Long: c.short + ` between two ranks.

put, get, fadd and cas are operations of the link. send is a message of an
application, over the path that the engine uses: eager, gather or rendezvous, as the
cost model or --mode chooses; the table shows the modes used. eager is the ring
below it alone, up to ` + bench.FormatSize(bench.MaxEager) + `.

See rmabench --help for the definitions and the ways to start the ranks.`,
			RunE: func(cmd *cobra.Command, _ []string) error {
				req, err := f.request(cmd.Flags().Changed)
				if err != nil {
					return usage(err)
				}
				return f.run(cmd.Context(), s, req)
			},
		}
		fl := cmd.Flags()
		fl.StringVar(&f.fabric, "fabric", "auto", "shm, tcp, verbs, or auto: the first that works between the ranks")
		fl.StringVar(&f.op, "op", "put", c.ops)
		fl.StringVar(&f.mode, "mode", "", "send: "+strings.Join(bench.Modes, ", ")+" (default auto)")
		fl.DurationVar(&f.sampling, "sampling", bench.DefaultSampling, "send, mode auto: time for sampling the link")
		fl.DurationVar(&f.calibration, "calibration", bench.DefaultCalibration, "send, mode auto: time for fitting the model to whole batches")
		fl.StringVar(&f.sizes, "sizes", "", "message sizes, a list such as 8,4K,1M or a range by powers of two such as 8:4M (default "+sizesText(c.test)+")")
		fl.DurationVar(&f.time, "time", time.Second, "time per size, after a warm-up")
		fl.Int64Var(&f.iters, "iters", bench.DefaultIters, "minimum number of operations per size, even if they take longer than --time")
		if c.test != bench.Lat {
			def := bench.Plan{Test: c.test}.WithDefaults().Window
			fl.IntVar(&f.window, "window", def, "requests kept outstanding")
			fl.IntVar(&f.tags, "tags", 1, "send: number of tags, used by the messages in turn")
			fl.IntVar(&f.batch, "batch", 0, "send: through package rma, as applications do, in batches of this size; both ranks on this host (0: the layer below, one by one)")
		}
		fl.IntVar(&f.count, "count", 1, "number of repetitions of everything")
		fl.BoolVar(&f.valid, "validate", false, "check every byte received (the results include the time for this)")
		fl.DurationVar(&f.stall, "stall", bench.DefaultStall, "fail if nothing arrives for this time")
		f.outFlags.flags(fl, "table, json (one object per line), csv, or go (for benchstat)")
		fl.StringVar(&f.label, "label", "", "free text in every result, to distinguish merged results")
		f.partnerFlags.flags(fl, "measure")
		fl.BoolVar(&f.pin, "pin", true, "pin each rank to its own processor")
		out = append(out, cmd)
	}
	return out
}

func sizesText(t bench.Test) string {
	var s []string
	for _, n := range bench.DefaultSizes(t, bench.Put) {
		s = append(s, bench.FormatSize(n))
	}
	return strings.Join(s, ",")
}

// request builds the request from the flags; its errors are usage errors.
func (f *measureFlags) request(changed func(string) bool) (bench.Request, error) {
	p := bench.Plan{Test: f.test, Op: bench.Op(f.op), Time: f.time, Iters: f.iters, Window: f.window, Count: f.count, Validate: f.valid, Stall: f.stall, Mode: f.mode}
	if f.tags != 1 {
		p.Tags = f.tags
	}
	p.Batch = f.batch
	req := bench.Request{Fabric: f.fabric, Label: f.label, Pin: f.pin, Sampling: f.sampling, Calibration: f.calibration}
	if err := checkFabricAndFormat(f.fabric, &f.outFlags, bench.Formats); err != nil {
		return req, err
	}
	if changed("sizes") {
		var err error
		if p.Size, err = bench.ParseSizes(f.sizes); err != nil {
			return req, fmt.Errorf("--sizes: %w", err)
		}
	}
	// Zero stands for the default in a Plan; on the command line it is an error.
	for name, zero := range map[string]bool{"time": f.time == 0, "iters": f.iters == 0, "window": f.window == 0, "count": f.count == 0, "stall": f.stall == 0, "tags": f.tags <= 0, "sampling": f.sampling <= 0, "calibration": f.calibration <= 0} {
		if zero && changed(name) {
			return req, fmt.Errorf("--%s: want a positive value", name)
		}
	}
	if changed("op") && f.op == "" {
		return req, errors.New("--op: want an operation")
	}
	req.Plans = []bench.Plan{p}
	switch {
	case f.batch == 0:
	case p.Op != bench.Send:
		return req, fmt.Errorf("--batch: messages are posted in batches: want --op %s", bench.Send)
	case f.connect != "":
		return req, errors.New("--batch starts its ranks itself, on this host: not with --connect")
	default:
		return req, errors.Join(outside("--batch"), req.CheckEngine())
	}
	return req, req.Check()
}

// run measures and writes the results.
func (f *measureFlags) run(ctx context.Context, s streams, req bench.Request) error {
	if _, silent := f.inJob(); silent {
		return shown(session.InJob(ctx, req, nil)) // this rank has no results to write
	}
	k, err := newSink(s.out, f.format, f.out)
	if err != nil {
		return err
	}
	defer k.discard()
	bar := f.bar(s)
	if f.out == "" {
		bar = nil // the results themselves show the progress
	}
	p := newProgress(bar, req.Points())
	err = measure(ctx, s, req, &f.partnerFlags, func(r bench.Result) error {
		p.step(pointText(&r))
		return k.Write(r)
	})
	p.close(err == nil)
	if err != nil {
		return err
	}
	return k.commit()
}

// measure measures req between the ranks that the flags select.
func measure(ctx context.Context, s streams, req bench.Request, with *partnerFlags, emit session.Emit) (err error) {
	inJob, _ := with.inJob()
	switch {
	case with.connect != "":
		var secret []byte
		if secret, err = with.token.read(s.err); err == nil {
			err = session.Connect(ctx, with.connect, secret, req, emit)
		}
	case inJob:
		_, err = session.InJob(ctx, req, emit)
	case req.Plans[0].Batch > 0:
		err = session.EngineLocal(ctx, req, 1, s.err, emit)
	default:
		err = session.Local(ctx, req, s.err, emit)
	}
	return err
}
