//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// table writes rounds and faults by part, then figures and counts.
func table(w io.Writer, ps []*part, rounds []*round) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintf(t, "\npart\trounds\tbroken\tfigure\tn\tp50\tp99\tmax\tbound\tover\n")
	for _, p := range ps {
		n, broken := 0, 0
		took, counts := map[figure][]time.Duration{}, map[string]int{}
		for _, r := range rounds {
			if r.part != p {
				continue
			}
			n++
			broken += min(1, len(r.faults))
			for k, v := range r.took {
				took[k] = append(took[k], v...)
			}
			for k, v := range r.counts {
				counts[k] += v
			}
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t", p.name, n, broken)
		first := true
		row := func(format string, args ...any) {
			if !first {
				fmt.Fprint(t, "\t\t\t")
			}
			first = false
			fmt.Fprintf(t, format+"\n", args...)
		}
		for _, f := range byName(took) {
			v := slices.Sorted(slices.Values(took[f]))
			bound := "\t"
			if f.bound > 0 {
				within, _ := slices.BinarySearch(v, f.bound+1)
				bound = fmt.Sprintf("%v\t%d", f.bound, len(v)-within)
			}
			row("%s\t%d\t%v\t%v\t%v\t%s", f.name, len(v), at(v, 0.5), at(v, 0.99), at(v, 1), bound)
		}
		for _, k := range sorted(counts) {
			row("%s\t%d", k, counts[k])
		}
		if first {
			fmt.Fprintln(t)
		}
	}
}

// at returns the q-quantile of sorted times.
func at(v []time.Duration, q float64) time.Duration {
	return v[int(q*float64(len(v)-1))].Round(10 * time.Microsecond)
}

func byName(took map[figure][]time.Duration) []figure {
	return slices.SortedFunc(maps.Keys(took), func(a, b figure) int { return strings.Compare(a.name, b.name) })
}

// promises writes the number of checks and violations of each promise, and then the actions
// that this machine refused, so that they do not pass for done.
func promises(w io.Writer, rounds []*round) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintf(t, "\nbroken\tof\tpromise\n")
	for p := range promised {
		broken, of := 0, 0
		for _, r := range rounds {
			broken += r.broken[p.String()]
			of += r.held[p.String()]
		}
		fmt.Fprintf(t, "%d\t%d\tno %s\n", broken, of, p)
	}
	refused := map[string]int{}
	for _, r := range rounds {
		for k, n := range r.counts {
			if strings.HasPrefix(k, leftOut) {
				refused[r.part.name+" "+k] += n
			}
		}
	}
	for _, k := range sorted(refused) {
		fmt.Fprintf(t, "%d times %s\n", refused[k], k)
	}
	fmt.Fprintln(t)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// save writes a line of JSON for each round.
func save(path string, rounds []*round) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	enc := json.NewEncoder(f)
	for _, r := range rounds {
		took := map[string][]time.Duration{}
		for f, v := range r.took {
			took[f.name] = v
		}
		if err := enc.Encode(map[string]any{"part": r.part.name, "round": r.no, "faults": r.faults, "ns": took, "counts": r.counts, "checked": r.held, "unkept": r.broken}); err != nil {
			return err
		}
	}
	return f.Close()
}
