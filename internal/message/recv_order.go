package message

import "slices"

// order holds the receives of one peer whose turn to end has not come. Receives that
// compete for messages end in the order of these, although some are fetched and others
// are here: what is received of a peer that dies meanwhile is then the beginning of what
// it had sent. A receive that was matched and is being fetched is listed, and so is one
// that has its message but stands behind such a one. Those of a Source are not: it is
// told of the order, and keeps it itself.
type order struct {
	matched   []*In
	ready     []*In
	releasing bool // the callbacks of ready are running
}

// waits reports whether in, which has its message, has to wait for others.
func (q *order) waits(in *In) bool { return q.releasing || competitor(q.matched, in) != nil }

// competitor returns the first of ins that might have taken the message of in, or in its
// message; nil if there is none.
func competitor(ins []*In, in *In) *In {
	for _, x := range ins {
		if x.takes(in.tag) || in.takes(x.tag) {
			return x
		}
	}
	return nil
}

// add lists in. here: it has its message.
func (q *order) add(in *In, here bool) {
	in.listed, in.here = true, here
	q.matched = append(q.matched, in)
}

// remove takes in off the list.
func (q *order) remove(in *In) {
	q.matched = slices.DeleteFunc(q.matched, func(x *In) bool { return x == in })
	in.listed = false
}

// due takes the receives off the list whose turn has come, and returns them; valid until
// the next call.
func (q *order) due() []*In {
	q.ready = q.ready[:0]
	kept := q.matched[:0]
	for _, in := range q.matched {
		if in.here && competitor(kept, in) == nil {
			q.ready = append(q.ready, in)
		} else {
			kept = append(kept, in)
		}
	}
	clear(q.matched[len(kept):])
	q.matched = kept
	return q.ready
}

// end takes all receives off the list: the peer is gone. Those whose message is not here,
// and those behind them that compete with them, have lost it, and u hides what lies behind
// that from later receives. came are the others that can end now; lost can end now, too,
// and the rest when neither the link nor the peer writes there any more.
func (q *order) end(u *unexpected) (came, lost []*In) {
	matched := q.matched
	q.matched = nil
	var all []*In // that have lost their message
	for _, in := range matched {
		in.listed = false
		if in.here || in.ended {
			before := competitor(all, in)
			if before == nil {
				if in.here {
					came = append(came, in)
				}
				continue
			}
			in.seq = before.seq // which is where it hides messages
		}
		all = append(all, in)
		u.bury(in.seq, in.tag)
		switch {
		case in.ended:
			in.gone = true // the peer may still write there
		case in.here || in.gone: // else the link may
			lost = append(lost, in)
		}
	}
	return came, lost
}
