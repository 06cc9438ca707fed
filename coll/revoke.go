package coll

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed33544411/rma"
)

// leave revokes the team if an operation in flight waits for a message of a rank of the job
// that sends no more; operations that are launched later fail if they do.
func (t *team) leave(rank int, why error) {
	t.mu.Lock()
	from := t.index[rank]
	if t.gone == nil {
		t.gone = map[int]error{}
	}
	t.gone[from] = why
	needed := false
	for _, o := range t.ops {
		needed = needed || o.heard && o.needs(from)
	}
	t.mu.Unlock()
	if needed {
		t.revoke(why)
	}
}

// refuse revokes the team because a peer's message does not fit this rank's call.
func (t *team) refuse(from int, mine call, h *header, expects uint64) {
	t.drop(from, h)
	t.revoke(t.mismatch(from, mine, h, expects))
}

// mismatch is the error of a message that does not fit this rank's call.
func (t *team) mismatch(from int, mine call, h *header, expects uint64) error {
	m := mismatch{ranks: [2]int{t.eng.Rank(), t.ranks[from]}, calls: [2]call{mine, h.call}, bytes: [2]uint64{expects, h.bytes}}
	return m.error()
}

// drop discards the data of a message that is of no use.
func (t *team) drop(from int, h *header) {
	if h.later != 0 {
		t.s.discard(t.eng.Peer(t.ranks[from]), h.later)
	}
}

// reasonTimeout bounds the wait for the reason of a refusal, which was sent before it and
// needs the peer no more.
const reasonTimeout = time.Second

// fail revokes the team because a message of an operation failed. A rank refuses messages
// of a team that it has revoked, and tells the reason first, but the engine can report the
// refusal before it delivers the reason: the team then ends with the latter.
func (t *team) fail(o *operation, err error) {
	if pe := (*rma.PeerError)(nil); errors.As(err, &pe) {
		err = &rma.PeerError{Rank: pe.Rank, Op: o.call.kind.String(), Err: pe.Err}
	}
	if errors.Is(err, rma.ErrUnwanted) {
		time.AfterFunc(reasonTimeout, func() { t.revoke(err) })
		return
	}
	t.revoke(err)
}

// revokedBy revokes the team because of a rank of the job, which has revoked it or violates the
// protocol, if it is a member: perhaps when the members are known. of is the digest of the team that the rank
// means; 0: the one with the number.
func (t *team) revokedBy(rank int, of uint64, why error) {
	t.mu.Lock()
	if t.index == nil && t.err == nil {
		u := t.unknownOf(rank)
		if u.why == nil {
			u.why = map[uint64]error{}
		}
		if u.cost += earlyCost; u.cost <= maxUnknown {
			u.why[of] = why
		}
	}
	t.mu.Unlock()
	if t.has(rank) && (of == 0 || of == digest(t.ranks)) {
		t.revoke(why)
	}
}

// revoke ends the team on all ranks. The others are told before messages of theirs are
// refused: the reason is to reach them first.
func (t *team) revoke(why error) {
	t.end(fmt.Errorf("coll: team %q: %w: %w", t.name, ErrRevoked, why), func() { t.s.tell(t, why) })
}

// end fails all operations of the team, present and later, unless that has been done. It
// calls first, if it is not nil, before it refuses messages.
func (t *team) end(err error, first func()) {
	t.mu.Lock()
	if t.err != nil {
		t.mu.Unlock()
		return
	}
	t.err = err
	ops := slices.Collect(maps.Values(t.ops))
	came, board := t.early, t.board
	t.ahead = nil
	t.early, t.unknown, t.kept, t.waiting, t.free, t.requests, t.spare = nil, nil, 0, nil, nil, nil, nil
	t.mu.Unlock()
	t.plans.end()
	if first != nil {
		first()
	}
	for _, es := range came {
		for e := es.first; e != nil; e = e.next {
			t.drop(e.from, &e.h)
		}
	}
	if board != nil { // first: then the memory of the calls may change
		board.fail()
	}
	for _, o := range ops {
		o.abort(err)
	}
}
