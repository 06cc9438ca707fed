package bench

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Formats are the names that --format takes.
var Formats = []string{"table", "json", "csv", "go"}

// ErrFormat reports an unknown format or results that cannot be read back.
var ErrFormat = errors.New("bad format")

// Writer writes results as they arrive. Its errors are those of the underlying writer.
type Writer interface {
	Write(Result) error
}

// NewWriter writes results to w in one of Formats:
//
//	table  aligned columns, a heading at every change of test or operation
//	json   one object per line
//	csv    a header line, then one line a result
//	go     lines of `go test -bench`, which benchstat reads
func NewWriter(w io.Writer, format string) (Writer, error) {
	switch format {
	case "table":
		return &tableWriter{w: w}, nil
	case "json":
		return &jsonWriter{json.NewEncoder(w)}, nil
	case "csv":
		return &csvWriter{w: csv.NewWriter(w)}, nil
	case "go":
		return &goWriter{w: w}, nil
	}
	return nil, fmt.Errorf("%w %q, want one of %s", ErrFormat, format, strings.Join(Formats, ", "))
}

type jsonWriter struct{ enc *json.Encoder }

func (j *jsonWriter) Write(r Result) error { return j.enc.Encode(r) }

type tableWriter struct {
	w    io.Writer
	head string
}

func (t *tableWriter) Write(r Result) error {
	if head := string(r.Test) + string(r.Op); head != t.head {
		gap := "\n"
		if t.head == "" {
			gap = ""
		}
		t.head = head
		if _, err := fmt.Fprintf(t.w, "%s# %s\n%-8s %-5s %8s %10s %10s %10s %10s %10s %10s %10s\n", gap, describe(r.Test, r.Op),
			"fabric", "op", "size", "iters", "min µs", "p50 µs", "p99 µs", "max µs", "MB/s", "Mmsg/s"); err != nil {
			return err
		}
	}
	took := digits
	if r.LatUS.Max == 0 { // a stream through the engine times no operation
		took = func(float64) string { return "-" }
	}
	_, err := fmt.Fprintf(t.w, "%-8s %-5s %8s %10d %10s %10s %10s %10s %10s %10s%s\n", r.Fabric, r.Op, FormatSize(r.Size), r.Iters,
		took(r.LatUS.Min), took(r.LatUS.P50), took(r.LatUS.P99), took(r.LatUS.Max), digits(r.MBs), digits(r.Mmsgs), suffix(r))
	return err
}

// describe returns the heading of a table.
func describe(t Test, op Op) string {
	switch {
	case t == Lat && (op == Put || op == Send || op == Eager):
		return fmt.Sprintf("latency of %s, half round trip", op)
	case t == Lat:
		return fmt.Sprintf("latency of %s, full operation", op)
	case t == BW:
		return fmt.Sprintf("bandwidth of %s (µs: a chain from posting to completion)", op)
	}
	return fmt.Sprintf("message rate of %s (µs: a chain from posting to completion)", op)
}

func suffix(r Result) string {
	s := ""
	if r.Round > 0 {
		s += "  round " + strconv.Itoa(r.Round+1)
	}
	if r.Mode != "" && r.Mode != Modes[0] {
		s += "  " + r.Mode
	}
	if r.Ways != nil && r.Ways.String() != r.Mode {
		s += "  (" + r.Ways.String() + ")"
	}
	if r.Validated {
		s += "  validated"
	}
	if r.Label != "" {
		s += "  " + r.Label
	}
	return s
}

// digits formats x with about four digits.
func digits(x float64) string {
	switch {
	case x >= 1000:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 100:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return strconv.FormatFloat(x, 'f', 3, 64)
}

type csvWriter struct {
	w      *csv.Writer
	headed bool
}

// csvColumns is the header of --format csv. Columns are only ever added, at
// the end.
var csvColumns = []string{"test", "fabric", "op", "size", "iters", "lat_us_min", "lat_us_p50", "lat_us_p90", "lat_us_p99",
	"lat_us_p99_9", "lat_us_max", "lat_us_mean", "mb_s", "mmsg_s", "seconds", "window", "round", "validated", "label",
	"cpu", "cpus", "kernel", "virtual", "go", "timer_ns", "mode"}

func (c *csvWriter) Write(r Result) error {
	if !c.headed {
		c.headed = true
		if err := c.w.Write(csvColumns); err != nil {
			return err
		}
	}
	f := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	l, m := r.LatUS, r.Machine
	err := c.w.Write([]string{string(r.Test), r.Fabric, string(r.Op), strconv.Itoa(r.Size), strconv.FormatInt(r.Iters, 10),
		f(l.Min), f(l.P50), f(l.P90), f(l.P99), f(l.P999), f(l.Max), f(l.Mean), f(r.MBs), f(r.Mmsgs), f(r.Seconds),
		strconv.Itoa(r.Window), strconv.Itoa(r.Round), strconv.FormatBool(r.Validated), r.Label,
		m.CPU, strconv.Itoa(m.CPUs), m.Kernel, m.Virtual, m.Go, f(m.TimerNS), r.Mode})
	c.w.Flush()
	return errors.Join(err, c.w.Error())
}

type goWriter struct {
	w      io.Writer
	headed bool
}

// Write writes one line for each result: ns/op is the mean time of a message (lat: the
// latency; bw and rate: time over messages).
func (g *goWriter) Write(r Result) error {
	m := r.Machine
	if !g.headed {
		g.headed = true
		if _, err := fmt.Fprintf(g.w, "goos: %s\ngoarch: %s\npkg: github.com/seed33544411/rma/cmd/rmabench\ncpu: %s\n", m.OS, m.Arch, m.CPU); err != nil {
			return err
		}
	}
	name := map[Test]string{Lat: "Lat", BW: "BW", Rate: "Rate"}[r.Test]
	nsop := 0.0
	if r.Mmsgs > 0 {
		nsop = 1000 / r.Mmsgs
	}
	label := ""
	if r.Mode != "" {
		label = "/mode=" + r.Mode
	}
	if r.Label != "" {
		label += "/label=" + strings.Map(func(c rune) rune {
			if c <= ' ' || c == '/' {
				return '_'
			}
			return c
		}, r.Label)
	}
	_, err := fmt.Fprintf(g.w, "Benchmark%s/fabric=%s/op=%s/size=%s%s-%d\t%8d\t%12s ns/op\t%10s MB/s\t%10s p50-ns\t%10s p99-ns\n",
		name, r.Fabric, r.Op, FormatSize(r.Size), label, max(m.CPUs, 1), r.Iters, digits(nsop), digits(r.MBs),
		digits(r.LatUS.P50*1000), digits(r.LatUS.P99*1000))
	return err
}

// Bounds of figures that are read back: real ones are far below (µs, MB/s), and names
// must fit into a legend.
const (
	maxFigure = 1e12
	maxText   = 200
)

// ReadJSON reads results that --format json wrote.
func ReadJSON(r io.Reader) ([]Result, error) { return ReadLines(r, (*Result).CheckRead) }

// CheckRead reports why a result that is read back cannot be one.
func (r *Result) CheckRead() error {
	p := Plan{Test: r.Test, Op: r.Op, Mode: r.Mode, Size: []int{r.Size}}.WithDefaults()
	if err := p.Check(); err != nil {
		return err
	}
	l := r.LatUS
	for _, x := range []float64{r.MBs, r.Mmsgs, r.Seconds, l.Min, l.P50, l.P90, l.P99, l.P999, l.Max, l.Mean} {
		if x < 0 || x > maxFigure {
			return fmt.Errorf("value %g is out of range 0 to %g", x, maxFigure)
		}
	}
	if r.Iters < 0 || max(len(r.Fabric), len(r.Label)) > maxText {
		return errors.New("negative iterations or an overlong name")
	}
	if r.Fabric == "" {
		return errors.New("no fabric")
	}
	return nil
}

// Sort orders results by test, operation, fabric, size and round.
func Sort(rs []Result) {
	rank := func(r Result) string {
		t := slices.Index([]Test{Lat, BW, Rate}, r.Test)
		o, m := slices.Index(Ops, r.Op), slices.Index(Modes, r.Mode)
		return fmt.Sprintf("%d %d %s %d %s %12d %6d", t, o, r.Fabric, m+1, r.Label, r.Size, r.Round)
	}
	slices.SortStableFunc(rs, func(a, b Result) int { return strings.Compare(rank(a), rank(b)) })
}
