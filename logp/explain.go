package logp

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
)

// Explanation explains the plan of a batch: every candidate with its terms, and the plan.
// It keeps no references to its arguments.
type Explanation struct {
	Messages   int
	Bytes      int64
	Urgent     int         // messages that are eager and first at any cost
	Candidates []Candidate // one for each mode, then the plan
	Why        Why         // of the plan
	Reason     string      // the same, in a sentence with numbers
	Rows       []Row       // of Policy.Table, that decided
	Written    Written     // other messages, see AddDirect
}

// Candidate is one way to transfer the batch.
type Candidate struct {
	Name  string // of the mode, or "plan"
	Parts []Part
	Cost  Cost
	// Confidence is the least confidence of Os at the sizes that are written or read: the
	// reliability of the prediction, 0 to 1.
	Confidence float64
	Err        error // why it is infeasible; no other field is set then
}

// Plan returns the chosen candidate.
func (e *Explanation) Plan() *Candidate { return &e.Candidates[len(e.Candidates)-1] }

// Explain plans b and explains the plan. It allocates; it is for users and reports. Errors
// are those of Plan.
func (pl *Planner) Explain(b *Batch) (*Explanation, error) {
	plan, err := pl.Plan(b)
	if err != nil {
		return nil, err
	}
	return pl.explain(b, plan), nil
}

// ExplainCoalesced explains b if it is sent in gathers only, unplanned, as all batches of
// its kind are (WhyCoalesced). Errors wrap ErrBatch or ErrInfeasible.
func (pl *Planner) ExplainCoalesced(b *Batch) (*Explanation, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	c := candidateOf(&pl.p, b, Gather)
	if c.Err != nil {
		return nil, c.Err
	}
	return pl.explain(b, &Plan{Parts: c.Parts, Total: c.Cost.Total(), Why: WhyCoalesced}), nil
}

func (pl *Planner) explain(b *Batch, plan *Plan) *Explanation {
	c := *b
	for m, w := range c.Wait { // rounded as in Plan
		if w != 0 {
			c.Wait[m] = coarse(w)
		}
	}
	e := &Explanation{Messages: len(b.Messages), Bytes: b.Bytes(), Why: plan.Why}
	if pl.policy.Free() {
		for _, x := range b.Messages {
			if x.Flags&Urgent != 0 && pl.p.Feasible(&b.Limits, x, Eager) == nil {
				e.Urgent++
			}
		}
	}
	for m := range Mode(NumModes) {
		e.Candidates = append(e.Candidates, candidateOf(&pl.p, &c, m))
	}
	chosen := Candidate{Name: "plan", Cost: pl.p.PlanCost(&c, plan.Parts)}
	for _, q := range plan.Parts {
		chosen.Parts = append(chosen.Parts, Part{q.Mode, append([]int32(nil), q.Messages...)})
	}
	chosen.Confidence = confidence(&pl.p, &c, chosen.Parts)
	e.Candidates = append(e.Candidates, chosen)
	if plan.Why == WhyTable {
		e.Rows = pl.rows(b)
	}
	e.Reason = e.reason(plan)
	return e
}

// candidate is mode m for all messages in the order of the batch.
func candidateOf(p *Params, b *Batch, m Mode) Candidate {
	c := Candidate{Name: m.String()}
	if c.Cost, c.Err = p.Cost(b, m); c.Err != nil {
		return c
	}
	all := make([]int32, len(b.Messages))
	for i := range all {
		all[i] = int32(i)
	}
	for len(all) > 0 {
		n := len(all)
		if m != Eager {
			n = take(b, m, all)
		}
		c.Parts = append(c.Parts, Part{m, all[:n:n]})
		all = all[n:]
	}
	c.Confidence = confidence(p, b, c.Parts)
	return c
}

// confidence returns the least confidence of Os at the sizes of parts.
func confidence(p *Params, b *Batch, parts []Part) float64 {
	least := 1.0
	for _, q := range parts {
		var sum int64
		for _, i := range q.Messages {
			sum += b.Messages[i].Size
			if q.Mode != Gather {
				least = min(least, p.Os.Confidence(b.Messages[i].Size))
			}
		}
		if q.Mode == Gather {
			least = min(least, p.Os.Confidence(sum+int64(len(q.Messages))*int64(b.Limits.Segment)+int64(b.Limits.Header)))
		}
	}
	return least
}

// reason describes the gain of the plan over the best mode, and its largest part.
func (e *Explanation) reason(plan *Plan) string {
	chosen := e.Plan()
	total := chosen.Cost.Total()
	if e.Messages == 0 {
		return "nothing to send"
	}
	rival, least := -1, math.Inf(1)
	for i := range e.Candidates[:NumModes] {
		c := &e.Candidates[i]
		own := (plan.Why == WhySingle || plan.Why == WhyCoalesced) && plan.Modes() == ModeSet(0).With(Mode(i))
		if t := c.Cost.Total(); c.Err == nil && !own && t < least {
			rival, least = i, t
		}
	}
	s := fmt.Sprintf("%v: %v, %s", plan.Why, plan, us(total))
	for i, r := range e.Rows {
		s += [...]string{": ", ", "}[min(i, 1)] + r.String()
	}
	if e.Urgent > 0 {
		s += fmt.Sprintf(", %d of them eager because urgent", e.Urgent)
	}
	if rival < 0 {
		return s + "; no other mode can carry everything"
	}
	r := &e.Candidates[rival]
	if math.Abs(least-total) <= tie*math.Abs(total) {
		return fmt.Sprintf("%s; %s costs the same, and takes %d bytes of receiver memory, not %d", s, r.Name, r.Cost.Ring, chosen.Cost.Ring)
	}
	if total > 0 {
		s += fmt.Sprintf("; %s alone %s (%+.0f %%)", r.Name, us(least), 100*(least/total-1))
	}
	var in [len(groupNames)]float64
	for i, g := range groups {
		in[g] += r.Cost.Terms[i] - chosen.Cost.Terms[i]
	}
	g, gain := 0, 0.0
	for i, d := range in {
		if d > gain {
			g, gain = i, d
		}
	}
	if gain > 0 && least > total {
		s += fmt.Sprintf(", saved most in %s (%s)", groupNames[g], us(gain))
	}
	return s
}

// groups combines terms that replace each other between modes.
var (
	groups = [NumTerms]uint8{TermPost: 1, TermReceive: 1, TermCopyOut: 2, TermCopyIn: 2, TermRegister: 2,
		TermSoft: 3, TermHard: 3, TermCredit: 4, TermMemory: 2, TermExtra: 5, TermLearned: 5}
	groupNames = [...]string{"transfers", "software", "copies and registration", "latency", "waiting for credit", "corrections"}
)

func us(ns float64) string { return fmt.Sprintf("%.2f µs", ns/1000) }

// String returns a table: a line for each term in µs, a column for each candidate.
func (e *Explanation) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d messages, %d bytes\n", e.Messages, e.Bytes)
	w := tabwriter.NewWriter(&s, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, cell func(c *Candidate) string) {
		fmt.Fprintf(w, "%s\t", name)
		for i := range e.Candidates {
			if c := &e.Candidates[i]; c.Err == nil {
				fmt.Fprintf(w, "%s\t", cell(c))
			} else {
				fmt.Fprint(w, "-\t")
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "µs\t")
	for i := range e.Candidates {
		fmt.Fprintf(w, "%s\t", e.Candidates[i].Name)
	}
	fmt.Fprintln(w)
	for t := range Term(NumTerms) {
		used := false
		for i := range e.Candidates {
			used = used || e.Candidates[i].Cost.Terms[t] != 0
		}
		if used {
			row(t.String(), func(c *Candidate) string { return fmt.Sprintf("%.3f", c.Cost.Terms[t]/1000) })
		}
	}
	row("total", func(c *Candidate) string { return fmt.Sprintf("%.3f", c.Cost.Total()/1000) })
	row("posts", func(c *Candidate) string { return fmt.Sprint(c.Cost.Ops) })
	row("reads", func(c *Candidate) string { return fmt.Sprint(c.Cost.Reads) })
	row("confidence", func(c *Candidate) string { return fmt.Sprintf("%.2f", c.Confidence) })
	row("ring bytes", func(c *Candidate) string { return fmt.Sprint(c.Cost.Ring) })
	_ = w.Flush() // to memory: cannot fail
	for i := range e.Candidates {
		if c := &e.Candidates[i]; c.Err != nil {
			fmt.Fprintf(&s, "%s: %v\n", c.Name, c.Err)
		}
	}
	s.WriteString(e.Reason)
	s.WriteByte('\n')
	if e.Written.Messages > 0 {
		s.WriteString(e.Written.String())
		s.WriteByte('\n')
	}
	return s.String()
}

// MarshalJSON writes {messages, bytes, why, reason, candidates: [{name, total_ns, terms:
// {name: ns}, posts, reads, ring_bytes, confidence, parts: [{mode, messages}]} or {name,
// infeasible}], rows: [{row, rule, messages, refused}], written: {messages, bytes, total_ns,
// terms}}. Terms that are 0 are omitted, and so are rows and written if they are empty.
func (e *Explanation) MarshalJSON() ([]byte, error) {
	type part struct {
		Mode     Mode    `json:"mode"`
		Messages []int32 `json:"messages"`
	}
	type candidate struct {
		Name       string             `json:"name"`
		Infeasible string             `json:"infeasible,omitempty"`
		Total      *float64           `json:"total_ns,omitempty"`
		Terms      map[string]float64 `json:"terms,omitempty"`
		Posts      int                `json:"posts,omitempty"`
		Reads      int                `json:"reads,omitempty"`
		Ring       int64              `json:"ring_bytes,omitempty"`
		Confidence float64            `json:"confidence,omitempty"`
		Parts      []part             `json:"parts,omitempty"`
	}
	type written struct {
		Messages int                `json:"messages"`
		Bytes    int64              `json:"bytes"`
		Total    float64            `json:"total_ns"`
		Terms    map[string]float64 `json:"terms"`
	}
	terms := func(c *Cost) map[string]float64 {
		m := map[string]float64{}
		for t, x := range c.Terms {
			if x != 0 {
				m[Term(t).String()] = x
			}
		}
		return m
	}
	out := struct {
		Messages   int         `json:"messages"`
		Bytes      int64       `json:"bytes"`
		Why        string      `json:"why"`
		Reason     string      `json:"reason"`
		Candidates []candidate `json:"candidates"`
		Rows       []Row       `json:"rows,omitempty"`
		Written    *written    `json:"written,omitempty"`
	}{e.Messages, e.Bytes, e.Why.String(), e.Reason, nil, e.Rows, nil}
	if w := &e.Written; w.Messages > 0 {
		out.Written = &written{w.Messages, w.Bytes, w.Cost.Total(), terms(&w.Cost)}
	}
	for i := range e.Candidates {
		c := &e.Candidates[i]
		j := candidate{Name: c.Name}
		if c.Err != nil {
			j.Infeasible = c.Err.Error()
			out.Candidates = append(out.Candidates, j)
			continue
		}
		total := c.Cost.Total()
		j.Total, j.Terms = &total, terms(&c.Cost)
		j.Posts, j.Reads, j.Ring, j.Confidence = c.Cost.Ops, c.Cost.Reads, c.Cost.Ring, c.Confidence
		for _, q := range c.Parts {
			j.Parts = append(j.Parts, part(q))
		}
		out.Candidates = append(out.Candidates, j)
	}
	return json.Marshal(out)
}
