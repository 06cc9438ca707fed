package coll

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/cpu"
)

// service takes the messages of all teams of an engine.
type service struct {
	eng    *rma.Engine
	world  *team
	serial atomic.Uint32 // of payloads
	force  map[kind]algorithm
	check  bool // RMA_COLL_CHECK

	receiving atomic.Pointer[rma.Receiving]
	// Of messages that are not in place; the engine's goroutine's.
	spare    [2]*buffer // free ones: for at most inlineMax bytes of data, and for more
	spares   [2]int
	fetching [][2]int // by rank: buffers in use
	stalled  bool     // a rank has no buffer left

	drops discards
	// wake returns a word that others write to wake this rank. It lasts as long as the engine,
	// as a rank may wake another that has closed the team.
	wake    func() (*rma.Region, error)
	areas   atomic.Int64              // bytes of those of this rank in all teams
	lines   atomic.Pointer[lineTimes] // that the first team with areas has measured; nil: none has
	closing atomic.Bool               // the engine closes: nothing is discarded any longer

	contention *cpu.Contention

	mu      sync.Mutex // not held during calls of the engine
	teams   map[uint32]*team
	next    uint32 // number of the next team
	forming map[string]*forming
	dropped map[uint32]*dropped      // by number of a team
	refused map[string]map[int]error // calls of New of ranks that have not joined a team that was refused
	lost    map[int]error            // why a rank was lost, while it is
	nonce   uint64
	replies []reply
	err     error // the engine is closed
}

var services struct {
	sync.Mutex
	of map[*rma.Engine]*service
}

// serviceOf returns the service of an engine, which it starts at the first call.
func serviceOf(eng *rma.Engine) (*service, error) {
	services.Lock()
	defer services.Unlock()
	if s := services.of[eng]; s != nil {
		return s, nil
	}
	force, err := forced()
	if err != nil {
		return nil, fmt.Errorf("coll: %w", err)
	}
	check, err := checking()
	if err != nil {
		return nil, fmt.Errorf("coll: %w", err)
	}
	s := &service{eng: eng, force: force, check: check, teams: map[uint32]*team{}, next: 1, forming: map[string]*forming{}, dropped: map[uint32]*dropped{}, refused: map[string]map[int]error{}, lost: map[int]error{},
		fetching: make([][2]int, eng.Size()), contention: contention(eng)}
	s.wake = sync.OnceValues(func() (*rma.Region, error) { return eng.Alloc(8, rma.PeersWrite) })
	ranks := upTo(eng.Size())
	s.world = s.newTeam(0, "world")
	s.world.set(ranks, make([]uint32, len(ranks)))
	s.teams[0] = s.world
	ctx, cancel := context.WithCancel(context.Background())
	if !eng.BeforeClose(func() {
		cancel()
		services.Lock()
		delete(services.of, eng)
		services.Unlock()
		s.close()
	}) {
		cancel()
		return nil, fmt.Errorf("coll: %w", rma.ErrClosed)
	}
	r, err := eng.Receive(tagData, lowBits, (*receiver)(s))
	if err != nil {
		return nil, fmt.Errorf("coll: %w", err)
	}
	s.receiving.Store(r)
	r.Resume() // if a rank ran out of buffers before
	if _, err := eng.HandleWith(rma.HandlerOptions{Tag: tagControl, MaxSize: maxFrame(eng.Size())}, s.control); err != nil {
		return nil, fmt.Errorf("coll: %w", err)
	}
	go s.watch(ctx)
	if services.of == nil {
		services.of = map[*rma.Engine]*service{}
	}
	services.of[eng] = s
	return s, nil
}

// placeOf returns the place of an engine's rank. If not all ranks of its host know which processors they
// may use, those of this one count.
func placeOf(eng *rma.Engine) rma.Place {
	at := rma.PlaceOf(eng.Peer(eng.Rank()))
	if at.Processors == 0 {
		at.Processors = cpu.Allowed().Len()
	}
	return at
}

// contention returns the account of the waits of an engine's rank.
func contention(eng *rma.Engine) *cpu.Contention {
	at := placeOf(eng)
	return cpu.NewContention(cpu.Home(cpu.Allowed(), at.LocalRank, at.LocalSize), float64(at.LocalSize)/float64(max(at.Processors, 1)))
}

// upTo returns the numbers from 0 to n-1.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// payload returns a number for a message with data.
func (s *service) payload() uint32 {
	for {
		if n := s.serial.Add(1) & lowBits; n != 0 {
			return n
		}
	}
}

// reserveArea returns the size of the area of this rank in a team of p, 0 if there are too many.
func (s *service) reserveArea(p int) int {
	n := areaOf(p)
	if s.areas.Add(int64(n)) <= areaBudget {
		return n
	}
	s.releaseArea(n)
	return 0
}

// releaseArea gives the memory of an area back.
func (s *service) releaseArea(n int) { s.areas.Add(int64(-n)) }

// reserve returns a team that does not send yet, and whose number is new.
func (s *service) reserve(name string) *team {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.teams[s.next] != nil { // the numbers of teams that were closed are used again, the oldest first
		s.next = s.next%lowBits + 1
	}
	t := s.newTeam(s.next, name)
	s.next = s.next%lowBits + 1
	s.teams[t.number] = t
	delete(s.dropped, t.number)
	if s.err != nil {
		t.err = s.err
	}
	return t
}

// complete sets the members of a reserved team. Messages that have arrived for it wait.
func (s *service) complete(t *team, ranks []int, numbers []uint32) (*Team, error) {
	for r, u := range t.set(ranks, numbers) {
		for of, why := range u.why {
			t.revokedBy(r, of, why)
		}
		for _, e := range u.came {
			t.take(r, &e.h, e.data)
		}
		if u.cost > maxUnknown && t.has(r) {
			t.revoke(&rma.PeerError{Rank: r, Op: "collective", Err: ErrProtocol})
		}
	}
	lost := map[int]error{}
	s.mu.Lock()
	t.next.settle()
	for _, r := range ranks {
		if err := s.lost[r]; err != nil {
			lost[r] = err
		}
	}
	s.unlock()
	for r, err := range lost {
		if errors.Is(err, rma.ErrPeerGone) { // perhaps when its part in all operations was complete
			t.leave(r, lostError(r, "collective", err))
		} else {
			t.revoke(lostError(r, "team", err))
		}
	}
	if err := t.with(0).Err(); err != nil {
		return nil, err
	}
	return t.with(0), nil
}

// forget releases the number of a team.
func (s *service) forget(t *team) {
	s.mu.Lock()
	defer s.unlock()
	if s.teams[t.number] != t { // closed again, it may be another one's
		return
	}
	delete(s.teams, t.number)
	t.next.close()
}

func (s *service) close() {
	s.closing.Store(true)
	s.mu.Lock()
	s.err = rma.ErrClosed
	teams := slices.Collect(maps.Values(s.teams))
	for _, f := range s.forming {
		f.end(nil, s.err)
	}
	for _, t := range teams {
		t.next.end(nil, s.err)
	}
	s.mu.Unlock()
	for _, t := range teams {
		t.end(fmt.Errorf("coll: team %q: %w", t.name, rma.ErrClosed), nil)
		t.mu.Lock()
		board := t.board
		t.mu.Unlock()
		if board != nil {
			leaveBoard(board)
		}
	}
}

// watch revokes the teams of ranks that are lost.
func (s *service) watch(ctx context.Context) {
	lost := map[int]int{}
	for ev := range s.eng.Watch(ctx) {
		if ev.State < rma.PeerDown {
			s.found(ev.Rank)
		}
		if ev.Lost > lost[ev.Rank] {
			lost[ev.Rank] = ev.Lost
			if ev.State == rma.PeerGone {
				continue // Gone is called behind the rank's last message
			}
			s.lose(ev.Rank, cmp.Or(ev.Err, rma.ErrFlushed), ev.State >= rma.PeerDown)
		}
	}
}

// found records that there is a connection with a rank, of which an event has told. It may have been lost since then:
// what Gone has recorded, on another goroutine, stays.
func (s *service) found(rank int) {
	s.mu.Lock()
	defer s.unlock()
	if rma.StateOf(s.eng.Peer(rank)).State < rma.PeerDown {
		delete(s.lost, rank)
		s.shrinkWith(rank)
	}
}

// lose revokes the teams of a rank whose connection was lost. still says that there is no
// new one.
func (s *service) lose(rank int, why error, still bool) {
	for _, t := range s.losing(rank, why, still) {
		t.revoke(lostError(rank, "collective", why))
	}
}

// losing records that a rank was lost, ends the calls of New that need it, and returns its
// teams.
func (s *service) losing(rank int, why error, still bool) (teams []*team) {
	s.mu.Lock()
	if still {
		s.lost[rank] = why
	}
	for _, t := range s.teams {
		if t.has(rank) {
			teams = append(teams, t)
		}
	}
	s.shrinkWith(rank)
	s.unlock()
	s.formingLost(rank, lostError(rank, "team", why))
	return teams
}

// lostError is the error of operations with a rank that was lost.
func lostError(rank int, op string, why error) error {
	if pe := (*rma.PeerError)(nil); errors.As(why, &pe) {
		why = pe.Err
	}
	return &rma.PeerError{Rank: rank, Op: op, Err: why}
}

// receiver takes the messages of operations.
type receiver service

// Arriving implements rma.Receiver.
func (r *receiver) Arriving(m rma.Envelope, inPlace bool) rma.Landing {
	switch {
	case m.Len < headerSize || m.Len > headerSize+foldMax:
		return rma.Landing{Unwanted: true}
	case inPlace:
		return rma.Landing{}
	}
	s, k := (*service)(r), 0
	if m.Len > headerSize+inlineMax {
		k = 1
	}
	if s.fetching[m.From][k] >= maxBuffers[k] {
		s.stalled = true
		return rma.Landing{Later: true}
	}
	s.fetching[m.From][k]++
	b := s.spare[k]
	if b == nil {
		b = &buffer{bytes: make([]byte, headerSize+[...]int{inlineMax, foldMax}[k]), kind: k}
	} else {
		s.spare[k] = b.next
		s.spares[k]--
	}
	return rma.Landing{Buf: b.bytes[:m.Len], Token: b}
}

// maxBuffers bounds the buffers of a rank in use, and the free ones, of each kind.
var maxBuffers = [...]int{64, 2 * giving}

// free takes a buffer back, and then the messages for which there was none.
func (s *service) free(from int, b *buffer) {
	s.fetching[from][b.kind]--
	if s.spares[b.kind] < maxBuffers[b.kind] {
		b.next, s.spare[b.kind] = s.spare[b.kind], b
		s.spares[b.kind]++
	}
	if r := s.receiving.Load(); s.stalled && r != nil {
		s.stalled = false
		r.Resume()
	}
}

// buffer is the destination of a message that is fetched. It is used again: the engine keeps
// it registered.
type buffer struct {
	bytes []byte
	kind  int
	next  *buffer
}

// Arrived implements rma.Receiver.
func (r *receiver) Arrived(m rma.Envelope, token any, parts [][]byte, err error) {
	s := (*service)(r)
	if b, ok := token.(*buffer); ok {
		defer s.free(m.From, b)
	}
	if err != nil {
		return // Gone or watch reports the rank
	}
	var head [headerSize]byte
	var rest [3][]byte
	n, k := 0, 0
	for _, p := range parts {
		c := copy(head[n:], p)
		n += c
		if c < len(p) {
			rest[k] = p[c:]
			k++
		}
	}
	s.mu.Lock()
	t := s.teams[m.Tag&lowBits]
	s.mu.Unlock()
	h, ok := parseHeader(head[:n], m.Len)
	switch {
	case !ok && t != nil:
		t.revokedBy(m.From, 0, &rma.PeerError{Rank: m.From, Op: "collective", Err: ErrProtocol})
	case !ok:
	case t == nil: // closed here
		if h.later != 0 {
			s.discard(s.eng.Peer(m.From), h.later)
		}
	default:
		t.take(m.From, &h, rest[:k]...)
	}
}

// Gone implements rma.Receiver. A rank may leave when its part in an operation is complete:
// only operations that still wait for a message of it fail.
func (r *receiver) Gone(rank int, err error) {
	s := (*service)(r)
	// Watch does not report when this rank has a connection with itself again. Teams do not need it.
	for _, t := range s.losing(rank, cmp.Or(err, rma.ErrPeerGone), rank != s.eng.Rank()) {
		t.leave(rank, lostError(rank, "collective", cmp.Or(err, rma.ErrPeerGone)))
	}
}

// maxDiscards bounds the messages of a rank that are waited for to be dropped. Honest ranks
// stay below it: those of operations that were in flight when the team was revoked.
const maxDiscards = 16 << 10

// discards are the messages with data for which there is no use. One goroutine, while there is
// work, registers their receivers and closes them, which the engine's goroutine must not do.
type discards struct {
	mu      sync.Mutex
	waited  map[discard]bool
	of      map[int]int // number of them, by rank
	begun   []*discarder
	ended   []*discarder
	running bool
}

// discard names a message with data.
type discard struct {
	from  int
	later uint32
}

// discard drops a message with data for which there is no use, when it arrives.
func (s *service) discard(p *rma.Peer, later uint32) {
	if s.closing.Load() {
		return // the sender is to hear that this rank is gone, not that it refuses
	}
	d := &s.drops
	d.mu.Lock()
	defer d.mu.Unlock()
	k := discard{p.Rank(), later}
	if d.waited[k] || d.of[k.from] >= maxDiscards {
		return
	}
	if d.waited == nil {
		d.waited, d.of = map[discard]bool{}, map[int]int{}
	}
	d.waited[k] = true
	d.of[k.from]++
	d.begun = append(d.begun, &discarder{discard: k, peer: p, s: s})
	d.work()
}

// work starts the goroutine unless it runs. d.mu is held.
func (d *discards) work() {
	if !d.running {
		d.running = true
		go d.run()
	}
}

// run registers receivers and closes them until there is nothing to do.
func (d *discards) run() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.begun)+len(d.ended) > 0 {
		begun, ended := d.begun, d.ended
		d.begun, d.ended = nil, nil
		d.mu.Unlock()
		for _, x := range ended {
			x.r.Close()
		}
		var failed []*discarder
		for _, x := range begun {
			// Of this rank alone: each rank numbers its payload, so others use the same tag.
			r, err := rma.ReceiveFrom(x.peer, tagPayload|x.later, 0, x)
			if err != nil { // the engine is closed
				failed = append(failed, x)
				continue
			}
			d.mu.Lock()
			if x.r = r; x.over {
				d.ended = append(d.ended, x)
			}
			d.mu.Unlock()
		}
		d.mu.Lock()
		for _, x := range append(failed, ended...) {
			delete(d.waited, x.discard)
			d.of[x.from]--
		}
	}
	d.running = false
}

// discarder drops one message.
type discarder struct {
	discard
	peer *rma.Peer
	s    *service
	r    *rma.Receiving // guarded by discards.mu, as over
	over bool
}

// Arriving implements rma.Receiver.
func (d *discarder) Arriving(rma.Envelope, bool) rma.Landing {
	d.end()
	return rma.Landing{Unwanted: true}
}

// Arrived implements rma.Receiver.
func (d *discarder) Arrived(rma.Envelope, any, [][]byte, error) {}

// Gone implements rma.Receiver.
func (d *discarder) Gone(int, error) { d.end() }

// end has the receiver closed, once it is known.
func (d *discarder) end() {
	all := &d.s.drops
	all.mu.Lock()
	defer all.mu.Unlock()
	if d.over {
		return
	}
	if d.over = true; d.r != nil {
		all.ended = append(all.ended, d)
		all.work()
	}
}
