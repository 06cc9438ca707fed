package coll

import (
	"container/heap"
	"math"
	"slices"
)

// predict returns the time in ns until the last rank has performed its schedule, if all begin
// at once and take turns on the processors that they have.
func (f *figures) predict(ranks []*schedule) float64 {
	s := newSimulation(f, ranks)
	for len(s.due) > 0 {
		m := heap.Pop(&s.due).(moment)
		switch st := &ranks[m.rank].steps[m.step]; st.kind {
		case stepSend:
			s.send(m, st)
		case stepRecv, stepTake:
			s.receive(m, st)
		case stepTell:
			s.tell(m, st)
		case stepWait:
			s.hear(m, st)
		case stepWrite:
			s.write(m, st)
		default:
			s.work(m, st)
		}
	}
	return s.last
}

// simulation performs the schedules of all ranks in simulated time.
type simulation struct {
	*figures
	ranks  []*schedule
	states []rankState // by rank
	due    moments     // of steps that may begin
	procs  []*processor
	links  *wires
	turns  bool    // ranks share processors
	alone  bool    // they have processors of their own, and map each other's memory: see figures.apart
	hop    float64 // see figures.hopOf
	last   float64 // when the last step so far was done
}

// rankState is how far a rank is.
type rankState struct {
	waits []int32
	came  []float64 // by step that receives: when its message has come; NaN before
	open  []float64 // when it may receive
	from  []int32   // of large messages: the step of the sender, which ends with the receiver's
	told  [][]tale  // by rank that has told
	hears int32     // step that waits for it, or none
	wrote []mem     // in the operation
	dirty []bool    // by step that sends: what it sends is among that
	used  []mem     // last, of nearBytes at most: see use
}

// use notes memory that the rank has used.
func (r *rankState) use(ms ...mem) {
	r.used = append(r.used, ms...)
	kept, bytes := len(r.used), 0
	for kept > 0 && bytes+r.used[kept-1].n <= nearBytes {
		kept--
		bytes += r.used[kept].n
	}
	r.used = r.used[kept:]
}

// has reports whether the rank has just used memory, which is in a cache of its processor then.
func (r *rankState) has(m mem) bool {
	return slices.ContainsFunc(r.used, func(u mem) bool {
		return u.buf == m.buf && u.off <= m.off && m.off+m.n <= u.off+u.n
	})
}

// newSimulation begins with the steps that wait for nothing.
func newSimulation(f *figures, ranks []*schedule) *simulation {
	turns := f.takeTurns(len(ranks))
	s := &simulation{
		figures: f, ranks: ranks, states: make([]rankState, len(ranks)),
		procs: f.processors(len(ranks)), links: f.wires(len(ranks)), turns: turns,
		alone: f.apart(len(ranks)), hop: f.hopOf(len(ranks)),
	}
	for r, plan := range ranks {
		n := len(plan.steps)
		st := rankState{waits: make([]int32, n), came: make([]float64, n), open: make([]float64, n), from: make([]int32, n), hears: none, dirty: make([]bool, n)}
		if plan.flags {
			st.told = make([][]tale, len(ranks))
		}
		for i := range plan.steps {
			st.waits[i] = plan.steps[i].waits
			st.came[i], st.open[i] = math.NaN(), math.NaN()
			if st.waits[i] == 0 {
				s.due = append(s.due, moment{0, int32(r), int32(i)})
			}
		}
		s.states[r] = st
	}
	heap.Init(&s.due)
	return s
}

// begin has a step begin, or go on, at ns.
func (s *simulation) begin(ns float64, rank, step int32) { heap.Push(&s.due, moment{ns, rank, step}) }

// done ends a step at ns: those that waited for it may begin.
func (s *simulation) done(rank, step int32, ns float64) {
	s.last = max(s.last, ns)
	st, me := &s.ranks[rank].steps[step], &s.states[rank]
	if st.to.n > 0 && s.alone {
		me.wrote = append(me.wrote, st.to)
	}
	for _, n := range st.next {
		if me.waits[n]--; me.waits[n] == 0 {
			s.begin(ns, rank, n)
		}
	}
}

// send performs a step that sends: a small message is done when it is posted, a large one with
// the step that receives it.
func (s *simulation) send(m moment, st *step) {
	path, inline := s.path(m.rank, st.peer), st.inline(st.from.n)
	cost := path.message(st.from.n, inline)
	cpu := s.procs[m.rank]
	cpu.take(m.rank, m.ns, 0)
	if s.ranks[m.rank].flags { // a store, not a message of the link
		cost.send = lineWork + at(&s.local().Copy, st.from.n)
		if s.alone {
			cost.latency = s.hop
		}
	} else if !cost.fetched { // into a ring that the receiver has read before
		cost.send += s.takeBack(st.from.n)
	}
	cpu.free += cost.send
	sent := cpu.free
	if !inline && !cost.fetched {
		out, in := s.links.between(m.rank, st.peer)
		sent = max(sent, max(*out, *in)+at(&path.Out, st.from.n))
		*out, *in = sent, sent
	}
	to := s.ranks[st.peer].find(int(m.rank), st.slot)
	me, peer := &s.states[m.rank], &s.states[st.peer]
	peer.came[to] = sent + cost.latency
	peer.from[to] = m.step
	me.dirty[m.step] = slices.ContainsFunc(me.wrote, st.from.meets)
	if !math.IsNaN(peer.open[to]) {
		s.begin(max(peer.open[to], peer.came[to]), st.peer, to)
	}
	if !cost.fetched {
		s.done(m.rank, m.step, cpu.free)
	}
}

// receive performs a step that receives when its message has come, and the step that has sent
// it if it is large.
func (s *simulation) receive(m moment, st *step) {
	me := &s.states[m.rank]
	if math.IsNaN(me.open[m.step]) {
		if me.open[m.step] = m.ns; math.IsNaN(me.came[m.step]) {
			return
		}
		if me.came[m.step] > m.ns {
			s.begin(me.came[m.step], m.rank, m.step)
			return
		}
	}
	path, flags := s.path(st.peer, m.rank), s.ranks[m.rank].flags
	cpu := s.procs[m.rank]
	pass := cpu.turn
	if flags {
		pass = switchWork
	}
	cpu.take(m.rank, m.ns, pass)
	start := cpu.free
	cost := path.message(st.to.n, st.inline(st.to.n))
	if cost.fetched {
		out, in := s.links.between(st.peer, m.rank)
		start = max(start, *out, *in)
		*out = start + at(&path.Out, st.to.n)
		*in = *out
	}
	took := cost.receive
	if flags {
		took = lineWork + at(&s.local().Copy, st.to.n)
	}
	if s.alone && (!cost.fetched || s.states[st.peer].dirty[me.from[m.step]]) {
		took += s.lines.time(st.to.n)
	}
	if s.alone && cost.fetched && st.to.n >= slicesFrom {
		took *= bothCopy
		sender := s.procs[st.peer]
		start = max(start, sender.free)
		sender.take(st.peer, start, 0)
		sender.free += took
	}
	cpu.free = start + took
	if st.kind == stepTake {
		cpu.free += s.fold(me, st)
	}
	me.use(st.to)
	if cost.fetched {
		s.done(st.peer, me.from[m.step], cpu.free+at(&path.Latency, 1))
	}
	s.done(m.rank, m.step, cpu.free)
}

// fold returns the time of the reduction of a message that has come: it was just copied, or written by
// another rank's processor, which lineRates counts.
func (s *simulation) fold(me *rankState, st *step) float64 {
	cost := &s.local().Fold
	if st.to.n <= nearBytes || me.has(st.to) {
		cost = &s.local().FoldNear
	}
	return at(cost, st.to.n)
}

// tell performs a step that tells one rank, or all others, how far this one is.
func (s *simulation) tell(m moment, st *step) {
	cpu := s.procs[m.rank]
	cpu.take(m.rank, m.ns, 0)
	for r := range s.ranks {
		if r == int(m.rank) || st.peer >= 0 && r != int(st.peer) {
			continue
		}
		cpu.free += tellWork
		heard := cpu.free + s.hop
		peer := &s.states[r]
		peer.told[m.rank] = append(peer.told[m.rank], tale{st.slot, heard})
		if i := peer.hears; i != none && s.ranks[r].steps[i].peer == m.rank {
			peer.hears = none
			s.begin(heard, int32(r), i)
		}
	}
	s.done(m.rank, m.step, cpu.free)
}

// hear performs a step that waits until another rank has told.
func (s *simulation) hear(m moment, st *step) {
	me := &s.states[m.rank]
	told := me.told[st.peer]
	i := slices.IndexFunc(told, func(t tale) bool { return t.count >= st.slot })
	switch {
	case i < 0:
		me.hears = m.step
		return
	case told[i].ns > m.ns:
		s.begin(told[i].ns, m.rank, m.step)
		return
	}
	cpu := s.procs[m.rank]
	if cpu.take(m.rank, m.ns, switchWork); !s.turns {
		cpu.free += hearWork
	}
	s.done(m.rank, m.step, cpu.free)
}

// write performs a step that writes to memory of another rank.
func (s *simulation) write(m moment, st *step) {
	me, cost := &s.states[m.rank], &s.local().Read
	if me.has(st.from) {
		cost = &s.local().ReadNear
	}
	work := at(cost, st.from.n)
	me.use(st.from)
	cpu := s.procs[m.rank]
	cpu.take(m.rank, m.ns, 0)
	cpu.free += work
	s.done(m.rank, m.step, cpu.free)
}

// work performs a step that copies, reads or reduces.
func (s *simulation) work(m moment, st *step) {
	if st.to.n == 0 { // it joins others, and is done by whoever completes them
		s.done(m.rank, m.step, m.ns)
		return
	}
	me := &s.states[m.rank]
	cost := s.local().work(st.kind, me.has(st.to) || st.kind != stepRead && me.has(st.from))
	work := at(cost, st.to.n)
	me.use(st.to)
	if st.kind != stepRead { // which says where in the other's memory it reads
		me.use(st.from)
	}
	if st.to.buf < 0 || st.from.buf < 0 { // of all the ranks, the areas do not fit the fastest cache
		work = max(work, at(cost, coldFrom)*float64(st.to.n)/coldFrom)
	}
	cpu := s.procs[m.rank]
	cpu.take(m.rank, m.ns, 0)
	if owner := -1 - st.from.buf; st.from.buf < 0 && owner != m.rank {
		cpu.free += s.hop / 2 // nobody has to be told that the line has changed
		if s.alone {
			cpu.free += s.lines.time(st.from.n)
		}
	} else if st.kind == stepRead && st.line == second && s.alone { // what the peer has made
		cpu.free += s.lines.time(st.from.n)
	}
	if st.to.buf < 0 { // others have read it in an operation before
		cpu.free += s.takeBack(st.to.n)
	}
	cpu.free += work
	s.done(m.rank, m.step, cpu.free)
}

// work returns the costs of a step that copies, reads or reduces. near says that one side is in a cache of the rank's
// processor.
func (c *costs) work(k stepKind, near bool) *[figureSizes]float64 {
	all := [3][2]*[figureSizes]float64{{&c.Copy, &c.CopyNear}, {&c.Fold, &c.FoldNear}, {&c.Read, &c.ReadNear}}
	of := all[0]
	switch k {
	case stepFold:
		of = all[1]
	case stepRead:
		of = all[2]
	}
	if near {
		return of[1]
	}
	return of[0]
}

// takeBackAhead is how many cache lines a processor takes back at a time from one that has read them. Two ranks with a hop of
// 250 ns took 8 to 10 ns a line longer to write 64 KiB to 1 MiB of their areas, or of rings, than the work takes.
const takeBackAhead = 28

// takeBackInTurns is the same in ns for a byte where ranks take turns: many have read it on the same processor, and of large data
// other ranks' has replaced it meanwhile. Of 0, 0.01, 0.02 and 0.03, the predictions for 3, 4 and 8 ranks chose best with 0.01.
const takeBackInTurns = 0.01

// takeBack returns by how much longer a rank takes to write n bytes that another one has read before, in ns.
func (s *simulation) takeBack(n int) float64 {
	switch {
	case s.turns && s.boards.flags:
		return takeBackInTurns * float64(n)
	case !s.alone:
		return 0
	}
	return s.hop / takeBackAhead * float64(n) / 64
}

// tale is what a rank has told, and when it is heard.
type tale struct {
	count uint32
	ns    float64
}

// moment is a step that may begin.
type moment struct {
	ns   float64
	rank int32
	step int32
}

type moments []moment

func (m moments) Len() int           { return len(m) }
func (m moments) Less(i, j int) bool { return m[i].ns < m[j].ns }
func (m moments) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m *moments) Push(x any)        { *m = append(*m, x.(moment)) }
func (m *moments) Pop() any {
	last := len(*m) - 1
	x := (*m)[last]
	*m = (*m)[:last]
	return x
}

// processor is one on which ranks take turns.
type processor struct {
	free float64 // when it is
	rank int32   // that had it last; none at first
	turn float64 // how long it takes to pass to a rank that waits for a message
}

// take takes the processor for a step of a rank that may begin at ns. It takes as long as pass to
// leave another rank.
func (c *processor) take(rank int32, ns, pass float64) {
	c.free = max(c.free, ns)
	if c.rank != none && c.rank != rank {
		c.free += pass
	}
	c.rank = rank
}

// processors returns, by rank, the processor on which the rank takes turns with others. Each host
// has processors in proportion to its ranks. A processor passes to a rank that waits for a message
// when the ranks that share it have polled and yielded in turn, each for as long as it takes to
// receive a byte.
func (f *figures) processors(p int) []*processor {
	of := make([]*processor, p)
	poll := at(&f.local().Receiver, 1)
	share := func(ranks []int) {
		n := len(ranks)
		if f.procs > 0 {
			n = min(n, (n*f.procs+p-1)/p)
		}
		procs := make([]processor, n)
		for i := range procs {
			procs[i] = processor{rank: none, turn: poll * float64(len(ranks)) / float64(n)}
		}
		for i, r := range ranks {
			of[r] = &procs[i%n]
		}
	}
	if f.hosts != nil {
		for _, ranks := range f.hosts.ranks {
			share(ranks)
		}
		return of
	}
	share(upTo(p))
	return of
}

// wires are the links on which large messages take turns: that of each rank and, between hosts,
// that of each host.
type wires struct {
	hosts *hosts
	free  []float64 // by rank, then by host: when it is
}

func (f *figures) wires(p int) *wires {
	w := &wires{hosts: f.hosts, free: make([]float64, p)}
	if w.hosts != nil {
		w.free = make([]float64, p+2*len(w.hosts.ranks))
	}
	return w
}

// between returns when the links that a message from a rank to another occupies are free: out of
// the sender or its host, and into the receiver's host.
func (w *wires) between(from, to int32) (out, in *float64) {
	if w.hosts == nil || w.hosts.of[from] == w.hosts.of[to] {
		return &w.free[from], &w.free[from]
	}
	p, n := len(w.hosts.of), len(w.hosts.ranks)
	return &w.free[p+w.hosts.of[from]], &w.free[p+n+w.hosts.of[to]]
}
