package choice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/pingpong"
	"github.com/seed33544411/rma/logp"
)

// variant is one way to build the channel, or to hand messages to it.
type variant struct {
	name string
	set  func(*message.Options)
	each bool // one post a message
}

// study compares variants, the first of which is what the engine does.
type study struct {
	name     string
	mode     logp.Mode
	batches  []string
	variants []variant
}

func plain(*message.Options) {}

// studies returns those that a link allows: a lap flag needs writes whose last
// byte arrives last.
func studies(lap bool) []study {
	arrival := []variant{{name: "cursor", set: func(o *message.Options) { o.Ring.Mode = eager.ModeCursor }}}
	if lap {
		arrival = append([]variant{{name: "lap", set: func(o *message.Options) { o.Ring.Mode = eager.ModeLap }}}, arrival...)
	}
	every := func(n int) variant {
		return variant{name: fmt.Sprintf("every %d", n), set: func(o *message.Options) { o.Ring.Every = n }}
	}
	inPlace := func(name string, n int) variant {
		return variant{name: name, set: func(o *message.Options) { o.InPlace = n }}
	}
	return []study{
		{"arrival", logp.Eager, []string{"1x64", "16x64", "16x4K"}, arrival},
		{"credit", logp.Eager, []string{"16x64", "64x64", "128x4K"}, []variant{every(32), every(16), every(4), every(1)}},
		{"gather source", logp.Gather, []string{"16x64", "16x512", "16x1K", "16x2K", "16x4K", "4x32K"}, []variant{
			{name: "default", set: plain}, inPlace("in place", 1), inPlace("copied", 1<<30),
		}},
		{"posting", logp.Eager, []string{"2x64", "16x64", "64x64"}, []variant{{name: "one chain", set: plain}, {name: "each", set: plain, each: true}}},
	}
}

// Ablation is one row: a batch in the variants of a study. Times are µs.
type Ablation struct {
	Fabric   string    `json:"fabric"`
	Study    string    `json:"study"`
	Mode     string    `json:"mode"`
	Batch    string    `json:"batch"`
	Variants []string  `json:"variants"`
	US       []float64 `json:"us"`
	Ratio    []float64 `json:"ratio"` // to the first variant
	Noise    float64   `json:"noise"` // the first variant against itself
}

// fill computes what follows from the times; again is the first variant's
// second series.
func (a *Ablation) fill(again float64) {
	for _, t := range a.US {
		a.Ratio = append(a.Ratio, t/a.US[0])
	}
	a.Noise = math.Abs(again/a.US[0] - 1)
}

// AblationRows is how many rows Request.Ablate brings over any link.
func AblationRows() (n int) {
	for _, s := range studies(false) {
		n += len(s.batches)
	}
	return n
}

// ablations measures what single design choices bring, each with all else equal.
// Both ranks come here.
func (k *rank) ablations(ctx context.Context, emit func(Ablation) error) error {
	tag := uint16(idTag)
	for _, st := range studies(k.conn.Link.Caps().LastByteLast) {
		span := 0
		for _, b := range st.batches {
			sizes, err := ParseBatch(b)
			if err != nil {
				return err
			}
			span = max(span, pingpong.Need(sizes))
		}
		var sides []*pingpong.Side
		for _, v := range st.variants {
			o := message.Options{IDTag: tag, Policy: logp.Policy{Forced: true, Mode: st.mode}}
			tag += 3
			v.set(&o)
			side, err := k.open(ctx, span, o)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", st.name, v.name, err)
			}
			side.SetEach(v.each)
			sides = append(sides, side)
			k.side = side // exchanges poll the group from now on
		}
		pingpong.Group(sides...)
		for _, b := range st.batches {
			a := Ablation{Fabric: k.fabric, Study: st.name, Mode: st.mode.String(), Batch: b}
			for _, v := range st.variants {
				a.Variants = append(a.Variants, v.name)
			}
			if err := k.ablate(ctx, sides, &a); err != nil {
				return fmt.Errorf("%s, %s: %w", st.name, b, err)
			}
			if k.ctl.Rank() == 0 {
				if err := emit(a); err != nil {
					return err
				}
			}
		}
		if err := bench.Agree(ctx, k.polling(), nil); err != nil {
			return err
		}
	}
	return nil
}

// ablate measures one row.
func (k *rank) ablate(ctx context.Context, sides []*pingpong.Side, a *Ablation) error {
	sizes, err := ParseBatch(a.Batch)
	if err != nil {
		return err
	}
	var pilot [3]int64
	total := 0.0
	var failed error
	for _, s := range sides {
		if err := s.Load(sizes); err != nil {
			return err
		}
		s.Forget()
		if err := s.Play(ctx, pilot[:]); err != nil {
			return err
		}
		failed = errors.Join(failed, s.Check())
		total += 2 * float64(pilot[2]) * cpu.NsPerTick()
	}
	o := orders{Trips: min(max(int(float64(k.req.Time)/float64(k.req.Rounds)/(2*max(total, 1)))-1, 2), maxTrips)}
	if o, err = k.order(ctx, o, failed); err != nil {
		return err
	}
	n := len(sides)
	times := make([]int64, o.Trips+1)
	all := make([][]float64, n+1)
	for r := range k.req.Rounds {
		for i := range n + 1 {
			v := (i + r) % (n + 1) // the last is the first once more
			if err := sides[v%n].Play(ctx, times); err != nil {
				return err
			}
			for _, t := range times[1:] {
				all[v] = append(all[v], float64(t)*cpu.NsPerTick())
			}
		}
	}
	for v := range n {
		a.US = append(a.US, max(quantile(all[v], 0.25), 1)/1e3)
	}
	a.fill(max(quantile(all[n], 0.25), 1) / 1e3)
	return nil
}

// WriteAblations writes rows as a table, or as JSON lines.
func WriteAblations(w io.Writer, format string, as []Ablation) error {
	if format == "json" {
		enc := json.NewEncoder(w)
		for i := range as {
			if err := enc.Encode(&as[i]); err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "fabric\tstudy\tmode\tbatch\tnoise\tµs, and the ratio to the first")
	for _, a := range as {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.1f %%\t", a.Fabric, a.Study, a.Mode, a.Batch, 100*a.Noise)
		for i, v := range a.Variants {
			fmt.Fprintf(t, "%s %.2f (%.2f)\t", v, a.US[i], a.Ratio[i])
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
