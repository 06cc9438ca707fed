package nas

import (
	"fmt"
	"io"
	"math"
	"time"
)

// Result is the outcome of a benchmark, the same on all ranks but for Lines.
type Result struct {
	Lines      []string // what the benchmark itself reports, of rank 0
	Size       string   // of the problem, such as 64x64x64
	Iterations int
	Operations float64 // that the specification counts for Mop/s
	Kind       string  // of operations
	Verified   bool
}

// Printf appends a line.
func (r *Result) Printf(format string, args ...any) {
	r.Lines = append(r.Lines, fmt.Sprintf(format, args...))
}

// Near reports whether got is what the specification wants, up to the relative error eps.
// NaN is not.
func Near(got, want, eps float64) bool { return math.Abs(got-want) <= eps*math.Abs(want) }

// times are those of a run: the longest of all ranks, and the mean time in communication.
type times struct{ total, comm time.Duration }

// print writes the report of a run.
func (r *Result) print(w io.Writer, name string, class Class, ranks int, link string, t times) error {
	out := fmt.Appendf(nil, "\n NAS Parallel Benchmarks - %s Benchmark\n\n", name)
	for _, l := range r.Lines {
		out = fmt.Appendf(out, " %s\n", l)
	}
	verdict := "UNSUCCESSFUL"
	if r.Verified {
		verdict = "SUCCESSFUL"
	}
	rate := r.Operations / t.total.Seconds() / 1e6
	out = fmt.Appendf(out, "\n %s Benchmark Completed\n", name)
	for _, f := range []struct {
		name  string
		value any
	}{
		{"Class", class},
		{"Size", r.Size},
		{"Iterations", r.Iterations},
		{"Time in seconds", fmt.Sprintf("%.4f", t.total.Seconds())},
		{"Communication", fmt.Sprintf("%.4f (%.1f%%)", t.comm.Seconds(), 100*t.comm.Seconds()/t.total.Seconds())},
		{"Total processes", ranks},
		{"Link", link},
		{"Mop/s total", fmt.Sprintf("%.2f", rate)},
		{"Mop/s/process", fmt.Sprintf("%.2f", rate/float64(ranks))},
		{"Operation type", r.Kind},
		{"Verification", verdict},
	} {
		out = fmt.Appendf(out, " %-15s = %24v\n", f.name, f.value)
	}
	_, err := w.Write(out)
	return err
}
