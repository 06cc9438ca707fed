package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	links := flag.String("links", "loopback,shm,tcp", "links to run over, loopback first")
	names := flag.String("suites", os.Getenv("SUITES"), "names of the suites to run; all if empty")
	out := flag.String("json", "", "also write the results to this file")
	dir := flag.String("dir", filepath.Join(".cache", "suites"), "working directory")
	limit := flag.Duration("timeout", 10*time.Minute, "time limit of one suite over one link")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, *dir, split(*links), split(*names), *out, *limit)
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
func run(ctx context.Context, dir string, links, names []string, out string, limit time.Duration) (bool, error) {
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
			s.measure(ctx, r, su, at, limit)
			if link == "loopback" {
				base = r
			} else {
				s.explain(ctx, r, base, su, at, limit)
			}
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
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
