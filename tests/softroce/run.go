//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/tempdir"
)

// errTimeout is the cause when the time of a whole run is over.
var errTimeout = errors.New("time-out")

// session runs plans on one kind of machine.
type session struct {
	cache *cache
	kind  string // native, qemu, uml
	opt   Options
	self  string
	qemu  *qemuKernel
	uml   string
}

// openSession selects the kind of machine, and builds its kernel if necessary.
func openSession(ctx context.Context, opt Options) (*session, error) {
	c, err := openCache()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &session{cache: c, opt: opt, self: self, kind: opt.VM}
	if s.kind == "auto" {
		if err := nativePossible(); err == nil && opt.Topology != "guests" {
			s.kind = "native"
		} else {
			s.kind = "qemu"
		}
	}
	switch s.kind {
	case "native":
		if err := nativePossible(); err != nil {
			return nil, err
		}
		return s, requirePackages("common")
	case "qemu":
		if err := requirePackages("common", "qemu"); err != nil {
			return nil, err
		}
		s.qemu, err = buildQemuKernel(ctx, c)
	case "uml":
		if err := requirePackages("common"); err != nil {
			return nil, err
		}
		s.uml, err = buildUML(ctx, c)
	}
	return s, err
}

// openBuilding is openSession, with a directory for what is built for the run.
func openBuilding(ctx context.Context, opt Options) (s *session, bin *tempdir.Dir, err error) {
	if s, err = openSession(ctx, opt); err == nil {
		bin, err = s.cache.newRun()
	}
	return s, bin, err
}

// plan returns the common part of all runs' plans. A relative working directory or output
// directory is relative to the caller's.
func (s *session) plan(topology, netem string, steps []Step) (Plan, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Plan{}, err
	}
	p := Plan{
		Kind: s.kind, Topology: topology, Nodes: 1, Netem: netem, Dir: dir,
		Env: passEnv(os.Environ(), s.opt.Env), CPUMHz: hostMHz(), Steps: steps,
	}
	if topology == "guests" {
		p.Nodes = 2
	}
	if s.opt.Out != "" {
		if p.Out, err = filepath.Abs(s.opt.Out); err != nil {
			return p, err
		}
		if err := os.MkdirAll(p.Out, 0o755); err != nil {
			return p, fmt.Errorf("make output directory: %w", err)
		}
	}
	return p, nil
}

// run runs one plan and returns the result of every guest.
func (s *session) run(ctx context.Context, plan Plan, timeout time.Duration, stdout, stderr io.Writer) ([]Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w: not done after %v", errTimeout, timeout))
	defer cancel()
	d, err := s.cache.newRun()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	dir := d.Path
	if s.kind == "native" {
		r, err := runNative(ctx, dir, plan, stdout, stderr)
		return []Result{r}, err
	}
	wires := make([]*os.File, 2)
	if plan.Nodes == 2 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("join guests: %w", err)
		}
		for i, fd := range fds {
			wires[i] = os.NewFile(uintptr(fd), "wire")
			defer wires[i].Close()
		}
	}
	var guests []guestSpec
	for n := range plan.Nodes {
		p := plan
		p.Node = n
		ctl := filepath.Join(dir, fmt.Sprintf("g%d", n))
		if err := os.Mkdir(ctl, 0o755); err != nil {
			return nil, err
		}
		guests = append(guests, guestSpec{ctl: ctl, plan: p, wire: wires[n]})
	}
	var l launcher
	switch s.kind {
	case "qemu":
		l = &qemu{kernel: s.qemu, opt: s.opt, self: s.self}
	case "uml":
		cpus, release := pickCPUs(s.cache, plan.Nodes)
		defer release()
		l = &uml{linux: s.uml, opt: s.opt, self: s.self, cpus: cpus}
	}
	return runGuests(ctx, l, guests, stdout, stderr)
}

// combine returns one exit code for the guests: the first that is not zero among those that
// ran to their end.
func combine(results []Result) int {
	ran := false
	for _, r := range results {
		if len(r.Steps) == 0 && r.Error == "" {
			continue // ended because its peer had failed
		}
		ran = true
		if c := r.Code(); c != 0 {
			return c
		}
	}
	if !ran {
		return harnessFailure
	}
	return 0
}

// cmdRun implements `softroce run`.
func cmdRun(ctx context.Context, opt Options) (int, error) {
	start := time.Now()
	s, err := openSession(ctx, opt)
	if err != nil {
		return harnessFailure, err
	}
	plan, err := s.plan(opt.Topology, opt.Netem, []Step{{Argv: opt.Argv}})
	if err != nil {
		return harnessFailure, err
	}
	built := time.Since(start)
	results, err := s.run(ctx, plan, opt.Timeout, os.Stdout, os.Stderr)
	if err != nil {
		return harnessFailure, err
	}
	if opt.Verbose {
		say("%s, %s: kernel at hand after %.1f s, devices up %.1f s after power-on, program took %.1f s, all %.1f s",
			s.kind, describe(opt.Topology), built.Seconds(), results[0].Ready, results[0].seconds(), time.Since(start).Seconds())
	}
	return combine(results), nil
}

func (r Result) seconds() (t float64) {
	for _, s := range r.Steps {
		t += s.Seconds
	}
	return t
}
