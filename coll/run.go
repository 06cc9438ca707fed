package coll

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed33544411/rma"
	prog "github.com/seed33544411/rma/internal/progress"
)

// operation is one operation of a team, in flight or over. Its steps are run by whoever
// completes the steps before: the goroutine that drives the engine, mostly. No call of the
// application is needed between the start and the end. An operation that is over may be
// used for another call.
type operation struct {
	t *team
	arguments
	request  *Request // of the present use; guarded by mu
	asked    call     // without the algorithm
	launched bool     // it has a schedule; guarded by the team's mu, as the next one
	heard    bool     // it has the messages that came before
	over     *rma.Event
	sent     func(error) // the end of a message whose step is done
	temp     []byte      // temporary memory, which may be longer than that of the schedule
	stage    []byte
	prepared *prepared // of a persistent operation
	own      bool      // it is the board's: see unused
	flag     uint64    // number of the operation on the board; 0: it is performed by messages
	pc       int       // on the board: the step that is next
	half     int       // by shared memory: of the areas
	gate     gate      // until it is free
	shown    [2]uint64 // by single copies: the addresses that others read

	mu      sync.Mutex
	key     key // of the present use
	plan    *schedule
	state   []progress // of the steps
	ready   []int32    // steps that may begin
	left    int        // steps that are not done
	posted  int        // messages posted to the engine, or being placed, that have not ended
	away    int        // those of them that the engine has
	overdue bool       // the operation has failed, and waits no longer for what is away
	begun   bool       // or failed before
	driving bool       // a goroutine runs the ready steps
	ending  bool       // no step runs any more
	ended   bool
	closed  bool  // the operation is not used again
	err     error // why the operation fails; no step begins any more
	inUse   *InUseError
	lent    *InUseError // inUse, until the engine has no more of the messages because of which it is
}

// prepared are the schedules of a persistent operation by an algorithm: without and with a
// barrier at the end. They are nil before the algorithm is known.
type prepared struct {
	request *Request // the same in all uses
	alg     algorithm
	most    int // see schedule
	plans   [2]*schedule
}

// progress is the state of a step.
type progress struct {
	waits  int32 // steps before it that are not done
	active bool  // a receive whose memory is ready for the message
	begun  bool  // the message has arrived, or is arriving; there is no other
	held   []byte
	later  uint32 // the message with the data, if it is not held
	recv   rma.RecvRequest
	sends  bool       // the engine sends from the memory of the call
	calls  *callbacks // of large messages, made at the first
}

// callbacks are called at the end of a step's message.
type callbacks struct {
	sent    func(error)
	fetched func(n int, err error)
}

// newOperation returns an operation that is not in flight.
func newOperation(t *team) *operation {
	o := &operation{t: t, over: t.eng.NewEvent(), ending: true, ended: true}
	o.sent = o.sentOne
	return o
}

// renew begins a use of the operation, without a schedule, of which r is the request.
// o.arguments are set, but not the temporary memory. If startFast has begun it, it is in flight and
// cannot be closed. The team's mu is held.
func (o *operation) renew(k key, r *Request, begun bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return fmt.Errorf("coll: %v: %w", o.kind, closedError("the persistent operation"))
	case !o.ended && !begun:
		return fmt.Errorf("coll: %v: %w: it is in flight", o.kind, ErrBusy)
	}
	o.over.Reset()
	o.alg = algAuto
	o.asked, o.launched, o.heard = o.call, false, false
	o.key, o.plan, o.state, o.ready, o.left = k, nil, o.state[:0], o.ready[:0], 0
	o.flag = 0
	o.begun, o.overdue, o.ending, o.ended, o.err = false, false, false, false, nil
	o.request = r
	r.renew(o)
	return nil
}

// prepare makes the operation persistent.
func (o *operation) prepare(alg algorithm, chosen bool) {
	o.prepared = &prepared{request: &Request{o: o}}
	o.asked = call{} // of an earlier use: the first start is not one for startFast
	if chosen {
		o.schedule(alg)
	}
}

// schedule sets the algorithm of the arguments, and returns the schedule.
func (o *operation) schedule(alg algorithm) *schedule {
	o.hosts, o.figures = o.t.hosts, o.t.told.Load()
	p := o.prepared
	if p == nil {
		return o.t.plans.schedule(&o.problem, alg)
	}
	if p.plans[0] == nil || p.alg != alg || p.most != o.most { // see Team.Force
		pr := o.problem
		for i := range p.plans {
			pr.meet = i > 0 && !pr.kind.meets()
			p.plans[i] = o.t.plans.schedule(&pr, alg)
		}
		p.alg, p.most = alg, o.most
	}
	o.alg = alg
	if o.meet {
		return p.plans[1]
	}
	return p.plans[0]
}

// set sets the schedule, by the algorithm of the arguments. It returns false if the operation has failed.
func (o *operation) set(plan *schedule) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ending {
		return false
	}
	o.plan, o.left = plan, len(plan.steps)
	n := len(plan.steps)
	if plan.flags {
		n = 0 // a board performs the steps in their order
	}
	o.state = slices.Grow(o.state, n)[:n]
	for i := range o.state {
		st := &o.state[i]
		*st = progress{waits: plan.steps[i].waits, held: st.held[:0], calls: st.calls}
	}
	o.stage = slices.Grow(o.stage[:0], plan.stage)[:plan.stage]
	o.temp = slices.Grow(o.temp[:0], plan.temp)
	o.bufs[tmp] = o.temp[:plan.temp]
	return true
}

// begin runs the first steps. The operation is in the team's table.
func (o *operation) begin() {
	o.mu.Lock()
	o.ready = append(o.ready, o.plan.first...)
	o.begun = true
	o.drive()
}

// drive runs ready steps until there are none, unless another call does, and ends the
// operation if that was the last one. o.mu is held; drive releases it.
func (o *operation) drive() {
	if o.driving {
		o.mu.Unlock()
		return
	}
	o.driving = true
	for k := 0; k < len(o.ready) && o.err == nil; {
		i := o.ready[k]
		if k++; k == len(o.ready) {
			o.ready, k = o.ready[:0], 0
		}
		o.mu.Unlock()
		o.run(i)
		o.mu.Lock()
	}
	o.driving = false
	if o.ending || !o.begun || o.posted > 0 && !(o.overdue && o.posted == o.away) || o.left > 0 && o.err == nil {
		o.mu.Unlock()
		return
	}
	if o.ending = true; o.posted > 0 {
		if o.lent = o.accessed(); o.lent != nil {
			o.inUse = o.lent
		}
	}
	o.mu.Unlock()
	o.t.remove(o)
	o.mu.Lock()
	o.ended = true
	r, err := o.request, o.err
	if o.inUse != nil {
		err = fmt.Errorf("%w; %w", err, o.inUse)
	}
	then, free := r.end(o.prepared == nil, err)
	o.over.Set()
	o.mu.Unlock() // from here on the operation may be in another use, unless free says that nobody has it
	if free {
		o.t.reuse(o)
	}
	for _, f := range then {
		callBack(f, err)
	}
}

// callBack calls a function of Request.Then: its panic ends the process, also if it is in a call for another request.
func callBack(f func(error), err error) {
	defer prog.Crash()
	f(err)
}

// needs reports whether the operation waits for a message of a peer that has not come.
func (o *operation) needs(peer int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ending || o.plan == nil {
		return false
	}
	if o.flag > 0 {
		return o.t.board.needs(o, peer)
	}
	i, _ := slices.BinarySearchFunc(o.plan.expected, expected{peer: int32(peer)}, byPeer)
	for ; i < len(o.plan.expected) && o.plan.expected[i].peer == int32(peer); i++ {
		if !o.state[o.plan.expected[i].step].begun {
			return true
		}
	}
	return false
}

// mem returns memory by its name in the schedule.
func (o *operation) mem(m mem) []byte {
	if m.n == 0 {
		return nil
	}
	if m.buf < 0 {
		return o.t.board.area.bytes(int(-1-m.buf), o.half, m.off, m.n)
	}
	return o.bufs[m.buf][m.off : m.off+m.n : m.off+m.n]
}

// run runs a step whose turn it is.
func (o *operation) run(i int32) {
	switch s := &o.plan.steps[i]; s.kind {
	case stepSend:
		o.post(i, s)
	case stepRecv, stepTake:
		o.receive(i)
	case stepFold:
		o.combine(s, 0, o.mem(s.from))
		o.done(i)
	case stepWrap, stepPack, stepPick, stepOpen:
		if expects, is := record(s, o.plan.most, o.mem); expects != is {
			o.t.refuse(int(s.peer), o.call, &header{call: o.call, bytes: is}, expects)
			return
		}
		o.done(i)
	default:
		copy(o.mem(s.to), o.mem(s.from))
		o.done(i)
	}
}

// done ends a step.
func (o *operation) done(i int32) {
	o.mu.Lock()
	o.finish(i)
}

// finish is done with o.mu held, which it releases.
func (o *operation) finish(i int32) {
	o.left--
	for _, n := range o.plan.steps[i].next {
		if o.state[n].waits--; o.state[n].waits == 0 {
			o.ready = append(o.ready, n)
		}
	}
	o.drive()
}

// hold counts messages that are posted to the engine; returned ends one.
func (o *operation) hold(n int) {
	o.mu.Lock()
	o.posted += n
	o.away += n
	o.mu.Unlock()
}

func (o *operation) returned() {
	o.mu.Lock()
	o.away--
	o.releaseLocked()
}

// release ends a use of the operation's memory that is not the engine's.
func (o *operation) release() {
	o.mu.Lock()
	o.releaseLocked()
}

// releaseLocked is release with o.mu held, which it releases.
func (o *operation) releaseLocked() {
	if o.posted--; o.lent != nil && o.accessed() == nil {
		close(o.lent.over)
		o.lent = nil
	}
	o.drive()
}

// post sends the message of a step: in one piece from staging memory, or the header from
// there and the data from where it is.
func (o *operation) post(i int32, s *step) {
	t := o.t
	p := t.eng.Peer(t.ranks[s.peer])
	tag := tagData | t.numbers[s.peer]
	data := o.mem(s.from)
	if s.records > 0 {
		data = findRecords(o.mem(s.base), s.first, s.records, o.plan.most)
	}
	h := header{tag: o.key.tag, seq: o.key.seq, slot: s.slot, call: o.call, bytes: uint64(len(data))}
	b := o.stage[s.stage : s.stage+headerSize]
	if s.inline(len(data)) {
		b = o.stage[s.stage : s.stage+headerSize+len(data)]
		h.put(b)
		copy(b[headerSize:], data)
		o.hold(1)
		if len(data) > inlineMax { // the next one waits for the staging memory
			p.SendFunc(tag, b, o.calls(i).sent)
			return
		}
		p.SendFunc(tag, b, o.sent)
		o.done(i)
		return
	}
	h.later = t.s.payload()
	h.put(b)
	sent := o.calls(i).sent
	o.mu.Lock()
	o.posted += 2
	o.away += 2
	o.state[i].sends = true
	o.mu.Unlock()
	p.SendFunc(tag, b, o.sent)
	p.SendFunc(tagPayload|h.later, data, sent)
}

// calls returns the callbacks of a step, which are the same in all uses of the operation.
func (o *operation) calls(i int32) *callbacks {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state[i].calls == nil {
		o.state[i].calls = &callbacks{
			sent: func(err error) {
				o.mu.Lock()
				if o.state[i].sends = false; err == nil {
					o.finish(i)
				} else {
					o.mu.Unlock()
				}
				o.sent(err)
			},
			fetched: func(n int, err error) { o.fetched(i, n, err) },
		}
	}
	return o.state[i].calls
}

// sentOne is o.sent.
func (o *operation) sentOne(err error) {
	if err != nil {
		o.t.fail(o, err)
	}
	o.returned()
}

// receive makes the memory of a receive ready for its message.
func (o *operation) receive(i int32) {
	o.mu.Lock()
	st := &o.state[i]
	st.active = true
	if !st.begun {
		o.mu.Unlock()
		return
	}
	held, later := st.held, st.later
	o.mu.Unlock()
	if later != 0 {
		o.fetch(i)
		return
	}
	o.place(i, held)
}

// arrive takes a message of a peer. parts are valid during the call. It returns false if the
// use that it is for is over.
func (o *operation) arrive(from int, h *header, parts ...[]byte) bool {
	o.mu.Lock()
	if o.ended || o.key != (key{h.tag, h.seq}) { // ended: it may be closed, without memory
		o.mu.Unlock()
		return false
	}
	i, expects, inline := o.plan.find(from, h.slot), uint64(0), true
	if i >= 0 {
		s := &o.plan.steps[i]
		if expects = uint64(s.to.n); s.records > 0 {
			expects = min(expects, h.bytes)
		}
		inline = s.inline(int(expects))
	}
	if i < 0 || o.flag > 0 || h.call != o.call || h.bytes != expects || (h.later == 0) != inline || o.state[i].begun {
		mine := o.call
		o.mu.Unlock()
		o.t.refuse(from, mine, h, expects)
		return true
	}
	if o.err != nil {
		o.mu.Unlock()
		o.t.drop(from, h)
		return true
	}
	st := &o.state[i]
	st.begun, st.later = true, h.later
	if !st.active {
		if h.later == 0 {
			for _, p := range parts {
				st.held = append(st.held, p...)
			}
		}
		o.mu.Unlock()
		return true
	}
	o.posted++ // the operation does not end while its memory is written
	o.mu.Unlock()
	if h.later != 0 {
		o.fetch(i)
	} else {
		o.place(i, parts...)
	}
	o.release()
	return true
}

// fusedMax is the size of the pieces in which memory is copied and reduced: it is still in
// the first cache when it is reduced.
const fusedMax = 16 << 10

// combine performs a reduction of the part of a step's memory that begins at off and is as
// long as from.
func (o *operation) combine(s *step, off int, from []byte) {
	to := o.mem(s.to.part(off, len(from)))
	if s.base.n == 0 {
		o.fold(to, from, s.lower)
		return
	}
	base := o.mem(s.base.part(off, len(from)))
	size := int(o.size)
	piece := max(1, fusedMax/size) * size
	for len(to) > 0 {
		n := min(piece, len(to))
		copy(to[:n], base)
		o.fold(to[:n], from[:n], s.lower)
		to, base, from = to[n:], base[n:], from[n:]
	}
}

// combineParts is combine of all of a step's memory with a message, whose parts need not
// consist of whole elements.
func (o *operation) combineParts(s *step, parts [][]byte) {
	off, size := 0, int(o.size)
	var divided []byte // the beginning of an element
	for _, p := range parts {
		if len(divided) > 0 {
			n := min(size-len(divided), len(p))
			divided, p = append(divided, p[:n]...), p[n:]
			if len(divided) < size {
				continue
			}
			o.combine(s, off, divided)
			off, divided = off+size, divided[:0]
		}
		n := len(p) / size * size
		o.combine(s, off, p[:n])
		off, divided = off+n, append(divided, p[n:]...)
	}
}

// place puts the data of a message where its step says.
func (o *operation) place(i int32, parts ...[]byte) {
	s := &o.plan.steps[i]
	to := o.mem(s.to)
	if s.kind == stepTake {
		o.combineParts(s, parts)
	} else {
		for _, p := range parts {
			to = to[copy(to, p):]
		}
	}
	if !o.whole(s, s.to.n-len(to)) {
		return
	}
	o.done(i)
}

// whole reports whether n bytes are what a step receives. Otherwise it revokes the team.
func (o *operation) whole(s *step, n int) bool {
	if s.kind == stepTake || s.records == 0 && n == s.to.n || s.records > 0 && n == skipRecords(o.mem(s.to)[:n], s.records, o.plan.most) {
		return true
	}
	o.t.revoke(&rma.PeerError{Rank: o.t.ranks[s.peer], Op: o.call.kind.String(), Err: ErrProtocol})
	return false
}

// fetch receives the data of a message whose header has arrived.
func (o *operation) fetch(i int32) {
	s := &o.plan.steps[i]
	o.hold(1)
	call := o.calls(i).fetched
	r := o.t.eng.Peer(o.t.ranks[s.peer]).RecvTag(tagPayload|o.state[i].later, o.mem(s.to)) // not under o.mu: it may run callbacks
	o.mu.Lock()
	o.state[i].recv = r
	failed := o.err != nil
	o.mu.Unlock()
	if failed {
		r.Cancel() // the same holds for it
	}
	r.ThenLen(call)
}

// fetched ends the receive of a step, of a message of n bytes.
func (o *operation) fetched(i int32, n int, err error) {
	o.mu.Lock()
	o.away--
	o.state[i].recv = rma.RecvRequest{}
	later, s, failed := o.state[i].later, &o.plan.steps[i], o.err != nil
	o.mu.Unlock()
	switch {
	case err == nil && failed: // the memory may be the caller's again
	case err == nil:
		if o.whole(s, n) { // what its header has announced
			o.done(i)
		}
	case errors.Is(err, rma.ErrCanceled):
		o.t.s.discard(o.t.eng.Peer(o.t.ranks[s.peer]), later)
	default:
		o.t.fail(o, err)
	}
	o.release()
}

// abort ends the operation with an error, once the messages that the engine has are over, or after heldLimit: a
// rank may never take what was sent to it.
func (o *operation) abort(err error) {
	o.mu.Lock()
	if o.err != nil || o.ending {
		o.mu.Unlock()
		return
	}
	o.err = err
	o.begun = o.begun || o.plan == nil
	var posted []rma.RecvRequest
	for i := range o.state {
		st := &o.state[i]
		if st.recv != (rma.RecvRequest{}) {
			posted = append(posted, st.recv)
		} else if st.begun && st.later != 0 && !st.active {
			o.t.s.discard(o.t.eng.Peer(o.t.ranks[o.plan.steps[i].peer]), st.later)
		}
	}
	if o.posted > 0 || o.driving {
		time.AfterFunc(heldLimit, o.expire)
	}
	o.posted++ // the operation does not end meanwhile
	o.mu.Unlock()
	for _, r := range posted {
		r.Cancel() // not under o.mu: it may run callbacks
	}
	o.release()
}

// expire ends the wait of a failed operation for messages that the engine has.
func (o *operation) expire() {
	o.mu.Lock()
	o.overdue = true
	o.drive()
}

// accessed returns the error that names a rank which may be accessing memory of the call; nil if the engine has only
// messages from staging memory. o.mu is held.
func (o *operation) accessed() *InUseError {
	for i := range o.state {
		if st := &o.state[i]; st.sends || st.recv != (rma.RecvRequest{}) {
			return &InUseError{Rank: o.t.ranks[o.plan.steps[i].peer], over: make(chan struct{})}
		}
	}
	return nil
}
