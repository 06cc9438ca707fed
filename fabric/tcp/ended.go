//go:build linux || darwin || freebsd

package tcp

import (
	"time"

	"github.com/seed33544411/rma/fabric"
)

// An endpoint that ends says so to its peer, but the connection may be lost at that time, or with
// what was said. The peer would look for the endpoint in vain until its time is up. Therefore the
// link keeps for that time what it takes to answer the peer once more, and both sides ask: the one
// that dials when it makes another connection, the other one by an inquiry.

// maxEnded bounds the endpoints of a link that are kept: the oldest gives way.
const maxEnded = 1024

// remakeTimes is the number of PeerTimeouts in which the side that dials must reach the other one: one
// for paths that drop packets, and one for what is left.
const remakeTimes = 2

// tallyOf returns what this side of e has done. No connection is open.
func tallyOf(e *endpoint) tally {
	return tally{executed: e.out.acks.executed, answered: e.req.rdHead, accepted: e.resp.replies.tail + e.resp.skew}
}

// bury removes e, which has ended and has no connection, from those that can be dialled. If its peer
// may look for it, the link keeps what answers the peer.
func bury(e *endpoint) {
	now := time.Now()
	l := e.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byNonce[e.nonce] != e {
		return
	}
	delete(l.byNonce, e.nonce)
	if !e.resumes {
		return
	}
	how, did := endClosed, tallyOf(e)
	if p := &e.resp; p.refused && p.status != fabric.StatusOK {
		if how = end(p.status); p.at != did.executed {
			how, did.answered = how|endLate, p.at
		}
	}
	for len(l.ended) > 0 && (len(l.ended) >= maxEnded || now.After(l.ended[0].until)) {
		l.ended = l.ended[1:]
	}
	l.ended = append(l.ended, ended{
		nonce: e.nonce, peer: e.peer.nonce, token: e.token, theirs: e.peer.token,
		end: how, tally: did, until: now.Add((remakeTimes + 2) * e.peerTimeout),
	})
}

// endedAs returns a copy of what is kept of the endpoint with that nonce, nil if there is nothing.
// l.mu is held.
func endedAs(l *link, nonce uint64, now time.Time) *ended {
	for i := range l.ended {
		if x := &l.ended[i]; x.nonce == nonce && now.Before(x.until) {
			found := *x
			return &found
		}
	}
	return nil
}

// tell answers the peer, which has proved that it knows the token, that its endpoint's other end has
// ended. Others learn nothing.
func (x *ended) tell(in *arrival) {
	if in.h.from != x.peer || in.h.lane != 0 || in.h.attempt <= firstAttempt {
		return
	}
	t := &in.said
	from := t.n
	t.add((&answer{crypt: in.h.crypt, end: x.end, attempt: in.h.attempt, tally: x.tally}).append(nil))
	t.sign(&x.theirs, purposeAnswer)
	_, _ = in.conn.Write(t.said[from:t.n]) // in its deadline; the peer may ask again
}
