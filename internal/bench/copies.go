package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bulk"
	"github.com/seed33544411/rma/sampling"
)

// Copies describes how a link of one host moves large blocks to the peer, for
// explanations. It is zero for links that do not copy with the processor.
type Copies struct {
	Class   sampling.Class `json:"class,omitempty"`   // proximity of the peer
	Private string         `json:"private,omitempty"` // access to the peer's private memory: process_vm or bounce
	Reason  string         `json:"reason,omitempty"`  // why process_vm is not used
	String  uint64         `json:"string,omitempty"`  // least size in bytes copied by the string instruction
	Stream  uint64         `json:"stream,omitempty"`  // least size in bytes copied by non-temporal stores
	Kernel  string         `json:"kernel,omitempty"`
	Source  string         `json:"source,omitempty"` // source of the two sizes: caches, measured, forced
	Cache   uint64         `json:"cache,omitempty"`  // bytes of the largest cache
	Users   int            `json:"users,omitempty"`  // number of processes that share it
}

// CopiesOf returns the present state of a connection.
func CopiesOf(conn Conn) (c Copies) {
	if n, ok := conn.EP.(fabric.Neighbour); ok {
		v := n.Near()
		c.Class, c.Private, c.Reason = sampling.ClassOf(conn.EP, true), v.Private, v.Reason
	}
	if t, ok := conn.Link.(fabric.CopyTuner); ok {
		x := t.Copies()
		c.String, c.Stream, c.Kernel, c.Source, c.Cache, c.Users = x.Plan.String, x.Plan.Stream, x.Kernel, x.Source, x.Cache, x.Users
	}
	return c
}

// tuneCopies measures on rank 0, as an engine does at its start, how large blocks are
// best copied, and sets the result on both links. Both ranks call it. For links that do
// not copy, or that have a forced setting, it is one exchange.
func tuneCopies(ctx context.Context, ctl Control, conn Conn) error {
	var mine []byte
	t, ok := conn.Link.(fabric.CopyTuner)
	if ok && ctl.Rank() == 0 && t.Copies().Source != "forced" {
		// Without memory to measure with, the plan derived from the caches stays.
		if m, _, err := sampling.Copies(nil, sampling.SameHost, sampling.Force, sampling.CopiesBudget); err == nil {
			mine, _ = json.Marshal(m.Plan) // numbers only
		}
	}
	theirs, err := ctl.Exchange(ctx, mine)
	if err != nil || !ok {
		return err
	}
	if ctl.Rank() != 0 {
		mine = theirs
	}
	if len(mine) == 0 {
		return nil
	}
	var p bulk.Plan
	if err := json.Unmarshal(mine, &p); err != nil || p.Stream < bulk.MinStream || p.String < bulk.MinString {
		return fmt.Errorf("copies of rank 0: %+v: %w", p, ErrPlan)
	}
	t.SetCopies(p, "measured")
	return nil
}

// large reports whether any size is so large that links may copy it in several ways.
func (r *Request) large() bool {
	return slices.ContainsFunc(r.Plans, func(p Plan) bool { return slices.Max(p.Size) >= bulk.MinString })
}

// WriteText writes up to two lines.
func (c *Copies) WriteText(w io.Writer) error {
	if c.Class != "" {
		how := c.Private
		if c.Reason != "" {
			how += " (" + c.Reason + ")"
		}
		if _, err := fmt.Fprintf(w, "peer: class %s, private memory by %s\n", c.Class, how); err != nil {
			return err
		}
	}
	if c.Source == "" {
		return nil
	}
	_, err := fmt.Fprintf(w, "copies: string instruction from %s, non-temporal (%s) from %s: %s; cache of %s, %d users\n",
		sizeOrNever(c.String), c.Kernel, sizeOrNever(c.Stream), c.Source, FormatSize(int(c.Cache)), c.Users)
	return err
}

func sizeOrNever(n uint64) string {
	if n == bulk.Never {
		return "never"
	}
	return FormatSize(int(n))
}
