package coll

import (
	"math/bits"
	"slices"
)

// meet is a barrier behind the steps after.
func (b *builder) meet(after ...int32) {
	if b.levels != nil {
		b.levels.barrier(after...)
		return
	}
	b.barrier(after...)
}

// barrier is the barrier by dissemination (Hensgen, Finkel, Manber 1988), behind the steps
// after.
func (b *builder) barrier(after ...int32) int32 {
	last := b.join(after...)
	for d := 1; d < b.size; d *= 2 {
		s := b.send((b.rank+d)%b.size, mem{}, last)
		r := b.recv((b.rank-d+b.size)%b.size, mem{})
		last = b.join(s, r)
	}
	return last
}

// star reports whether one of p ranks exchanges messages with all others: by flags, if it has a line
// for each, where several ranks take turns on a processor. They then wait once, not in each round.
func (d *draft) star(alg algorithm, p int) bool {
	return alg == algLinear || alg == algFlags && d.figures.crowded(p) && p-1 <= starLines
}

// barrierLinear is a barrier in which all ranks report to rank 0, which releases them.
func (b *builder) barrierLinear() {
	if b.rank != 0 {
		b.send(0, mem{})
		b.recv(0, mem{})
		return
	}
	came := make([]int32, 0, b.size)
	for r := 1; r < b.size; r++ {
		came = append(came, b.recv(r, mem{}))
	}
	last := b.join(came...)
	for r := 1; r < b.size; r++ {
		b.send(r, mem{}, last)
	}
}

// segment is the size of the pieces in which a tree passes data on: the levels of the tree
// work on different segments.
const segment = 64 << 10

// segments divides m into pieces of about segment bytes.
func (b *builder) segments(m mem) []mem {
	k := max(1, (m.n+segment-1)/segment)
	return b.blocks(m, k)
}

// blocks divides m evenly into k blocks of whole elements.
func (b *builder) blocks(m mem, k int) []mem {
	if b.elem == 0 {
		return slices.Repeat([]mem{m}, k)
	}
	n := m.n / b.elem
	out := make([]mem, k)
	for i := range out {
		lo, hi := block(n, k, i), block(n, k, i+1)
		out[i] = m.part(lo*b.elem, (hi-lo)*b.elem)
	}
	return out
}

// tree returns the parent of this rank, -1 at the root, and its children, those with the
// smallest subtrees first, in the tree of an algorithm.
func (b *builder) tree(alg algorithm, root int) (parent int, children []int) {
	if alg == algHierarchy {
		return b.levels.tree(root)
	}
	p := b.size
	v := (b.rank - root + p) % p
	rankOf := func(v int) int { return (v + root) % p }
	parent = -1
	if b.star(alg, p) {
		if v > 0 {
			return root, nil
		}
		for v := 1; v < p; v++ {
			children = append(children, rankOf(v))
		}
		return parent, children
	}
	if alg == algChain {
		if v > 0 {
			parent = rankOf(v - 1)
		}
		if v+1 < p {
			children = append(children, rankOf(v+1))
		}
		return parent, children
	}
	k := max(2, alg.radix())
	w := 1
	for ; w < p && v/w%k == 0; w *= k {
		for c := v + w; c < min(p, v+k*w); c += w {
			children = append(children, rankOf(c))
		}
	}
	if v > 0 {
		parent = rankOf(v - v/w%k*w)
	}
	return parent, children
}

func (b *builder) bcast(alg algorithm, root int, m mem) {
	v := (b.rank - root + b.size) % b.size
	switch alg {
	case algCirculant:
		(&circulant{builder: b, root: root}).bcast(m)
		return
	case algScatter:
		blocks := b.blocks(m, b.size) // block i is scattered to the rank i above the root
		last := b.scatterTree(root, v, blocks)
		byRank := make([]mem, b.size)
		for i, m := range blocks {
			byRank[(i+root)%b.size] = m
		}
		b.ring(byRank, last, func(rank, of int) bool { // the scatter has left that block there
			v, i := (rank-root+b.size)%b.size, (of-root+b.size)%b.size
			return v <= i && i < v+subtree(v, b.size, 2)
		})
		return
	}
	parent, children := b.tree(alg, root)
	slices.Reverse(children) // the largest subtree first
	segments := []mem{m}
	if b.size > max(2, alg.radix()+1) || b.size > 2 && alg.radix() == 0 { // a rank passes data on
		segments = b.segments(m)
	}
	for _, s := range segments {
		got := none
		if parent >= 0 {
			got = b.recv(parent, s)
		}
		for _, c := range children {
			b.send(c, s, got)
		}
	}
}

// subtree returns how many blocks the rank v above the root has in a scatter or gather by a
// k-nomial tree, its own first.
func subtree(v, p, k int) int {
	w := 1
	for w < p && v/w%k == 0 {
		w *= k
	}
	return min(w, p-v)
}

// span returns blocks lo to hi-1, which are adjacent, as one.
func span(blocks []mem, lo, hi int) mem {
	last := blocks[hi-1]
	return mem{blocks[lo].buf, blocks[lo].off, last.off + last.n - blocks[lo].off}
}

// scatterTree scatters adjacent blocks of the root by a binomial tree into the same places
// of the other ranks. It returns the step after which this rank has the blocks of its
// subtree.
func (b *builder) scatterTree(root, v int, blocks []mem) int32 {
	parent, children := b.tree(algBinomial, root)
	got := none
	if parent >= 0 {
		got = b.recv(parent, span(blocks, v, v+subtree(v, b.size, 2)))
	}
	for _, c := range slices.Backward(children) {
		cv := (c - root + b.size) % b.size
		b.send(c, span(blocks, cv, cv+subtree(cv, b.size, 2)), got)
	}
	return got
}

// ring passes the blocks of all ranks from rank to rank until all have all. Each rank has
// its own block, and those for which has is true, after the step first.
func (b *builder) ring(blocks []mem, first int32, has func(rank, block int) bool) {
	p := b.size
	next, prev := (b.rank+1)%p, (b.rank-1+p)%p
	last := first // the step after which the block to send is here
	for s := range p - 1 {
		if i := (b.rank - s + p) % p; !has(next, i) {
			b.send(next, blocks[i], last)
		}
		last = first
		if i := (b.rank - s - 1 + p) % p; !has(b.rank, i) {
			last = b.recv(prev, blocks[i], first)
		}
	}
}

// own reports whether a block is the rank's own, for ring.
func own(rank, block int) bool { return rank == block }

func (b *builder) reduce(alg algorithm, root int, send, recv mem) {
	switch {
	case alg == algScatter:
		b.reduceByBlocks(root, send, recv)
		return
	case alg == algCirculant:
		(&circulant{builder: b, root: root}).reduce(send, recv)
		return
	}
	top := root
	if b.inOrder {
		top = 0 // the subtrees of a binomial tree are ranks in order
	}
	parent, children := b.tree(alg, top)
	acc, out := send, b.segments(recv)
	switch {
	case b.rank == root:
		acc = recv
	case len(children) > 0:
		acc = b.temp(send.n)
	}
	in := b.segments(send)
	for i, s := range b.segments(acc) {
		last := b.copy(s, in[i])
		for _, c := range children {
			last = b.take(c, s, false, last)
		}
		switch {
		case parent >= 0:
			last = b.give(parent, s, last)
		case root != top:
			b.send(root, s, last)
		}
		if b.rank == root && root != top {
			b.recv(top, out[i], last)
		}
	}
}

// reduceByBlocks reduces block i at rank i, and collects the blocks at the root.
func (b *builder) reduceByBlocks(root int, send, recv mem) {
	from := b.blocks(send, b.size)
	if b.rank != root {
		mine := b.temp(from[b.rank].n)
		b.send(root, mine, b.reduceBlock(from, mine))
		return
	}
	to := b.blocks(recv, b.size)
	b.reduceBlock(from, to[root])
	for r := range b.size {
		if r != root {
			b.recv(r, to[r], b.reducedFrom[r]) // in place, the block is sent first
		}
	}
}

// reduceBlock reduces this rank's block of all ranks to to: each rank sends each other rank
// its block. It returns the step after which the block is reduced.
func (b *builder) reduceBlock(blocks []mem, to mem) int32 {
	p := b.size
	b.reducedFrom = make([]int32, p)
	for s := 1; s < p; s++ {
		r := (b.rank + s) % p
		if b.inOrder {
			b.reducedFrom[r] = b.send(r, blocks[r])
		} else {
			b.reducedFrom[r] = b.give(r, blocks[r])
		}
	}
	if !b.inOrder {
		last := b.copy(to, blocks[b.rank])
		for s := 1; s < p; s++ {
			r := (b.rank - s + p) % p
			last = b.take(r, to, r < b.rank, last)
		}
		return last
	}
	acc := b.temp(to.n)
	var last int32
	for r := range p {
		m, got := blocks[r], none
		if r != b.rank {
			m = b.temp(to.n)
			got = b.recv(r, m)
		}
		if r == 0 {
			last = b.copy(acc, m, got)
		} else {
			last = b.fold(acc, m, false, last, got)
		}
	}
	return b.copy(to, acc, last)
}

// allreduce reduces in of all ranks, which is there after the step first, to m.
func (b *builder) allreduce(alg algorithm, m, in mem, first int32) int32 {
	p := b.size
	p2 := 1 << (bits.Len(uint(p)) - 1)
	rest := p - p2 // as many pairs of adjacent ranks begin with an exchange, and end with one
	star := b.star(alg, p)
	if p == 1 || alg == algDoubling || alg == algFlags && !star || alg == algHalving && rest > 0 {
		first, in = b.copy(m, in, first), m
	}
	switch {
	case alg == algRing:
		return b.allreduceRing(m, in, first)
	case star:
		return b.allreduceLinear(m, in, first)
	}
	v, last := b.rank-rest, first
	if b.rank < 2*rest {
		v = b.rank / 2
		if b.rank%2 == 0 {
			s := b.give(b.rank+1, m, first)
			return b.recv(b.rank+1, m, s)
		}
		last = b.take(b.rank-1, m, true, first)
	}
	rankOf := func(v int) int {
		if v < rest {
			return 2*v + 1
		}
		return v + rest
	}
	if alg == algHalving {
		last = b.halving(m, in, v, p2, rankOf, last)
	} else {
		for d := 1; d < p2; d *= 2 {
			s := b.give(rankOf(v^d), m, last)
			last = b.take(rankOf(v^d), m, v&d != 0, last, s)
		}
	}
	if b.rank < 2*rest {
		last = b.send(b.rank-1, m, last)
	}
	return last
}

// allreduceLinear reduces at rank 0, which sends the result to all.
func (b *builder) allreduceLinear(m, in mem, first int32) int32 {
	if b.rank != 0 {
		s := b.give(0, in, first)
		return b.recv(0, m, s)
	}
	last := b.copy(m, in, first)
	for r := 1; r < b.size; r++ {
		last = b.take(r, m, false, last)
	}
	sent := make([]int32, 0, b.size)
	for r := 1; r < b.size; r++ {
		sent = append(sent, b.send(r, m, last))
	}
	return b.join(sent...)
}

// halving is the exchange among the p2 ranks of an allreduce, a power of two, of which this
// one is v (Rabenseifner 2004). The first round reads in.
func (b *builder) halving(m, in mem, v, p2 int, rankOf func(int) int, last int32) int32 {
	blocks, from := b.blocks(m, p2), b.blocks(in, p2)
	sent := make([]int32, p2) // the step that sends a block: it is overwritten later
	lo, hi := 0, p2
	for d := p2 / 2; d > 0; d /= 2 {
		mid := lo + d
		keep, give := [2]int{lo, mid}, [2]int{mid, hi}
		if v&d != 0 {
			keep, give = give, keep
		}
		s := b.give(rankOf(v^d), span(from, give[0], give[1]), last)
		for i := give[0]; i < give[1]; i++ {
			sent[i] = s
		}
		last = b.takeOnto(rankOf(v^d), span(blocks, keep[0], keep[1]), span(from, keep[0], keep[1]), v&d != 0, last)
		lo, hi, from = keep[0], keep[1], blocks
	}
	for d := 1; d < p2; d *= 2 {
		other := lo ^ d // the partner has as many blocks, adjacent to these
		s := b.send(rankOf(v^d), span(blocks, lo, hi), last)
		r := b.recv(rankOf(v^d), span(blocks, other, other+d), last, sent[other])
		lo = min(lo, other)
		hi = lo + 2*d
		last = b.join(s, r)
	}
	return last
}

func (b *builder) allreduceRing(m, in mem, first int32) int32 {
	p := b.size
	blocks, own := b.blocks(m, p), b.blocks(in, p)
	next, prev := (b.rank+1)%p, (b.rank-1+p)%p
	sent := make([]int32, p)
	last := first
	got := make([]int32, 0, p) // the steps after which blocks are reduced
	for s := range p - 1 {
		i := (b.rank - s + p) % p
		if s == 0 {
			sent[i] = b.give(next, own[i], last)
		} else {
			sent[i] = b.give(next, blocks[i], last)
		}
		i = (i - 1 + p) % p
		last = b.takeOnto(prev, blocks[i], own[i], true, first)
	}
	got = append(got, last)
	for s := range p - 1 {
		i := (b.rank + 1 - s + p) % p
		b.send(next, blocks[i], last)
		i = (i - 1 + p) % p
		last = b.recv(prev, blocks[i], sent[i])
		got = append(got, last)
	}
	return b.join(got...)
}

func (b *builder) reduceScatter(alg algorithm, send []mem, recv mem) {
	if alg == algLinear {
		b.reduceBlock(send, recv)
		return
	}
	total := 0
	for _, m := range send {
		total += m.n
	}
	all := b.temp(total)
	copied, at := make([]int32, 0, b.size), 0
	var mine mem
	for r, m := range send {
		if r == b.rank {
			mine = all.part(at, m.n)
		}
		copied = append(copied, b.copy(all.part(at, m.n), m))
		at += m.n
	}
	b.copy(recv, mine, b.allreduce(algDoubling, all, all, b.join(copied...)))
}

func (b *builder) gather(alg algorithm, root int, send mem, recv []mem) {
	p := b.size
	if alg == algLinear {
		if b.rank != root {
			b.send(root, send)
			return
		}
		b.copy(recv[root], send)
		for r := range p {
			if r != root {
				b.recv(r, recv[r])
			}
		}
		return
	}
	parent, children := b.tree(alg, root)
	k, v := alg.radix(), (b.rank-root+p)%p
	if len(children) == 0 && parent >= 0 {
		b.send(parent, send)
		return
	}
	all := b.blocksOf(send.n, subtree(v, p, k))
	got := []int32{b.copy(all[0], send)}
	for _, c := range children {
		cv := (c - root + p) % p
		got = append(got, b.recv(c, span(all, cv-v, cv-v+subtree(cv, p, k))))
	}
	last := b.join(got...)
	if parent >= 0 {
		b.send(parent, span(all, 0, len(all)), last)
		return
	}
	for i, m := range all {
		b.copy(recv[(i+root)%p], m, last)
	}
}

// blocksOf returns k adjacent blocks of n bytes of temporary memory.
func (b *builder) blocksOf(n, k int) []mem {
	m := b.temp(n * k)
	out := make([]mem, k)
	for i := range out {
		out[i] = m.part(i*n, n)
	}
	return out
}

func (b *builder) scatter(alg algorithm, root int, send []mem, recv mem) {
	p := b.size
	if alg == algLinear {
		if b.rank != root {
			b.recv(root, recv)
			return
		}
		for s := 1; s < p; s++ {
			r := (root + s) % p
			b.send(r, send[r])
		}
		b.copy(recv, send[root])
		return
	}
	parent, children := b.tree(alg, root)
	k, v := alg.radix(), (b.rank-root+p)%p
	if len(children) == 0 && parent >= 0 {
		b.recv(parent, recv)
		return
	}
	all := b.blocksOf(recv.n, subtree(v, p, k))
	var got int32
	if parent >= 0 {
		got = b.recv(parent, span(all, 0, len(all)))
	} else {
		copied := make([]int32, 0, p)
		for i, m := range all {
			copied = append(copied, b.copy(m, send[(i+root)%p]))
		}
		got = b.join(copied...)
	}
	for _, c := range slices.Backward(children) {
		cv := (c - root + p) % p
		b.send(c, span(all, cv-v, cv-v+subtree(cv, p, k)), got)
	}
	b.copy(recv, all[0], got)
}

// allgather distributes the blocks of all ranks; this rank's is there after the step first.
func (b *builder) allgather(alg algorithm, blocks []mem, first int32) {
	p := b.size
	switch {
	case alg == algRing:
		b.ring(blocks, first, own)
	case alg.linear(p):
		b.exchange(blocks, first)
	default: // Bruck et al. 1997: block i is that of the rank i above this one
		all := b.blocksOf(blocks[b.rank].n, p)
		last := b.copy(all[0], blocks[b.rank], first)
		for d := 1; d < p; d *= 2 {
			n := min(d, p-d)
			b.send((b.rank-d+p)%p, span(all, 0, n), last)
			r := b.recv((b.rank+d)%p, span(all, d, d+n))
			last = b.join(last, r)
		}
		for i := 1; i < p; i++ {
			b.copy(blocks[(b.rank+i)%p], all[i], last)
		}
	}
}

// exchange sends this rank's block, which is there after the step first, to all others. It
// returns, by rank, the steps after which their blocks are here.
func (b *builder) exchange(blocks []mem, first int32) []int32 {
	p := b.size
	here := make([]int32, p)
	here[b.rank] = first
	for s := 1; s < p; s++ {
		b.send((b.rank+s)%p, blocks[b.rank], first)
	}
	for s := 1; s < p; s++ {
		r := (b.rank - s + p) % p
		here[r] = b.recv(r, blocks[r])
	}
	return here
}

// window is the number of messages that a rank has in flight in an exchange of all with all.
const window = 8

// aside copies the blocks to send of an exchange that is in place. It returns where they are, and the step after
// which they may be read, and recv be written.
func aside(b *builder, send, recv []mem) (from []mem, after int32) {
	if b.size == 1 || send[0] != recv[0] || send[1] != recv[1] {
		return send, none
	}
	copied := make([]int32, len(send))
	for i, m := range send {
		from = append(from, b.temp(m.n))
		copied[i] = b.copy(from[i], m)
	}
	return from, b.join(copied...)
}

func (b *builder) alltoall(alg algorithm, send, recv []mem) {
	p := b.size
	send, after := aside(b, send, recv)
	switch {
	case alg == algHierarchy:
		b.levels.alltoall(send, recv, after)
		return
	case alg.linear(p):
		pairs(b, send, recv, after, func(int, mem) bool { return true })
		return
	}
	// Bruck et al. 1997: block i has i ranks to go; in round k those with bit k in i go 2^k.
	n := send[b.rank].n
	all := b.blocksOf(n, p)
	have := make([]int32, p)
	for i := range all {
		have[i] = b.copy(all[i], send[(b.rank+i)%p], after)
	}
	for d := 1; d < p; d *= 2 {
		var moving []int
		for i := range p {
			if i&d != 0 {
				moving = append(moving, i)
			}
		}
		out, in := b.blocksOf(n, len(moving)), b.blocksOf(n, len(moving))
		packed := make([]int32, len(moving))
		for k, i := range moving {
			packed[k] = b.copy(out[k], all[i], have[i])
		}
		b.send((b.rank+d)%p, span(out, 0, len(out)), b.join(packed...))
		r := b.recv((b.rank-d+p)%p, span(in, 0, len(in)))
		for k, i := range moving {
			have[i] = b.copy(all[i], in[k], r, packed[k])
		}
	}
	for i := range all {
		b.copy(recv[(b.rank-i+p)%p], all[i], have[i])
	}
}

// pairs copies this rank's own block, and sends the blocks for others, and receives theirs, for which
// direct is true. Memory may be used after the step after.
func pairs(b *builder, send, recv []mem, after int32, direct func(r int, m mem) bool) {
	p := b.size
	sent := make([]int32, 0, p)
	before := after
	for s := 1; s < p; s++ {
		to := (b.rank + s) % p
		if !direct(to, send[to]) {
			continue
		}
		if n := len(sent); n >= window {
			before = b.join(sent[n-window], after)
		}
		sent = append(sent, b.send(to, send[to], before))
	}
	for s := 1; s < p; s++ {
		if from := (b.rank - s + p) % p; direct(from, recv[from]) {
			b.recv(from, recv[from], after)
		}
	}
	b.copy(recv[b.rank], send[b.rank], after)
}

// scan combines the data of this rank, which is there after the step first, and of the ranks
// below or, if exclusive, of the ranks below only (Hillis, Steele 1986). It returns where the data of this
// rank and those below is combined, the step after which it is, and those after which recv may change.
func (b *builder) scan(exclusive bool, send, recv mem, first int32) (acc mem, last int32, free []int32) {
	acc = recv
	if exclusive {
		acc = b.temp(send.n)
	}
	last = b.copy(acc, send, first)
	excl := b.join(last) // exclusive: recv is written after send has been read, which may be the same
	for d := 1; d < b.size; d *= 2 {
		s := none
		switch {
		case b.rank+d >= b.size:
		case exclusive:
			s = b.send(b.rank+d, acc, last)
		default:
			s = b.give(b.rank+d, acc, last)
			free = append(free, s)
		}
		if b.rank < d {
			continue
		}
		if !exclusive {
			last = b.take(b.rank-d, acc, true, last, s)
			continue
		}
		t := b.temp(acc.n)
		r := b.recv(b.rank-d, t)
		if d == 1 {
			excl = b.copy(recv, t, r, excl)
		} else {
			excl = b.fold(recv, t, true, r, excl)
		}
		last = b.fold(acc, t, true, r, last, s)
	}
	if exclusive {
		return acc, last, []int32{excl}
	}
	return acc, last, append(free, last)
}
