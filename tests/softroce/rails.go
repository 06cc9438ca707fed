//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/internal/bytesize"
)

// railsOptions are the flags of the rails command.
type railsOptions struct {
	benchOptions
	ratios, fabrics, sum string
	window               int
}

func parseRails(args []string) (railsOptions, error) {
	var o railsOptions
	fs := o.flags("rails", "rails", 3)
	fs.StringVar(&o.ratios, "ratios", "1:1,1:2,1:4,1:8", "ratios of the rates of the two networks")
	fs.StringVar(&o.sum, "sum", "32M", "the sum of both rates, in bytes a second: below what the machine can move")
	fs.StringVar(&o.fabrics, "fabrics", "verbs,tcp", "verbs, tcp")
	fs.StringVar(&o.sizes, "sizes", "4K,16K,64K,256K,1M,4M,16M", "sizes")
	fs.StringVar(&o.ops, "ops", "put,get,recv", "put, get, recv")
	fs.IntVar(&o.window, "window", 4, "operations in flight")
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
				Argv: append(o.argv(bench, "rails", fabric), "--rates", ratio, "--ops", o.ops, "--window", strconv.Itoa(o.window),
					"--links", ends[0]+","+ends[2], "--peer-links", ends[1]+","+ends[3]),
			})
		}
	}
	return steps, nil
}
