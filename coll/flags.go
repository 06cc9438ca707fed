package coll

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/onesided"
)

const (
	// lineSize is the size of a line: a message of a board. All of it is at the end, so that
	// up to 32 bytes of data are in one cache line with the flag.
	lineSize = 512
	// lineFixed is the part of a line that is not data: sender, call and flag.
	lineFixed = 32
	// lineMax is the largest data of an operation by flags.
	lineMax = lineSize - lineFixed
	// boardOps is the number of operations whose lines have places of their own. An operation
	// begins when the lines of the one that had its place before have been read on all ranks:
	// see board.admit.
	boardOps = 16
	// starLines bounds the lines for messages of all other ranks.
	starLines = 16
	// maxLooseFlags is the number of operations after which one ends with a barrier, as
	// maxLoose: no more than boardOps/2, so that one is among any boardOps.
	maxLooseFlags = boardOps / 2
	// inquiry is the time after which a rank that waits for a line asks the others whether they
	// have made other calls, which connects all of them: as many times as long as ranks share a
	// processor.
	inquiry = 100 * time.Millisecond
)

// board performs the small operations of a team whose ranks map each other's memory. A rank
// stores a message in a line of the receiver's board, which is the receiver's alone: a flag
// behind the data is the number of the operation. The receiver, who knows the place of each
// line, waits for the flag. Operations are performed one after the other, and the steps of a
// schedule in their order, by whoever starts an operation, waits for one, or finds a flag.
type board struct {
	t        *team
	in       *rma.Region // lines of others, and the area
	came     []byte      // the memory of in
	lines    int         // of an operation
	members  []member    // by rank of the team
	area     area        // for operations by shared memory
	received func(error) // the end of the await

	met atomic.Uint64 // number of the last operation that is over in which all ranks have waited for each other; written with mu

	mu        sync.Mutex // taken before those of operations
	last      uint64     // number of the last operation that was admitted
	loose     int        // operations since then
	past      [boardOps]admitted
	queue     []*operation // that are not over
	fast      fastPlans
	own       *operation // of calls by the fast path; nil: the next call takes one
	next      wait       // of the first operation, if it is not over
	stored    uint64     // ranks in whose boards this one has stored since it has last read their notes: see rouse
	wakes     uint64     // ranks to wake when mu is released: see unlock
	exposed   uint64     // number of the operation whose memory others may read, 0: none
	withdrawn uint64     // such an operation, which has failed: see held.go for this and the next four
	patience  time.Duration
	held      *InUseError
	lost      bool // the engine is closed
	closes    bool // the team is closed
	spinning  int  // goroutines that look for the flag
	awaiting  int  // offset of the flag that the engine looks for, or -1
	left      bool // the memory is released when it does so no more
	noted     bool // others are to wake the engine: see sleeps
	timer     *time.Timer
	inquiry   time.Duration // of this team

	released atomic.Bool // the memory has been
	dead     atomic.Bool
	fence    atomic.Uint32 // orders what is read of others before what they tell then

	over atomic.Uint64 // number of the last operation that is over
	at   atomic.Int64  // next, for those who do not hold mu, since they have last seen perform fail
	want atomic.Uint64
}

// wait is what an operation waits for: a flag of at least a value, below tellBack.
type wait struct {
	at   int // offset in the board
	want uint64
	back bool // the flag will not come: its rank fails
}

// admitted is what a board knows of an operation since the last one in which all ranks have
// waited for each other.
type admitted struct {
	seq   uint32 // number among those of the team
	call  call
	lines int // number that this rank receives
}

// newBoard returns the board of a team whose ranks this one maps; otherwise nil.
func newBoard(t *team) *board {
	if len(t.ranks) > maxPredicted {
		return nil
	}
	for _, r := range t.ranks {
		if r != t.eng.Rank() && !rma.PlaceOf(t.eng.Peer(r)).Maps {
			return nil
		}
	}
	b := &board{t: t, lines: boardLines(len(t.ranks)), awaiting: -1, patience: heldLimit}
	b.inquiry = inquiry * time.Duration(len(t.ranks)) / time.Duration(t.processors())
	if _, err := t.s.wake(); err != nil {
		return nil
	}
	size := boardOps*b.lines*lineSize + boardWords
	b.area.half = t.s.reserveArea(len(t.ranks)) / 2
	b.area.at = size
	b.area.data = size + areaHead(len(t.ranks))
	var err error
	if b.in, err = t.eng.Alloc(b.area.data + 2*b.area.half); err != nil {
		t.s.releaseArea(2 * b.area.half)
		return nil
	}
	b.came = b.in.Bytes()
	offheap.Populate(b.came[:b.area.data])
	b.received = func(err error) {
		b.mu.Lock()
		b.awaiting = -1
		if err == nil && b.left {
			b.noted = false
			b.release()
		} else if err == nil {
			b.sleeps(false)
			b.run()
			return
		}
		b.mu.Unlock() // the engine is closed
	}
	return b
}

// boardLines returns the largest number of messages that a rank receives in an operation by
// flags of p ranks, with a barrier at its end: of two rounds of dissemination and a pair's, or of
// all others if they are at most starLines.
func boardLines(p int) int {
	rounds := bits.Len(uint(p))
	return max(2*rounds+2, min(p-1, starLines)+rounds)
}

// boardKeys is the size of the keys of a rank: of its board, and of service.wake.
const boardKeys = 2 * rma.KeySize

// join sets the keys of the members, as they have told them. It reports whether all have a
// board, and whether all have an area.
func (b *board) join(all []byte) (boards, areas bool) {
	if b == nil {
		return false, false
	}
	b.members = make([]member, len(b.t.ranks))
	areas = true
	for r := range b.t.ranks {
		both := all[r*boardKeys : (r+1)*boardKeys]
		k, err := rma.ParseKey(both[:rma.KeySize])
		wake, bad := rma.ParseKey(both[rma.KeySize:])
		full := b.area.data + areaOf(len(b.t.ranks))
		if err != nil || bad != nil || wake.Len() != 8 || k.Len() != full && k.Len() != b.area.data {
			return false, false
		}
		areas = areas && k.Len() == full
		b.members[r] = member{k, wake}
	}
	return true, areas
}

// close releases the memory, or has it done when the engine has noticed that it looks for nothing
// any more, unless it may still be used. Then the engine does, at its end. It returns false, and does nothing, while
// a rank may be writing to memory of a call: letGo then has the team call it again.
func (b *board) close() bool {
	b.mu.Lock()
	if b.closes = writerTo(b) != none; b.closes {
		b.mu.Unlock()
		return false
	}
	used := b.spinning > 0 || len(b.queue) > 0
	b.left = !used && b.awaiting >= 0
	used = used || b.left
	b.area.unmap()
	b.mu.Unlock() // the engine, whose goroutine may be in run, has to let go of the memory
	if !used {
		b.release()
	}
	return true
}

func (b *board) release() {
	if !b.released.CompareAndSwap(false, true) {
		return // the team was closed before
	}
	b.t.s.releaseArea(2 * b.area.half)
	go func() { _ = b.in.Close() }() // it waits for the owner of the engine, which may be this goroutine, in a callback
}

// admit gives an operation its number, and decides whether it ends with a barrier. Two
// operations with the same place in the board have one between them in which all ranks wait
// for each other. Who has completed that one knows that all have begun it, and have therefore
// completed those before: their lines have been read.
func (b *board) admit(o *operation, alg algorithm) (flag uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.alg = alg
	b.number(o)
	return b.last
}

// number is admit when b.mu is held, and nobody else has the operation.
func (b *board) number(o *operation) {
	b.last++
	o.flag, o.pc = b.last, 0
	if b.loose++; o.kind.meets() || o.meet || b.loose >= maxLooseFlags {
		o.meet = !o.kind.meets()
		b.loose = 0
	}
	if o.alg == algShared {
		b.admitShared(o)
	}
}

// remember keeps the schedule of an operation for startFast.
func (b *board) remember(o *operation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fast.keep(o, o.asked)
}

// begin begins an operation with a schedule behind those admitted before. spins says that
// the caller will call spin.
func (b *board) begin(o *operation, spins bool) {
	b.mu.Lock()
	o.mu.Lock()
	o.begun = true
	o.posted++
	if spins {
		b.spinning++
	}
	if b.dead.Load() {
		b.mu.Unlock()
		o.posted--
		o.drive()
		return
	}
	o.mu.Unlock()
	b.queue = append(b.queue, o)
	if len(b.queue) > 1 {
		b.mu.Unlock()
		return
	}
	b.run()
}

// run performs operations until one waits. Unless a goroutine spins, the engine then looks
// for the flag. b.mu is held; run releases it.
func (b *board) run() {
	for len(b.queue) > 0 {
		o := b.queue[0]
		wrong, ok := b.perform(o)
		if !ok {
			b.at.Store(int64(b.next.at))
			b.want.Store(b.next.want)
			looks := wrong == nil && b.spinning == 0 && !b.next.back // else the revocation ends the operation
			if looks && b.awaiting < 0 {
				b.await()
				return
			}
			if looks && !b.noted {
				b.sleeps(true) // the engine looks for an earlier flag, and will then for this one
				continue
			}
			b.unlock()
			if wrong != nil {
				b.t.revoke(wrong)
			}
			return
		}
		b.queue = slices.Delete(b.queue, 0, 1)
		b.over.Store(o.flag)
		b.unlock()
		o.mu.Lock()
		o.left = 0
		o.posted--
		o.drive()
		b.mu.Lock()
	}
	b.unlock()
}

// perform performs steps of an operation. ok says that it is over; wrong is a line that does
// not belong to it. b.mu is held.
func (b *board) perform(o *operation) (wrong error, ok bool) {
	base := int(o.flag%boardOps) * b.lines * lineSize
	if o.pc == 0 {
		o.shown = [2]uint64{}
		a := &b.past[o.flag%boardOps]
		a.seq, a.call, a.lines = o.key.seq, o.call, len(o.plan.expected)
		if o.plan.writes && !b.free(o) {
			return nil, false
		}
	}
	for ; o.pc < len(o.plan.steps); o.pc++ {
		s := &o.plan.steps[o.pc]
		switch s.kind {
		case stepSend:
			b.send(o, s, base)
		case stepRecv, stepTake:
			end := base + (int(s.line)+1)*lineSize
			if flag := onesided.Load64(b.came[end-8:]); flag < o.flag {
				b.next = wait{at: end - 8, want: o.flag}
				return nil, false
			} else if flag > o.flag {
				return &rma.PeerError{Rank: b.t.ranks[s.peer], Op: o.kind.String(), Err: ErrProtocol}, false
			}
			if !o.call.is(b.came[end-lineFixed+8:]) {
				if wrong := b.differs(o.call, b.came[end-lineFixed:end-8]); wrong != nil {
					return wrong, false
				}
			}
			start := end - lineFixed - (s.to.n+7)&^7
			if data := b.came[start : start+s.to.n : start+s.to.n]; s.kind == stepRecv {
				copy(o.mem(s.to), data)
			} else {
				o.combine(s, 0, data)
			}
		case stepTell:
			b.tell(o, s)
		case stepWait:
			if wrong, ok := b.heard(o, s); !ok || wrong != nil {
				return wrong, false
			}
		case stepRead:
			if wrong, ok := b.read(o, s); !ok || wrong != nil {
				return wrong, false
			}
		case stepWrite:
			if wrong, ok := b.write(o, s); !ok || wrong != nil {
				return wrong, false
			}
		case stepFold:
			o.combine(s, 0, o.mem(s.from))
		default:
			copy(o.mem(s.to), o.mem(s.from))
		}
	}
	b.exposed = 0
	if !o.meet && !o.kind.meets() {
		return nil, true
	}
	for m := b.met.Load() + 1; m <= o.flag; m++ {
		if wrong := b.stray(m); wrong != nil {
			return wrong, false
		}
		b.met.Store(m)
	}
	return nil, true
}

// differs returns an error if the call in a line, of which fixed is the fixed part without
// the flag, is not mine.
func (b *board) differs(mine call, fixed []byte) error {
	var line [lineFixed - 8]byte
	copy(line[:], fixed) // the sender may change it
	c, ok := parseCall(line[8:])
	if c == mine {
		return nil
	}
	from := binary.LittleEndian.Uint64(line[:])
	if !ok || from >= uint64(len(b.t.ranks)) {
		return &rma.PeerError{Rank: b.t.eng.Rank(), Op: mine.kind.String(), Err: ErrProtocol}
	}
	return b.t.mismatch(int(from), mine, &header{call: c}, 0)
}

// stray returns an error if there are lines for an operation that this rank does not expect:
// a rank has another root. They are there when all ranks have waited for each other.
func (b *board) stray(flag uint64) error {
	a := &b.past[flag%boardOps]
	if a.call.kind.meets() {
		return nil // it is over: all ranks have made this call
	}
	base := int(flag%boardOps) * b.lines * lineSize
	for i := a.lines; i < b.lines; i++ {
		end := base + (i+1)*lineSize
		if onesided.Load64(b.came[end-8:]) == flag {
			if wrong := b.differs(a.call, b.came[end-lineFixed:end-8]); wrong != nil {
				return wrong
			}
		}
	}
	for r := 0; r < len(b.area.mems) && a.call.alg.tells(); r++ {
		at := b.area.lineOf(r, flag)
		if line := b.came[at : at+tellSize]; r != b.t.rank && onesided.Load64(line[tellSize-8:])>>tellBits == flag {
			if wrong := b.tellsOther(a.call, r, line); wrong != nil {
				return wrong
			}
		}
	}
	return nil
}

// await has the engine look for the flag that the first operation waits for. b.mu is held;
// await releases it.
func (b *board) await() {
	b.awaiting = b.next.at
	w, flag := b.in.Slice(b.awaiting, 8), b.next.want
	b.sleeps(true)
	if b.timer == nil {
		b.timer = time.AfterFunc(b.inquiry, b.inquire)
	} else {
		b.timer.Reset(b.inquiry)
	}
	b.unlock()
	rma.AwaitUntil(b.t.eng, w, rma.GE, flag).Then(b.received)
}

// flagSpins is how long a blocking call looks for a flag itself: some microseconds, in which a
// rank that runs answers, and for so many yields, in which ranks that share its processors take
// turns. Then it waits as all other operations do: at once, if a thread that does not yield wants
// the processor.
var flagSpins = cpu.SpinPolicy{Pauses: 64, Yields: 256, Adapt: true}

const (
	// looks is the number of times that it looks in a step of the wait. Where ranks take turns it
	// looks once: the flag comes while another rank has the processor.
	looks = 4
	// polled is the number of steps after which it polls the links, which takes as long as an
	// operation for each rank that has sent messages. Their other users wait no longer than that.
	polled = 8
)

// spin looks for the flags of an operation in flight, as a blocking call does.
func (o *operation) spin() {
	o.mu.Lock()
	flag := o.flag
	o.mu.Unlock()
	if flag == 0 {
		return
	}
	b := o.t.board
	b.mu.Lock()
	if b.spinning++; b.noted && !b.dead.Load() { // else the memory may be released
		b.sleeps(false)
	}
	b.mu.Unlock()
	b.spin(flag)
}

// spin performs operations until the one with a number is over, or for a while.
func (b *board) spin(flag uint64) {
	sp := cpu.Spinner{Policy: &flagSpins, Contention: b.t.s.contention}
	for steps := 1; b.over.Load() < flag && !b.dead.Load(); steps++ {
		if b.look(wait{at: int(b.at.Load()), want: b.want.Load()}) {
			b.mu.Lock()
			b.run()
			sp.Reset()
			continue
		}
		if steps%polled == 0 {
			b.t.eng.Progress()
		}
		if sp.Wait(); sp.Weary() {
			break
		}
	}
	b.mu.Lock()
	b.spinning--
	b.run()
}

// look reports whether a flag has come.
func (b *board) look(w wait) bool {
	word := b.came[w.at:]
	n := looks
	if b.t.s.contention.TakesTurns() {
		n = 1
	}
	for range n {
		if reached(onesided.Load64(word), w.want) {
			return true
		}
	}
	return false
}

// needs reports whether a line of a peer for an operation has not come. o.mu is held.
func (b *board) needs(o *operation, peer int) bool {
	if b.dead.Load() {
		return false // the memory may be released
	}
	if o.alg.tells() {
		return b.waitsFor(o, peer)
	}
	base := int(o.flag%boardOps) * b.lines * lineSize
	for i, e := range o.plan.expected {
		if int(e.peer) == peer && onesided.Load64(b.came[base+(i+1)*lineSize-8:]) < o.flag {
			return true
		}
	}
	return false
}

// inquire asks the other ranks about the operations that they may not have begun, or as
// another call, by which there is no line for this rank.
func (b *board) inquire() {
	b.mu.Lock()
	if b.dead.Load() || b.awaiting < 0 || len(b.queue) == 0 {
		b.mu.Unlock()
		return
	}
	var heads [][]byte
	for f := b.met.Load() + 1; f <= b.queue[0].flag; f++ {
		a := &b.past[f%boardOps]
		h := header{seq: a.seq, slot: inquirySlot, call: a.call}
		heads = append(heads, make([]byte, headerSize))
		h.put(heads[len(heads)-1])
	}
	b.timer.Reset(10 * b.inquiry)
	b.mu.Unlock()
	for i, r := range b.t.ranks {
		if i == b.t.rank {
			continue
		}
		for _, h := range heads {
			b.t.eng.Peer(r).SendFunc(tagData|b.t.numbers[i], h, nil)
		}
	}
}

// fail lets go of the operations, which have failed. Other ranks may still write to the
// board.
func (b *board) fail() {
	b.mu.Lock()
	b.dead.Store(true)
	queue := b.queue
	b.queue = nil
	if b.awaiting >= 0 {
		onesided.Store64(b.came[b.awaiting:], 1<<64-1)
	}
	if b.timer != nil {
		b.timer.Stop()
	}
	b.withdraw()
	b.mu.Unlock()
	letGo(b, queue, cpu.Ticks(), writeLimit)
}

// route sets the lines into which the sends of a schedule put their messages: the receiver's
// are in the order of what it expects.
func route(pr *problem, s *schedule) {
	for i := range s.steps {
		if st := &s.steps[i]; st.kind == stepSend {
			theirs := *pr
			theirs.rank = int(st.peer)
			peer := build(&theirs)
			st.line = peer.steps[peer.find(pr.rank, st.slot)].line
		}
	}
}
