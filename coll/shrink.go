package coll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed33544411/rma"
)

// shrinking is the team that follows a revoked one. A call of Shrink tells each member that this
// rank reaches its view: the members that it does not reach. When it has the views of all that it
// reaches, its view is complete, and it tells the first of them so. The first one that has the
// complete views of all that it reaches decides, and distributes the members. service.mu guards all
// fields.
type shrinking struct {
	t     *team
	calls uint64                 // that have made a team
	out   map[int]*ExcludedError // ranks of the job that take no part in this call and later ones
	views map[int]*view          // of other ranks of the job
	told  map[int]string         // the view that each rank has been told, over the present connection
	made  [][2]uint32            // ranks and numbers of the last team that was made

	// This rank's call.
	number uint32     // of the new team
	over   *rma.Event // nil: no call
	table  [][2]uint32
	err    error
	closed bool // the team
}

// view is what a rank has told in a call of Shrink.
type view struct {
	name        string // of the call
	old, number uint32 // by which the rank knows the revoked team and the new one
	call        uint64
	complete    bool           // and the rank expects this one to decide
	lost        map[int]uint32 // ranks of the job that it does not reach: viewLost and so on
}

const (
	viewLost = 0
	viewGone = 1 // said to be dead, or to have left the job
	viewOut  = 2 // takes no part
)

// Shrink makes a new team of the ranks of a revoked team that live. All ranks that live
// call it.
//
// The members of the new team can reach each other. Of ranks that live and have lost connections with
// each other, those without the most connections are left out. A rank
// that is left out gets an *ExcludedError, which names a rank that it has no connection with, also from
// every later call on this team. Ranks that reach none of the others become a team of their own. A
// rank whose ctx ends, or has ended, is left out, and the others go on without it. If a member is lost while the team is
// made, the new team may be revoked from the start: shrink that one. If this rank has closed the team, or closes
// it while Shrink waits, the error wraps rma.ErrClosed, and the others go on without this rank.
func (t *Team) Shrink(ctx context.Context) (*Team, error) {
	s, f := t.t.s, t.t.next
	n := s.reserve(followerOf(t.t))
	table, err := f.run(ctx, n.number)
	if err == nil {
		ranks, numbers := make([]int, len(table)), make([]uint32, len(table))
		for i, e := range table {
			ranks[i], numbers[i] = int(e[0]), e[1]
		}
		if _, err = s.complete(n, ranks, numbers); err == nil || errors.Is(err, ErrRevoked) {
			return n.with(0), nil
		}
	}
	s.forget(n)
	return nil, fmt.Errorf("coll: shrink team %q: %w", t.t.name, err)
}

// follower is the name of the team that follows a team. Other teams may have the same name, as those
// of Split have, but none has the same number on the same rank.
func follower(name string, first int, number uint32) string {
	id := fmt.Sprintf("-%d.%d", first, number)
	return name[:min(len(name), maxName-len(id))] + id
}

func followerOf(t *team) string { return follower(t.name, t.ranks[0], t.numbers[0]) }

// run is a call of Shrink. It returns the ranks and numbers of the new team.
func (f *shrinking) run(ctx context.Context, number uint32) ([][2]uint32, error) {
	s, me := f.t.s, f.t.eng.Rank()
	s.mu.Lock()
	err := s.err
	switch {
	case err != nil:
	case f.closed:
		err = closedError("the team")
	case f.over != nil:
		err = fmt.Errorf("%w: another call is in progress", ErrBusy)
	case f.out[me] != nil:
		err = f.out[me]
	}
	if err != nil {
		s.unlock()
		return nil, err
	}
	over := s.eng.NewEvent()
	f.number, f.over, f.table, f.err = number, over, nil, nil
	f.told = map[int]string{}
	if err = ctx.Err(); err == nil { // otherwise the call could find that the others have only waited for it
		f.advance()
		s.unlock()
		err = over.Wait(ctx)
		s.mu.Lock()
	}
	defer s.unlock()
	if f.calling() {
		f.end(nil, err)
		f.exclude(me, me, rma.ErrGivenUp)
	}
	f.over = nil
	return f.table, f.err
}

// calling reports whether this rank is in a call that is not over. s.mu is held, as in all that follow.
func (f *shrinking) calling() bool { return f.over != nil && f.table == nil && f.err == nil }

// end ends this rank's call.
func (f *shrinking) end(table [][2]uint32, err error) {
	if f.calling() {
		f.table, f.err = table, err
		if table == nil {
			f.t.s.drop(f.number, &dropped{f.t.ranks, slices.Clone(f.t.ranks)})
		}
		f.over.Set()
	}
}

// reaches reports whether another member may take part, as far as this rank knows.
func (f *shrinking) reaches(rank int) bool { return f.t.s.lost[rank] == nil && f.out[rank] == nil }

// view returns what a rank has told in this call; nil if nothing.
func (f *shrinking) view(rank int) *view {
	if v := f.views[rank]; v != nil && v.call == f.calls && v.name == followerOf(f.t) {
		return v
	}
	return nil
}

// lists reports whether a rank has told that it does not reach another one, and in which state that is.
func (f *shrinking) lists(rank, other int) (state uint32, yes bool) {
	if v := f.view(rank); v != nil {
		state, yes = v.lost[other]
	}
	return state, yes
}

// exclude records that a rank takes no part, because of another one, or by itself if that is the same. It
// tells the rank, or, if it is this one, the others.
func (f *shrinking) exclude(rank, other int, why error) {
	t, me := f.t, f.t.eng.Rank()
	if f.out[rank] != nil {
		return
	}
	to := []int{rank}
	if rank == me {
		to = t.ranks
	}
	for _, r := range to {
		if r != me && f.reaches(r) {
			t.s.reply(r, outFrame(t.numbers[t.index[r]], followerOf(t), &ExcludedError{[2]int{rank, other}, why}))
		}
	}
	f.note(rank, &ExcludedError{[2]int{rank, other}, why})
}

// note records that a rank takes no part.
func (f *shrinking) note(rank int, why *ExcludedError) {
	if f.out == nil {
		f.out = map[int]*ExcludedError{}
	}
	if f.out[rank] == nil {
		f.out[rank] = why
	}
	if rank == f.t.eng.Rank() {
		f.end(nil, f.out[rank])
	}
}

// outFrame says that a rank takes no part. number is the receiver's of the revoked team.
func outFrame(number uint32, name string, e *ExcludedError) frame {
	return frame{kind: frameOut, number: number, name: name, why: reasonOf(e.Err, e.Ranks[0]),
		table: [][2]uint32{{uint32(e.Ranks[0]), uint32(e.Ranks[1])}}}
}

// advance tells others what has changed in this rank's view, and decides if that is possible.
func (f *shrinking) advance() {
	if !f.calling() {
		return
	}
	t, me, heard := f.t, f.t.eng.Rank(), true
	var reached []int
	var lost [][2]uint32
	for _, r := range t.ranks {
		switch {
		case r == me || f.reaches(r):
			reached = append(reached, r)
			heard = heard && (r == me || f.view(r) != nil)
		case f.out[r] != nil:
			lost = append(lost, [2]uint32{uint32(r), viewOut})
		case errors.Is(t.s.lost[r], rma.ErrPeerGone):
			lost = append(lost, [2]uint32{uint32(r), viewGone})
		default:
			lost = append(lost, [2]uint32{uint32(r), viewLost})
		}
	}
	mine := fmt.Sprint(lost)
	for _, r := range reached {
		v, text := frame{kind: frameView, number: t.numbers[t.index[r]], name: followerOf(t), table: lost,
			nonce: uint64(f.number)<<32 | uint64(t.number), members: f.calls << 1}, mine
		if heard && r == reached[0] {
			v.members |= 1
			text += "complete"
		}
		if r != me && f.told[r] != text {
			f.told[r] = text
			t.s.reply(r, v)
		}
	}
	if heard && reached[0] == me {
		f.decide(reached)
	}
}

// decide makes the new team, if all ranks that this one reaches have told complete views.
func (f *shrinking) decide(reached []int) {
	t, me := f.t, f.t.eng.Rank()
	for _, r := range reached {
		if r != me && !f.view(r).complete {
			return
		}
	}
	// The rank without connections to the most others is left out, until all have connections.
	set, apart := slices.Clone(reached), map[int]int{}
	for {
		worst, most, other := me, 0, 0
		for _, r := range set {
			if n, o := f.missing(r, set); r != me && n > 0 && n >= most {
				worst, most, other = r, n, o
			}
		}
		if most == 0 {
			break
		}
		apart[worst] = other
		set = slices.DeleteFunc(set, func(r int) bool { return r == worst })
	}
	// If this rank does not reach more ranks that live than would remain with it, they do without it.
	var beyond []int
	for _, r := range t.ranks {
		lives := func(by int) bool { _, lost := f.lists(by, r); return by != me && !lost }
		if r != me && !slices.Contains(reached, r) && f.out[r] == nil && slices.ContainsFunc(set, lives) {
			beyond = append(beyond, r)
		}
	}
	if len(beyond) > len(set)-1 {
		f.exclude(me, beyond[0], rma.ErrNoConnection)
		return
	}
	for _, r := range reached {
		if o, yes := apart[r]; yes {
			f.exclude(r, o, rma.ErrNoConnection)
		}
	}
	table := make([][2]uint32, len(set))
	for i, r := range set {
		if table[i] = [2]uint32{uint32(r), f.number}; r != me {
			table[i][1] = f.views[r].number
		}
	}
	for _, r := range set {
		f.send(r, table)
	}
	f.finish(table)
}

// missing returns how many of a set have no connection with a rank, and one of them. Those that say that the
// rank has left the job count twice.
func (f *shrinking) missing(rank int, set []int) (n, other int) {
	for _, r := range set {
		state, theirs := f.lists(r, rank)
		_, own := f.lists(rank, r)
		switch {
		case theirs && state == viewGone:
			n, other = n+2, r
		case theirs || own:
			n, other = n+1, r
		}
	}
	return n, other
}

// send tells a rank the members of the team that follows.
func (f *shrinking) send(rank int, table [][2]uint32) {
	f.t.s.reply(rank, frame{kind: frameFollow, number: f.t.numbers[f.t.index[rank]], name: followerOf(f.t), table: table})
}

// finish ends the call with a team. The ranks that are not in it are told.
func (f *shrinking) finish(table [][2]uint32) {
	for _, r := range f.t.ranks {
		if !contains(table, r) {
			f.exclude(r, f.without(r, table), rma.ErrNoConnection)
		}
	}
	f.end(table, nil)
	f.made = table
	f.calls++
}

// without returns the member of the new team because of which a rank is not in it, as far as this rank knows.
func (f *shrinking) without(rank int, table [][2]uint32) int {
	for _, e := range table {
		_, theirs := f.lists(int(e[0]), rank)
		_, own := f.lists(rank, int(e[0]))
		if theirs || own {
			return int(e[0])
		}
	}
	return int(table[0][0])
}

// contains reports whether a rank is in a table.
func contains(table [][2]uint32, rank int) bool {
	return slices.ContainsFunc(table, func(e [2]uint32) bool { return int(e[0]) == rank })
}

// fits reports whether a table that a rank has sent is one of the team that this rank's call waits for.
func (f *shrinking) fits(from int, table [][2]uint32) bool {
	last := -1
	for _, e := range table {
		i, in := f.t.index[int(e[0])]
		if !in || i <= last || int(e[0]) == f.t.eng.Rank() && e[1] != f.number {
			return false
		}
		last = i
	}
	return contains(table, from) && contains(table, f.t.eng.Rank())
}

// take takes a view.
func (f *shrinking) take(from int, v *view) {
	s, me := f.t.s, f.t.eng.Rank()
	switch {
	case v.call+1 == f.calls && contains(f.made, from): // the rank that has decided was lost before it told all
		f.send(from, f.made) // also while the team is being closed
	case f.out[me] != nil:
		s.reply(from, outFrame(v.old, v.name, f.out[me]))
	case v.call < f.calls:
		s.reply(from, outFrame(v.old, v.name, &ExcludedError{[2]int{from, me}, rma.ErrGivenUp}))
	case f.out[from] != nil:
		s.reply(from, outFrame(v.old, v.name, f.out[from]))
	default:
		if f.views == nil {
			f.views = map[int]*view{}
		}
		f.views[from] = v
		for r, state := range v.lost {
			if state == viewOut && r != me { // others tell this rank why
				f.note(r, &ExcludedError{[2]int{r, from}, rma.ErrGivenUp})
			}
		}
		f.advance()
	}
}

// shrink takes a frame about a team that follows one.
func (s *service) shrink(from int, m *frame) {
	s.mu.Lock()
	defer s.unlock()
	var index map[int]int // nil: the members are not known yet
	t, known := s.teams[m.number], false
	if t != nil {
		t.mu.Lock()
		index = t.index
		t.mu.Unlock()
		_, in := index[from]
		known = in && m.name == followerOf(t)
	}
	switch waits := t != nil && index == nil; m.kind {
	case frameView:
		v := viewOf(m)
		switch {
		case known:
			t.next.take(from, v)
		case waits:
			if t.next.views == nil {
				t.next.views = map[int]*view{}
			}
			t.next.views[from] = v
		default: // closed here
			if n := s.followed(from, v); n != nil { // as in take
				s.reply(from, frame{kind: frameFollow, number: v.old, name: v.name, table: membersOf(n)})
			} else {
				s.decline(from, v)
			}
		}
	case frameOut:
		e := &ExcludedError{[2]int{int(m.table[0][0]), int(m.table[0][1])}, rma.ErrGivenUp}
		if errors.Is(m.why.error(from, s.eng.Size()), rma.ErrNoConnection) {
			e.Err = rma.ErrNoConnection
		}
		switch {
		case known && e.Ranks[0] == s.eng.Rank():
			t.next.exclude(e.Ranks[0], e.Ranks[1], e.Err)
		case (known || waits) && e.Ranks[0] == from:
			t.next.note(from, e)
			t.next.advance()
		}
	case frameFollow:
		if known && t.next.calling() && t.next.fits(from, m.table) {
			t.next.finish(m.table)
		} else { // or another rank has told it before
			s.giveUp(from, m.table)
		}
	}
}

// followed returns the team that a call of Shrink of another rank waits for, if this rank has made it, and has it
// open. s.mu is held.
func (s *service) followed(from int, v *view) *team {
	for _, t := range s.teams {
		if t.name == v.name && t.has(from) && t.numbers[t.index[from]] == v.number {
			return t
		}
	}
	return nil
}

// membersOf returns the ranks of a team, and their numbers.
func membersOf(t *team) [][2]uint32 {
	table := make([][2]uint32, len(t.ranks))
	for i, r := range t.ranks {
		table[i] = [2]uint32{uint32(r), t.numbers[i]}
	}
	return table
}

func viewOf(m *frame) *view {
	v := &view{name: m.name, old: uint32(m.nonce), number: uint32(m.nonce >> 32), call: m.members >> 1, complete: m.members&1 != 0,
		lost: map[int]uint32{}}
	for _, e := range m.table {
		v.lost[int(e[0])] = e[1]
	}
	return v
}

// decline tells a rank that this one takes no part in its call of Shrink, as it has closed the team, or has
// never had it. s.mu is held.
func (s *service) decline(to int, v *view) {
	me := s.eng.Rank()
	s.reply(to, outFrame(v.old, v.name, &ExcludedError{[2]int{me, me}, rma.ErrGivenUp}))
}

// settle answers the views that came before the members were known, if they are for another team of the number.
func (f *shrinking) settle() {
	for r, v := range f.views {
		if _, in := f.t.index[r]; !in || v.name != followerOf(f.t) {
			f.t.s.decline(r, v)
			delete(f.views, r)
		}
	}
}

// close ends this rank's part: the team is closed, or was not made. Views that come later, while the team still
// has its number, are answered as those of a rank that has given up.
func (f *shrinking) close() {
	me := f.t.eng.Rank()
	if f.closed = true; f.calling() {
		f.end(nil, closedError("the team"))
		f.exclude(me, me, rma.ErrGivenUp)
	}
	f.note(me, &ExcludedError{[2]int{me, me}, rma.ErrGivenUp})
	for r, v := range f.views {
		if v.call >= f.calls { // it waits for this rank
			f.t.s.decline(r, v)
		}
	}
	f.views = nil
}

// sane reports whether a frame about a team that follows one has values of the range for its kind, in a job
// of size ranks.
func (f *frame) sane(size int) bool {
	if len(f.table) > size {
		return false
	}
	var limit uint32 // of the second value of an entry
	ok := true
	switch f.kind {
	case frameView:
		limit, ok = viewOut, f.nonce>>32 <= lowBits && f.nonce&(1<<32-1) <= lowBits && len(f.name) > 0
	case frameOut:
		limit, ok = uint32(size)-1, len(f.table) == 1
	case frameFollow:
		limit, ok = lowBits, len(f.table) > 0
	}
	return ok && !slices.ContainsFunc(f.table, func(e [2]uint32) bool { return int64(e[0]) >= int64(size) || e[1] > limit })
}

// shrinkWith continues the calls of Shrink on teams of a rank with which a connection was lost or made. s.mu is held.
func (s *service) shrinkWith(rank int) {
	for _, t := range s.teams {
		if t.next.calling() && t.has(rank) {
			delete(t.next.told, rank)
			t.next.advance()
		}
	}
}

// ExcludedError says that Team.Shrink has made no team with the first of two ranks, which it names by their
// numbers in the job, because of the second one. It wraps rma.ErrNoConnection if both live, and have lost
// their connection with each other: Peer.Reset makes a new one, and New a team of both. It wraps rma.ErrGivenUp
// if the second one has ended its part without the first, or, if both are the same, if the context of an earlier call has ended.
type ExcludedError struct {
	Ranks [2]int
	Err   error
}

func (e *ExcludedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d is not in the new team: ", e.Ranks[0])
	switch {
	case errors.Is(e.Err, rma.ErrNoConnection):
		fmt.Fprintf(&b, "it and rank %d live, but have lost their connection with each other (rma.Peer.Reset makes a new one)", e.Ranks[1])
	case e.Ranks[0] == e.Ranks[1]:
		b.WriteString("it has given up, or closed the old one")
	default:
		fmt.Fprintf(&b, "rank %d has ended its part without it", e.Ranks[1])
	}
	return b.String()
}

// Unwrap returns Err.
func (e *ExcludedError) Unwrap() error { return e.Err }
