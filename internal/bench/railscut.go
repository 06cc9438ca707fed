package bench

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/mr"
)

// CutPart is what one rail carries of an operation that is divided, times in µs.
type CutPart struct {
	LatencyUS float64 `json:"latency_us"`
	MBs       float64 `json:"mb_s"`
	Bytes     int64   `json:"bytes"`
	EndUS     float64 `json:"end_us,omitempty"` // of its part; 0: it has none
	AloneUS   float64 `json:"alone_us"`         // end of the whole operation on this rail
}

// RailsCut explains how a put or get is divided over rails on which nothing else is in flight.
type RailsCut struct {
	Size      int       `json:"size"`
	Rails     []CutPart `json:"rails"`
	Divided   bool      `json:"divided"`
	EndUS     float64   `json:"end_us"`     // of the operation
	OfBest    float64   `json:"of_best"`    // end on the best single rail over EndUS
	BreakEven int       `json:"break_even"` // least power of two that is divided; 0: none
}

// ParseRails reads rails such as "20us:4,15us:28.5": the latency and MB/s of each, at most
// mr.MaxRails.
func ParseRails(s string) (rails []logp.Rail, err error) {
	items := strings.Split(s, ",")
	if len(items) < 2 || len(items) > mr.MaxRails {
		return nil, fmt.Errorf("%d rails: want 2 to %d, such as 20us:4,15us:28", len(items), mr.MaxRails)
	}
	for _, item := range items {
		latency, rate, _ := strings.Cut(item, ":")
		l, err := time.ParseDuration(latency)
		if err == nil && l < 0 {
			err = errors.New("negative latency")
		}
		if err != nil {
			return nil, fmt.Errorf("rail %q: %w: want LATENCY:MB/S, such as 20us:28", item, err)
		}
		mbs, err := strconv.ParseFloat(rate, 64)
		if err != nil || !(mbs > 0) || math.IsInf(mbs, 0) || math.IsInf(1e3/mbs, 0) {
			return nil, fmt.Errorf("rail %q: rate %q: want a positive number of MB/s, as in 20us:28", item, rate)
		}
		rails = append(rails, logp.Rail{Latency: float64(l), PerByte: 1e3 / mbs})
	}
	return rails, nil
}

// CutOver returns how the engine predicts that an operation of n bytes is carried best. It does
// not count the cost of posting, and measures later which way is the fastest (docs/rails.md).
func CutOver(rails []logp.Rail, n int) RailsCut {
	c := RailsCut{Size: n}
	var lens [mr.MaxRails]int64
	for size := initiator.DivideFrom; size <= MaxSize && c.BreakEven == 0; size *= 2 {
		if divided(rails, size, &lens) {
			c.BreakEven = size
		}
	}
	ends := make([]float64, len(rails))
	for i := range rails {
		ends[i] = rails[i].Latency + rails[i].PerByte*float64(n)
	}
	best := slices.Index(ends, slices.Min(ends))
	if c.Divided = divided(rails, n, &lens); !c.Divided {
		way := 0
		if n >= initiator.WholeFrom && ends[best] < ends[0]*(1-initiator.WholeMargin) {
			way = best
		}
		clear(lens[:])
		lens[way] = int64(n)
	}
	for i := range rails {
		r := &rails[i]
		p := CutPart{LatencyUS: r.Latency / 1e3, MBs: 1e3 / r.PerByte, Bytes: lens[i], AloneUS: ends[i] / 1e3}
		if p.Bytes > 0 {
			p.EndUS = (r.Latency + r.PerByte*float64(p.Bytes)) / 1e3
		}
		c.EndUS = max(c.EndUS, p.EndUS)
		c.Rails = append(c.Rails, p)
	}
	c.OfBest = ends[best] / 1e3 / c.EndUS
	return c
}

// divided reports whether an operation of n bytes is divided, and stores the lengths of its parts.
func divided(rails []logp.Rail, n int, lens *[mr.MaxRails]int64) bool {
	if n < initiator.DivideFrom {
		return false
	}
	alone := rails[0].Latency + rails[0].PerByte*float64(n)
	logp.Cut(rails, int64(n), logp.CutAlign, alone*logp.CutMargin, alone, lens[:])
	return slices.Max(lens[:]) < int64(n)
}

// WriteText writes the explanation for people.
func (c *RailsCut) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "rail\tlatency µs\tMB/s\twhole µs\tbytes\tend µs\t\n")
	for i, p := range c.Rails {
		part, end := "-", "-"
		if p.Bytes > 0 {
			part, end = strconv.FormatInt(p.Bytes, 10), fmt.Sprintf("%.1f", p.EndUS)
		}
		fmt.Fprintf(t, "%d\t%.1f\t%.4g\t%.1f\t%s\t%s\t\n", i, p.LatencyUS, p.MBs, p.AloneUS, part, end)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	how := "divided"
	if !c.Divided {
		how = fmt.Sprintf("whole over rail %d", slices.IndexFunc(c.Rails, func(p CutPart) bool { return p.Bytes > 0 }))
	}
	_, err := fmt.Fprintf(w, "\n%d bytes: %s\npredicted end %.1f µs, %.2f of the bandwidth of the best rail alone\n", c.Size, how, c.EndUS, c.OfBest)
	if err == nil && c.BreakEven > 0 {
		_, err = fmt.Fprintf(w, "divided from %s on\n", FormatSize(c.BreakEven))
	} else if err == nil {
		_, err = fmt.Fprintln(w, "not divided at any size")
	}
	return err
}
