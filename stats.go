package rma

import (
	"math/bits"

	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/hub"
	"github.com/seed33544411/rma/logp"
)

// Counts are operations since the engine was opened. Each is counted once, when
// it ends. Batches count as one here, and their messages as Sends.
type Counts struct {
	Puts, Gets, Atomics, Sends, Receives     uint64 // ended well
	Batches                                  uint64 // whose messages are among Sends
	PutBytes, GetBytes, SentBytes, RecvBytes uint64 // moved by them
	Signals                                  uint64 // ended well; their data is among PutBytes
	Accumulates                              uint64 // ended well; their data is among PutBytes
	Served                                   uint64 // requests of peers to accumulate here
	AtomicRetries                            uint64 // compare-and-swaps that an emulated atomic had to repeat
	Failed                                   uint64 // operations that failed
	Retries                                  uint64 // times that the link's queue was full: what was refused is posted again
}

// MessageStats are what became of the messages with a peer, or with all. Those
// that a rank sends to itself are in Counts only.
type MessageStats struct {
	Eager, Gathered, Fetched uint64 // sent each way: alone through the ring, with others in one write, fetched by the receiver
	Written                  uint64 // written to where the receiver wanted them
	Adverts, LateAdverts     uint64 // receives shown to the peer; of these, when their message was under way already
	Plans                    uint64 // backlogs that the cost model was asked about
	Writes                   uint64 // gathered writes; Gathered/Writes messages share one
	Descriptors              uint64 // announcements of what is to be fetched
	CreditWaits              uint64 // times that the peer's ring, or its list of transfers, was full
	Retries                  uint64 // times that the link's queue was full
	Unexpected               uint64 // received before anybody asked, and copied aside
	Timed                    uint64 // backlogs that were timed, to learn whether the link is as measured
	Replans                  uint64 // times that the choice of ways was changed by that
	Drifting                 int    // ways, of three for each peer, that take so much more or less time than measured that the next start measures again
	Backlog                  int    // posted, not on their way
	Memory                   int    // bytes that rings and staging hold on this side
}

// PeerStats is what an engine has done with one peer.
type PeerStats struct {
	Counts
	Messages         MessageStats
	Rank             int
	Link             string
	Queued, InFlight int   // operations not posted yet, and under way
	Outstanding      int   // operations posted by the application and not complete, receives not counted; 0 without Config.Outstanding
	Connected        bool  // there is a connection: operations have used one
	Talking          bool  // a message channel is open
	Err              error // why the connection is no more; nil while it works
}

// Stats is what an engine has done: sums over its peers, itself included, and
// what belongs to none of them.
type Stats struct {
	Counts
	Messages         MessageStats
	Rank, Size       int
	Queued, InFlight int    // operations not posted yet, and under way
	Outstanding      int    // operations posted by the application and not complete, receives not counted; 0 without Config.Outstanding
	PeersConnected   int    // which operations have gone to or come from
	PeersTalking     int    // with an open message channel
	PeersDown        int    // whose connection is no more
	Regions          int    // registered and not closed
	Pinned           int    // bytes kept registered that the application did not register
	PinHits          uint64 // messages whose memory was
	PinMisses        uint64 // and was not
}

// Stats returns the counters. They are the progress engine's own, so counting
// costs operations nothing; a call takes well under a microsecond for each peer,
// during which nothing is posted or polled: meant for every second, not for every
// operation. The counters are consistent with each other.
func (e *Engine) Stats() Stats {
	s := Stats{Rank: e.Rank(), Size: e.Size(), Regions: e.memory.Live()}
	e.prog.Do(func() {
		for _, p := range e.pins {
			one := p.Stats()
			s.Pinned += int(one.Bytes)
			s.PinHits += one.Hits
			s.PinMisses += one.Misses
		}
		for _, p := range e.peers {
			one := p.stats()
			s.Counts.add(&one.Counts)
			s.Messages.add(&one.Messages)
			s.InFlight += one.InFlight
			s.Queued += one.Queued
			s.Outstanding += one.Outstanding
			if one.Connected {
				s.PeersConnected++
			}
			if one.Talking {
				s.PeersTalking++
			}
			if one.Err != nil {
				s.PeersDown++
			}
		}
	})
	return s
}

// Stats returns the peer's part of the engine's counters, at the same cost as for
// one peer of Engine.Stats.
func (p *Peer) Stats() (s PeerStats) {
	p.eng.prog.Do(func() { s = p.stats() })
	return s
}

// stats is Stats for the owner.
func (p *Peer) stats() PeerStats {
	s := PeerStats{
		Rank: p.rank, Link: p.Link(), Err: p.down,
		Outstanding: p.budget.Outstanding(), InFlight: p.one.InFlight(), Queued: p.one.Queued() + p.msg.Queued(),
	}
	s.Counts.addOneSided(p.one.Counts())
	s.Counts.addMessages(p.msg.Counts())
	s.Connected = p.ep != nil && p.down == nil
	s.Talking = p.msg.Open()
	if ch := p.msg.Channel(); ch != nil {
		s.Messages = messageStats(ch)
	}
	return s
}

func messageStats(ch *message.Channel) MessageStats {
	s := ch.Stats()
	return MessageStats{
		Eager: s.Messages[logp.Eager], Gathered: s.Messages[logp.Gather], Fetched: s.Messages[logp.Scatter] - s.Written,
		Written: s.Written, Adverts: s.Adverts, LateAdverts: s.LateAdverts,
		Plans: s.Plans, Writes: s.Gathers, Descriptors: s.Descriptors,
		CreditWaits: s.NoCredit, Retries: s.QueueFull, Unexpected: s.Unexpected, Backlog: s.Backlog, Memory: ch.Memory(),
		Timed: s.Learn.Timed, Replans: s.Learn.Told, Drifting: bits.OnesCount8(uint8(s.Learn.Drift)),
	}
}

func (c *Counts) addOneSided(o initiator.Counts) {
	c.Puts += o.Puts
	c.Gets += o.Gets
	c.Atomics += o.Atomics
	c.PutBytes += o.PutBytes
	c.GetBytes += o.GetBytes
	c.Signals += o.Signals
	c.Accumulates += o.Accumulates
	c.Served += o.Served
	c.AtomicRetries += o.AtomicRetries
	c.Failed += o.Failed
	c.Retries += o.Retries
}

func (c *Counts) addMessages(o hub.Counts) {
	c.Sends += o.Sends
	c.Receives += o.Receives
	c.Batches += o.Batches
	c.SentBytes += o.SentBytes
	c.RecvBytes += o.RecvBytes
	c.Failed += o.Failed
}

func (c *Counts) add(o *Counts) {
	c.Puts += o.Puts
	c.Gets += o.Gets
	c.Atomics += o.Atomics
	c.Sends += o.Sends
	c.Receives += o.Receives
	c.Batches += o.Batches
	c.PutBytes += o.PutBytes
	c.GetBytes += o.GetBytes
	c.SentBytes += o.SentBytes
	c.RecvBytes += o.RecvBytes
	c.Signals += o.Signals
	c.Accumulates += o.Accumulates
	c.Served += o.Served
	c.AtomicRetries += o.AtomicRetries
	c.Failed += o.Failed
	c.Retries += o.Retries
}

func (m *MessageStats) add(o *MessageStats) {
	m.Eager += o.Eager
	m.Gathered += o.Gathered
	m.Fetched += o.Fetched
	m.Written += o.Written
	m.Adverts += o.Adverts
	m.LateAdverts += o.LateAdverts
	m.Plans += o.Plans
	m.Writes += o.Writes
	m.Descriptors += o.Descriptors
	m.CreditWaits += o.CreditWaits
	m.Retries += o.Retries
	m.Unexpected += o.Unexpected
	m.Timed += o.Timed
	m.Replans += o.Replans
	m.Drifting += o.Drifting
	m.Backlog += o.Backlog
	m.Memory += o.Memory
}
