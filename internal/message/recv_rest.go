package message

// restTurns is how many rounds of polls a message that no receive takes stays in the ring. An
// application that receives a stream posts its next receives before that; one that waits for
// something else does not hold up the peer, which may need the room, or this side, which may need
// what lies behind.
const restTurns = 8

// rest keeps messages in the ring for a moment when the receives have run out. The next ones
// would take them from there; a message that is copied aside costs an allocation, a search and a
// second copy.
type rest struct {
	received uint64 // messages received when the receives had run out
	turns    int    // rounds of polls since then
	left     bool   // messages may have stayed in the ring since the last round
}

// turn begins a round of polls.
//
// Hot path.
func (s *rest) turn() {
	if s.left {
		s.turns++
		s.left = false
	}
}

// keeps reports whether a message stays in the ring for which no receive is posted. received is the
// number of messages received so far.
//
// Hot path.
func (s *rest) keeps(received uint64) bool {
	if s.received != received {
		s.received, s.turns = received, 0
	} else if s.turns >= restTurns {
		return false
	}
	s.left = true
	return true
}
