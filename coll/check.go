package coll

import (
	"fmt"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/settings"
)

// Ranks find out that their calls differ by the headers of messages, or by the lines of
// boards. Where no message passes between two ranks whose calls differ, an operation may wait
// for ever: rank 2 gathers at rank 2, the others at rank 0. With RMA_COLL_CHECK each rank
// tells the next one of the team about each of its calls: if not all are the same, two
// neighbours differ.

// envCheck makes ranks tell others about their calls, on all ranks alike.
const envCheck = "RMA_COLL_CHECK"

// checking reads whether the environment asks for checks.
func checking() (bool, error) {
	v, err := settings.Environment()
	if err != nil {
		return false, err
	}
	return v.Int(envCheck) != 0, nil
}

// check tells the next rank about the call of an operation that begins, and compares it with
// what the previous one has told.
func (t *team) check(o *operation) {
	if !t.s.check || len(t.ranks) == 1 || o.key.tag == figuresTag {
		return
	}
	mine, n := o.call, len(t.ranks)
	b := make([]byte, headerSize)
	h := header{tag: o.key.tag, seq: o.key.seq, slot: inquirySlot, call: mine}
	h.put(b)
	next := (t.rank + 1) % n
	t.eng.Peer(t.ranks[next]).SendFunc(tagData|t.numbers[next], b, nil)

	t.mu.Lock()
	theirs, told := t.ahead[o.key]
	delete(t.ahead, o.key)
	t.mu.Unlock()
	if told && theirs != mine {
		h.call = theirs
		t.refuse((t.rank+n-1)%n, mine, &h, 0)
	}
}

// keepCall keeps the call of an operation that this rank has not begun, of which the previous
// rank has told. It returns an error if that has told too many. t.mu is held.
func (t *team) keepCall(from int, h *header) error {
	n := len(t.ranks)
	if !t.s.check || t.err != nil || from != (t.rank+n-1)%n {
		return nil //nolint:nilerr // an inquiry of a rank that waits
	}
	if len(t.ahead) >= 2*maxInFlight {
		return &rma.PeerError{Rank: t.ranks[from], Op: h.call.kind.String(), Err: fmt.Errorf("%w: more calls than operations in flight", ErrProtocol)}
	}
	if t.ahead == nil {
		t.ahead = map[key]call{}
	}
	t.ahead[key{h.tag, h.seq}] = h.call
	return nil
}
