package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// result is one suite over one link.
type result struct {
	Suite  string            `json:"suite"`
	Link   string            `json:"link"`
	Passed int               `json:"passed"`
	Failed int               `json:"failed"`
	Why    map[string]string `json:"why,omitempty"` // of those that failed
	New    []string          `json:"new,omitempty"` // failures that nothing explains
	Took   float64           `json:"seconds"`
	Error  string            `json:"error,omitempty"`

	tests map[string]bool // those that ran, "package Test", and whether they passed
}

// maxRuns is how often the tests behind one that ends the process are run again without it.
const maxRuns = 4

// measure runs all of the suite. A test that ends its process, by a hang or a panic, has
// failed, and those that it kept from running are run without it.
func (s *stand) measure(ctx context.Context, r *result, su suite, dir string, limit time.Duration) {
	start := time.Now()
	r.tests = map[string]bool{}
	var cut []string
	for run := 1; ; run++ {
		skip := ""
		if run > 1 {
			skip = patterns(slices.Collect(maps.Keys(r.tests)))
		}
		cuts, err := s.test(ctx, su, dir, r.Link, "", skip, limit, r.tests)
		cut = append(cut, cuts...)
		if err != nil && run == 1 {
			r.Error = err.Error()
		}
		if err != nil || len(cuts) == 0 {
			break
		}
		if run == maxRuns {
			r.Error = fmt.Sprintf("%v ended the process: not all tests ran", cut)
			break
		}
	}
	r.count()
	r.Took = time.Since(start).Seconds()
}

func (r *result) count() {
	r.Passed, r.Failed = 0, 0
	for _, passed := range r.tests {
		if passed {
			r.Passed++
		} else {
			r.Failed++
		}
	}
}

// failed are the tests that failed, and those that ran over sockets only.
func (r *result) failed(base *result) (names []string) {
	for test, passed := range r.tests {
		if !passed {
			names = append(names, test)
		}
	}
	if base != nil {
		for test := range base.tests {
			if _, ran := r.tests[test]; !ran {
				r.tests[test] = false
				names = append(names, test)
			}
		}
	}
	slices.Sort(names)
	return names
}

// explain says of each test that failed why it may, and runs the others again, twice at
// most.
func (s *stand) explain(ctx context.Context, r, base *result, su suite, dir string, limit time.Duration) {
	for _, test := range r.failed(base) {
		why := su.differs[nameOf(test)]
		if base != nil {
			if passed, ran := base.tests[test]; ran && !passed {
				why = "fails over sockets as well"
			}
		}
		for try := 1; why == "" && try <= 2; try++ {
			again := map[string]bool{}
			if _, err := s.test(ctx, su, dir, r.Link, pattern(test), "", limit, again); err == nil && again[test] {
				why = "passed when run again by itself"
				r.tests[test] = true
			}
		}
		if why == "" {
			r.New = append(r.New, test)
			why = "?"
		}
		r.Why[test] = why
	}
	r.count()
}

// nameOf is the name of a test without its package.
func nameOf(test string) string { return test[strings.IndexByte(test, ' ')+1:] }

// pattern is what -run and -skip call a test.
func pattern(test string) string {
	parts := strings.Split(nameOf(test), "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

func patterns(tests []string) string {
	for i, t := range tests {
		tests[i] = pattern(t)
	}
	return strings.Join(tests, "|")
}

// test runs tests of the suite, of those that run names, or of all, the ones that neither
// the suite nor skip leaves out, and notes in tests which passed: those at the top of
// their package, and the ones of a suite in one function, Test/X. It returns those that
// were under way when a process ended, by itself, at limit or by ctx.
func (s *stand) test(ctx context.Context, su suite, dir, link, run, skip string, limit time.Duration, tests map[string]bool) (cut []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit+graceTime)
	defer cancel()
	args := []string{"test", "-json", "-vet=off", "-count=1", "-ldflags=-checklinkname=0", "-timeout=" + limit.String()}
	if run != "" {
		args = append(args, "-run="+run)
	}
	if skip = strings.Trim(su.skip+"|"+skip, "|"); skip != "" {
		args = append(args, "-skip="+skip)
	}
	for _, p := range su.pkgs {
		if su.module != "" && p != "." {
			p = "./" + p
		}
		args = append(args, p)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.goroot, "bin", "go"), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOROOT="+s.goroot, "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off", "GOTOOLCHAIN=local", "SUITES_LINK="+link)
	if su.module == "" {
		cmd.Env = append(cmd.Env, "GOFLAGS=")
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.WaitDelay = 2 * graceTime
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(s.dir, strings.ReplaceAll(su.name, "/", "_")+"-"+link+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	sweep := leadGroup(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer sweep()
	before := len(tests)
	cut = follow(stdout, log, tests)
	if err = cmd.Wait(); err != nil && len(tests) == before && len(cut) == 0 {
		return nil, fmt.Errorf("no test ran: %w: %.300s", err, stderr.String())
	}
	return cut, nil
}

// follow reads what go test -json writes. What tests print goes to log.
func follow(from io.Reader, log io.Writer, tests map[string]bool) (cut []string) {
	open := map[string]bool{}
	for in := bufio.NewReader(from); ; {
		line, err := in.ReadBytes('\n')
		var ev struct{ Action, Package, Test, Output string }
		if json.Unmarshal(line, &ev) == nil {
			_, _ = io.WriteString(log, ev.Output)
			test := ev.Package + " " + ev.Test
			switch level := strings.Count(ev.Test, "/"); {
			case ev.Test == "", level > 1, level == 1 && !strings.HasPrefix(ev.Test, "Test/"):
			case ev.Action == "run":
				open[test] = true
			case ev.Action == "pass", ev.Action == "fail":
				delete(open, test)
				if ev.Test != "Test" {
					tests[test] = ev.Action == "pass"
				}
			case ev.Action == "skip":
				delete(open, test)
			}
		}
		if err != nil {
			break
		}
	}
	for test := range open {
		if nameOf(test) != "Test" {
			tests[test] = false
			cut = append(cut, test)
		}
	}
	return cut
}
