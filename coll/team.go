package coll

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed33544411/rma"
)

// Team is a group of ranks that perform collective operations together. Operations of a
// team are matched by their order: all its ranks start the same operations in the same
// order, except that operations of different tags (see Tag) have no order among each
// other. Teams never wait for each other. The methods of a Team may be called from any
// goroutine; goroutines of one rank that start operations of one team and tag must order
// them among themselves.
type Team struct {
	t        *team
	ch       *channel
	prepares bool // operations are planned, and not started
	waits    bool // whoever starts an operation waits for it at once
	blocking *Team
}

// team is what the Teams with different tags share.
type team struct {
	s       *service
	eng     *rma.Engine
	name    string
	number  uint32      // by which this rank knows the team
	ranks   []int       // by number in the team; set once, as the next four
	rank    int         // this one's number
	index   map[int]int // inverse of ranks
	hosts   *hosts      // of the members; nil: see divide
	numbers []uint32    // by which the others know the team, by number in the team
	next    *shrinking

	mu       sync.Mutex
	channels map[uint32]*channel
	ops      map[key]*operation // in flight
	free     []*operation       // to be used again, as the next ones
	requests []*Request
	freeTemp int // temporary memory of free, in bytes
	early    map[key]earlyList
	kept     int              // memory of early, in bytes
	spare    []*early         // to be used again
	unknown  map[int]*unknown // by rank of the job, before the members are known
	ahead    map[key]call     // of the previous rank, of operations that this one has not begun: see check
	asked    bool             // the operations that distribute the figures have been started
	asking   int              // those in flight
	waiting  []*operation     // whose algorithm is not chosen yet
	gone     map[int]error    // members that will send no more messages
	err      error            // the team was revoked, or closed

	plans   plans
	force   atomic.Pointer[map[kind]algorithm]
	figures atomic.Pointer[figures]             // nil until they have come, and the operations that waited for them are launched; mu is held when they are set
	told    atomic.Pointer[figures]             // the same, set before those are launched: see Choice
	answers atomic.Pointer[map[question]answer] // replaced, not changed
	board   *board                              // set before the operations that distribute the figures; nil: flags are not possible
}

// key names an operation of a team.
type key struct{ tag, seq uint32 }

// channel is the sequence of operations of one tag. The team's mu guards what changes.
type channel struct {
	tag    uint32
	next   uint32   // number of the next operation
	loose  int      // operations since all ranks have last waited for each other
	recent [64]call // the last operations, by number
}

const (
	// maxLoose is the number of operations after which one ends with a barrier, if in none of
	// them all ranks waited for each other: it bounds the messages for operations that a rank
	// has not started, at a cost of a thirtieth.
	maxLoose = 32
	// maxInFlight bounds the operations of a team that are in flight.
	maxInFlight = 1024
	// maxFree bounds the operations that are kept for use again, and maxSpare the messages.
	maxFree, maxSpare = 32, 64
	// maxTemp bounds the temporary memory that is kept with operations, and that of the board's own.
	maxTemp = 32 << 20
)

// World returns the team of all ranks of the job, numbered as in the job. It does not
// communicate; all calls for an engine return the same team. Operations of the team
// complete only after every rank has called World or New.
func World(eng *rma.Engine) (*Team, error) {
	s, err := serviceOf(eng)
	if err != nil {
		return nil, err
	}
	return s.world.with(0), nil
}

// newTeam returns a team without members, which takes messages from now on.
func (s *service) newTeam(number uint32, name string) *team {
	t := &team{s: s, eng: s.eng, name: name, number: number,
		channels: map[uint32]*channel{}, ops: map[key]*operation{}, early: map[key]earlyList{}}
	t.next = &shrinking{t: t}
	return t
}

// set sets the members of a team, and returns the messages that have come before, by rank of
// the job.
func (t *team) set(ranks []int, numbers []uint32) map[int]*unknown {
	hosts := hostsOf(t.eng, ranks)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hosts = hosts
	t.ranks, t.numbers, t.index = slices.Clone(ranks), numbers, map[int]int{}
	for i, r := range ranks {
		t.index[r] = i
	}
	t.rank = t.index[t.eng.Rank()]
	came := t.unknown
	t.unknown = nil
	return came
}

// has reports whether a rank of the job is a member.
func (t *team) has(rank int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, in := t.index[rank]
	return in
}

// with returns the team with a tag.
func (t *team) with(tag uint32) *Team {
	t.mu.Lock()
	defer t.mu.Unlock()
	ch := t.channels[tag]
	if ch == nil {
		ch = &channel{tag: tag}
		t.channels[tag] = ch
	}
	return &Team{t: t, ch: ch, blocking: &Team{t: t, ch: ch, waits: true}}
}

// Rank returns this rank's number in the team, from 0.
func (t *Team) Rank() int { return t.t.rank }

// Size returns the number of ranks of the team.
func (t *Team) Size() int { return len(t.t.ranks) }

// JobRank returns the number in the job of a rank of the team. It panics if the team has
// no such rank.
func (t *Team) JobRank(rank int) int { return t.t.ranks[rank] }

// RankOf returns the number in the team of a rank of the job, or -1 if that rank is not a
// member.
func (t *Team) RankOf(jobRank int) int {
	if r, ok := t.t.index[jobRank]; ok {
		return r
	}
	return -1
}

// Tag returns the same team for operations with a tag. Operations with a tag are matched
// with those of the same tag on the other ranks, in any order relative to those of other
// tags. Tag does not communicate. Goroutines that start operations independently use
// different tags. Tag panics for the reserved tag 1<<32-1.
func (t *Team) Tag(tag uint32) *Team {
	if tag == figuresTag {
		panic("coll: reserved tag")
	}
	return t.t.with(tag)
}

// Err returns the reason why the team was revoked or closed; nil if it was not.
func (t *Team) Err() error {
	t.t.mu.Lock()
	defer t.t.mu.Unlock()
	return t.t.err
}

// Close releases the team on this rank; its operations in flight fail with rma.ErrClosed.
// Close does not wait for the other ranks: call it when this rank's operations are
// complete. It does not tell them either: an operation of another rank that still needs this
// one waits until its context ends. The team of World cannot be closed.
func (t *Team) Close() error {
	if t.t == t.t.s.world {
		return fmt.Errorf("coll: close: %w: the team of all ranks lasts as long as the engine", ErrInvalid)
	}
	t.t.end(fmt.Errorf("coll: team %q: %w", t.t.name, closedError("the team")), nil)
	t.t.s.mu.Lock()
	t.t.next.close() // the board may keep the number for longer
	t.t.s.unlock()
	t.t.mu.Lock()
	board := t.t.board
	t.t.mu.Unlock()
	t.t.closeBoard(board)
	return nil
}

// closeBoard releases the board, which may be nil, of a team that is closed, and then its number: the service leaves boards of
// teams with numbers. While a rank may be writing to memory of a call it does nothing.
func (t *team) closeBoard(b *board) {
	if b == nil || b.close() {
		t.s.forget(t)
	}
}

// Split divides the team: the ranks that pass the same color become a team, numbered in
// the order of key and, for equal keys, in the order of this team. All ranks of the team
// call it. A rank that passes a negative color gets no team: the result is nil. If it fails on
// a rank, it fails on all, or the team of those where it did not is revoked.
func (t *Team) Split(ctx context.Context, color, key int) (*Team, error) {
	sub := t.t.s.reserve(t.t.name + "/split")
	mine := []int64{int64(color), int64(key), int64(sub.number)}
	all := make([]int64, 3*t.Size())
	if err := Allgather(ctx, t, mine, all); err != nil {
		t.t.s.forget(sub)
		return nil, err
	}
	// A rank whose Allgather has failed does not enter: then it fails on all.
	failed := Barrier(ctx, t)
	if color < 0 {
		t.t.s.forget(sub)
		return nil, failed
	}
	var members []int // of t
	for r := range t.Size() {
		if all[3*r] == int64(color) {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[3*a+1], all[3*b+1]) })
	ranks, numbers := make([]int, len(members)), make([]uint32, len(members))
	for i, r := range members {
		ranks[i] = t.t.ranks[r]
		n := all[3*r+2]
		if n < 1 || n > lowBits {
			failed = cmp.Or[error](failed, &rma.PeerError{Rank: ranks[i], Op: "team", Err: ErrProtocol})
			n = lowBits // it has no such team
		}
		numbers[i] = uint32(n)
	}
	made, err := t.t.s.complete(sub, ranks, numbers)
	if failed != nil {
		sub.revoke(&rma.PeerError{Rank: t.t.s.eng.Rank(), Op: "team", Err: rma.ErrGivenUp}) // others may have entered, and made theirs
		t.t.s.forget(sub)
		return nil, failed
	}
	if err != nil {
		t.t.s.forget(sub)
	}
	return made, err
}

// unused returns an operation for a call: the board's own, with b.mu held, if the call may take the fast path,
// else one of those that are not in flight. start or reuse takes it back. Calls so get the board and an operation
// with one lock.
func (t *Team) unused() *operation {
	b := t.fastBoard()
	if b == nil {
		return t.t.unused()
	}
	b.mu.Lock()
	if b.own == nil {
		b.own = t.t.unused()
		b.own.own = true
	}
	return b.own
}

// fastBoard returns the board if calls may take the fast path, from some time on; else nil.
func (t *Team) fastBoard() *board {
	if f := t.t.figures.Load(); t.ch.tag != 0 || t.prepares || f == nil || !f.boards.flags || t.t.s.check {
		return nil
	}
	return t.t.board // behind the figures
}

// reuse takes an operation back that unused has returned, and that was not started.
func (t *Team) reuse(o *operation) {
	if !o.own {
		t.t.reuse(o)
		return
	}
	o.forget()
	t.t.board.mu.Unlock()
}

// unused returns an operation that is not in flight.
func (t *team) unused() *operation {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.free); n > 0 {
		o := t.free[n-1]
		t.free = t.free[:n-1]
		t.freeTemp -= cap(o.temp)
		return o
	}
	return newOperation(t)
}

// reuse takes an operation back that unused has returned, and to which there are no
// references but those of calls that have not noticed its end.
func (t *team) reuse(o *operation) {
	o.forget()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) >= maxFree || t.err != nil {
		return
	}
	if t.freeTemp+cap(o.temp) > maxTemp {
		o.temp = nil
	}
	t.freeTemp += cap(o.temp)
	t.free = append(t.free, o)
}

// forget lets go of the memory of a call.
func (o *operation) forget() {
	clear(o.bufs)
	o.fold, o.request = nil, nil
}

// unusedRequest returns a request that nobody has. t.mu is held.
func (t *team) unusedRequest() *Request {
	n := len(t.requests)
	if n == 0 {
		return &Request{}
	}
	r := t.requests[n-1]
	t.requests = t.requests[:n-1]
	return r
}

// reuseRequest takes the request of an operation that is over back from its only holder.
func (t *team) reuseRequest(r *Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.requests) < maxFree {
		t.requests = append(t.requests, r)
	}
}

// start starts o, whose arguments are set, as the next operation of the team.
func (t *Team) start(o *operation) *Request {
	c, ch := t.t, t.ch
	pr := &o.problem
	if t.prepares {
		o.prepare(c.choose(pr, ch.tag))
		return o.prepared.request
	}
	if r := startFast(t, o); r != nil {
		return r
	}
	c.mu.Lock()
	r, err := c.enterLocked(o, key{ch.tag, ch.next}, false)
	if err != nil {
		c.mu.Unlock()
		if o.prepared == nil {
			c.reuse(o)
		}
		return refused(err)
	}
	ch.number(o)
	c.mu.Unlock() // a prediction takes long, and steps may run callbacks that start operations
	alg, chosen := c.choose(pr, ch.tag)
	if !chosen {
		if c.await(o) {
			return r
		}
		alg, _ = c.choose(pr, ch.tag)
	}
	if flag := c.launch(o, alg, t.waits); flag > 0 && t.waits {
		c.board.spin(flag)
	}
	return r
}

// number gives an operation its number, and decides whether it ends with a barrier. The
// team's mu is held.
func (ch *channel) number(o *operation) key {
	k := key{ch.tag, ch.next}
	meets := o.kind.meets() // all ranks wait for each other
	o.meet = !meets && ch.loose+1 >= maxLoose
	if ch.loose++; meets || o.meet {
		ch.loose = 0
	}
	ch.next++
	return k
}

// full reports whether no more operations may be in flight. t.mu is held.
func (t *team) full() bool { return len(t.ops)-t.asking >= maxInFlight }

// enterLocked puts an operation into the table of those in flight, and returns its request. One
// that startFast has begun is in flight already: ranks wait for it. t.mu is held.
func (t *team) enterLocked(o *operation, k key, begun bool) (r *Request, err error) {
	if t.err != nil {
		return nil, t.err
	}
	if t.full() && k.tag != figuresTag && !begun { // others wait for those
		return nil, fmt.Errorf("coll: %v: %w", o.kind, ErrBusy)
	}
	if o.prepared != nil {
		r = o.prepared.request
	} else {
		r = t.unusedRequest()
	}
	if err := o.renew(k, r, begun); err != nil {
		return nil, err
	}
	t.ops[k] = o
	if k.tag == figuresTag {
		t.asking++
	}
	return r, nil
}

// launch makes the schedule of an operation in the team's table, and begins it. It returns
// the number of an operation by flags, for which the caller has to spin if it spins.
func (t *team) launch(o *operation, alg algorithm, spins bool) (flag uint64) {
	if alg.onBoard() {
		if flag = o.flag; flag == 0 {
			flag = t.board.admit(o, alg)
		}
	}
	if !o.set(o.schedule(alg)) {
		return 0
	}
	if flag > 0 {
		t.board.remember(o)
	}
	t.mu.Lock()
	o.launched = true
	if came := t.early[o.key].first; came != nil {
		delete(t.early, o.key)
		for e := came; e != nil; e = e.next {
			t.kept -= e.cost()
		}
		t.mu.Unlock()
		for e := came; e != nil; e = e.next {
			o.arrive(e.from, &e.h, e.data)
		}
		t.mu.Lock()
		t.release(came)
	}
	o.heard = true
	gone := t.gone // before that, leave has not asked o
	if gone != nil {
		gone = maps.Clone(gone)
	}
	t.mu.Unlock()
	for r, err := range gone {
		if o.needs(r) {
			t.fail(o, err)
		}
	}
	t.check(o)
	if flag > 0 {
		t.board.begin(o, spins)
	} else {
		o.begin()
	}
	return flag
}

// remove ends an operation.
func (t *team) remove(o *operation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ops, o.key)
	if o.key.tag == figuresTag {
		t.asking--
	}
	if ch := t.channels[o.key.tag]; ch != nil {
		c := o.asked
		if o.launched { // otherwise whoever starts it may be choosing the algorithm
			c = o.call
		}
		ch.recent[o.key.seq%uint32(len(ch.recent))] = c
	}
}
