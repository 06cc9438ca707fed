package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
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
	failed []string
}

func main() {
	links := flag.String("links", "loopback,shm,tcp", "what to run over, loopback first")
	names := flag.String("suites", os.Getenv("SUITES"), "which ones, by name; all if empty")
	out := flag.String("json", "", "write the results to this file, too")
	dir := flag.String("dir", filepath.Join(".cache", "suites"), "where to work")
	limit := flag.Duration("timeout", 10*time.Minute, "for one suite over one link")
	flag.Parse()
	ok, err := run(*dir, split(*links), split(*names), *out, *limit)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
}

func split(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// run reports whether nothing failed that should not.
func run(dir string, links, names []string, out string, limit time.Duration) (bool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false, err
	}
	for _, n := range names {
		if !slices.ContainsFunc(suites, func(s suite) bool { return s.name == n }) {
			return false, fmt.Errorf("no suite %q", n)
		}
	}
	fmt.Println("suites: copying GOROOT to", dir)
	s, err := newStand(dir)
	if err != nil {
		return false, err
	}
	var all []*result
	for _, su := range suites {
		if len(names) > 0 && !slices.Contains(names, su.name) {
			continue
		}
		at, err := s.prepare(su)
		var base *result
		for _, link := range links {
			r := &result{Suite: su.name, Link: link, Why: map[string]string{}}
			if all = append(all, r); err != nil {
				r.Error = err.Error()
				continue
			}
			s.measure(r, su, at, limit)
			if link == "loopback" {
				base = r
			} else {
				s.explain(r, base, su, at, limit)
			}
			fmt.Printf("%-20s %-9s %d of %d, %.0f s %s\n", r.Suite, r.Link, r.Passed, r.Passed+r.Failed, r.Took, r.Error)
		}
	}
	if out != "" {
		b, err := json.MarshalIndent(all, "", "  ")
		if err == nil {
			err = os.WriteFile(out, append(b, '\n'), 0o666)
		}
		if err != nil {
			return false, err
		}
	}
	return table(os.Stdout, all, links), nil
}

// test runs tests of the suite and calls f for the end of each that is at the top of
// its package; the ones of a suite in one function, Test/X, count each.
func (s *stand) test(su suite, dir, link, pattern string, limit time.Duration, f func(test string, passed bool)) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit+time.Minute)
	defer cancel()
	args := []string{"test", "-json", "-vet=off", "-count=1", "-ldflags=-checklinkname=0", "-timeout=" + limit.String()}
	if pattern != "" {
		args = append(args, "-run="+pattern)
	}
	if su.skip != "" {
		args = append(args, "-skip="+su.skip)
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
	cmd.WaitDelay = time.Minute
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.dir, strings.ReplaceAll(su.name, "/", "_")+"-"+link+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	unfinished := map[string]bool{}
	seen := 0
	for sc := bufio.NewReader(stdout); ; {
		line, err := sc.ReadString('\n')
		var ev struct{ Action, Package, Test, Output string }
		if json.Unmarshal([]byte(line), &ev) == nil {
			_, _ = io.WriteString(log, ev.Output)
			key := ev.Package + " " + ev.Test
			switch level := strings.Count(ev.Test, "/"); {
			case ev.Test == "", level > 1, level == 1 && !strings.HasPrefix(ev.Test, "Test/"):
			case ev.Action == "run":
				unfinished[key] = true
			case ev.Action == "pass", ev.Action == "fail":
				delete(unfinished, key)
				seen++
				if ev.Test != "Test" {
					f(ev.Test, ev.Action == "pass")
				}
			case ev.Action == "skip":
				delete(unfinished, key)
			}
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	for key := range unfinished { // the process ended in it
		_, test, _ := strings.Cut(key, " ")
		f(test, false)
	}
	if seen == 0 && err != nil {
		return fmt.Errorf("no test ran: %w: %.300s", err, stderr.String())
	}
	return nil
}

// measure runs all of the suite.
func (s *stand) measure(r *result, su suite, dir string, limit time.Duration) {
	start := time.Now()
	if err := s.test(su, dir, r.Link, "", limit, r.count); err != nil {
		r.Error = err.Error()
	}
	r.Took = time.Since(start).Seconds()
}

func (r *result) count(test string, passed bool) {
	if passed {
		r.Passed++
		return
	}
	r.Failed++
	r.failed = append(r.failed, test)
}

// explain says of each test that failed why it may, and runs the others again.
func (s *stand) explain(r, base *result, su suite, dir string, limit time.Duration) {
	for _, test := range r.failed {
		why := su.differs[test]
		if base != nil && slices.Contains(base.failed, test) {
			why = "fails over sockets as well"
		}
		for try := 1; why == "" && try <= 2; try++ {
			good := false
			var parts []string
			for _, p := range strings.Split(test, "/") {
				parts = append(parts, "^"+regexp.QuoteMeta(p)+"$")
			}
			err := s.test(su, dir, r.Link, strings.Join(parts, "/"), limit, func(name string, passed bool) {
				good = good || name == test && passed
			})
			if err == nil && good {
				why = "passed when run again by itself"
				r.Passed++
				r.Failed--
			}
		}
		if why == "" {
			r.New = append(r.New, test)
			why = "?"
		}
		r.Why[test] = why
	}
}

// table prints what was found, and reports whether nothing failed that should not.
func table(w io.Writer, all []*result, links []string) bool {
	ok := true
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nsuite\t"+strings.Join(links, "\t"))
	for i := 0; i < len(all); i += len(links) {
		fmt.Fprint(tw, all[i].Suite)
		for _, r := range all[i : i+len(links)] {
			fmt.Fprintf(tw, "\t%d/%d", r.Passed, r.Passed+r.Failed)
			if r.Error != "" {
				fmt.Fprint(tw, " !")
			}
		}
		fmt.Fprintln(tw)
	}
	err := tw.Flush()
	for _, r := range all {
		if r.Error != "" {
			ok = false
			fmt.Fprintf(w, "\n%s over %s: %s\n", r.Suite, r.Link, r.Error)
		}
		for _, test := range slices.Sorted(maps.Keys(r.Why)) {
			fmt.Fprintf(w, "%s over %s: %s: %s\n", r.Suite, r.Link, test, r.Why[test])
		}
		ok = ok && len(r.New) == 0
	}
	return ok && err == nil
}
