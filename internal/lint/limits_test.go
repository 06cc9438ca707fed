package lint

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "lower the numbers in internal/lint/testdata to what is true")

// limits holds exceptions from a rule that counts: a file in testdata with a name and its
// allowed numbers on each line, and an optional reason behind '#'. A number that differs
// from the present count in either direction fails the test: the list only gets shorter.
// -update lowers numbers, removes unused lines, and never raises a number.
type limits struct {
	file    string
	header  []string
	allowed map[string][]int
	reason  map[string]string
}

func readLimits(t *testing.T, file string) *limits {
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	l := &limits{file: file, allowed: map[string][]int{}, reason: map[string]string{}}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "#") {
			l.header = append(l.header, line)
			continue
		}
		text, reason, _ := strings.Cut(line, "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		var ns []int
		for _, f := range fields[1:] {
			n, err := strconv.Atoi(f)
			require.NoError(t, err, "%s: %s", file, line)
			ns = append(ns, n)
		}
		l.allowed[fields[0]], l.reason[fields[0]] = ns, strings.TrimSpace(reason)
	}
	return l
}

// check compares the counts, of the names that exceed the rule's bound, with the allowed
// numbers. advice explains how to get below a limit.
func (l *limits) check(t *testing.T, counted map[string][]int, bound []int, advice func(name string) string) {
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		is, allowed := counted[name], l.allowed[name]
		if allowed == nil {
			allowed = bound
		}
		if exceeds(is, allowed) {
			t.Errorf("%s: %v, allowed %v\n%s", name, is, allowed, advice(name))
		}
	}
	if *update {
		l.lower(t, counted, bound)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.allowed)) {
		is, exists := counted[name]
		switch {
		case !exists:
			t.Errorf("%s: %s does not exist any more: run go test ./internal/lint -update", l.file, name)
		case !exceeds(is, bound):
			t.Errorf("%s: %s (%v) needs no exception any more: run go test ./internal/lint -update", l.file, name, is)
		case exceeds(l.allowed[name], is):
			t.Errorf("%s: %s is %v now, allowed %v: run go test ./internal/lint -update", l.file, name, is, l.allowed[name])
		}
	}
}

// exceeds reports whether a number of a is above its counterpart in b.
func exceeds(a, b []int) bool {
	for i := range a {
		if a[i] > b[i] {
			return true
		}
	}
	return false
}

func (l *limits) lower(t *testing.T, counted map[string][]int, bound []int) {
	var out strings.Builder
	out.WriteString(strings.Join(l.header, ""))
	for _, name := range slices.Sorted(maps.Keys(l.allowed)) {
		is, exists := counted[name]
		if !exists || !exceeds(is, bound) {
			continue
		}
		out.WriteString(name)
		for i, n := range l.allowed[name] {
			fmt.Fprintf(&out, " %d", min(n, is[i]))
		}
		if r := l.reason[name]; r != "" {
			out.WriteString(" # " + r)
		}
		out.WriteByte('\n')
	}
	require.NoError(t, os.WriteFile(l.file, []byte(out.String()), 0o644))
}
