package coll

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/settings"
)

// envAlgorithm forces algorithms, on all ranks alike: "allreduce=ring,bcast=chain". One that the operation does not have
// is an error; one that cannot perform a call, of these data by this team, is replaced there.
const envAlgorithm = "RMA_COLL_ALGORITHM"

// forced reads the algorithms that the environment forces.
func forced() (map[kind]algorithm, error) {
	v, err := settings.Environment()
	if err != nil {
		return nil, err
	}
	f, err := parseForced(v.Text(envAlgorithm))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envAlgorithm, err)
	}
	return f, nil
}

// CheckAlgorithms returns an error that wraps ErrInvalid if a list is not one for
// RMA_COLL_ALGORITHM or Team.Force: it names an operation that there is not, or an
// algorithm that the operation does not have.
func CheckAlgorithms(list string) error {
	_, err := parseForced(list)
	return err
}

func parseForced(text string) (map[kind]algorithm, error) {
	out := map[kind]algorithm{}
	for f := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, alg, ok := strings.Cut(f, "=")
		if !ok {
			return nil, fmt.Errorf("%w: %q is not operation=algorithm, such as allreduce=ring", ErrInvalid, f)
		}
		k := kind(1 + slices.IndexFunc(kindNames[1:], func(n string) bool { return strings.EqualFold(n, name) }))
		if k == 0 {
			return nil, fmt.Errorf("%w: %q: there is no operation %q: want %s", ErrInvalid, f, name, oneOf(kindNames[1:]))
		}
		as := append([]algorithm{algAuto}, algorithms(call{kind: k})...)
		i := slices.IndexFunc(as, func(a algorithm) bool { return strings.EqualFold(a.String(), alg) })
		if i < 0 {
			return nil, fmt.Errorf("%w: %q: %v has no algorithm %q: want %s", ErrInvalid, f, k, alg, oneOf(as))
		}
		out[k] = as[i]
	}
	return out, nil
}

// oneOf lists names in lower case.
func oneOf[T any](names []T) string {
	var b strings.Builder
	for i, n := range names {
		switch {
		case i > 0 && i == len(names)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(strings.ToLower(fmt.Sprint(n)))
	}
	return b.String()
}

// Force makes the team use algorithms from its next operation on, for measurements: a list
// as that of RMA_COLL_ALGORITHM, which it overrides for the operations that it names, such as
// "allreduce=ring,bcast=auto". It replaces the list of an earlier call. All ranks make the
// same call between the same operations, while none of the team is in flight. A list that
// names an algorithm which the operation does not have is refused with ErrInvalid, and changes
// nothing. Calls that the algorithm cannot perform, as by flags of more than 480 bytes, use
// another one.
func (t *Team) Force(algorithms string) error {
	f, err := parseForced(algorithms)
	if err != nil {
		return fmt.Errorf("coll: force: %w", err)
	}
	t.t.force.Store(&f)
	return nil
}

// forcedFor returns the algorithm that is forced for an operation, algAuto if none is.
func (t *team) forcedFor(k kind) algorithm {
	if f := t.force.Load(); f != nil {
		if a, named := (*f)[k]; named {
			return a
		}
	}
	return t.s.force[k]
}

// maxPredicted is the largest team for which every schedule is made to predict its time.
const maxPredicted = 64

// figuresTag is the tag of the operation that distributes the figures of a team.
const figuresTag = 1<<32 - 1

// question is what a choice depends on.
type question struct {
	kind    kind
	inOrder bool
	boards  byBoard
	class   int // of the number of bytes: four classes between powers of two
}

// answer is a choice.
type answer struct {
	alg  algorithm
	most int // see schedule
}

// choose returns the algorithm for an operation: the same on all ranks. ok is false if the
// choice needs the figures of the team, which are not there yet. It takes no lock: a
// prediction, which is made once for a question, may take milliseconds.
func (t *team) choose(pr *problem, tag uint32) (a algorithm, ok bool) {
	return t.chooseBy(t.figures.Load(), pr, tag)
}

// byBoards returns which algorithms of boards the data of a call is small enough for, in a team of
// p ranks that has boards and areas.
func byBoards(c call, p int) byBoard {
	n := c.count * uint64(c.size)
	most := uint64(lineMax)
	if (c.kind == kindAllgather || c.kind == kindAlltoall) && !algFlags.linear(p) {
		most /= uint64(p) / 2 // the most blocks of a message
	}
	return byBoard{
		flags:  n <= most,
		shared: c.size <= lineMax && n <= sharedMax && sharedRounds(c.kind, p, int(n)) <= maxRounds,
		single: n <= sharedMax,
	}
}

// chooseBy is choose by figures, which are nil if they have not come.
func (t *team) chooseBy(f *figures, pr *problem, tag uint32) (a algorithm, ok bool) {
	forced := t.forcedFor(pr.kind)
	var boards byBoard
	if tag == 0 && pr.team > 1 && pr.team <= maxPredicted {
		if boards = byBoards(pr.call, pr.team); boards.any() && f == nil && (forced == algAuto || forced.onBoard()) {
			return 0, false // not all ranks know alike what is possible
		}
		if f == nil {
			boards = byBoard{}
		} else {
			boards = boards.and(f.boards)
		}
	}
	as := available(pr.call, boards, t.hosts.serves(pr.call))
	pr.most = pr.kind.records()
	if slices.Contains(as, forced) {
		return forced, true
	}
	if len(as) == 1 || pr.team == 1 || tag == figuresTag {
		return as[0], true
	}
	if pr.team > maxPredicted {
		return bySize(pr, as, t.hosts), true
	}
	n := int(pr.count)
	switch pr.kind { // all ranks know the mean length of a block
	case kindReduceScatterv:
		n /= pr.team
	case kindAllgatherv:
		for _, m := range pr.recv {
			n += m.n
		}
		n /= pr.team * int(pr.size)
	}
	if f == nil {
		return 0, false
	}
	q := question{pr.kind, pr.inOrder, boards, class(min(n*int(pr.size), mostBytes))}
	if known := t.answers.Load(); known != nil {
		if a, ok := (*known)[q]; ok {
			pr.most = a.most
			return a.alg, true
		}
	}
	c := pr.call
	c.size, c.root = 1, 0
	var best answer
	if pr.most > 0 {
		best = f.packing(c, pr.team)
	} else {
		best.alg = f.estimates(c, as, pr.team, bytesOfClass(q.class))[0].alg
	}
	for {
		old := t.answers.Load()
		all := map[question]answer{}
		if old != nil {
			all = maps.Clone(*old)
		}
		all[q] = best
		if t.answers.CompareAndSwap(old, &all) {
			pr.most = best.most
			return best.alg, true
		}
	}
}

// mostBytes is the size up to which algorithms are predicted: the schedules of large operations have a
// step for each 64 KiB, and are ordered by their rates alone.
const mostBytes = 64 << 20

// class returns the class of a number of bytes: the position of its first bit, and the two
// bits behind it.
func class(n int) int {
	if n < 8 {
		return 0
	}
	l := bits.Len(uint(n))
	return 4*(l-3) + n>>(l-3)&3
}

// bytesOfClass returns the smallest number of bytes of a class, but at least 8.
func bytesOfClass(c int) int { return max(8, (4+c%4)<<(c/4)) }

// bySize chooses for large teams.
func bySize(pr *problem, as []algorithm, on *hosts) algorithm {
	if slices.Contains(as, algHierarchy) && on.haveRoom(pr.call) {
		return algHierarchy
	}
	bytes := int(pr.count) * int(pr.size)
	want := as[0]
	switch pr.kind {
	case kindBcast, kindReduce:
		if bytes >= 256<<10 {
			want = algScatter
		}
	case kindAllreduce:
		if bytes >= 32<<10 {
			want = algRing
		}
	case kindReduceScatter:
		if bytes*pr.team > 16<<10 {
			want = algLinear
		}
	case kindReduceScatterv:
		want = algLinear
	case kindGather, kindScatter, kindAlltoall:
		if bytes > 4<<10 {
			want = algLinear
		}
	case kindAllgather:
		if bytes > 8<<10 {
			want = algRing
		}
	}
	if !slices.Contains(as, want) {
		want = as[0]
	}
	return want
}

// await makes an operation wait for the figures of the team. It returns false if they have
// come.
func (t *team) await(o *operation) bool {
	t.mu.Lock()
	if t.figures.Load() != nil {
		t.mu.Unlock()
		return false
	}
	t.waiting = append(t.waiting, o)
	ask := !t.asked
	t.asked = true
	t.mu.Unlock()
	if ask {
		t.ask()
	}
	return true
}

// ask starts the operations that distribute the figures, and the keys of the boards: of the first
// rank those of its slowest path to a member and, if the ranks are on several hosts, of the first
// rank that shares a host with others those of its slowest path there. All ranks do so before the
// first operation whose choice needs them. If the ranks have areas, another one follows: see
// share.
func (t *team) ask() {
	far, near := make([]float64, costNumbers+1), make([]float64, costNumbers)
	procs := &far[costNumbers]
	mine, keys := make([]byte, boardKeys), make([]byte, boardKeys*len(t.ranks))
	board := newBoard(t)
	if board != nil {
		wake, _ := t.s.wake()
		copy(mine, wake.Key().Append(board.in.Key().Append(nil)))
	}
	t.mu.Lock()
	t.board = board
	t.mu.Unlock()
	var guide int // the rank that tells about paths within a host
	if t.hosts != nil {
		if guide = t.hosts.guide(); t.rank == guide {
			t.slowest(t.hosts.ranks[t.hosts.of[guide]]).put(near)
		}
	}
	if t.rank == 0 {
		t.slowest(upTo(len(t.ranks))).put(far)
		*procs = float64(t.processors())
	}
	f := &figures{hosts: t.hosts}
	var left atomic.Int32
	left.Store(2)
	over := func(err error) {
		if err != nil || left.Add(-1) > 0 { // with an error the team is revoked
			return
		}
		liar := none
		if !f.parse(far) || !(1 <= *procs && *procs <= float64(len(t.ranks))) {
			liar = 0
		} else if f.hosts != nil {
			if f.near = new(costs); !f.near.parse(near) {
				liar = int32(guide)
			}
		}
		if liar != none {
			t.revoke(&rma.PeerError{Rank: t.ranks[liar], Op: "collective", Err: ErrProtocol})
			return
		}
		boards, areas := board.join(keys)
		f.procs = int(*procs)
		if !boards {
			t.know(f)
			return
		}
		go t.share(f, board, areas) // it waits for connections
	}
	if f.hosts != nil {
		left.Store(3)
	}
	StartBcast(t.with(figuresTag), 0, far).Then(over)
	StartAllgather(t.with(figuresTag), mine, keys).Then(over)
	if f.hosts != nil {
		StartBcast(t.with(figuresTag), guide, near).Then(over)
	}
}

// slowest returns the costs of the slowest path of this rank to others of some ranks, which are not
// this one alone.
func (t *team) slowest(ranks []int) (c *costs) {
	for _, r := range ranks {
		if r == t.rank {
			continue
		}
		peer := t.eng.Peer(t.ranks[r])
		p := rma.ParamsOf(peer)
		if d := costsOf(&p, rma.PlaceOf(peer).Maps, rates()); c == nil || d.longer(c) {
			c = d
		}
	}
	return c
}

// share maps the boards of the ranks, and tells the figures whether all ranks could: then flags
// are possible and, with areas, shared memory; and single copies, if all ranks can also read the
// memory of the others. The ranks also tell each other how long data of other processors takes, if all know it.
func (t *team) share(f *figures, b *board, areas bool) {
	known := t.s.lines.Load()
	all := make([]int64, 2+len(lineTimes{})) // the least of all ranks
	if mapped, attached := b.mapBoards(); attached {
		all[0] = 2
	} else if mapped {
		all[0] = 1
	}
	if known != nil {
		all[1] = 1
		for i, ns := range known {
			all[2+i] = -int64(ns)
		}
	}
	StartAllreduce(t.with(figuresTag), nil, all, Min).Then(func(err error) {
		if err != nil { // the team is revoked
			return
		}
		f.boards = byBoard{flags: all[0] >= 1, shared: all[0] >= 1 && areas, single: all[0] == 2}
		switch {
		case !f.boards.shared || f.takeTurns(len(t.ranks)):
			t.know(f)
		case all[1] > 0:
			var ns lineTimes
			for i := range ns {
				ns[i] = uint32(-all[2+i])
			}
			f.lines = lineRatesOf(ns)
			t.know(f)
		default:
			go t.writeLines(f, b)
		}
	})
}

// writeLines writes what the previous rank measures how long data of other processors takes by. All ranks have mapped the areas.
func (t *team) writeLines(f *figures, b *board) {
	b.mu.Lock()
	b.area.writeLines(t.rank)
	b.mu.Unlock()
	StartBarrier(t.with(figuresTag)).Then(func(err error) {
		if err == nil {
			go t.compareLines(f, b)
		}
	})
}

// compareLines tells the figures how long data of other processors takes, on the rank where it takes longest, and the service,
// for other teams. All ranks have called writeLines.
func (t *team) compareLines(f *figures, b *board) {
	b.mu.Lock()
	hop := uint32(0)
	if other := t.rank ^ 1; other < len(t.ranks) {
		hop = b.area.measureHop(t.rank, other, hopPatience)
	}
	ns := b.area.measureLines((t.rank + 1) % len(t.ranks))
	b.mu.Unlock()
	ns[3] = hop
	StartAllreduce(t.with(figuresTag), nil, ns[:], Max).Then(func(err error) {
		if err == nil {
			t.s.lines.Store(&ns)
			f.lines = lineRatesOf(ns)
			t.know(f)
		}
	})
}

// processors returns the number of processors that the ranks of the team have together, if all
// hosts are as this one. Ranks that are bound have those of all of them.
func (t *team) processors() int {
	here, p := 0, len(t.ranks)
	mine := placeOf(t.eng)
	for _, r := range t.ranks {
		if rma.PlaceOf(t.eng.Peer(r)).Host == mine.Host {
			here++
		}
	}
	if n := mine.Processors; n < here {
		return (p*n + here - 1) / here
	}
	return p
}

// know sets the figures, when the operations that wait for them have been launched: those
// that are started later begin behind them.
func (t *team) know(f *figures) {
	t.told.Store(f)
	for {
		t.mu.Lock()
		waiting := t.waiting
		if t.waiting = nil; len(waiting) == 0 {
			t.figures.Store(f)
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		for _, w := range waiting {
			alg, _ := t.chooseBy(f, &w.problem, w.key.tag)
			t.launch(w, alg, false)
		}
	}
}
