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
func (q *order) waits(in *In) bool { return q.releasing || competes(q.matched, in) }

// competes reports whether in and one of ins might have taken each other's message.
func competes(ins []*In, in *In) bool {
	for _, x := range ins {
		if x.takes(in.tag) || in.takes(x.tag) {
			return true
		}
	}
	return false
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
		if in.here && !competes(kept, in) {
			q.ready = append(q.ready, in)
		} else {
			kept = append(kept, in)
		}
	}
	clear(q.matched[len(kept):])
	q.matched = kept
	return q.ready
}
