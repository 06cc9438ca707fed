package coll

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/seed33544411/rma"
)

// forming is a team that is being made. Its lowest rank, which calls with the same ranks in another
// order know alike, collects the numbers of all members, asks whether all still wait, and
// distributes the numbers.
type forming struct {
	// What this rank's call of New knows; nil without a call.
	ranks []int
	first int // the lowest one
	nonce uint64
	own   uint32
	over  *rma.Event
	ready bool     // told the lowest rank that this one waits
	table []uint32 // the numbers of the members
	err   error

	joined map[int]*joined // on the lowest rank: by rank of the job, also ranks that are no members
}

// joined is a rank that has called New.
type joined struct {
	frame
	asked, ready bool // all had called it then, and this rank is asked whether it still waits; it does
}

// newForming begins a team of a name that nobody has joined. s.mu is held.
func (s *service) newForming(name string) *forming {
	f := &forming{joined: map[int]*joined{}}
	s.forming[name] = f
	return f
}

// end ends this rank's call. s.mu is held.
func (f *forming) end(table []uint32, err error) {
	if f.over != nil && f.table == nil && f.err == nil {
		f.table, f.err = table, err
		f.over.Set()
	}
}

// New makes a team of some ranks of the job, numbered by their place in ranks. All these
// ranks call it with the same ranks and name; other ranks do not call it. Calls for
// different teams that are in progress at the same time have different names, of at most
// 255 bytes. If ranks pass different lists with one name, the lowest rank compares them: if a
// rank of its list has passed other ranks, or another order, the error on all ranks wraps
// ErrMismatch. Lists with different lowest ranks are not compared, nor is that of a rank which
// is not in the lowest one's: ranks that wait for each other then do so until their contexts
// end, whatever RMA_TIMEOUT is. If ctx ends on a rank before all have called New, the error there is that
// of ctx; the other ranks wait until it calls New again, or until their contexts end.
func New(ctx context.Context, eng *rma.Engine, ranks []int, name string) (*Team, error) {
	s, err := serviceOf(eng)
	if err != nil {
		return nil, err
	}
	switch me := eng.Rank(); {
	case len(name) > maxName:
		return nil, fmt.Errorf("coll: new team: %w: name of %d bytes", ErrInvalid, len(name))
	case !slices.Contains(ranks, me):
		return nil, fmt.Errorf("coll: new team %q: %w: rank %d, which calls it, is not among its ranks", name, ErrInvalid, me)
	}
	seen := map[int]bool{}
	for _, r := range ranks {
		if r < 0 || r >= eng.Size() || seen[r] {
			return nil, fmt.Errorf("coll: new team %q: %w: rank %d does not exist, or is there twice", name, ErrInvalid, r)
		}
		seen[r] = true
	}
	t, err := s.make(ctx, ranks, name)
	if err != nil {
		return nil, fmt.Errorf("coll: new team %q: %w", name, err)
	}
	return t, nil
}

// make is New with valid arguments.
func (s *service) make(ctx context.Context, ranks []int, name string) (*Team, error) {
	t := s.reserve(name)
	f, err := s.call(t, ranks, name)
	if err == nil {
		err = f.over.Wait(ctx)
		s.mu.Lock()
		if f.table == nil && f.err == nil {
			f.end(nil, err)
			s.withdraw(name, f)
		}
		if s.forming[name] == f {
			delete(s.forming, name)
		}
		err = f.err
		s.unlock()
	}
	if err != nil {
		s.forget(t)
		return nil, err
	}
	made, err := s.complete(t, ranks, f.table)
	if err != nil {
		s.forget(t)
	}
	return made, err
}

// call begins a call of New.
func (s *service) call(t *team, ranks []int, name string) (*forming, error) {
	s.mu.Lock()
	f := s.forming[name]
	if f == nil {
		f = s.newForming(name)
	}
	if f.over != nil || s.err != nil {
		defer s.unlock()
		if s.err != nil {
			return nil, s.err
		}
		return nil, fmt.Errorf("%w: another call with this name is in progress", ErrBusy)
	}
	s.nonce++
	f.ranks, f.first, f.nonce, f.own, f.over = slices.Clone(ranks), slices.Min(ranks), s.nonce, t.number, s.eng.NewEvent()
	for _, r := range ranks {
		if err := s.lost[r]; err != nil {
			f.err = lostError(r, "team", err)
			s.refuse(name, f, f.err)
			delete(s.forming, name)
			s.unlock()
			return nil, f.err
		}
	}
	join := frame{kind: frameJoin, number: f.own, nonce: f.nonce, members: digest(ranks), name: name}
	if f.first == s.eng.Rank() {
		f.joined[f.first] = &joined{frame: join, ready: true}
		s.decide(name, f)
		s.unlock()
		return f, nil
	}
	s.unlock()
	s.eng.Peer(f.first).SendFunc(tagControl, join.bytes(), func(err error) {
		if err != nil {
			s.mu.Lock()
			f.end(nil, err)
			s.unlock()
		}
	})
	return f, nil
}

// digest is a number for a list of ranks.
func digest(ranks []int) uint64 {
	h := fnv.New64a()
	for _, r := range ranks {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], uint32(r))
		h.Write(b[:])
	}
	return h.Sum64()
}

// decide ends the call on the lowest rank if all members have joined, or if two have joined with
// different ranks. Other ranks may have joined as well. s.mu is held.
func (s *service) decide(name string, f *forming) {
	if f.over == nil || f.first != s.eng.Rank() {
		return
	}
	want, missing, waits := digest(f.ranks), false, false
	for _, r := range f.ranks {
		j := f.joined[r]
		if j == nil {
			missing = true
			continue
		}
		waits = waits || !j.ready
		if j.members != want {
			m := mismatch{ranks: [2]int{s.eng.Rank(), r}}.error()
			for _, r := range f.ranks {
				if f.joined[r] == nil { // its call comes later
					if s.refused[name] == nil {
						s.refused[name] = map[int]error{}
					}
					s.refused[name][r] = m
				}
			}
			s.refuse(name, f, m)
			f.end(nil, m)
			return
		}
	}
	if missing {
		return
	}
	if waits {
		for _, r := range f.ranks {
			if j := f.joined[r]; !j.asked && !j.ready {
				j.asked = true
				s.reply(r, frame{kind: frameAsk, nonce: j.nonce, name: name})
			}
		}
		return
	}
	numbers, table := make([]uint32, len(f.ranks)), make([][2]uint32, len(f.ranks))
	for i, r := range f.ranks {
		numbers[i] = f.joined[r].number
		table[i] = [2]uint32{uint32(r), numbers[i]}
	}
	for _, r := range f.ranks {
		s.reply(r, frame{kind: frameTable, nonce: f.joined[r].nonce, name: name, table: table})
	}
	f.end(numbers, nil)
}

// reply sends a frame when s.mu is released by unlock.
func (s *service) reply(rank int, f frame) {
	if rank != s.eng.Rank() {
		s.replies = append(s.replies, reply{rank, f.bytes()})
	}
}

// reply is a frame for a rank.
type reply struct {
	rank int
	b    []byte
}

// unlock releases s.mu and sends the replies.
func (s *service) unlock() {
	out := s.replies
	s.replies = nil
	s.mu.Unlock()
	for _, r := range out {
		s.eng.Peer(r.rank).SendFunc(tagControl, r.b, nil)
	}
}

// refuse tells all members that have joined that there will be no team. s.mu is held.
func (s *service) refuse(name string, f *forming, why error) {
	for _, r := range f.ranks {
		if j := f.joined[r]; j != nil {
			s.reply(r, frame{kind: frameRefuse, nonce: j.nonce, name: name, why: reasonOf(why, s.eng.Rank())})
		}
	}
	clear(f.joined)
}

// withdraw tells the others that this rank's call is over. s.mu is held.
func (s *service) withdraw(name string, f *forming) {
	if f.first != s.eng.Rank() {
		s.reply(f.first, frame{kind: frameLeave, nonce: f.nonce, name: name})
		if f.ready { // the lowest rank may have made the team
			s.drop(f.own, &dropped{f.ranks, []int{f.first}})
		}
		return
	}
	delete(f.joined, s.eng.Rank())
	for _, j := range f.joined {
		j.asked, j.ready = false, false
	}
	if len(f.joined) > 0 { // they wait for the next call here
		s.forming[name] = &forming{joined: f.joined}
	}
}

// maxForming bounds the names of teams that a rank has joined, and this rank has not.
const maxForming = 1024

// floods reports whether a join of a rank exceeds maxForming.
func (s *service) floods(from int, m *frame) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.kind != frameJoin || len(s.forming) < maxForming || s.forming[m.name] != nil {
		return false
	}
	n := 0
	for _, f := range s.forming {
		if f.over == nil && f.joined[from] != nil {
			n++
		}
	}
	return n >= maxForming
}

// form takes a frame about a team that is being made.
func (s *service) form(from int, m *frame) {
	s.mu.Lock()
	defer s.unlock()
	f := s.forming[m.name]
	mine := f != nil && f.over != nil && f.nonce == m.nonce && f.first == from && f.table == nil && f.err == nil
	switch m.kind {
	case frameJoin:
		if why := s.refused[m.name][from]; why != nil {
			if delete(s.refused[m.name], from); len(s.refused[m.name]) == 0 {
				delete(s.refused, m.name)
			}
			s.reply(from, frame{kind: frameRefuse, nonce: m.nonce, name: m.name, why: reasonOf(why, s.eng.Rank())})
			return
		}
		if f == nil || f.table != nil || f.err != nil { // or this rank's call is over, but has not returned
			f = s.newForming(m.name)
		}
		f.joined[from] = &joined{frame: *m}
		s.decide(m.name, f)
	case frameReady:
		if f != nil && f.table == nil && f.joined[from] != nil && f.joined[from].nonce == m.nonce {
			f.joined[from].ready = true
			s.decide(m.name, f)
		}
	case frameAsk:
		answer := byte(frameLeave)
		if mine {
			answer, f.ready = frameReady, true
		}
		s.reply(from, frame{kind: answer, nonce: m.nonce, name: m.name})
	case frameLeave:
		if f != nil && f.table == nil && f.joined[from] != nil && f.joined[from].nonce == m.nonce {
			delete(f.joined, from)
			if len(f.joined) == 0 && f.over == nil {
				delete(s.forming, m.name)
			}
		}
	case frameTable, frameRefuse:
		switch {
		case mine && m.kind == frameRefuse:
			f.end(nil, m.why.error(from, s.eng.Size()))
		case mine && s.fits(f, m.table):
			numbers := make([]uint32, len(m.table))
			for i, e := range m.table {
				numbers[i] = e[1]
			}
			f.end(numbers, nil)
		case mine:
			f.end(nil, &rma.PeerError{Rank: from, Op: "team", Err: ErrProtocol})
		case m.kind == frameTable:
			s.giveUp(from, m.table)
		}
	}
}

// dropped is a team that this rank has given up, and that others may have made with it.
type dropped struct {
	ranks []int // of which it may consist, in their order
	by    []int // that may tell its members, once each
}

// maxDropped bounds the teams of which that is known.
const maxDropped = 1024

// drop notes that this rank has given up the team that it knows by a number. s.mu is held.
func (s *service) drop(number uint32, d *dropped) {
	if len(s.dropped) >= maxDropped {
		age := func(n uint32) uint32 { return (s.next - n) & lowBits }
		oldest := slices.MaxFunc(slices.Collect(maps.Keys(s.dropped)), func(a, b uint32) int { return cmp.Compare(age(a), age(b)) })
		delete(s.dropped, oldest)
	}
	s.dropped[number] = d
}

// giveUp revokes a team that a rank has told, if this rank has given it up, on the other members. The frames
// name all members by their digest, as it is that rank which says what numbers the others have. s.mu is held.
func (s *service) giveUp(from int, table [][2]uint32) {
	var d *dropped
	ranks := make([]int, len(table))
	for i, e := range table {
		if ranks[i] = int(e[0]); ranks[i] == s.eng.Rank() {
			d = s.dropped[e[1]]
		}
	}
	if d == nil || !slices.Contains(d.by, from) || !slices.Contains(ranks, from) || !follows(ranks, d.ranks) {
		return
	}
	d.by = slices.DeleteFunc(d.by, func(r int) bool { return r == from })
	why := reasonOf(&rma.PeerError{Rank: s.eng.Rank(), Op: "team", Err: rma.ErrGivenUp}, s.eng.Rank())
	for _, e := range table {
		s.reply(int(e[0]), frame{kind: frameRevoke, number: e[1] & lowBits, members: digest(ranks), why: why})
	}
}

// follows reports whether some is what is left of all if ranks are left out.
func follows(some, all []int) bool {
	for _, r := range all {
		if len(some) > 0 && some[0] == r {
			some = some[1:]
		}
	}
	return len(some) == 0
}

// fits reports whether a table has the members of the call.
func (s *service) fits(f *forming, table [][2]uint32) bool {
	return slices.EqualFunc(table, f.ranks, func(e [2]uint32, rank int) bool {
		return int(e[0]) == rank && e[1] <= lowBits && (rank != s.eng.Rank() || e[1] == f.own)
	})
}

// formingLost ends the calls of New that need a rank that was lost.
func (s *service) formingLost(rank int, why error) {
	s.mu.Lock()
	defer s.unlock()
	for name, late := range s.refused {
		if delete(late, rank); len(late) == 0 {
			delete(s.refused, name)
		}
	}
	for name, f := range s.forming {
		delete(f.joined, rank)
		switch {
		case f.over == nil && len(f.joined) == 0:
			delete(s.forming, name)
		case f.ready && rank != f.first: // the lowest rank decides: it may have made the team before
		case f.over != nil && f.table == nil && slices.Contains(f.ranks, rank):
			if f.first == s.eng.Rank() {
				s.refuse(name, f, why)
			}
			f.end(nil, why)
		}
	}
}
