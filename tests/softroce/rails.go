//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/seed33544411/rma/internal/bytesize"
)

// railsOptions are the flags of the rails command.
type railsOptions struct {
	Options
	ratios, fabrics, sizes, ops string
	sum                         string
	rounds, window              int
	time                        time.Duration
}

func parseRails(args []string) (railsOptions, error) {
	o := railsOptions{Options: Options{Topology: "rails"}}
	fs := flag.NewFlagSet("rails", flag.ContinueOnError)
	o.common(fs)
	fs.StringVar(&o.ratios, "ratios", "1:1,1:2,1:4,1:8", "ratios of the rates of the two networks")
	fs.StringVar(&o.sum, "sum", "32M", "the sum of both rates, in bytes a second: below what the machine can move")
	fs.StringVar(&o.fabrics, "fabrics", "verbs,tcp", "verbs, tcp")
	fs.StringVar(&o.sizes, "sizes", "4K,16K,64K,256K,1M,4M,16M", "sizes")
	fs.StringVar(&o.ops, "ops", "put,get,recv", "put, get, recv")
	fs.IntVar(&o.rounds, "rounds", 3, "number of repetitions")
	fs.IntVar(&o.window, "window", 4, "operations in flight")
	fs.DurationVar(&o.time, "time", 200*time.Millisecond, "time of a series")
	fs.DurationVar(&o.Timeout, "timeout", time.Hour, "time for everything, boot included")
	if err := parseFlags(fs, args); err != nil {
		return o, err
	}
	return o, o.check()
}

// cmdRails implements `softroce rails`: rmabench rails over two networks of several ratios of
// rates, in one boot. The first network of each ratio is the slower one.
func cmdRails(ctx context.Context, args []string) (int, error) {
	o, err := parseRails(args)
	if err != nil {
		return 0, err
	}
	_, code, err := runBench(ctx, o.Options, "rails.jsonl", o.steps)
	return code, err
}

// runBench builds rmabench, runs the steps that use it in one boot, and returns the results, which
// it also writes to a file of that name in the output directory.
func runBench(ctx context.Context, o Options, file string, steps func(bench string) ([]Step, error)) (lines []string, code int, err error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, harnessFailure, err
	}
	s, bin, remove, err := openBuilding(ctx, o)
	if err != nil {
		return nil, harnessFailure, err
	}
	defer remove()
	bench := filepath.Join(bin, "rmabench")
	if err := goTool(ctx, root, "build", "-o", bench, "./cmd/rmabench"); err != nil {
		return nil, harnessFailure, err
	}
	list, err := steps(bench)
	if err != nil {
		return nil, 0, err
	}
	plan, err := s.plan(o.Topology, "", list)
	if err != nil {
		return nil, harnessFailure, err
	}
	w := &resultLines{out: os.Stdout}
	results, err := s.run(ctx, plan, o.Timeout, w, os.Stderr)
	if err == nil {
		err = w.write(o.Out, file)
	}
	if err != nil {
		return nil, harnessFailure, err
	}
	return w.lines, combine(results), nil
}

// steps returns a step for each kind of link and ratio.
func (o *railsOptions) steps(bench string) (steps []Step, err error) {
	l, err := layoutOf("rails", 0)
	if err != nil {
		return nil, err
	}
	sum, err := bytesize.Parse(o.sum)
	if err != nil || sum < 1<<16 {
		return nil, usagef("-sum %q: want bytes a second", o.sum)
	}
	for _, fabric := range strings.Split(o.fabrics, ",") {
		ends := make([]string, len(l.ends))
		for i, e := range l.ends {
			switch fabric {
			case "verbs":
				ends[i] = e.dev
			case "tcp":
				ends[i] = e.addr
			default:
				return nil, usagef("-fabrics %q: want verbs, tcp", fabric)
			}
		}
		for _, ratio := range strings.Split(o.ratios, ",") {
			a, b, ok := strings.Cut(ratio, ":")
			x, xerr := strconv.ParseInt(a, 10, 32)
			y, yerr := strconv.ParseInt(b, 10, 32)
			if !ok || xerr != nil || yerr != nil || x < 1 || y < 1 {
				return nil, usagef("-ratios %q: want such as 1:4", ratio)
			}
			steps = append(steps, Step{
				Name: fmt.Sprintf("%s, rates %s", fabric, ratio), Timeout: stepTimeout,
				Rates: []int64{sum * x / (x + y), sum * y / (x + y)},
				Argv: []string{bench, "rails", "-q", "--fabric", fabric, "--format", "json", "--rates", ratio,
					"--links", ends[0] + "," + ends[2], "--peer-links", ends[1] + "," + ends[3],
					"--sizes", o.sizes, "--ops", o.ops, "--window", strconv.Itoa(o.window),
					"--rounds", strconv.Itoa(o.rounds), "--time", o.time.String()},
			})
		}
	}
	return steps, nil
}
