package coll

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed33544411/rma/logp"
)

// estimate is the predicted time of an algorithm.
type estimate struct {
	alg algorithm
	ns  float64
}

// estimates predicts the time of a call by each of the algorithms as, the fastest first. n is
// the number of elements, of a whole or of a block.
func (f *figures) estimates(c call, as []algorithm, p, n int) []estimate {
	var es []estimate
	for _, alg := range as {
		if f.idles(alg, p, n*int(c.size)) || alg == algCirculant && circulantDivision(p, n*int(c.size)) == 1 {
			continue // or the rounds are those of a binomial tree
		}
		c.alg = alg
		es = append(es, estimate{alg, f.estimate(c, p, n)})
	}
	slices.SortStableFunc(es, func(a, b estimate) int { return cmp.Compare(a.ns, b.ns) })
	return es
}

// idles reports whether an algorithm by many rounds, of data of n bytes by p ranks, is excluded because ranks
// that take turns on their processors are not busy in every round, which is not predicted. Of the rounds of a scatter that is so if its blocks
// come through the ring, whose senders wait for nobody; two ranks exchange one message of a chain.
func (f *figures) idles(alg algorithm, p, n int) bool {
	switch near := f.hosts == nil; {
	case !f.takeTurns(p):
		return false
	case alg == algScatter:
		return near && float64(n/p) < f.Fetch
	case alg == algChain:
		return near
	}
	return alg == algCirculant
}

// packGain is the predicted gain from which blocks are packed: with less, 8 and 16 ranks on two processors were slower, of
// which all but the leaders are done later than the root.
const packGain = 0.1

// packing chooses for an operation with records. Its blocks of at most so many bytes are packed: of blocks of
// that size, and all smaller ones, an operation takes less time so.
func (f *figures) packing(c call, p int) answer {
	best := answer{alg: algLinear}
	most := c.kind.records()
	for n := 8; best.most < most && f.packs(c, p, min(n, most)); n *= 2 {
		best = answer{algHierarchy, min(n, most)}
	}
	return best
}

// packs reports whether an operation with blocks of n bytes gains by records.
func (f *figures) packs(c call, p, n int) bool {
	time := func(a algorithm) float64 {
		c.alg = a
		return f.estimate(c, p, n)
	}
	return time(algHierarchy) <= (1-packGain)*time(algLinear)
}

// estimate predicts the time of a call by its algorithm. Many rounds by shared memory take the
// time of few in proportion.
func (f *figures) estimate(c call, p, n int) float64 {
	size := int(c.size)
	if rounds := sharedRounds(c.kind, p, n*size); c.alg == algShared && rounds > 4 {
		two, four := f.estimate(c, p, 2*n/rounds), f.estimate(c, p, 4*n/rounds)
		return two + (four-two)/2*float64(rounds-2)
	}
	ranks := make([]*schedule, p)
	for r := range ranks {
		pr := problemOf(c, r, p, n, f.hosts)
		pr.figures = f
		ranks[r] = build(pr)
	}
	return f.predict(ranks)
}

// problemOf returns the problem of a rank in a call of n elements that is not in place.
func problemOf(c call, rank, p, n int, on *hosts) *problem {
	size := int(c.size)
	if c.count = uint64(n); c.kind == kindReduceScatterv { // not that of the call which asks: other calls get the answer too
		c.count *= uint64(p)
	}
	blocks := func(buf int32) []mem {
		out := make([]mem, p)
		for r := range out {
			out[r] = mem{buf, r * n * size, n * size}
		}
		return out
	}
	pr := &problem{call: c, rank: rank, team: p, hosts: on, inOrder: c.op == opFuncInOrder, most: min(n*size, c.kind.records()), send: []mem{{1, 0, n * size}}, recv: []mem{{2, 0, n * size}}}
	switch c.kind {
	case kindReduceScatter, kindReduceScatterv, kindScatter, kindScatterv:
		pr.send = blocks(1)
	case kindGather, kindGatherv, kindAllgather, kindAllgatherv:
		pr.recv = blocks(2)
	case kindAlltoall, kindAlltoallv:
		pr.send, pr.recv = blocks(1), blocks(2)
	}
	return pr
}

// Prediction is the predicted time of an operation by one algorithm.
type Prediction struct {
	Algorithm string  // as for RMA_COLL_ALGORITHM
	NS        float64 // nanoseconds until the last rank has finished
}

// Predict returns the predicted times by which an algorithm is chosen, the fastest
// algorithm first: of an operation, such as "allreduce", by ranks that are connected by
// paths with the parameters p. bytes is the length of the smaller of the two buffers of a
// rank. maps says that the link maps memory, as rma.Place does. Errors wrap ErrInvalid.
func Predict(p *logp.Params, maps bool, op string, bytes, ranks int) ([]Prediction, error) {
	c, err := callOf(op, bytes, ranks)
	if err != nil {
		return nil, fmt.Errorf("coll: predict: %w", err)
	}
	return figuresOf(p, maps, memoryRates{}).predictions(c, ranks, bytes), nil
}

// PredictHosts is Predict for ranks on several hosts: p are the parameters of paths within a host,
// far those of paths between hosts, over links that do not map memory. The ranks are divided
// evenly among the hosts, in their order.
func PredictHosts(p *logp.Params, maps bool, far *logp.Params, op string, bytes, ranks, hosts int) ([]Prediction, error) {
	c, err := callOf(op, bytes, ranks)
	if err != nil {
		return nil, fmt.Errorf("coll: predict: %w", err)
	}
	if hosts < 1 || hosts > ranks {
		return nil, fmt.Errorf("coll: predict: %w: %d ranks on %d hosts", ErrInvalid, ranks, hosts)
	}
	numbers := make([]int, ranks)
	for r := range numbers {
		numbers[r] = r * hosts / ranks
	}
	f := figuresOf(p, maps, memoryRates{})
	if hosts > 1 {
		f = figuresOf(far, false, memoryRates{})
		if f.hosts = divide(numbers); f.hosts != nil {
			f.near = costsOf(p, maps, memoryRates{})
		}
	}
	return f.predictions(c, ranks, bytes), nil
}

// Choice returns the algorithm that the team uses for an operation of bytes of data by root
// 0, and the predictions, as Predict returns them, that it is chosen by. There are none, and
// an algorithm only if it does not depend on them, before the first operation of the team is
// complete for which there is a choice, such as an Allreduce. It does not communicate.
func (t *Team) Choice(op string, bytes int) (algorithm string, ps []Prediction, err error) {
	c, err := callOf(op, bytes, t.Size())
	if err != nil {
		return "", nil, fmt.Errorf("coll: choice: %w", err)
	}
	c.count = uint64(bytes)
	f := t.t.told.Load()
	pr := problem{call: c, team: t.Size()}
	if a, ok := t.t.chooseBy(f, &pr, t.ch.tag); ok {
		if c.kind.records() > 0 && bytes > pr.most {
			a = algLinear // by which longer blocks go
		}
		algorithm = a.String()
	}
	if f != nil {
		ps = f.predictions(c, t.Size(), bytes)
	}
	return algorithm, ps, nil
}

// callOf returns the call of an operation by its name, with elements of a byte.
func callOf(op string, bytes, ranks int) (call, error) {
	k := slices.IndexFunc(kindNames[:], func(n string) bool { return n != "" && strings.EqualFold(n, op) })
	if k < 0 || ranks < 1 || ranks > maxPredicted || bytes < 0 || bytes > 1<<30 {
		return call{}, fmt.Errorf("%q: %w: want an operation of package coll, up to 1 GiB and %d ranks", op, ErrInvalid, maxPredicted)
	}
	c := call{kind: kind(k), size: 1}
	switch c.kind {
	case kindReduce, kindAllreduce, kindReduceScatter, kindReduceScatterv, kindScan, kindExscan:
		c.op = opSum
	}
	return c, nil
}

// predictions are the estimates of a call of n elements by p ranks.
func (f *figures) predictions(c call, p, n int) (out []Prediction) {
	c.count = uint64(n)
	var boards byBoard
	if p > 1 {
		boards = byBoards(c, p).and(f.boards)
	}
	as := available(c, boards, f.hosts.serves(c))
	for _, e := range f.estimates(c, as, p, n) {
		out = append(out, Prediction{e.alg.String(), e.ns})
	}
	return out
}
