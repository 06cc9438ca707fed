package logp

import (
	"fmt"
	"math"
	"strings"

	"github.com/seed33544411/rma/internal/enum"
)

// Way is the method for puts or gets of several pieces.
type Way uint8

// Ways.
const (
	Chain Way = iota // a write or a read for each piece
	Group            // one request, which the target's engine executes

	NumWays = 2
)

var wayNames = [NumWays]string{"chain", "group"}

// String returns the name of the way.
func (w Way) String() string { return enum.Name("way", wayNames[:], w) }

// Pieces are puts or gets to one peer that may be combined: N of them, with a sum of Bytes.
// List is the size of the list in a group, in bytes.
type Pieces struct {
	N     int
	Bytes int64
	List  int64
	Get   bool
}

// Cost returns the cost of the pieces, from the first step until the initiator knows that
// they are placed, with m the mean of their sizes and S the sum:
//
//	puts  chain  a + b·n + n·Os(m) + (n−1)·g + Lh
//	      group  a + b + Os(S + h·n) + 2n·C(m) + Or(S + h·n) + Ls + answer
//	gets  chain  a + b·n + n·Os(r) + n·Os(m) + (n−1)·g + Ls + Lh
//	      group  a + b + Os(h·n) + 2n·C(m) + Or(h·n) + Ls + answer with S
//
// where an answer of s bytes is g + a + b + Os(s) + Or(0) + Ls, with s = 0 for puts. r is
// readRequest. A batch's M(S) is the same either way and is omitted. It does not allocate.
func (x Pieces) Cost(p *Params, w Way) (c Cost) {
	if x.N == 0 {
		return c
	}
	t, n := &c.Terms, float64(x.N)
	mean := x.Bytes / int64(x.N)
	if w == Chain {
		c.Ops = x.N
		t[TermPost] = p.CPU.A + n*p.CPU.B
		t[TermData] = n * p.Os.At(mean)
		t[TermGap] = (n - 1) * p.G
		t[TermHard] = p.Lh
		if x.Get {
			t[TermRequest] = n * p.Os.At(readRequest)
			t[TermSoft] = p.Ls
		}
		return c
	}
	c.Ops = 2
	out, back := x.Bytes+x.List, int64(0)
	if x.Get {
		out, back = x.List, x.Bytes
	}
	t[TermPost] = 2 * (p.CPU.A + p.CPU.B)
	t[TermSend] = p.Os.At(out)
	t[TermData] = p.Os.At(back)
	t[TermGap] = p.G
	t[TermReceive] = p.Or.At(out) + p.Or.At(0)
	t[TermCopyOut] = n * p.C.At(mean)
	t[TermCopyIn] = n * p.C.At(mean)
	t[TermSoft] = 2 * p.Ls
	return c
}

// readRequest is the size of a read request on the wire in bytes.
const readRequest = 28

// PiecesPlan is the cost of pieces by each method, and the cheapest method.
type PiecesPlan struct {
	Pieces
	Costs [NumWays]Cost
	Way   Way
}

// Lateness is what is learned of the ways at one target.
type Lateness struct {
	Chain float64 // measured cost of chains over the predicted one; 0 means 1
	Group float64 // ns by which groups took longer than predicted
}

// Plan returns the cost of each method, and the cheapest. At equal costs it is the chain,
// which asks nothing of the target.
func (x Pieces) Plan(p *Params, late Lateness) (pp PiecesPlan) {
	pp.Pieces = x
	best := math.Inf(1)
	for w := range Way(NumWays) {
		c := x.Cost(p, w)
		switch {
		case w == Group:
			c.Terms[TermLearned] = late.Group
		case late.Chain > 0:
			c.Terms[TermLearned] = (late.Chain - 1) * c.Total()
		}
		if pp.Costs[w] = c; c.Total() < best {
			best, pp.Way = c.Total(), w
		}
	}
	return pp
}

// String returns a table with the terms of each method that are not 0, and the chosen
// method.
func (pp *PiecesPlan) String() string {
	var s strings.Builder
	what := "put"
	if pp.Get {
		what = "get"
	}
	fmt.Fprintf(&s, "%s of %d pieces, %d bytes: %v\n", what, pp.N, pp.Bytes, pp.Way)
	fmt.Fprintf(&s, "%16s %8v %8v\n", "µs", Chain, Group)
	row := func(name string, a, b float64) { fmt.Fprintf(&s, "%16s %8.3f %8.3f\n", name, a/1000, b/1000) }
	chain, group := &pp.Costs[Chain], &pp.Costs[Group]
	for t := range Term(NumTerms) {
		if a, b := chain.Terms[t], group.Terms[t]; a != 0 || b != 0 {
			row(t.String(), a, b)
		}
	}
	row("total", chain.Total(), group.Total())
	return s.String()
}
