//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// Options are the flags of the run command, and the base of the suite and the perf
// comparison.
type Options struct {
	VM       string        // native, qemu, uml, or auto
	Topology string        // one, two, rails, guests
	Netem    string        // tc netem arguments
	Timeout  time.Duration // of the whole run, boot included
	SMP      int           // guest CPUs; 0 lets the machine choose
	NUMA     int           // NUMA nodes among which they are divided; 0: one
	Mem      string        // guest memory; "" lets the machine choose
	Out      string        // host directory writable inside; "" none
	Accel    string        // qemu's accelerator
	Verbose  bool          // show boot steps and timings
	Env      []string      // K=V for the program besides RMA_* and GO*
	Argv     []string      // the program
}

// errUsage marks errors of the command line: exit code 2.
var errUsage = errors.New("usage")

func usagef(format string, a ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, a...))
}

type listFlag []string

func (l *listFlag) String() string     { return strings.Join(*l, ",") }
func (l *listFlag) Set(s string) error { *l = append(*l, s); return nil }

// common registers the flags of every command that starts machines.
func (o *Options) common(fs *flag.FlagSet) {
	fs.StringVar(&o.VM, "vm", "auto", "native, qemu, uml, or auto: native where rdma_rxe is loadable, else qemu")
	fs.IntVar(&o.SMP, "smp", 0, "guest CPUs (qemu: 2, or 1 each for two guests; uml has one)")
	fs.IntVar(&o.NUMA, "numa", 0, "NUMA nodes among which guest CPUs and memory are divided (qemu)")
	fs.StringVar(&o.Mem, "mem", "", "guest memory, such as 2G")
	fs.StringVar(&o.Accel, "accel", "tcg", "qemu accelerator: tcg or kvm")
	fs.BoolVar(&o.Verbose, "v", false, "show how the guest was started and its timings")
	fs.StringVar(&o.Out, "out", "", "host `directory` the program may write to, at the same path inside")
	fs.Var((*listFlag)(&o.Env), "env", "`K=V` for the program, besides RMA_* and GO* (repeatable)")
}

// parseFlags parses args. All its errors but flag.ErrHelp are errUsage.
func parseFlags(fs *flag.FlagSet, args []string) error {
	err := fs.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		err = fmt.Errorf("%w: %w", errUsage, err)
	}
	return err
}

// parseRun parses `run [flags] -- program args...`.
func parseRun(args []string, stderr io.Writer) (Options, error) {
	o := Options{}
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintln(stderr, "usage: tests/softroce/run [flags] -- program [args...]")
		fs.PrintDefaults()
	}
	o.common(fs)
	fs.StringVar(&o.Topology, "topology", "one", "one device, two devices across a veth pair, two such pairs (\"rails\"), or two guests (\"guests\")")
	fs.StringVar(&o.Netem, "netem", "", "tc netem arguments for the wire, such as 'loss 1% delay 1ms'")
	fs.DurationVar(&o.Timeout, "timeout", 300*time.Second, "time for everything, boot included")
	if err := parseFlags(fs, args); err != nil {
		return o, err
	}
	o.Argv = fs.Args()
	if len(o.Argv) == 0 {
		return o, usagef("no program: give one after --")
	}
	return o, o.check()
}

// check refuses combinations that would otherwise fail later and less clearly.
func (o *Options) check() error {
	switch o.VM {
	case "auto", "native", "qemu", "uml":
	default:
		return usagef("-vm %q: want native, qemu, uml or auto", o.VM)
	}
	switch o.Topology {
	case "one", "two", "rails", "guests":
	default:
		return usagef("-topology %q: want one, two, rails or guests", o.Topology)
	}
	if o.Topology == "guests" && o.VM == "native" {
		return usagef("-topology guests needs a machine to itself twice: use -vm qemu or uml")
	}
	if o.Netem != "" && o.Topology == "one" {
		return usagef("-netem needs a wire: rxe hands packets for its own device over inside, use -topology two or guests")
	}
	if o.Accel != "tcg" && o.Accel != "kvm" {
		return usagef("-accel %q: want tcg or kvm", o.Accel)
	}
	if o.SMP < 0 {
		return usagef("-smp %d: want a positive number", o.SMP)
	}
	if o.NUMA != 0 && (o.VM != "qemu" || o.Topology == "guests" || o.NUMA < 0 || o.NUMA > max(o.SMP, defaultSMP)) {
		return usagef("-numa %d: want -vm qemu, one guest, and a CPU for each node", o.NUMA)
	}
	if o.VM == "uml" && o.SMP > 1 {
		return usagef("-smp %d: User-Mode Linux has one CPU", o.SMP)
	}
	if o.Timeout <= 0 {
		return usagef("-timeout %v: want a positive time", o.Timeout)
	}
	for _, e := range o.Env {
		if k, _, ok := strings.Cut(e, "="); !ok || k == "" {
			return usagef("-env %q: want K=V", e)
		}
	}
	return nil
}

// passEnv selects from environ the variables for programs inside: the project's own
// variables and Go's run-time knobs, then extra.
func passEnv(environ, extra []string) []string {
	var out []string
	for _, e := range environ {
		k, _, _ := strings.Cut(e, "=")
		switch {
		case strings.HasPrefix(k, "RMA_SOFTROCE_"): // the harness's, set again inside
		case strings.HasPrefix(k, "RMA_"), k == "GOMAXPROCS", k == "GODEBUG", k == "GOTRACEBACK", k == "GOGC":
			out = append(out, e)
		}
	}
	return append(out, extra...)
}
