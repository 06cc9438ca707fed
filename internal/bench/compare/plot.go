package compare

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/seed33544411/rma/internal/bench"
)

// plotColumns is the width of the bars of a plot in characters.
const plotColumns = 56

// WritePlot draws the ratios as bars of text, on a logarithmic axis around 1:
//
//	                   0.5      1       2       4
//	ucx     rate:64             │██████▓▓▓───          2.1
//	ucx     lat:8            ▓▓█│                      0.78
//
// A bar ends at the ratio. From the least to the greatest ratio of the rounds it is lighter,
// and continues as a line. Rows that were not measured have no bar.
func WritePlot(w io.Writer, rows []Row) error {
	a, ok := newAxis(rows)
	if !ok {
		return nil
	}
	names := make([]string, len(rows))
	width := 0
	for i := range rows {
		r := &rows[i]
		names[i] = fmt.Sprintf("%-8s %-6s %s:%s", r.Peer, r.Fabric, r.Test, bench.FormatSize(r.Size))
		width = max(width, utf8.RuneCountInString(names[i]))
	}
	if _, err := fmt.Fprintf(w, "%*s  %s\n", width, "", strings.TrimRight(a.marks(), " ")); err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
		figure := "not measured"
		if r.Rounds > 0 {
			figure = fmt.Sprintf("%.3g", r.Ratio)
		}
		if _, err := fmt.Fprintf(w, "%-*s  %s %s\n", width, names[i], a.bar(r), figure); err != nil {
			return err
		}
	}
	return nil
}

// axis is logarithmic, from lo to hi, and includes 1.
type axis struct{ lo, hi float64 }

// newAxis returns an axis for all measured values; false if there are none.
func newAxis(rows []Row) (a axis, ok bool) {
	a = axis{1 / 1.25, 1.25}
	for i := range rows {
		if r := &rows[i]; r.Rounds > 0 && r.RatioMin > 0 {
			a.lo, a.hi, ok = min(a.lo, r.RatioMin), max(a.hi, r.RatioMax), true
		}
	}
	return a, ok
}

// at returns the column of a value.
func (a axis) at(v float64) int {
	x := math.Log(v/a.lo) / math.Log(a.hi/a.lo) * (plotColumns - 1)
	return int(math.Round(min(max(x, 0), plotColumns-1)))
}

// marks returns the line above the bars: values whose labels do not touch, including 1.
func (a axis) marks() string {
	line := []rune(strings.Repeat(" ", plotColumns+8))
	free := func(from, to int) bool {
		return strings.TrimSpace(string(line[max(from-1, 0):min(to+1, len(line))])) == ""
	}
	put := func(v float64) {
		text := []rune(fmt.Sprintf("%g", v))
		from := a.at(v)
		if from+len(text) <= len(line) && free(from, from+len(text)) {
			copy(line[from:], text)
		}
	}
	put(1)
	for _, steps := range [][]float64{{1}, {2, 5}} { // powers of ten first
		for e := math.Floor(math.Log10(a.lo)); e <= math.Ceil(math.Log10(a.hi)); e++ {
			for _, s := range steps {
				if v := s * math.Pow(10, e); v >= a.lo && v <= a.hi {
					put(v)
				}
			}
		}
	}
	return string(line)
}

// bar returns the bar of a row, plotColumns wide.
func (a axis) bar(r *Row) string {
	line := []rune(strings.Repeat(" ", plotColumns))
	one := a.at(1)
	if r.Rounds > 0 && r.Ratio > 0 {
		draw := func(from, to float64, with rune) {
			x, y := a.at(min(from, to)), a.at(max(from, to))
			for c := x; c <= y; c++ {
				line[c] = with
			}
		}
		draw(1, r.Ratio, '█')
		lo, hi := r.RatioMin, r.RatioMax
		if r.Ratio < 1 { // the bar ends at its lower end
			draw(r.Ratio, min(hi, 1), '▓')
			draw(lo, r.Ratio, '─')
		} else {
			draw(max(lo, 1), r.Ratio, '▓')
			draw(r.Ratio, hi, '─')
		}
		line[a.at(r.Ratio)] = '█'
	}
	line[one] = '│'
	return string(line)
}
