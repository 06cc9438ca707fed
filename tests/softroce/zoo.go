//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// zooTag is the build tag of the shim; other builds do not contain it.
const zooTag = "rma_zoo"

// zooPart is one set of tests that every profile runs.
type zooPart struct {
	name, pkg string
	run       string // as go test -run
}

var zooParts = []zooPart{
	{name: "link", pkg: "fabric/ibv", run: "^(TestConformance|TestZoo.*)$"},
	{name: "engine", pkg: ".", run: "^Test(PutGetAtomics|WindowAccess|FetchIsAtomic|MessagesOfPrivateMemory|RecvBatch|GetAccumulateReserves|StaleKey|RegisteredMemory)$/^ibv$"},
}

// zooLine is the result of one profile: a line of zoo.jsonl.
type zooLine struct {
	Profile  string  `json:"profile"`
	Like     string  `json:"like"`
	Quirks   string  `json:"quirks"`
	Tests    int     `json:"tests"`
	Failures int     `json:"failures"`
	Seconds  float64 `json:"seconds"`
}

// cmdZoo implements `softroce zoo`: the tests of the link and of the engine on every
// profile, in one boot.
func cmdZoo(ctx context.Context, args []string) (int, error) {
	o := Options{Topology: "one"}
	fs := flag.NewFlagSet("zoo", flag.ContinueOnError)
	o.common(fs)
	names := fs.String("profiles", "", "only these, separated by commas")
	fs.DurationVar(&o.Timeout, "timeout", time.Hour, "time for everything, boot included")
	if err := parseFlags(fs, args); err != nil {
		return 0, err
	}
	if err := o.check(); err != nil {
		return 0, err
	}
	chosen, err := chooseProfiles(*names)
	if err != nil {
		return 0, err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return harnessFailure, err
	}
	s, built, err := openBuilding(ctx, o)
	if err != nil {
		return harnessFailure, err
	}
	defer built.Close()
	bin := built.Path
	if err := buildZoo(ctx, root, bin); err != nil {
		return harnessFailure, err
	}
	plan, err := s.plan("one", "", zooSteps(root, bin, chosen, s.kind == "qemu"))
	if err != nil {
		return harnessFailure, err
	}
	count := &zooCount{out: os.Stdout, steps: map[string]*zooLine{}}
	results, err := s.run(ctx, plan, o.Timeout, count, os.Stderr)
	if err != nil {
		return harnessFailure, err
	}
	lines := zooLines(chosen, count.steps, results[0])
	writeZooTable(os.Stdout, lines)
	if o.Out != "" {
		if err := writeZooLines(filepath.Join(o.Out, "zoo.jsonl"), lines); err != nil {
			return harnessFailure, err
		}
	}
	return combine(results), nil
}

func chooseProfiles(names string) ([]profile, error) {
	if names == "" {
		return profiles, nil
	}
	var out []profile
	for _, n := range strings.Split(names, ",") {
		i := slices.IndexFunc(profiles, func(p profile) bool { return p.name == n })
		if i < 0 {
			var all []string
			for _, p := range profiles {
				all = append(all, p.name)
			}
			return nil, usagef("no profile %q: want some of %s", n, strings.Join(all, ","))
		}
		out = append(out, profiles[i])
	}
	return out, nil
}

func zooBinary(bin string, p zooPart) string { return filepath.Join(bin, p.name+".test") }

func buildZoo(ctx context.Context, root, bin string) error {
	for _, p := range zooParts {
		if err := goTool(ctx, root, "test", "-c", "-tags", zooTag, "-o", zooBinary(bin, p), "./"+p.pkg); err != nil {
			return err
		}
	}
	return nil
}

// zooSteps returns the steps of every profile. Their names begin with the profile's.
func zooSteps(root, bin string, chosen []profile, emulated bool) (steps []Step) {
	for _, pr := range chosen {
		for _, part := range zooParts {
			run := part.run
			if pr.only != "" {
				if part != zooParts[0] {
					continue
				}
				run = pr.only
			}
			s := Step{
				Name: pr.name + ", " + part.name, Timeout: stepTimeout, Dir: filepath.Join(root, part.pkg),
				Env: append([]string{"RMA_REQUIRE_RDMA=1", "RMA_ZOO=" + pr.quirks}, pr.env...),
				Argv: []string{zooBinary(bin, part), "-test.v", "-test.short", "-test.run=" + run,
					"-test.timeout=" + (stepTimeout - stepGrace).String()},
			}
			if emulated {
				s.Env = append(s.Env, "RMA_TEST_SLOW=8")
			}
			steps = append(steps, s)
		}
	}
	return steps
}

// zooCount passes on the output of the steps except of tests that pass, and counts tests.
type zooCount struct {
	out   io.Writer
	rest  []byte
	now   *zooLine
	steps map[string]*zooLine // by profile
}

func (c *zooCount) Write(b []byte) (int, error) {
	c.rest = append(c.rest, b...)
	for {
		i := bytes.IndexByte(c.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		line := c.rest[:i+1]
		c.rest = c.rest[i+1:]
		if !c.line(string(line)) {
			continue
		}
		if _, err := c.out.Write(line); err != nil {
			return 0, err
		}
	}
}

// line counts the test whose end a line reports, and tells whether to show the line.
func (c *zooCount) line(l string) bool {
	word := strings.TrimSpace(l)
	switch {
	case strings.HasPrefix(word, "--- PASS:"):
		c.count(0)
		return false
	case strings.HasPrefix(word, "--- FAIL:"):
		c.count(1)
	case strings.HasPrefix(word, "--- SKIP:"), strings.HasPrefix(l, "=== "), word == "PASS":
		return false
	case strings.HasPrefix(l, "--- "): // of runSteps
		if name, _, ok := strings.Cut(strings.TrimPrefix(word, "--- "), ", "); ok {
			if c.steps[name] == nil {
				c.steps[name] = &zooLine{}
			}
			c.now = c.steps[name]
		}
	}
	return true
}

func (c *zooCount) count(failed int) {
	if c.now != nil {
		c.now.Tests++
		c.now.Failures += failed
	}
}

// zooLines returns the results of the profiles. A step that failed without a failed test,
// or ran none, counts as a failure.
func zooLines(chosen []profile, counts map[string]*zooLine, r Result) (out []zooLine) {
	for _, p := range chosen {
		l := zooLine{Profile: p.name, Like: p.like, Quirks: p.quirks}
		if c := counts[p.name]; c != nil {
			l.Tests, l.Failures = c.Tests, c.Failures
		}
		broken, ran, want := false, 0, len(zooParts)
		if p.only != "" {
			want = 1
		}
		for _, s := range r.Steps {
			if name, _, _ := strings.Cut(s.Name, ", "); name == p.name {
				l.Seconds += s.Seconds
				broken = broken || s.Code != 0
				ran++
			}
		}
		if l.Failures == 0 && (broken || ran < want || l.Tests == 0) {
			l.Failures = 1
		}
		out = append(out, l)
	}
	return out
}

func writeZooTable(w io.Writer, lines []zooLine) {
	fmt.Fprintf(w, "\n%-8s %6s %8s %8s  %s\n", "profile", "tests", "failures", "seconds", "stands for")
	sum := 0.0
	for _, l := range lines {
		fmt.Fprintf(w, "%-8s %6d %8d %8.1f  %s\n", l.Profile, l.Tests, l.Failures, l.Seconds, l.Like)
		sum += l.Seconds
	}
	fmt.Fprintf(w, "%d profiles in %.0f s\n", len(lines), sum)
}

func writeZooLines(path string, lines []zooLine) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	for _, l := range lines {
		if err := e.Encode(l); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
