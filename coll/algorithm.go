package coll

import "fmt"

// algorithm is a way to perform an operation.
type algorithm uint8

const (
	algAuto          algorithm = iota
	algDissemination           // ⌈log2 p⌉ rounds, each rank with those 2^k above and below: barrier, scan; Bruck's allgather and alltoall
	algBinomial                // a binomial tree
	algChain                   // from rank to rank in segments
	algLinear                  // the root, or rank 0, with every rank; every rank with every other
	algDoubling                // recursive doubling: all data in each of ⌈log2 p⌉ exchanges
	algHalving                 // recursive halving, then doubling (Rabenseifner)
	algRing                    // blocks from rank to rank, p-1 rounds
	algScatter                 // reduce or scatter blocks first, then collect them
	algFlags                   // a tree, doubling, dissemination or linear by lines of a board
	algShared                  // all ranks with all, by memory that they share
	algSingle                  // all ranks with all, each reads the memory of the others' calls
	algHierarchy               // within each host, among one rank of each, within each host
	algTree3                   // k-nomial trees: a rank has up to k-1 children at a level, of which the binomial one has 1
	algTree4
	algTree8
	algTree16
	algCirculant // blocks on a circulant graph, in the fewest rounds
	numAlgorithms
)

var algNames = [numAlgorithms]string{"auto", "dissemination", "binomial", "chain", "linear", "doubling", "halving", "ring", "scatter", "flags", "shared", "single", "hierarchy",
	"3-nomial", "4-nomial", "8-nomial", "16-nomial", "circulant"}

func (a algorithm) String() string { return algNames[a] }

// radices are those of k-nomial trees: k, by algorithm.
var radices = [numAlgorithms]int{algBinomial: 2, algTree3: 3, algTree4: 4, algTree8: 8, algTree16: 16}

// radix returns k of an algorithm that is a k-nomial tree, 0 if it is none.
func (a algorithm) radix() int { return radices[a] }

// linear reports whether an exchange of all with all by p ranks is by a message for each pair: by
// flags, if a board has as many lines.
func (a algorithm) linear(p int) bool {
	return a == algLinear || a == algFlags && p-1 <= boardLines(p)
}

// onBoard reports whether a board performs the operations of an algorithm.
func (a algorithm) onBoard() bool { return a == algFlags || a.tells() }

// tells reports whether ranks tell each other in an operation by an algorithm how far they are.
func (a algorithm) tells() bool { return a == algShared || a == algSingle }

// problem is what a schedule solves, on one rank. Blocks are by rank; those that the
// operation does not use on this rank are zero.
type problem struct {
	call
	rank, team int
	hosts      *hosts // of algHierarchy
	inOrder    bool
	figures    *figures // how the ranks run; nil: not known
	most       int      // see schedule
	meet       bool     // all ranks wait for each other at the end, as in a barrier
	send, recv []mem    // one element: the whole, for operations without blocks
}

// algorithms returns the algorithms that can perform a call by a team. The first is one for
// small data. Behind the others are those of boards, which not all teams have, and not for large
// data, and that of teams whose ranks are on several hosts.
func algorithms(c call) []algorithm { return available(c, byBoard{true, true, true}, true) }

// byBoard says which algorithms of boards are possible.
type byBoard struct{ flags, shared, single bool }

// and returns what is possible by both.
func (b byBoard) and(c byBoard) byBoard {
	return byBoard{b.flags && c.flags, b.shared && c.shared, b.single && c.single}
}

// any reports whether one is possible.
func (b byBoard) any() bool { return b != byBoard{} }

// available is algorithms without those that are not possible.
func available(c call, b byBoard, hosts bool) []algorithm {
	k := 0
	for i, is := range [...]bool{b.flags, b.shared, b.single, hosts} {
		if is {
			k |= 1 << i
		}
	}
	if as := inOrderPossible[c.kind][k]; c.op == opFuncInOrder && as != nil {
		return as
	}
	return allPossible[c.kind][k]
}

// Those of allAlgorithms and inOrderAlgorithms, without those of algFlags, algShared, algSingle and
// algHierarchy whose bits are not set in the index.
var allPossible, inOrderPossible = possible(&allAlgorithms), possible(&inOrderAlgorithms)

func possible(of *[numKinds][]algorithm) (out [numKinds][16][]algorithm) {
	for k, as := range of {
		for i := range out[k] {
			for _, a := range as {
				if (a != algFlags || i&1 != 0) && (a != algShared || i&2 != 0) && (a != algSingle || i&4 != 0) && (a != algHierarchy || i&8 != 0) {
					out[k][i] = append(out[k][i], a)
				}
			}
		}
	}
	return out
}

var (
	allAlgorithms = [numKinds][]algorithm{
		kindBarrier:        {algDissemination, algLinear, algFlags, algShared, algHierarchy},
		kindBcast:          {algBinomial, algTree3, algTree4, algTree8, algTree16, algChain, algScatter, algCirculant, algFlags, algShared, algSingle, algHierarchy},
		kindReduce:         {algBinomial, algTree3, algTree4, algTree8, algTree16, algChain, algCirculant, algScatter, algFlags, algShared, algSingle, algHierarchy},
		kindAllreduce:      {algDoubling, algHalving, algRing, algLinear, algFlags, algShared, algSingle, algHierarchy},
		kindReduceScatter:  {algDoubling, algLinear, algShared, algSingle, algHierarchy},
		kindReduceScatterv: {algDoubling, algLinear, algHierarchy},
		kindGather:         {algBinomial, algTree3, algTree4, algTree8, algTree16, algLinear, algShared, algSingle, algHierarchy},
		kindGatherv:        {algLinear, algHierarchy},
		kindScatter:        {algBinomial, algTree3, algTree4, algTree8, algTree16, algLinear, algShared, algSingle, algHierarchy},
		kindScatterv:       {algLinear, algHierarchy},
		kindAllgather:      {algDissemination, algRing, algLinear, algFlags, algShared, algSingle, algHierarchy},
		kindAllgatherv:     {algLinear, algRing, algHierarchy},
		kindAlltoall:       {algDissemination, algLinear, algFlags, algShared, algSingle, algHierarchy},
		kindAlltoallv:      {algLinear, algHierarchy},
		kindScan:           {algDissemination, algHierarchy},
		kindExscan:         {algDissemination, algHierarchy},
	}
	// Those that keep the order of the operands, where not all do.
	inOrderAlgorithms = [numKinds][]algorithm{
		kindReduce:    {algBinomial, algTree3, algTree4, algTree8, algTree16, algFlags, algShared, algSingle, algHierarchy},
		kindAllreduce: {algDoubling, algLinear, algFlags, algShared, algSingle, algHierarchy},

		kindReduceScatter:  {algDoubling, algLinear, algShared, algSingle},
		kindReduceScatterv: {algDoubling, algLinear},
	}
)

// build returns the schedule of the problem by its algorithm.
func build(pr *problem) *schedule {
	switch pr.alg {
	case algShared:
		return buildShared(pr)
	case algSingle:
		return buildSingle(pr)
	}
	b := newBuilder(pr.rank, pr.team, int(pr.size), pr.inOrder)
	b.figures = pr.figures
	b.folds = pr.size <= inlineMax && pr.count*uint64(pr.size) <= foldTotal
	if b.s.most = pr.most; pr.alg == algHierarchy {
		b.levels = &levels{b, pr.hosts, pr.hosts.between(pr.kind, int(pr.count)*int(pr.size), pr.inOrder)}
		b.levels.perform(pr)
	} else {
		b.perform(pr)
	}
	if pr.meet {
		all := make([]int32, len(b.s.steps))
		for i := range all {
			all[i] = int32(i)
		}
		b.meet(all...)
	}
	b.s.flags, b.s.alg = pr.alg == algFlags, pr.alg
	return b.done()
}

// perform makes the steps of the problem by its algorithm, which is one of messages.
func (b *builder) perform(pr *problem) {
	switch pr.kind {
	case kindBarrier:
		if b.star(pr.alg, b.size) {
			b.barrierLinear()
		} else {
			b.meet()
		}
	case kindBcast:
		b.bcast(pr.alg, int(pr.root), pr.recv[0])
	case kindReduce:
		b.reduce(pr.alg, int(pr.root), pr.send[0], pr.recv[0])
	case kindAllreduce:
		b.allreduce(pr.alg, pr.recv[0], pr.send[0], none)
	case kindReduceScatter, kindReduceScatterv:
		b.reduceScatter(pr.alg, pr.send, pr.recv[0])
	case kindGather, kindGatherv:
		b.gather(pr.alg, int(pr.root), pr.send[0], pr.recv)
	case kindScatter, kindScatterv:
		b.scatter(pr.alg, int(pr.root), pr.send, pr.recv[0])
	case kindAllgather, kindAllgatherv:
		b.allgather(pr.alg, pr.recv, b.copy(pr.recv[pr.rank], pr.send[0]))
	case kindAlltoall, kindAlltoallv:
		b.alltoall(pr.alg, pr.send, pr.recv)
	case kindScan, kindExscan:
		b.scan(pr.kind == kindExscan, pr.send[0], pr.recv[0], none)
	default:
		panic(fmt.Sprintf("coll: no schedule for %v", pr.kind))
	}
}
