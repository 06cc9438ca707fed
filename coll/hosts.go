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

// packLimit is the size from which blocks of a Gather, Scatter or Alltoall go directly, in bytes: the
// messages that packing them saves take less time than the copies, and the leaders little memory.
// It is where a class of sizes begins: see question.
const packLimit = 32 << 10

// serves reports whether an operation can be divided among the hosts.
func (h *hosts) serves(c call) bool {
	if h == nil || c.op == opFuncInOrder && !h.adjacent {
		return false
	}
	switch c.kind {
	case kindScan, kindExscan:
		return h.adjacent // the ranks below are those of whole hosts, and of this one
	case kindGather, kindScatter, kindAlltoall:
		return c.count*uint64(c.size) < packLimit
	case kindGatherv, kindScatterv, kindAlltoallv:
		return c.count*uint64(c.size) <= uint64(c.kind.records()) // only a prediction has a count
	}
	return true
}

// maxPacks bounds the temporary memory of a leader in an exchange of all with all by a team for which no time is
// predicted, in bytes.
const maxPacks = 64 << 20

// haveRoom reports whether a leader has as much memory as it needs: for what each rank of a host sends to, and receives
// from, all others.
func (h *hosts) haveRoom(c call) bool {
	n := 0
	switch c.kind {
	case kindAlltoall:
		n = int(c.count) * int(c.size)
	case kindAlltoallv:
		n = recordHead + recordMaxAll
	}
	most := 0
	for _, ranks := range h.ranks {
		most = max(most, len(ranks))
	}
	return 2*n*most*len(h.of) <= maxPacks
}

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
// once, unless the order of the operands is to be kept.
func (h *hosts) between(k kind, n int, inOrder bool) algorithm {
	p := len(h.ranks)
	switch {
	case k == kindAllreduce && (n <= fewMessages || p == 2 || inOrder): // of two, each sends the data once in any way
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

// perform makes the steps of the problem.
func (l *levels) perform(pr *problem) {
	switch pr.kind {
	case kindAllreduce:
		l.allreduce(pr.recv[0], pr.send[0])
	case kindReduceScatter, kindReduceScatterv:
		l.reduceScatter(pr.send, pr.recv[0])
	case kindGather:
		l.gather(int(pr.root), pr.send[0], pr.recv)
	case kindScatter:
		l.scatter(int(pr.root), pr.send, pr.recv[0])
	case kindGatherv:
		l.gatherv(int(pr.root), pr.send[0], pr.recv)
	case kindScatterv:
		l.scatterv(int(pr.root), pr.send, pr.recv[0])
	case kindAlltoallv:
		send, after := aside(l.builder, pr.send, pr.recv)
		l.alltoallv(send, pr.recv, after)
	case kindAllgather, kindAllgatherv:
		l.allgather(pr.recv, l.copy(pr.recv[pr.rank], pr.send[0]))
	case kindScan, kindExscan:
		l.scan(pr.kind == kindExscan, pr.send[0], pr.recv[0])
	default:
		l.builder.perform(pr)
	}
}

// mates returns the ranks of this rank's host, and its leader.
func (l *levels) mates(leaders []int) (ranks []int, leader int) {
	host := l.hosts.of[l.rank]
	return l.hosts.ranks[host], leaders[host]
}

// others returns the hosts from the one behind this rank's on, without this one.
func (l *levels) others() []int {
	h := len(l.hosts.ranks)
	out := make([]int, 0, h-1)
	for s := 1; s < h; s++ {
		out = append(out, (l.hosts.of[l.rank]+s)%h)
	}
	return out
}

// pack returns temporary memory for the blocks of all ranks: those of each host together, and each.
func (l *levels) pack(blocks []mem) (hosts, ranks []mem) {
	n := 0
	for _, b := range blocks {
		n += b.n
	}
	all, at := l.temp(n), 0
	ranks = make([]mem, l.size)
	for _, rs := range l.hosts.ranks {
		first := at
		for _, r := range rs {
			ranks[r] = all.part(at, blocks[r].n)
			at += blocks[r].n
		}
		hosts = append(hosts, all.part(first, at-first))
	}
	return hosts, ranks
}

// near returns the parent of this rank, -1 at the leader, and its children, those with the
// smallest subtrees first, in a binomial tree of the ranks of its host.
func (l *levels) near(leaders []int) (parent int, children []int) {
	host := l.hosts.of[l.rank]
	ranks := l.hosts.ranks[host]
	return l.treeAmong(ranks, algBinomial, slices.Index(ranks, leaders[host]))
}

// treeAmong returns the parent and the children of this rank in a tree of members, of which root is
// the place there of the root.
func (l *levels) treeAmong(members []int, alg algorithm, root int) (parent int, children []int) {
	if parent, children = l.among(members).tree(alg, root); parent >= 0 {
		parent = members[parent]
	}
	for i, c := range children {
		children[i] = members[c]
	}
	return parent, children
}

// tree returns the parent and the children of this rank in a tree whose edges between hosts are
// those of a tree of the hosts, as builder.tree does.
func (l *levels) tree(root int) (parent int, children []int) {
	leaders := l.hosts.leaders(root)
	parent, children = l.near(leaders)
	if parent < 0 {
		var far []int
		parent, far = l.treeAmong(leaders, l.far, l.hosts.of[root])
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

// reduceScatter reduces the blocks of each host at its leader, which sends those of another host
// there, reduces what comes from other hosts, and distributes the result.
func (l *levels) reduceScatter(send []mem, recv mem) {
	leaders := l.hosts.leaders(0)
	packs, at := l.pack(send)
	parent, children := l.near(leaders)
	host := l.hosts.of[l.rank]
	ready := make([]int32, len(packs)) // after which packs are reduced in this subtree
	own := none                        // after which recv may be written: it may be this rank's block
	for _, h := range append(l.others(), host) {
		copied := make([]int32, 0, len(l.hosts.ranks[h]))
		for _, r := range l.hosts.ranks[h] {
			c := l.copy(at[r], send[r])
			if copied = append(copied, c); r == l.rank {
				own = c
			}
		}
		ready[h] = l.join(copied...)
		for _, c := range children {
			ready[h] = l.take(c, packs[h], false, ready[h])
		}
		if parent >= 0 {
			l.give(parent, packs[h], ready[h])
		}
	}
	ranks, leader := l.mates(leaders)
	if l.rank != leader {
		l.recv(leader, recv, own)
		return
	}
	far, last := l.among(leaders), ready[host]
	for _, h := range l.others() {
		far.give(h, packs[h], ready[h])
	}
	for _, h := range l.others() {
		last = far.take(h, packs[host], false, last)
	}
	for _, r := range ranks {
		if r == l.rank {
			l.copy(recv, at[r], last)
		} else {
			l.send(r, at[r], last)
		}
	}
}

// collect receives the blocks of ranks, this one's among them.
func (l *levels) collect(ranks []int, send mem, recv []mem) {
	for _, r := range ranks {
		if r == l.rank {
			l.copy(recv[r], send)
		} else {
			l.recv(r, recv[r])
		}
	}
}

// gather collects the blocks of each host at its leader, and those of all hosts at the root.
func (l *levels) gather(root int, send mem, recv []mem) {
	leaders := l.hosts.leaders(root)
	ranks, leader := l.mates(leaders)
	n := send.n
	if l.rank == root {
		for _, h := range l.others() {
			pack := l.temp(n * len(l.hosts.ranks[h]))
			got := l.recv(leaders[h], pack)
			for i, r := range l.hosts.ranks[h] {
				l.copy(recv[r], pack.part(i*n, n), got)
			}
		}
		l.collect(ranks, send, recv)
		return
	}
	if l.rank != leader {
		l.send(leader, send)
		return
	}
	pack, got := l.temp(n*len(ranks)), make([]int32, len(ranks))
	for i, r := range ranks {
		if m := pack.part(i*n, n); r == l.rank {
			got[i] = l.copy(m, send)
		} else {
			got[i] = l.recv(r, m)
		}
	}
	l.send(root, pack, l.join(got...))
}

// scatter is the reverse of gather.
func (l *levels) scatter(root int, send []mem, recv mem) {
	leaders := l.hosts.leaders(root)
	ranks, leader := l.mates(leaders)
	n := recv.n
	if l.rank == root {
		for _, h := range l.others() {
			pack, copied := l.temp(n*len(l.hosts.ranks[h])), make([]int32, len(l.hosts.ranks[h]))
			for i, r := range l.hosts.ranks[h] {
				copied[i] = l.copy(pack.part(i*n, n), send[r])
			}
			l.send(leaders[h], pack, l.join(copied...))
		}
		for _, r := range ranks {
			if r == root {
				l.copy(recv, send[r])
			} else {
				l.send(r, send[r])
			}
		}
		return
	}
	if l.rank != leader {
		l.recv(leader, recv)
		return
	}
	pack := l.temp(n * len(ranks))
	got := l.recv(root, pack)
	for i, r := range ranks {
		if m := pack.part(i*n, n); r == l.rank {
			l.copy(recv, m, got)
		} else {
			l.send(r, m, got)
		}
	}
}

// allgather collects the blocks of each host at its leader. The leaders send theirs to each other,
// and each passes what comes to its host: those of a host together if they are small, else each
// without copies. This rank's block is there after the step first.
func (l *levels) allgather(blocks []mem, first int32) {
	if slices.ContainsFunc(blocks, func(b mem) bool { return b.n > inlineMax }) { // the same on all ranks
		l.allgatherLarge(blocks, first)
		return
	}
	leaders := l.hosts.leaders(0)
	ranks, leader := l.mates(leaders)
	packs, at := l.pack(blocks)
	parent, children := l.near(leaders)
	here := make([]int32, len(packs)) // after which packs are
	if l.rank == leader {
		got := make([]int32, len(ranks))
		for i, r := range ranks {
			if r == l.rank {
				got[i] = l.copy(at[r], blocks[r], first)
			} else {
				got[i] = l.recv(r, at[r])
			}
		}
		here = l.among(leaders).exchange(packs, l.join(got...))
	} else {
		l.send(leader, blocks[l.rank], first)
	}
	for _, h := range append([]int{l.hosts.of[l.rank]}, l.others()...) {
		if parent >= 0 {
			here[h] = l.recv(parent, packs[h])
		}
		for _, c := range slices.Backward(children) {
			l.send(c, packs[h], here[h])
		}
		for _, r := range l.hosts.ranks[h] {
			if r != l.rank {
				l.copy(blocks[r], at[r], here[h])
			}
		}
	}
}

// allgatherLarge is allgather without copies.
func (l *levels) allgatherLarge(blocks []mem, first int32) {
	leaders := l.hosts.leaders(0)
	ranks, leader := l.mates(leaders)
	parent, children := l.near(leaders)
	here := make([]int32, l.size) // after which blocks are
	here[l.rank] = first
	if l.rank == leader {
		for _, r := range ranks {
			if r != l.rank {
				here[r] = l.recv(r, blocks[r])
			}
			for _, h := range l.others() {
				l.send(leaders[h], blocks[r], here[r])
			}
		}
		for _, h := range l.others() {
			for _, r := range l.hosts.ranks[h] {
				here[r] = l.recv(leaders[h], blocks[r])
			}
		}
	} else {
		l.send(leader, blocks[l.rank], first)
	}
	for _, h := range append([]int{l.hosts.of[l.rank]}, l.others()...) {
		for _, r := range l.hosts.ranks[h] {
			if parent >= 0 && r != l.rank {
				here[r] = l.recv(parent, blocks[r])
			}
			for _, c := range slices.Backward(children) {
				if c != r {
					l.send(c, blocks[r], here[r])
				}
			}
		}
	}
}

// alltoall exchanges the blocks within a host directly. Those for another host go to the leader,
// as one message to the leader there, and by it to their ranks. Memory may be used after the step
// after.
func (l *levels) alltoall(send, recv []mem, after int32) {
	leaders := l.hosts.leaders(0)
	ranks, leader := l.mates(leaders)
	n := send[l.rank].n
	for _, h := range l.others() { // what leaves this host: by sender, then by receiver
		there := l.hosts.ranks[h]
		one := n * len(there) // of a sender
		mine, copied := l.temp(one), make([]int32, len(there))
		for i, r := range there {
			copied[i] = l.copy(mine.part(i*n, n), send[r], after)
		}
		if l.rank != leader {
			l.send(leader, mine, l.join(copied...))
			continue
		}
		pack, got := l.temp(one*len(ranks)), make([]int32, len(ranks))
		for i, r := range ranks {
			if m := pack.part(i*one, one); r == l.rank {
				got[i] = l.copy(m, mine, l.join(copied...))
			} else {
				got[i] = l.recv(r, m)
			}
		}
		l.send(leaders[h], pack, l.join(got...))
	}
	for _, r := range ranks {
		if r == l.rank {
			l.copy(recv[r], send[r], after)
		} else {
			l.send(r, send[r], after)
			l.recv(r, recv[r], after)
		}
	}
	for _, h := range l.others() {
		there := l.hosts.ranks[h]
		one := n * len(there) // of a receiver
		come := func(m mem, got int32) {
			for i, r := range there {
				l.copy(recv[r], m.part(i*n, n), got, after)
			}
		}
		if l.rank != leader {
			m := l.temp(one)
			come(m, l.recv(leader, m))
			continue
		}
		pack := l.temp(one * len(ranks))
		got := l.recv(leaders[h], pack)
		for k, r := range ranks {
			m, copied := l.temp(one), make([]int32, len(there))
			for i := range there {
				copied[i] = l.copy(m.part(i*n, n), pack.part((i*len(ranks)+k)*n, n), got)
			}
			if all := l.join(copied...); r == l.rank {
				come(m, all)
			} else {
				l.send(r, m, all)
			}
		}
	}
}

// scan is a scan of each host, the last rank of which then has the data of all its ranks, an exclusive one
// among these last ranks, and its result put before what each rank has.
func (l *levels) scan(exclusive bool, send, recv mem) {
	host := l.hosts.of[l.rank]
	ranks, last := l.hosts.ranks[host], make([]int, len(l.hosts.ranks))
	for i, rs := range l.hosts.ranks {
		last[i] = rs[len(rs)-1]
	}
	mine, have, free := l.among(ranks).scan(exclusive, send, recv, none)
	below, got := l.temp(send.n), none
	if l.rank == last[host] {
		_, _, before := l.among(last).scan(true, mine, below, have)
		got = before[0]
	}
	if host == 0 { // there is nothing below
		return
	}
	parent, children := l.treeAmong(ranks, algBinomial, len(ranks)-1)
	if parent >= 0 {
		got = l.recv(parent, below)
	}
	for _, c := range slices.Backward(children) {
		l.send(c, below, got)
	}
	if exclusive && l.rank == ranks[0] {
		l.copy(recv, below, append(free, got)...)
	} else {
		l.fold(recv, below, true, append(free, got)...)
	}
}
