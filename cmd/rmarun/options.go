package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed33544411/rma/internal/launch"
	"github.com/seed33544411/rma/internal/settings"
	"github.com/seed33544411/rma/internal/topo"
	"github.com/seed33544411/rma/internal/wireup"
)

// minHang is the least that the ranks take as RMA_HANG_TIMEOUT.
const minHang = 100 * time.Millisecond

// options are what the command line says.
type options struct {
	launch.Spec
	bind            string
	policy          topo.Policy // of bind, after check
	verbose, report bool
}

func (o *options) flags(f *pflag.FlagSet) {
	f.IntVarP(&o.N, "np", "n", 0, "number of ranks (required); -np is accepted as with mpirun")
	f.BoolVar(&o.Prefix, "tag", false, "print output by whole lines, tagged with the rank: [3] line")
	f.BoolVar(&o.KeepGoing, "keep-going", false, "let the other ranks continue when one has failed")
	f.DurationVar(&o.HangTimeout, "hang-timeout", 0, "treat a rank that makes no progress for this time as failed (exit code 125)")
	f.DurationVar(&o.Timeout, "timeout", 0, "end the job after this time (exit code 124)")
	f.DurationVar(&o.Grace, "grace", launch.DefaultGrace, "time between SIGTERM and SIGKILL")
	f.StringVar(&o.bind, "bind", topo.None.String(), "bind ranks to cores: none, scatter or compact")
	f.BoolVar(&o.BindProgress, "bind-progress", false, "with --bind: put each rank's progress thread on a free core of the rank's NUMA node")
	f.BoolVar(&o.report, "report-bindings", false, "print the cores of the ranks, and those that --bind-progress takes, on standard error")
	f.StringVar(&o.Wireup, "wireup", "unix", "socket of the wire-up server: unix or tcp (loopback)")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log the events of the wire-up server")
	f.StringVar(&o.Wireup, "rendezvous", "unix", "the name of --wireup until 0.1")
}

// check refuses flags that make no job.
func (o *options) check() error {
	switch {
	case o.Timeout < 0 || o.Grace <= 0:
		return errUsage{errors.New("--timeout and --grace want positive durations such as 30s")}
	case o.HangTimeout != 0 && o.HangTimeout < minHang:
		return errUsage{fmt.Errorf("--hang-timeout %v: want at least %v", o.HangTimeout, minHang)}
	case o.Wireup != "unix" && o.Wireup != "tcp":
		return errUsage{fmt.Errorf("--wireup %q: want unix or tcp", o.Wireup)}
	case o.N < 1:
		return errUsage{fmt.Errorf("-n %d: want at least 1 rank", o.N)}
	case o.N > wireup.MaxRanks:
		return errUsage{fmt.Errorf("-n %d: want at most %d ranks", o.N, wireup.MaxRanks)}
	}
	var err error
	switch o.policy, err = topo.ParsePolicy(o.bind); {
	case err != nil:
		return errUsage{fmt.Errorf("--bind %q: want none, scatter or compact", o.bind)}
	case o.BindProgress && o.policy == topo.None:
		return errUsage{errors.New("--bind-progress wants --bind scatter or compact")}
	}
	return nil
}

// launch runs the program, args[0], and returns the exit code. An error that launch.Run has said is not returned.
func (o *options) launch(ctx context.Context, args []string) (code int, err error) {
	var assumed []string
	if o.Bind, assumed = launch.Place(o.policy, o.N); o.report {
		if err := launch.WriteBindings(o.Stderr, o.Bind, assumed); err != nil {
			return 1, err
		}
	}
	o.Path, o.Args = args[0], args[1:]
	vars, _ := settings.Environment() // the ranks report invalid values, for which rmarun has no use
	vars.WarnUnknown(o.Stderr, "rmarun")
	var said atomic.Bool
	o.Say = func(text string) {
		said.Store(true)
		fmt.Fprintf(o.Stderr, "rmarun: %s\n", text)
	}
	level := slog.LevelError
	if o.verbose {
		level = slog.LevelInfo
	}
	o.Log = slog.New(slog.NewTextHandler(o.Stderr, &slog.HandlerOptions{Level: level}))
	code, err = launch.Run(ctx, o.Spec)
	if said.Load() {
		return code, nil // the reason was printed when it occurred
	}
	return code, err
}
