//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// comparison is one line of the table: a measurement made by both perftest and rmabench.
type comparison struct {
	tool string // Debian's program
	test string // rmabench's: lat or bw
	op   string // put or get
	size int
	goal float64 // ratio ours/theirs to reach
}

func (c comparison) latency() bool { return c.test == "lat" }

// comparisons are the measurements to compare, with the goals of the project: latency at
// most 1.2 times perftest's, bandwidth of 64 KiB at least 0.9 times. 8-byte bandwidth,
// which is message rate, has the latter's goal.
var comparisons = []comparison{
	{"ib_write_lat", "lat", "put", 8, 1.2},
	{"ib_write_lat", "lat", "put", 64 << 10, 1.2},
	{"ib_read_lat", "lat", "get", 8, 1.2},
	{"ib_read_lat", "lat", "get", 64 << 10, 1.2},
	{"ib_write_bw", "bw", "put", 8, 0.9},
	{"ib_write_bw", "bw", "put", 64 << 10, 0.9},
	{"ib_read_bw", "bw", "get", 8, 0.9},
	{"ib_read_bw", "bw", "get", 64 << 10, 0.9},
}

func (c comparison) unit() string {
	if c.latency() {
		return "µs"
	}
	return "MB/s"
}

// errNoClock is perftest's failure to measure the processor's clock, which it does by
// sampling and which a busy host disturbs at times.
var errNoClock = errors.New("no usable clock")

// parsePerftest extracts the result from a perftest program's output: the typical (median)
// latency in µs, or the average bandwidth in MB/s of 10^6 bytes (perftest prints 2^20).
func parsePerftest(out string, c comparison) (float64, error) {
	for _, l := range strings.Split(out, "\n") {
		f := strings.Fields(l)
		if len(f) < 5 || f[0] != strconv.Itoa(c.size) {
			continue
		}
		col, scale := 4, 1.0 // bytes iterations min max typical …
		switch {             // bytes iterations peak average rate: use the column with more digits
		case !c.latency() && c.size <= 4096:
			scale = float64(c.size) // millions of messages a second
		case !c.latency():
			col, scale = 3, 1.048576
		}
		v, err := strconv.ParseFloat(f[col], 64)
		if err != nil || !(v > 0) || v > 1e12 {
			return 0, fmt.Errorf("%s printed %q: %w (see docs/softroce.md)", c.tool, f[col], errNoClock)
		}
		return v * scale, nil
	}
	return 0, fmt.Errorf("%s printed no result for %d bytes:\n%s", c.tool, c.size, lastLines(out, 5))
}

// parseRmabench extracts the same from rmabench's JSON, one object per line.
func parseRmabench(out string, c comparison) (float64, error) {
	for _, l := range strings.Split(out, "\n") {
		var r struct {
			Test, Fabric, Op string
			Size             int
			LatUS            struct{ P50 float64 } `json:"lat_us"`
			MBs              float64               `json:"mb_s"`
		}
		if json.Unmarshal([]byte(l), &r) != nil || r.Test != c.test || r.Op != c.op || r.Size != c.size {
			continue
		}
		if r.Fabric != "verbs" {
			return 0, fmt.Errorf("rmabench measured %s, not verbs", r.Fabric)
		}
		v := r.MBs
		if c.latency() {
			v = r.LatUS.P50
		}
		if !(v > 0) {
			return 0, fmt.Errorf("rmabench reported %v for %s %s %d", v, c.test, c.op, c.size)
		}
		return v, nil
	}
	return 0, fmt.Errorf("rmabench printed no %s %s of %d bytes:\n%s", c.test, c.op, c.size, lastLines(out, 5))
}

// sample is one round of one comparison. ours is 0 if there is no rmabench.
type sample struct{ ours, theirs float64 }

// summary of the rounds of one comparison.
type summary struct {
	Test         string  `json:"test"`
	Op           string  `json:"op"`
	Size         int     `json:"size"`
	Unit         string  `json:"unit"`
	Ours         float64 `json:"ours"`        // median of the rounds
	Theirs       float64 `json:"theirs"`      // median of the rounds
	OursSpread   float64 `json:"ours_spread"` // (max-min)/median
	TheirsSpread float64 `json:"theirs_spread"`
	Ratio        float64 `json:"ratio"` // median of the rounds' ours/theirs
	RatioMin     float64 `json:"ratio_min"`
	RatioMax     float64 `json:"ratio_max"`
	Goal         float64 `json:"goal"`
	Met          bool    `json:"met"`
	Rounds       int     `json:"rounds"`
}

// summarise uses the ratio within each round, because a busy host slows both measurements
// of a round alike.
func summarise(c comparison, rounds []sample) summary {
	var ours, theirs, ratio []float64
	for _, r := range rounds {
		theirs = append(theirs, r.theirs)
		if r.ours > 0 {
			ours = append(ours, r.ours)
			ratio = append(ratio, r.ours/r.theirs)
		}
	}
	s := summary{Test: c.test, Op: c.op, Size: c.size, Unit: c.unit(), Goal: c.goal, Rounds: len(rounds)}
	s.Theirs, s.TheirsSpread = median(theirs), spread(theirs)
	if len(ratio) > 0 {
		s.Ours, s.OursSpread = median(ours), spread(ours)
		s.Ratio, s.RatioMin, s.RatioMax = median(ratio), slices.Min(ratio), slices.Max(ratio)
		s.Met = c.latency() && s.Ratio <= c.goal || !c.latency() && s.Ratio >= c.goal
	}
	return s
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

func spread(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return (slices.Max(v) - slices.Min(v)) / median(v)
}

// printTable writes the comparison as a table.
func printTable(w io.Writer, sums []summary) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "test\tbytes\tours\t±\tperftest\t±\tunit\tours/theirs\trange\tgoal\t\t")
	for _, s := range sums {
		ours, spreadText, ratio, span, verdict := "–", "–", "–", "–", "not measured"
		if s.Ours > 0 {
			ours, spreadText = figure(s.Ours), percent(s.OursSpread)
			ratio, span = fmt.Sprintf("%.2f", s.Ratio), fmt.Sprintf("%.2f–%.2f", s.RatioMin, s.RatioMax)
			verdict = map[bool]string{true: "ok", false: "MISSED"}[s.Met]
		}
		sign := map[bool]string{true: "≤", false: "≥"}[s.Test == "lat"]
		fmt.Fprintf(tw, "%s %s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s %.1f\t%s\t\n", s.Test, s.Op, s.Size,
			ours, spreadText, figure(s.Theirs), percent(s.TheirsSpread), s.Unit, ratio, span, sign, s.Goal, verdict)
	}
	return tw.Flush()
}

func figure(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// percent formats half of the whole spread, as the sign ± in the heading says.
func percent(v float64) string { return fmt.Sprintf("%.0f%%", 50*v) }
