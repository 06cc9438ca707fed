package coll

import (
	"slices"

	"github.com/seed33544411/rma"
)

// hosts is the division of the ranks of a team among hosts, of which there are at least two, and
// at least one of them has several ranks. All ranks derive the same one: they have the same list of
// what each rank of the job says about its host.
type hosts struct {
	of       []int   // by rank: its host; they are numbered in the order of their lowest ranks
	ranks    [][]int // by host: its ranks, in ascending order
	adjacent bool    // there is no rank of another host between two ranks of a host
}

// divide returns the division by any numbers of hosts, by rank; nil if messages between hosts
// cannot be saved by those within one.
func divide(numbers []int) *hosts {
	h := &hosts{of: make([]int, len(numbers)), adjacent: true}
	known := map[int]int{}
	for r, n := range numbers {
		i, seen := known[n]
		if !seen {
			i = len(h.ranks)
			known[n], h.ranks = i, append(h.ranks, nil)
		}
		h.of[r], h.ranks[i] = i, append(h.ranks[i], r)
		h.adjacent = h.adjacent && (!seen || numbers[r-1] == n)
	}
	if len(h.ranks) < 2 || len(h.ranks) == len(numbers) {
		return nil
	}
	return h
}

// hostsOf returns the division of ranks of a job.
func hostsOf(eng *rma.Engine, ranks []int) *hosts {
	numbers := make([]int, len(ranks))
	for i, r := range ranks {
		numbers[i] = rma.PlaceOf(eng.Peer(r)).Host
	}
	return divide(numbers)
}

// serves reports whether an operation can be divided among the hosts.
func (h *hosts) serves(c call) bool { return h != nil && (h.adjacent || c.op != opFuncInOrder) }

// guide returns the first rank that is not alone on its host.
func (h *hosts) guide() int {
	return slices.IndexFunc(h.of, func(host int) bool { return len(h.ranks[host]) > 1 })
}

// leaders returns the ranks, one of each host, that exchange messages with other hosts: the
// lowest ones, but of the root's host the root.
func (h *hosts) leaders(root int) []int {
	out := make([]int, len(h.ranks))
	for i, ranks := range h.ranks {
		out[i] = ranks[0]
	}
	out[h.of[root]] = root
	return out
}

// between returns the algorithm by which the leaders perform their part of an operation of n
// bytes: one of few messages or, for large data, one in which no rank sends all of it more than
// once.
func (h *hosts) between(k kind, n int) algorithm {
	p := len(h.ranks)
	switch {
	case k == kindAllreduce && n <= fewMessages:
		return algDoubling
	case k == kindAllreduce && p&(p-1) == 0:
		return algHalving
	case k == kindAllreduce:
		return algRing
	case n >= p*segment:
		return algChain
	}
	return algBinomial
}

// fewMessages is the size of the data of an Allreduce up to which its number of messages between
// hosts matters more than their size, in bytes.
const fewMessages = 32 << 10

// levels makes the part of a rank in operations that are divided among hosts: a level within each
// host, and one of leaders.
type levels struct {
	*builder
	hosts *hosts
	far   algorithm // of the leaders
}

// near returns the parent of this rank, -1 at the leader, and its children, those with the
// smallest subtrees first, in a binomial tree of the ranks of its host.
func (l *levels) near(leaders []int) (parent int, children []int) {
	host := l.hosts.of[l.rank]
	ranks := l.hosts.ranks[host]
	return l.among(ranks).teamTree(algBinomial, slices.Index(ranks, leaders[host]))
}

// tree returns the parent and the children of this rank in a tree whose edges between hosts are
// those of a tree of the hosts, as builder.tree does.
func (l *levels) tree(root int) (parent int, children []int) {
	leaders := l.hosts.leaders(root)
	parent, children = l.near(leaders)
	if parent < 0 {
		var far []int
		parent, far = l.among(leaders).teamTree(l.far, l.hosts.of[root])
		children = append(children, far...)
	}
	return parent, children
}

// barrier is a barrier of the leaders between those of the hosts, behind the steps after.
func (l *levels) barrier(after ...int32) {
	leaders := l.hosts.leaders(0)
	parent, children := l.near(leaders)
	last := l.join(after...)
	for _, c := range children {
		last = l.join(l.recv(c, mem{}), last)
	}
	if parent < 0 {
		last = l.among(leaders).barrier(last)
	} else {
		last = l.recv(parent, mem{}, l.send(parent, mem{}, last))
	}
	for _, c := range slices.Backward(children) {
		l.send(c, mem{}, last)
	}
}

// hostPiece is the least size of the pieces in which an Allreduce is divided among hosts, in bytes:
// hosts reduce a piece, and distribute another, while their leaders exchange a third, of which
// messages have a segment or more.
const hostPiece = 256 << 10

// allreduce reduces in of all ranks to m: that of each host at its leader, then among the
// leaders.
func (l *levels) allreduce(m, in mem) {
	leaders := l.hosts.leaders(0)
	parent, children := l.near(leaders)
	piece := max(hostPiece, segment*len(leaders))
	k := max(1, (m.n+piece-1)/piece)
	from := l.blocks(in, k)
	for i, to := range l.blocks(m, k) {
		have, last := from[i], none
		for _, c := range children {
			last = l.takeOnto(c, to, have, false, last)
			have = to
		}
		if parent < 0 {
			last = l.among(leaders).allreduce(l.far, to, have, last)
		} else {
			last = l.recv(parent, to, l.give(parent, have, last))
		}
		for _, c := range slices.Backward(children) {
			l.send(c, to, last)
		}
	}
}
