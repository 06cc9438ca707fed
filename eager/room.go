package eager

// Room is where the payload of a message is to stand, in up to three parts: in its
// first block, in the run behind it, and in the rest of the run at the start of
// the ring.
type Room struct {
	parts [3][]byte
}

// Next drops the part at hand and returns the one behind it: nil at the end.
func (r *Room) Next() []byte {
	r.parts[0], r.parts[1], r.parts[2] = r.parts[1], r.parts[2], nil
	return r.parts[0]
}

// Put copies b to at bytes behind the start of the part at hand, over as many parts
// as it takes, and returns the part at hand then and where in it b ends. What
// does not fit into the room is dropped.
func (r *Room) Put(at int, b []byte) (part []byte, end int) {
	part = r.parts[0]
	for {
		n := copy(part[at:], b)
		at, b = at+n, b[n:]
		if len(b) == 0 {
			return part, at
		}
		if part, at = r.Next(), 0; part == nil {
			return nil, 0
		}
	}
}
