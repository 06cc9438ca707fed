package coll

import "github.com/seed33544411/rma"

const (
	// maxKept bounds the memory of messages of operations that have not been started, which
	// honest peers do not reach.
	maxKept = 256 << 20
	// maxUnknown bounds those of one rank before the members are known.
	maxUnknown = 16 << 20
	// earlyCost is the memory of an early and of its place in the table, besides its data.
	earlyCost = 160
)

// early is a message of an operation that this rank has not started.
type early struct {
	from int
	h    header
	data []byte
	next *early // of the same operation
}

// cost returns the memory that e takes, in bytes.
func (e *early) cost() int { return cap(e.data) + earlyCost }

// unknown are the messages of a rank that may be a member, and their memory in bytes. There
// are none if that exceeds maxUnknown.
type unknown struct {
	came []*early
	cost int
	why  map[uint64]error // it has revoked the team, or violated the protocol; see revokedBy
}

// earlyList has the messages of an operation, in the order of their arrival.
type earlyList struct{ first, last *early }

// keep returns a message that waits. t.mu is held.
func (t *team) keep(from int, h *header, parts [][]byte) *early {
	var e *early
	if n := len(t.spare); n > 0 {
		e, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		e = &early{}
	}
	e.from, e.h, e.data = from, *h, e.data[:0]
	for _, p := range parts {
		e.data = append(e.data, p...)
	}
	return e
}

// unknownOf returns what a rank of the job has sent before the members are known. t.mu is held.
func (t *team) unknownOf(rank int) *unknown {
	u := t.unknown[rank]
	if u == nil {
		if t.unknown == nil {
			t.unknown = map[int]*unknown{}
		}
		u = &unknown{}
		t.unknown[rank] = u
	}
	return u
}

// keepUnknown keeps a message until the members are known. t.mu is held.
func (t *team) keepUnknown(e *early) {
	u := t.unknownOf(e.from)
	if u.cost += e.cost(); u.cost > maxUnknown {
		u.came = nil
	} else {
		u.came = append(u.came, e)
	}
}

// release keeps a list of messages for use again. t.mu is held.
func (t *team) release(es *early) {
	for es != nil && len(t.spare) < maxSpare {
		e := es
		es, e.next = e.next, nil
		t.spare = append(t.spare, e)
	}
}

// take takes a message of a rank of the job.
func (t *team) take(rank int, h *header, parts ...[]byte) {
	t.mu.Lock()
	if t.index == nil && t.err == nil {
		t.keepUnknown(t.keep(rank, h, parts))
		t.mu.Unlock()
		return
	}
	from, in := t.index[rank]
	t.mu.Unlock()
	if in {
		t.arrive(from, h, parts...)
	}
}

// arrive takes a message of a member, for an operation that has been started or not.
func (t *team) arrive(from int, h *header, parts ...[]byte) {
	k := key{h.tag, h.seq}
	if h.slot == inquirySlot {
		t.inquired(from, h)
		return
	}
	t.mu.Lock()
	if t.err != nil {
		t.mu.Unlock()
		t.drop(from, h)
		return
	}
	o := t.ops[k]
	if o != nil && o.launched {
		t.mu.Unlock()
		if !o.arrive(from, h, parts...) { // it is over
			t.arrive(from, h, parts...)
		}
		return
	}
	if c := h.call; o != nil {
		if c.alg = algAuto; c != o.asked {
			t.mu.Unlock()
			t.refuse(from, o.asked, h, h.bytes)
			return
		}
	}
	ch := t.channels[h.tag]
	if o == nil && ch != nil && int32(h.seq-ch.next) < 0 {
		was := ch.recent[h.seq%uint32(len(ch.recent))]
		old := ch.next-h.seq > uint32(len(ch.recent))
		t.mu.Unlock()
		t.drop(from, h)
		if !old { // this rank's part is over, and no message was missing
			t.revoke(t.mismatch(from, was, h, 0))
		}
		return
	}
	e := t.keep(from, h, parts)
	if t.kept += e.cost(); t.kept > maxKept {
		t.mu.Unlock()
		t.revoke(&rma.PeerError{Rank: t.ranks[from], Op: h.call.kind.String(), Err: ErrProtocol})
		return
	}
	es := t.early[k]
	if es.first == nil {
		es.first = e
	} else {
		es.last.next = e
	}
	es.last = e
	t.early[k] = es
	t.mu.Unlock()
}

// inquired takes a message of a member about an operation of which it may have sent nothing to
// this rank, or something that does not come as a message.
func (t *team) inquired(from int, h *header) {
	t.mu.Lock()
	mine, wrong := h.call, error(nil)
	o, ch := t.ops[key{h.tag, h.seq}], t.channels[h.tag]
	switch theirs := h.call; {
	case o != nil && o.launched:
		mine = o.call
	case o != nil:
		if theirs.alg = algAuto; theirs != o.asked {
			mine = o.asked
		}
	case ch != nil && ch.next-h.seq-1 < uint32(len(ch.recent)): // it is over
		mine = ch.recent[h.seq%uint32(len(ch.recent))]
	case ch == nil || int32(h.seq-ch.next) >= 0:
		wrong = t.keepCall(from, h)
	}
	t.mu.Unlock()
	if wrong != nil {
		t.revoke(wrong)
	} else if mine != h.call {
		t.refuse(from, mine, h, 0)
	}
}
