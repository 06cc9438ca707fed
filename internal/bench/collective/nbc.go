package collective

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed33544411/rma/coll"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/overlap"
)

// Progress is where the threads of the progress goroutines run: where the process may, or, of
// ranks that are bound to cores, each on a free core of its rank's NUMA node.
var Progress = []string{"default", "placed"}

// Hidden is how much of a non-blocking operation a computation hides, as IMB-NBC measures it: of
// the rank that hides the least. Times are in µs.
type Hidden struct {
	What     string `json:"what"` // nbc
	Op       string `json:"op"`
	Size     int    `json:"size"`
	Ranks    int    `json:"ranks"`
	Fabric   string `json:"fabric"`
	Peer     string `json:"peer,omitempty"`     // another library
	Progress string `json:"progress,omitempty"` // of this library, from Progress
	Round    int    `json:"round"`

	Pure    float64 `json:"t_pure"`  // start and wait
	CPU     float64 `json:"t_cpu"`   // a computation that takes as long on an idle processor
	Both    float64 `json:"t_ovrl"`  // start, the computation, and wait
	Overlap float64 `json:"overlap"` // 100 (Pure + CPU - Both) / min(Pure, CPU), within 0 and 100
}

// NBC is the value of Hidden.What.
const NBC = "nbc"

// Derive computes the overlap from the times.
func (h *Hidden) Derive() {
	h.Overlap = 100 * min(max(hides(h.Pure, h.CPU, h.Both), 0), 1)
}

// hides returns which part of the shorter of two activities is hidden.
func hides(pure, cpu, both float64) float64 {
	if shorter := min(pure, cpu); shorter > 0 {
		return (pure + cpu - both) / shorter
	}
	return 0
}

// runHidden measures how much of each operation and size a computation hides, round by round.
func runHidden(ctx context.Context, t *coll.Team, req *Request, emit func(Hidden) error) error {
	perNS := overlap.Calibrate() // on all ranks at once: no rank computes faster in what follows
	for round := range req.Rounds {
		for _, op := range req.Ops {
			for _, n := range req.SizesOf(op) {
				h := Hidden{What: NBC, Op: op, Size: n, Ranks: t.Size(), Fabric: req.Fabric, Round: round}
				err := hidden(ctx, t, req.Time, perNS, &h)
				if err == nil && t.Rank() == 0 {
					err = emit(h)
				}
				if err != nil {
					return fmt.Errorf("%s of %d bytes: %w", op, n, err)
				}
			}
		}
	}
	return nil
}

// hidden measures one operation and size, and completes h on rank 0.
func hidden(ctx context.Context, t *coll.Team, span time.Duration, perNS float64, h *Hidden) error {
	k := newKernel(ctx, t, h.Op, h.Size)
	if err := k.check(); err != nil {
		return err
	}
	turns := int64(0)
	pure := func() error { return k.start().Wait(ctx) }
	cpu := func() error { overlap.Work(turns); return nil }
	both := func() error {
		r := k.start()
		overlap.Work(turns)
		return r.Wait(ctx)
	}
	calls, err := callsIn(ctx, t, NBC, pure, span)
	if err != nil {
		return err
	}
	mine := make([]float64, 3)
	for i, call := range []func() error{pure, cpu, both} {
		in, _, err := timed(ctx, t, NBC, call, calls)
		if err != nil {
			return err
		}
		mine[i] = float64(in) / 1e3 / float64(calls)
		if i == 0 {
			longest := make([]float64, 1)
			if err := coll.Allreduce(ctx, t, mine[:1], longest, coll.Max); err != nil {
				return err
			}
			turns = int64(longest[0] * 1e3 * perNS)
		}
	}
	all := make([]float64, 3*t.Size())
	if err := coll.Gather(ctx, t, 0, mine, all); err != nil || t.Rank() != 0 {
		return err
	}
	worst := slices.MinFunc(slices.Collect(slices.Chunk(all, 3)), func(a, b []float64) int {
		return cmp.Compare(hides(a[0], a[1], a[2]), hides(b[0], b[1], b[2]))
	})
	h.Pure, h.CPU, h.Both = worst[0], worst[1], worst[2]
	h.Derive()
	return nil
}

// Series returns the name of the library, and of where its progress goroutines run.
func (h *Hidden) Series() string {
	if h.Peer != "" {
		return h.Peer
	}
	return "rma, " + h.Progress
}

// HiddenCell is a cell of all rounds.
type HiddenCell struct {
	Hidden              // medians
	Least, Most float64 // of the overlap
}

// HiddenCells combines the rounds of each cell, in the order of the first round.
func HiddenCells(hs []Hidden) (out []HiddenCell) {
	for k, rounds := range bench.GroupBy(hs, func(h *Hidden) Hidden {
		return Hidden{What: h.What, Op: h.Op, Size: h.Size, Ranks: h.Ranks, Fabric: h.Fabric, Peer: h.Peer, Progress: h.Progress}
	}) {
		c := HiddenCell{Hidden: k}
		c.Pure, _, _ = bench.Range(rounds, func(h *Hidden) float64 { return h.Pure })
		c.CPU, _, _ = bench.Range(rounds, func(h *Hidden) float64 { return h.CPU })
		c.Both, _, _ = bench.Range(rounds, func(h *Hidden) float64 { return h.Both })
		c.Overlap, c.Least, c.Most = bench.Range(rounds, func(h *Hidden) float64 { return h.Overlap })
		out = append(out, c)
	}
	return out
}
