package topo

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed33544411/rma/internal/cpu"
)

// Policy says which processors the ranks of a host are bound to.
type Policy uint8

// Policies, under the names that compilers' runtimes and launchers use.
const (
	None    Policy = iota // ranks are not bound
	Scatter               // equal shares of the nodes, as far apart as possible within a node
	Compact               // one core after the other
)

// ErrPolicy says that a text names no policy.
var ErrPolicy = errors.New("topo: unknown policy")

var policies = []string{None: "none", Scatter: "scatter", Compact: "compact"}

// ParsePolicy returns the policy of that name; other names give ErrPolicy.
func ParsePolicy(name string) (Policy, error) {
	p := slices.Index(policies, name)
	if p < 0 {
		return None, fmt.Errorf("%w: %.40q", ErrPolicy, name)
	}
	return Policy(p), nil
}

// String returns the name.
func (p Policy) String() string {
	if int(p) < len(policies) {
		return policies[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Binding is the place of a rank: a core, by the processors (hardware threads) of it that
// the job may use.
type Binding struct {
	Node     int // the ID of its NUMA node
	CPUs     cpu.Set
	Progress cpu.Set // the core for its progress thread; that of the rank if its node has none to spare
}

// share is a node with its usable cores, each as the processors that may be used.
type share struct {
	node  int
	cores []cpu.Set
}

// shares returns the nodes that have usable processors. A processor of an unknown core is a
// core of its own.
func (h *Host) shares(nodes []Node, usable cpu.Set) []share {
	var all []share
	for _, n := range nodes {
		s := share{node: n.ID}
		left := n.CPUs.And(usable)
		for _, no := range left.CPUs() {
			if !left.Has(no) {
				continue // with a thread before
			}
			core := cpu.Of(no)
			for _, c := range h.Cores {
				if c.Has(no) {
					core = core.Or(c.And(left))
					break
				}
			}
			left = left.Without(core)
			s.cores = append(s.cores, core)
		}
		if len(s.cores) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// UsableCores returns the number of cores of which at least one processor is usable.
func (h *Host) UsableCores(usable cpu.Set) int {
	n := 0
	for _, s := range h.shares([]Node{{CPUs: h.Online}}, usable) {
		n += len(s.cores)
	}
	return n
}

// Place returns the places of the ranks of a host, in their order; nil if they are not to be
// bound, or nothing is usable. Only usable processors are taken. h must know all of them.
//
// Scatter and the cores of progress threads are the algorithms of Taboada, Placement de
// threads de progression pour les collectives MPI non bloquantes (Compas 2016). There all
// nodes have the same number of cores; here nodes get ranks in proportion to their usable
// cores, which is the same if they are equal. With more ranks than cores, neighbouring
// ranks share cores.
func (h *Host) Place(nodes []Node, usable cpu.Set, ranks int, p Policy) []Binding {
	all := h.shares(nodes, usable)
	total := 0
	for _, s := range all {
		total += len(s.cores)
	}
	if p == None || total == 0 || ranks <= 0 {
		return nil
	}
	var out []Binding
	first := 0 // core of this node, counted through all nodes
	for _, s := range all {
		end := first + len(s.cores)
		n := firstRank(end, total, ranks, p) - len(out)
		for local := range n {
			out = append(out, s.place(local, n, p))
		}
		first = end
	}
	return out
}

// firstRank returns the first rank whose core, counted through all nodes, is not below core.
func firstRank(core, total, ranks int, p Policy) int {
	if p == Compact && ranks <= total {
		return min(core, ranks)
	}
	return ceilDiv(core*ranks, total)
}

// place returns the place of one of n ranks in the node.
func (s *share) place(local, n int, p Policy) Binding {
	cores := len(s.cores)
	b := Binding{Node: s.node}
	var at, own int
	switch {
	case p == Compact && n <= cores:
		at = local
		if own = at; n < cores {
			own = n + local%(cores-n)
		}
	default:
		at = local * cores / n
		own = progressCore(at, cores, n)
	}
	b.CPUs, b.Progress = s.cores[at], s.cores[own]
	return b
}

// progressCore returns the core of the progress thread of a scattered rank on core, in a
// node of that many cores and ranks: the next one that no rank has.
func progressCore(core, cores, ranks int) int {
	free := cores - ranks
	if free <= 0 {
		return core
	}
	return ceilDiv((core*free/cores+1)*cores, free) - 1
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
