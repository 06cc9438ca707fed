package rma

// Stats counts what an engine has done. Operations are counted when they end.
type Stats struct {
	Puts, Gets, Atomics, Sends, Receives     uint64 // ended well
	Batches                                  uint64 // whose messages are among Sends
	PutBytes, GetBytes, SentBytes, RecvBytes uint64 // moved by them
	Failed                                   uint64 // operations that failed
	Queued, InFlight                         int    // operations not posted yet, and under way
}

// Stats returns the counters.
func (e *Engine) Stats() (s Stats) {
	e.prog.Do(func() {
		s = e.proto.stats
		for _, p := range e.peers {
			s.InFlight += p.flying
			s.Queued += p.posts.len() + p.talk.sends.len() + p.talk.recvs.len()
		}
	})
	return s
}
