package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/compare"
	"github.com/seed33544411/rma/internal/bench/report"
	"github.com/seed33544411/rma/internal/bench/session"
)

// compareFlags are the flags of compare.
type compareFlags struct {
	outFlags
	fabric, tests, mode string
	through             string
	batch               int
	peers               []string
	rounds, window      int
	ranks               int
	time, limit         time.Duration
	html                string
	plot                bool
	pin, check          bool
	install             bool
}

// Layers that our messages may go through. Puts always go through the engine.
const (
	throughEngine  = "engine"
	throughChannel = "channel"
)

// compareFabrics are the fabrics to which peers can be restricted.
var compareFabrics = []string{"shm", "tcp", "verbs"}

func compareCommand(s streams) *cobra.Command {
	f := &compareFlags{}
	cmd := &cobra.Command{
		Use: "compare", Short: "Compare with other libraries on the same link", Args: startsRanks,
		Long: `Measure messages of this library and of others over the same link, in alternation,
and print the ratios. Each side runs as two processes of this host, on a processor of
their own if there are two.

  lat:SIZE    half a round trip of a message, the median, µs
  bw:SIZE     bandwidth of a stream of messages, 1e6 bytes per second
  rate:SIZE   messages per second of such a stream, millions
  put:SIZE    half a round trip of puts into memory that the target polls, µs
  putbw:SIZE  bandwidth of a stream of puts

A ratio above 1 means that this library is ahead, also for latency; it is the median
of the rounds' ratios. docs/perf.md defines the measurements of each side, and says
where a definition favours one of them.

Peers and their tests:

` + compare.Help() + `
Tests that a peer does not support are omitted, with a message. Peers that are not
installed are an error, except with --peers all, which omits them as well. --install
installs them, and the compilers that their programs need.

Exit code: 0 success, 1 failure, or a ratio below 1 with --check, 2 wrong flags, 3 a
named peer is not installed.`,
		Example: `  rmabench compare --fabric tcp --peers ucx
  rmabench compare --fabric shm --peers all --install --tests put:8,lat:8,rate:8,bw:1M
  rmabench compare --fabric shm --tests rate:64 --mode gather --rounds 9
  rmabench compare --fabric shm --ranks 8 --time 1s     # four pairs at once on two processors
  rmabench compare --fabric verbs --tests rate:64,lat:8 --format json   # in a VM`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := f.request()
			if err != nil {
				return usage(err)
			}
			return f.run(cmd.Context(), s, req)
		},
	}
	f.flags(cmd.Flags())
	return cmd
}

func (f *compareFlags) flags(fl *pflag.FlagSet) {
	fl.StringVar(&f.fabric, "fabric", "shm", strings.Join(compareFabrics, ", "))
	fl.StringSliceVar(&f.peers, "peers", []string{"ucx"}, "peers to compare with: all (those installed), or "+strings.Join(compare.Names(), ", "))
	fl.StringVar(&f.tests, "tests", compare.Defaults, "what to measure")
	fl.StringVar(&f.mode, "mode", bench.Modes[0], "mode of this library's messages: "+strings.Join(bench.Modes, ", "))
	fl.StringVar(&f.through, "through", throughEngine, "layer that carries this library's messages: engine, the public interface, or channel, the layer below it")
	fl.IntVar(&f.batch, "batch", 0, "post the messages of a stream in batches of this size, through the engine (0: one by one, as peers do)")
	fl.IntVar(&f.window, "window", bench.DefaultRateWindow, "messages of this library kept outstanding in a stream")
	fl.IntVar(&f.rounds, "rounds", compare.DefaultRounds, "number of rounds")
	fl.IntVar(&f.ranks, "ranks", 2, "number of ranks: all pairs measure at once, pinned to the same two processors")
	fl.DurationVar(&f.time, "time", compare.DefaultTime, "time per test, side and round")
	fl.DurationVar(&f.limit, "limit", 0, fmt.Sprintf("time limit of a peer's run (0: 20 times --time, at least %v)", compare.LeastLimit))
	f.outFlags.flags(fl, "table or json (one object per line)")
	fl.StringVar(&f.html, "html", "", "also write a page with plots to this file")
	fl.BoolVar(&f.plot, "plot", false, "also print the ratios as text bars")
	fl.BoolVar(&f.pin, "pin", true, "pin each process to its own processor")
	fl.BoolVar(&f.install, "install", false, "install missing peers: Debian packages with apt-get (as root), Go programs with go install")
	fl.BoolVar(&f.check, "check", false, "exit code 1 if any ratio is below 1")
}

// request builds the request from the flags; its errors are usage errors.
func (f *compareFlags) request() (req compare.Request, err error) {
	req = compare.Request{Fabric: f.fabric, Rounds: f.rounds, Pairs: f.ranks / 2, Time: f.time, Limit: f.limit}
	switch {
	case f.ranks < 2 || f.ranks%2 != 0 || f.ranks > 2*compare.MaxPairs:
		return req, fmt.Errorf("--ranks %d: want an even number, 2 to %d", f.ranks, 2*compare.MaxPairs)
	case !slices.Contains(compareFabrics, f.fabric):
		return req, fmt.Errorf("--fabric %q: want %s", f.fabric, strings.Join(compareFabrics, ", "))
	case f.through != throughEngine && f.through != throughChannel:
		return req, fmt.Errorf("--through %q: want %s or %s", f.through, throughEngine, throughChannel)
	case f.batch > 0 && f.through == throughChannel:
		return req, errors.New("--batch requires --through engine")
	case f.plot && f.format == "json":
		return req, errors.New("--plot requires the table format, not --format json")
	case f.rounds <= 0 || f.time <= 0:
		return req, errors.New("--rounds and --time: want positive values")
	case f.limit < 0:
		return req, fmt.Errorf("--limit %v: want 0 or a positive value", f.limit)
	}
	if err := f.outFlags.check(rowFormats); err != nil {
		return req, err
	}
	if req.Tests, err = compare.ParseTests(f.tests); err != nil {
		return req, fmt.Errorf("--tests: %w", err)
	}
	if req.Peers, err = compare.Find(f.peers); err != nil {
		return req, fmt.Errorf("--peers: %w", err)
	}
	req.AnyPeer = slices.Equal(f.peers, []string{compare.All})
	for _, t := range req.Tests {
		r := f.ours(t)
		if err := r.Check(); err != nil {
			return req, err
		}
	}
	return req, req.Valid()
}

// ours returns our measurement for a test.
func (f *compareFlags) ours(t compare.Test) bench.Request {
	p := bench.Plan{Test: bench.Test(t.Kind), Op: bench.Send, Mode: f.mode, Size: []int{t.Size}, Time: f.time, Window: f.window, Batch: f.batch}
	switch t.Kind {
	case compare.Put:
		p.Test, p.Op, p.Mode = bench.Lat, bench.Put, ""
	case compare.PutBW:
		p.Test, p.Op, p.Mode = bench.BW, bench.Put, ""
	}
	return bench.Request{Fabric: f.fabric, Plans: []bench.Plan{p}, Pin: f.pin}
}

// run compares and writes the rows.
func (f *compareFlags) run(ctx context.Context, s streams, req compare.Request) error {
	if f.fabric == "verbs" {
		at, err := verbsPlace()
		if err != nil {
			return err
		}
		req.Place = at
	}
	if f.pin {
		req.Place.Cores = bench.Cores()
	}
	if f.install {
		if err := compare.Install(ctx, req.Fabric, req.Peers, s.err); err != nil {
			return err
		}
	}
	left, err := req.Check()
	if err != nil {
		return err
	}
	for _, why := range left {
		fmt.Fprintf(s.err, "rmabench: left out: %v\n", why)
	}
	rows, err := gather(f.bar(s), len(req.Tests)*len(req.Peers),
		func(r *compare.Row) string {
			return fmt.Sprintf("%s %s %s %s", r.Peer, r.Fabric, r.Test, bench.FormatSize(r.Size))
		},
		func(emit func(compare.Row) error) error {
			return compare.Run(ctx, req, f.measureOurs(s, req.Pairs), emit)
		})
	if err != nil {
		return err
	}
	err = writeRows(&f.outFlags, s, rows, func(w io.Writer, rows []compare.Row) error {
		err := compare.WriteText(w, rows)
		if err == nil && f.plot {
			_, err = fmt.Fprintln(w)
			err = errors.Join(err, compare.WritePlot(w, rows))
		}
		return err
	})
	page := func(w io.Writer) error { return report.WriteCompare(w, rows, time.Now()) }
	if err := errors.Join(err, writePage(f.html, page)); err != nil {
		return err
	}
	behind := func(r compare.Row) bool { return r.Rounds == 0 || r.Ratio < 1 }
	if f.check && slices.ContainsFunc(rows, behind) {
		return errSilent // the output contains the reason
	}
	return nil
}

// measureOurs returns how this library is measured, by pairs of ranks.
func (f *compareFlags) measureOurs(s streams, pairs int) compare.Ours {
	return func(ctx context.Context, t compare.Test) (res bench.Result, err error) {
		if f.through == throughEngine || t.OneSided() {
			return res, session.EngineLocal(ctx, f.ours(t), pairs, s.err, func(r bench.Result) error { res = r; return nil })
		}
		return res, session.LocalPairs(ctx, f.ours(t), pairs, s.err, func(all []bench.Result) error { res = t.Combine(all); return nil })
	}
}
