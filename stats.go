package rma

import (
	"math/bits"
	"time"

	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/hub"
	"github.com/seed33544411/rma/logp"
)

// Counts counts the operations since the engine was opened. Each operation is counted once,
// when it ends. The messages of a batch are counted as Sends, and the batch itself as one of
// Batches.
type Counts struct {
	Puts, Gets, Atomics, Sends, Receives     uint64 // completed without error
	Batches                                  uint64 // completed without error
	PutBytes, GetBytes, SentBytes, RecvBytes uint64 // transferred by these operations
	Signals                                  uint64 // completed without error; their data is counted in PutBytes
	Accumulates                              uint64 // completed without error; their data is counted in PutBytes, and results in GetBytes
	Served                                   uint64 // accumulate requests of peers executed here
	AtomicRetries                            uint64 // compare-and-swaps that emulated atomics repeated
	Failed                                   uint64 // operations that failed; not those refused at once, for their arguments (bounds, rights) or with ErrBusy
	Retries                                  uint64 // times that the link's queue was full and requests were posted again
}

// MessageStats counts the messages with a peer, or with all peers. Messages of a rank to
// itself are in Counts only.
type MessageStats struct {
	Eager, Gathered, Fetched uint64 // messages by mode: alone through the ring, with others in one write, fetched by the receiver
	Written                  uint64 // messages written to an advertised receive
	Adverts, LateAdverts     uint64 // receives advertised to the peer; of these, the ones whose message was in flight already
	Plans                    uint64 // backlogs that the cost model planned
	Writes                   uint64 // gathered writes; Gathered/Writes messages share one
	Descriptors              uint64 // announcements of messages to fetch
	CreditWaits              uint64 // times that the peer's ring, or its list of transfers, was full
	Retries                  uint64 // times that the link's queue was full
	Unexpected               uint64 // received before a receive matched, and copied
	Timed                    uint64 // backlogs that were timed, to compare the link with its measured parameters
	Replans                  uint64 // times that the timings changed the choice of modes
	Drifting                 int    // modes, of three for each peer, whose time differs so much from the measurement that the next start measures again
	Backlog                  int    // messages posted, not sent yet
	Memory                   int    // bytes of rings and staging memory on this side
	Ring, PeerRing           int    // bytes of the rings for messages, in this rank's memory and in the peer's
}

// PeerStats counts the operations of an engine with one peer.
type PeerStats struct {
	Counts
	Messages         MessageStats
	Rank             int    // of the peer
	Link             string // name of the link to it
	Queued, InFlight int    // operations not yet posted to the link; requests of the link in flight
	Outstanding      int    // operations posted by the application and not complete, receives not counted; 0 without Config.Outstanding
	Connected        bool   // there is a connection
	Messaging        bool   // a message channel is open
	Path             string // class of the path, and source of the cost model's parameters for it
	Err              error  // why the connection was lost; nil while it works

	Rails []RailStats // with Config.Rails: the connection itself, then the others
}

// RailStats describes one of several connections with a peer, over which large puts and gets
// are divided. Parts and Bytes count only these.
type RailStats struct {
	Number    int     // from 0, the connection that carries everything else
	Up        bool    // it is connected
	Parts     uint64  // complete
	Bytes     uint64  // of these
	Again     uint64  // parts that were sent again because the rail had ended
	Lost      uint64  // times that the rail was connected and ended
	NsPerByte float64 // present estimate of its rate; 0 before the first division
}

// Stats counts the operations of an engine: sums over its peers, itself included, and the
// engine's own counters.
type Stats struct {
	Counts
	Messages         MessageStats
	Rank, Size       int    // of this process, and of the job
	Queued, InFlight int    // operations not yet posted to the link; requests of the link in flight
	Outstanding      int    // operations posted by the application and not complete, receives not counted; 0 without Config.Outstanding
	PeersConnected   int    // peers with a connection
	PeersMessaging   int    // peers with an open message channel
	PeersDown        int    // peers whose connection was lost
	Regions          int    // regions registered and not closed
	Pinned           int    // bytes of application memory that the engine keeps registered (Config.PinnedLimit)
	PinHits          uint64 // uses of such memory that was registered already
	PinMisses        uint64 // uses of application memory that had to be registered
	Rings            RingStats
	PathsMeasured    int           // classes of paths measured in the background: see Config.PathBudget
	PathsTime        time.Duration // sum of the durations of these measurements
	PathsBytes       uint64        // bytes that they moved: by this side's operations, and by batches in both directions
}

// RingStats describes the memory of the rings that have replaced the first ones: see
// Config.RingMemory.
type RingStats struct {
	Memory, Limit int64  // bytes in use, and their bound
	Grown, Shrunk uint64 // rings, of this side and of peers, replaced by larger and by smaller ones
	Refused       uint64 // larger rings for which there was no memory
}

func messageStats(ch *message.Channel) MessageStats {
	s := ch.Stats()
	return MessageStats{
		Eager: s.Messages[logp.Eager], Gathered: s.Messages[logp.Gather], Fetched: s.Messages[logp.Scatter] - s.Written,
		Written: s.Written, Adverts: s.Adverts, LateAdverts: s.LateAdverts,
		Plans: s.Plans, Writes: s.Gathers, Descriptors: s.Descriptors,
		CreditWaits: s.NoCredit, Retries: s.QueueFull, Unexpected: s.Unexpected, Backlog: s.Backlog, Memory: ch.Memory(), Ring: s.Ring, PeerRing: s.PeerRing,
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
	m.Ring += o.Ring
	m.PeerRing += o.PeerRing
}
