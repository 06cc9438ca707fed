package choice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/pingpong"
	"github.com/seed33544411/rma/logp"
)

// variant is one way to configure the channel or to post messages to it.
type variant struct {
	name string
	set  func(*message.Options)
	each bool // messages are posted one by one
	bare bool // from memory that is not registered
}

// study compares variants. The first is the engine's configuration.
type study struct {
	name     string
	mode     logp.Mode
	batches  []string
	variants []variant
}

func plain(*message.Options) {}

// staged configures the chunks in which messages are copied; zero means the default.
func staged(first, most, memory int) func(*message.Options) {
	return func(o *message.Options) {
		o.Staged = true
		o.Rendezvous.FirstChunk, o.Rendezvous.Chunk, o.Rendezvous.Staging = first, most, memory
	}
}

// studies returns the studies that a link allows: a lap flag needs writes whose last
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
		{"eager source", logp.Eager, []string{"1x1K", "16x512", "16x2K", "4x16K"}, []variant{
			{name: "default", set: plain}, inPlace("in place", 1), inPlace("copied", 1<<30),
		}},
		{"message", logp.Scatter, []string{"1x16K", "1x64K", "1x1M", "8x64K"}, []variant{
			{name: "read", set: func(o *message.Options) { o.Adverts = -1 }}, {name: "receiver first", set: func(o *message.Options) { o.Adverts = 16 }},
		}},
		{"unregistered", logp.Scatter, []string{"1x128K", "1x512K", "1x2M", "1x8M"}, []variant{
			{name: "superpipeline", bare: true, set: staged(0, 0, 0)},
			{name: "pipeline", bare: true, set: staged(64<<10, 64<<10, 0)},
			{name: "one copy", bare: true, set: staged(8<<20, 8<<20, 16<<20)},
			{name: "registered", bare: true, set: func(o *message.Options) { o.Pinned = -1 }},
			{name: "kept", bare: true, set: plain},
		}},
		{"posting", logp.Eager, []string{"2x64", "16x64", "64x64"}, []variant{{name: "one chain", set: plain}, {name: "each", set: plain, each: true}}},
	}
}

// Ablation compares the variants of a study on one batch. Times are µs.
type Ablation struct {
	Fabric   string    `json:"fabric"`
	Study    string    `json:"study"`
	Mode     string    `json:"mode"`
	Batch    string    `json:"batch"`
	Variants []string  `json:"variants"`
	US       []float64 `json:"us"`
	Ratio    []float64 `json:"ratio"` // to the time of the first variant
	Noise    float64   `json:"noise"` // between two series of the first variant
}

// fill computes the derived figures; again is the time of the first variant's second
// series.
func (a *Ablation) fill(again float64) {
	for _, t := range a.US {
		a.Ratio = append(a.Ratio, t/a.US[0])
	}
	a.Noise = math.Abs(again/a.US[0] - 1)
}

// rendezvousSizes are the message sizes of the study of receiver-initiated rendezvous.
var rendezvousSizes = []int{4 << 10, 64 << 10, 1 << 20}

// rendezvous compares the two schemes of rendezvous: the receiver reads an announced
// message, or the sender writes to an advertised receive.
func (k *rank) rendezvous(ctx context.Context, tag uint16, emit func(Ablation) error) error {
	last := rendezvousSizes[len(rendezvousSizes)-1]
	r, err := pingpong.OpenRendezvous(k.conn.Link, k.conn.EP, pingpong.Options{
		First: k.ctl.Rank() == 0, Span: last, Stall: k.req.Stall, Wait: bench.Waiter(k.req.Pin),
	}, tag)
	if r != nil {
		k.onClose(r.Close)
	}
	if err = bench.Agree(ctx, k.polling(), err); err != nil {
		return err
	}
	theirs, err := k.exchange(ctx, r.Setup())
	if err == nil {
		err = r.Connect(theirs)
	}
	if err = bench.Agree(ctx, k.polling(), err); err != nil {
		return err
	}
	k.side, k.polls = nil, r
	for _, size := range rendezvousSizes {
		a := Ablation{Fabric: k.fabric, Study: "rendezvous", Mode: logp.Scatter.String(), Batch: "1x" + bench.FormatSize(size), Variants: []string{"read", "receiver first"}}
		check := func() error { return r.Check(size) }
		if err := k.vary(ctx, len(a.Variants), func(v int, times []int64) error { return r.Play(ctx, size, v == 1, times) }, check, &a); err != nil {
			return fmt.Errorf("%s: %w", a.Batch, err)
		}
		if k.ctl.Rank() == 0 {
			if err := emit(a); err != nil {
				return err
			}
		}
	}
	return bench.Agree(ctx, k.polling(), nil)
}

// AblationRows returns the number of rows of Request.Ablate that every link has.
func AblationRows() (n int) {
	for _, s := range studies(false) {
		n += len(s.batches)
	}
	return n + len(rendezvousSizes)
}

// ablations measures the effect of single design choices, all else being equal. Both
// ranks call it.
func (k *rank) ablations(ctx context.Context, emit func(Ablation) error) error {
	tag := uint16(idTag)
	for _, st := range studies(k.conn.Link.Caps().LastByteLast) {
		span := 0
		for _, b := range append([]string{lapBatch}, st.batches...) {
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
			side, err := k.open(ctx, span, o, v.bare)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", st.name, v.name, err)
			}
			side.SetEach(v.each)
			sides = append(sides, side)
			k.side = side // exchanges poll this side from here on
		}
		pingpong.Group(sides...)
		for _, s := range sides {
			if err := lap(ctx, s, st.mode); err != nil {
				return fmt.Errorf("%s: %w", st.name, err)
			}
		}
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
	return k.rendezvous(ctx, tag, emit)
}

// ablate measures one row.
func (k *rank) ablate(ctx context.Context, sides []*pingpong.Side, a *Ablation) error {
	sizes, err := ParseBatch(a.Batch)
	if err != nil {
		return err
	}
	for _, s := range sides {
		if err := s.Load(sizes); err != nil {
			return err
		}
		s.Forget()
	}
	check := func() (err error) {
		for _, s := range sides {
			err = errors.Join(err, s.Check())
		}
		return err
	}
	return k.vary(ctx, len(sides), func(v int, times []int64) error { return sides[v].Play(ctx, times) }, check, a)
}

// vary measures n variants in alternation and fills in a.
func (k *rank) vary(ctx context.Context, n int, play func(v int, times []int64) error, check func() error, a *Ablation) error {
	var pilot [4]int64
	total := 0.0
	for v := range n {
		if err := play(v, pilot[:]); err != nil {
			return err
		}
		total += 2 * float64(slices.Min(pilot[1:])) * cpu.NsPerTick()
	}
	o := orders{Trips: min(max(int(float64(k.req.Time)/float64(k.req.Rounds)/(2*max(total, 1)))-1, 2), maxTrips)}
	o, err := k.order(ctx, o, check())
	if err != nil {
		return err
	}
	times := make([]int64, o.Trips+1)
	all := make([][]float64, n+1)
	for r := range k.req.Rounds {
		for i := range n + 1 {
			v := (i + r) % (n + 1) // index n is the first variant's second series
			if err := play(v%n, times); err != nil {
				return err
			}
			for _, t := range times[1:] {
				all[v] = append(all[v], float64(t)*cpu.NsPerTick())
			}
		}
	}
	for v := range n {
		a.US = append(a.US, max(Quantile(all[v], 0.25), 1)/1e3)
	}
	a.fill(max(Quantile(all[n], 0.25), 1) / 1e3)
	return nil
}

// lap sends messages through every page of a side's rings, so that the first use of a
// page is not measured.
func lap(ctx context.Context, s *pingpong.Side, mode logp.Mode) error {
	sizes, err := ParseBatch(lapBatch)
	if err == nil {
		err = s.Load(sizes)
	}
	if err == nil {
		err = s.Channel().SetPolicy(logp.Policy{Forced: true, Mode: logp.Eager})
	}
	var times [2]int64
	if err == nil {
		err = s.Play(ctx, times[:])
	}
	if err == nil {
		err = s.Channel().SetPolicy(logp.Policy{Forced: true, Mode: mode})
	}
	return err
}

// lapBatch fills a ring of 64 blocks of 8 KiB.
const lapBatch = "70x7K"

// WriteAblations writes rows as a table.
func WriteAblations(w io.Writer, as []Ablation) error {
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
