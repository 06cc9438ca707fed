package choice

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/seed33544411/rma/coll"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// Explanation predicts the time of a batch in each way, term by term.
type Explanation struct {
	Fabric   string `json:"fabric"`
	Op       string `json:"op,omitempty"` // of pieces
	Messages int    `json:"messages"`     // or pieces
	Bytes    int64  `json:"bytes"`
	Ranks    int    `json:"ranks,omitempty"` // of a collective operation
	Hosts    int    `json:"hosts,omitempty"` // if they are on several, as the next two
	Between  string `json:"between,omitempty"`
	// LatencyUS is that of the link between hosts, one way.
	LatencyUS float64 `json:"latency_us,omitempty"`
	Plan      string  `json:"plan"`
	Reason    string  `json:"reason"`
	Ways      []Way   `json:"ways"` // the modes, the plan, then two-sided messages over verbs

	Rows []logp.Row `json:"rows,omitempty"` // of the table of modes, that decided

	Copies bench.Copies `json:"copies,omitzero"` // how links of one host move large blocks
}

// Way is one way to move the batch. Times are µs.
type Way struct {
	Name       string             `json:"name"`
	PredictUS  float64            `json:"predicted_us"`
	Terms      map[string]float64 `json:"terms_us,omitempty"` // terms that are not 0
	Confidence float64            `json:"confidence"`
	Err        string             `json:"err,omitempty"` // why this way is impossible
	MeasuredUS float64            `json:"measured_us,omitempty"`
}

// explain predicts the request's batch, and plays it if the request says so. Both ranks
// call it; rank 0 gets the explanation.
func (k *rank) explain(ctx context.Context) (x *Explanation, err error) {
	if err := k.side.Load(k.req.Batch); err != nil {
		return nil, err
	}
	var res Result
	byTable := k.table()
	if k.req.Measure {
		if _, err := k.cell(ctx, k.req.Batch, false, &res); err != nil {
			return nil, err
		}
	}
	if k.ctl.Rank() != 0 {
		return nil, nil
	}
	if k.req.Coll != "" {
		return k.collective()
	}
	b := k.side.Batch()
	pl, err := logp.NewPlanner(&k.params, &logp.PlannerConfig{Policy: byTable})
	if err != nil {
		return nil, err
	}
	e, err := pl.Explain(b)
	if err != nil {
		return nil, err
	}
	x = &Explanation{Fabric: k.fabric, Messages: e.Messages, Bytes: e.Bytes, Reason: e.Reason, Rows: e.Rows}
	plan, err := pl.Plan(b)
	if err != nil {
		return nil, err
	}
	x.Plan, x.Copies = planText(plan), bench.CopiesOf(k.conn)
	took := res.Modes.array()
	for i := range e.Candidates {
		c := &e.Candidates[i]
		us := res.AutoUS
		switch {
		case i < len(took):
			us = took[i]
		case !byTable.Free():
			us = timeOf(res.Series.Thresholds)
		}
		w := Way{Name: c.Name}
		if c.Err != nil {
			w.Err = c.Err.Error()
		} else {
			w = wayOf(c.Name, &c.Cost, us)
		}
		w.Confidence = c.Confidence
		x.Ways = append(x.Ways, w)
	}
	if k.ref != nil {
		c := k.params.SendRecv(&b.Limits, b.Messages)
		w := wayOf("send/recv", &c, res.SendRecvUS)
		w.Confidence = e.Candidates[logp.Eager].Confidence // of the same sizes
		x.Ways = append(x.Ways, w)
	}
	return x, nil
}

// collective predicts a collective operation by every algorithm.
func (k *rank) collective() (*Explanation, error) {
	es, err := k.req.predict(&k.params, k.fabric == "shm")
	if err != nil {
		return nil, err
	}
	x := &Explanation{Fabric: k.fabric, Op: k.req.Coll, Bytes: int64(k.req.Size), Ranks: k.req.Ranks, Plan: es[0].Algorithm}
	if k.req.Hosts > 1 {
		x.Hosts, x.Between, x.LatencyUS = k.req.Hosts, links.Kind(k.req.between()), k.req.far().Ls/1e3
	}
	for _, e := range es {
		x.Ways = append(x.Ways, Way{Name: e.Algorithm, PredictUS: e.NS / 1e3})
	}
	return x, nil
}

// predict predicts the collective operation by ranks whose paths within a host have the
// parameters p.
func (r *Request) predict(p *logp.Params, maps bool) ([]coll.Prediction, error) {
	far := r.far()
	return coll.PredictHosts(p, maps, &far, r.Coll, r.Size, r.Ranks, max(r.Hosts, 1))
}

// between returns the link between hosts.
func (r *Request) between() string { return cmp.Or(r.Between, "tcp") }

// far returns the parameters of a path between hosts.
func (r *Request) far() logp.Params {
	p := sampling.Defaults(r.between())
	if r.Latency > 0 {
		p.Ls, p.Lh = float64(r.Latency), float64(r.Latency)
	}
	return p
}

// wayOf returns a way of predicted cost c and measured time us, 0 if not measured.
func wayOf(name string, c *logp.Cost, us float64) Way {
	w := Way{Name: name, PredictUS: c.Total() / 1e3, Terms: map[string]float64{}, MeasuredUS: us}
	for t := range logp.Term(logp.NumTerms) {
		if v := c.Terms[t]; v != 0 {
			w.Terms[t.String()] = v / 1e3
		}
	}
	return w
}

// WriteText writes the explanation as a table with one row for each term.
func (x *Explanation) WriteText(w io.Writer) error {
	if x.Ranks > 0 {
		where := ""
		if x.Hosts > 1 {
			where = fmt.Sprintf(" on %d hosts, and between them %s of %.6g µs,", x.Hosts, x.Between, x.LatencyUS)
		}
		fmt.Fprintf(w, "%s of %d bytes by %d ranks over %s%s each with a processor\nfastest: %s\n\n", x.Op, x.Bytes, x.Ranks, x.Fabric, cmp.Or(where, ","), x.Plan)
		for _, y := range x.Ways {
			if _, err := fmt.Fprintf(w, "  %-14s%12.2f µs\n", y.Name, y.PredictUS); err != nil {
				return err
			}
		}
		return nil
	}
	what := "messages"
	if x.Op != "" {
		what = "pieces of a " + x.Op
	}
	fmt.Fprintf(w, "%d %s, %d bytes over %s\nplan: %s\n%s\n", x.Messages, what, x.Bytes, x.Fabric, x.Plan, x.Reason)
	if err := x.Copies.WriteText(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, f func(*Way) string) {
		fmt.Fprintf(t, "%s\t", name)
		for i := range x.Ways {
			fmt.Fprintf(t, "%s\t", f(&x.Ways[i]))
		}
		fmt.Fprintln(t)
	}
	row("µs", func(w *Way) string { return w.Name })
	for term := range logp.Term(logp.NumTerms) {
		if slices.ContainsFunc(x.Ways, func(w Way) bool { return w.Terms[term.String()] != 0 }) {
			row(term.String(), func(w *Way) string {
				if v := w.Terms[term.String()]; v != 0 {
					return fmt.Sprintf("%.2f", v)
				}
				return "-"
			})
		}
	}
	row("predicted", func(w *Way) string {
		if w.Err != "" {
			return "cannot"
		}
		return fmt.Sprintf("%.2f", w.PredictUS)
	})
	if slices.ContainsFunc(x.Ways, func(w Way) bool { return w.MeasuredUS != 0 }) {
		row("measured", func(w *Way) string {
			if w.MeasuredUS == 0 {
				return "-"
			}
			return fmt.Sprintf("%.2f", w.MeasuredUS)
		})
		row("error", func(w *Way) string {
			if w.MeasuredUS == 0 {
				return "-"
			}
			return fmt.Sprintf("%+.0f%%", 100*(w.PredictUS/w.MeasuredUS-1))
		})
	}
	if x.Op == "" {
		row("confidence", func(w *Way) string { return fmt.Sprintf("%.2f", w.Confidence) })
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range x.Ways {
		if e := x.Ways[i].Err; e != "" {
			fmt.Fprintf(w, "%s: %s\n", x.Ways[i].Name, e)
		}
	}
	return nil
}
