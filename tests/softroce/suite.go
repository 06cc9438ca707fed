//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// stepTimeout bounds one test binary inside: it ends a hang, and is ample in an emulated guest
// on a busy machine. Go's own time-out is a little shorter so that its stacks are printed.
const (
	stepTimeout = 30 * time.Minute
	stepGrace   = 5 * time.Second
)

type suiteOptions struct {
	Options
	Topologies string
	Pkgs       []string
	Run        string
	Race       bool
	emulated   bool // the guest's processors are slow
}

func parseSuite(args []string, stderr io.Writer) (suiteOptions, error) {
	o := suiteOptions{}
	fs := flag.NewFlagSet("suite", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintln(stderr, "usage: softroce suite [flags] [package directories...]\nWithout directories: every package of the list in suite.go.")
		fs.PrintDefaults()
	}
	o.common(fs)
	fs.StringVar(&o.Topologies, "topologies", "one,two,guests", "which of one, two, guests")
	fs.StringVar(&o.Netem, "netem", defaultNetem, "disturbances, separated by semicolons, each one more pass over two devices and two guests; \"\" for none")
	fs.StringVar(&o.Run, "run", "", "only tests matching this, as go test -run")
	fs.BoolVar(&o.Race, "race", false, "build the tests with the race detector")
	fs.DurationVar(&o.Timeout, "timeout", 2*time.Hour, "time for each topology")
	if err := parseFlags(fs, args); err != nil {
		return o, err
	}
	o.Pkgs = fs.Args()
	for _, topo := range strings.Split(o.Topologies, ",") {
		o.Topology = topo
		probe := o.Options
		probe.Netem = ""
		if probe.VM == "native" {
			probe.VM = "auto" // guests are omitted, or run in qemu, below
		}
		if err := probe.check(); err != nil {
			return o, err
		}
	}
	return o, nil
}

// cmdSuite implements `softroce suite`: it builds on the host and runs inside, once for
// every topology; all binaries of a topology in one boot.
func cmdSuite(ctx context.Context, args []string) (int, error) {
	o, err := parseSuite(args, os.Stderr)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	root, err := moduleRoot(ctx)
	if err != nil {
		return harnessFailure, err
	}
	chosen, err := chooseTargets(root, o.Pkgs)
	if err != nil {
		return harnessFailure, err
	}
	topologies := strings.Split(o.Topologies, ",")
	chosen = slices.DeleteFunc(chosen, func(t target) bool {
		return !slices.ContainsFunc(t.topologies, func(topo string) bool { return slices.Contains(topologies, topo) })
	})
	o.Topology = "one"
	s, built, err := openBuilding(ctx, o.Options)
	if err != nil {
		return harnessFailure, err
	}
	defer built.Close()
	bin := built.Path
	kernel := time.Since(start)
	if err := buildTests(ctx, root, bin, chosen, o.Race); err != nil {
		return harnessFailure, err
	}
	say("%s; kernel ready after %.1f s, %d test binaries built in %.1f s", s.kind, kernel.Seconds(), len(chosen), (time.Since(start) - kernel).Seconds())
	code := 0
	var summary []string
	for _, topo := range topologies {
		ts := s
		if topo == "guests" && s.kind == "native" {
			opt := o.Options
			opt.VM = "qemu"
			if ts, err = openSession(ctx, opt); err != nil {
				say("NOT RUN: two guests need qemu: %v", err)
				summary = append(summary, fmt.Sprintf("NOT RUN  two guests: %v", err))
				if os.Getenv("RMA_REQUIRE_RDMA") == "1" {
					code = harnessFailure
				}
				continue
			}
		}
		o.emulated = ts.kind == "qemu"
		steps := suiteSteps(root, bin, topo, chosen, o)
		if len(steps) == 0 {
			continue
		}
		lines, c, err := runTopology(ctx, ts, topo, steps, o)
		summary = append(summary, lines...)
		if err != nil {
			return harnessFailure, err
		}
		if code == 0 {
			code = c
		}
	}
	fmt.Printf("\nsoftroce on %s:\n  %s\n", s.kind, strings.Join(summary, "\n  "))
	say("done in %.1f s", time.Since(start).Seconds())
	return code, nil
}

func runTopology(ctx context.Context, s *session, topo string, steps []Step, o suiteOptions) (summary []string, code int, err error) {
	start, silent := time.Now(), false
	plan, err := s.plan(topo, "", steps)
	if err != nil {
		return nil, 0, err
	}
	results, err := s.run(ctx, plan, o.Timeout, os.Stdout, os.Stderr)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", describe(topo), err)
	}
	for n, r := range results {
		for _, st := range r.Steps {
			where := ""
			if len(results) > 1 {
				where = fmt.Sprintf(" (guest %d)", n)
			}
			if topo != "one" {
				where += fmt.Sprintf(", %.1f MB crossed", float64(st.Wire)/1e6)
			}
			summary = append(summary, fmt.Sprintf("%-4s %5.1f s  %s%s", map[bool]string{true: "ok", false: "FAIL"}[st.Code == 0], st.Seconds, st.Name, where))
			if topo != "one" && st.Code == 0 && st.Wire < leastCrossed && o.Run == "" {
				summary = append(summary, "FAIL          it was to use both devices, and hardly a packet crossed: see RMA_RDMA_DEVICE2 in docs/softroce.md")
				silent = true
			}
		}
	}
	say("%s: devices up after %.1f s, all %.1f s", describe(topo), results[0].Ready, time.Since(start).Seconds())
	code = combine(results)
	if code == 0 && silent {
		code = 1
	}
	return summary, code, nil
}

// leastCrossed is the least number of bytes that a test of two ends transfers; address
// resolution and the like stay below it.
const leastCrossed = 10_000

// chooseTargets returns the requested targets, or all. A listed target whose package does
// not exist is an error: otherwise an outdated list would pass without testing anything.
func chooseTargets(root string, pkgs []string) ([]target, error) {
	var out []target
	for _, t := range targets {
		if len(pkgs) > 0 && !slices.ContainsFunc(pkgs, func(p string) bool { return cleanPkg(p) == t.pkg }) {
			continue
		}
		tests, err := filepath.Glob(filepath.Join(root, t.pkg, "*_test.go"))
		if err != nil {
			return nil, err
		}
		if len(tests) == 0 {
			return nil, fmt.Errorf("suite: no tests in %s; the list is in tests/softroce/suite.go", t.pkg)
		}
		out = append(out, t)
	}
	for _, p := range pkgs {
		if !slices.ContainsFunc(targets, func(t target) bool { return cleanPkg(p) == t.pkg }) {
			// any other package: on one and two devices
			out = append(out, target{pkg: cleanPkg(p), topologies: []string{"one", "two"}})
		}
	}
	return out, nil
}

func cleanPkg(p string) string { return filepath.ToSlash(filepath.Clean(p)) }

// binaryName is the name that go test gives the test binary of a package, and go build a
// command; it is unique among the targets.
func (t target) binaryName() string {
	name := path.Base(t.pkg)
	if t.script != "" {
		return name
	}
	if t.pkg == "." {
		name = "rma"
	}
	return name + ".test"
}

// buildTests builds the test binaries on the host: inside an emulated machine this would
// take ten times as long. Without debugging data they are linked in half the time.
// Make lint vets them.
func buildTests(ctx context.Context, root, bin string, chosen []target, race bool) error {
	flags := []string{"-o", bin + "/", "-ldflags=-s -w"}
	if race {
		flags = append(flags, "-race")
	}
	tests, commands := append([]string{"test", "-c", "-vet=off"}, flags...), append([]string{"build"}, flags...)
	none := [2]int{len(tests), len(commands)}
	for _, t := range chosen {
		if pkg := "./" + t.pkg; t.script != "" {
			commands = append(commands, pkg)
		} else if !slices.Contains(tests, pkg) {
			tests = append(tests, pkg)
		}
	}
	for i, args := range [][]string{tests, commands} {
		if len(args) == none[i] {
			continue
		}
		if err := goTool(ctx, root, args...); err != nil {
			return err
		}
	}
	return nil
}

// goTool builds something that runs in the guest.
func goTool(ctx context.Context, root string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	ownGroup(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build what runs in the guest: go %s: %w\n%s", args[0], err, out)
	}
	return nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	mod := strings.TrimSpace(string(out))
	if err != nil || mod == "" || mod == os.DevNull {
		return "", fmt.Errorf("suite: not inside the module: run it from the project's directory")
	}
	return filepath.Dir(mod), nil
}
