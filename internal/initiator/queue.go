package initiator

import (
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/pending"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/mr"
)

// Kind is the kind of an operation.
type Kind uint8

// Kinds of operations.
const (
	Put Kind = iota
	Get
	FetchAdd
	CompareSwap
	Emulated   // an atomic executed as a loop of compare-and-swaps
	PutSignal  // a put, then an update of a word
	Accumulate // executed by the target's engine
	Await      // a wait for a word of this rank
	Fence
	Flush
)

// request returns the link's operation for requests of k, which is less than Await.
func (k Kind) request() fabric.Op { return linkOps[k] }

var linkOps = [...]fabric.Op{
	Put: fabric.OpWrite, Get: fabric.OpRead, FetchAdd: fabric.OpFetchAdd, CompareSwap: fabric.OpCompareSwap,
	Emulated: fabric.OpCompareSwap, PutSignal: fabric.OpWrite, Accumulate: fabric.OpWrite,
}

// isAtomic reports whether requests of k return the previous value of a word.
func (k Kind) isAtomic() bool { return k == FetchAdd || k == CompareSwap || k == Emulated }

// Moves reports whether k accesses a peer's memory. The other kinds wait for operations.
func (k Kind) Moves() bool { return k < Await }

// isLoose reports whether operations of k are executed out of the order of the link's
// requests.
func (k Kind) isLoose() bool { return k == Emulated || k == Accumulate }

// String returns the name that errors use.
func (k Kind) String() string { return kindNames[k] }

var kindNames = [...]string{
	Put: "put", Get: "get", FetchAdd: fabric.OpFetchAdd.String(), CompareSwap: fabric.OpCompareSwap.String(),
	Emulated: "atomic", PutSignal: "put-signal", Accumulate: "accumulate",
	Await: "wait for a signal", Fence: "fence", Flush: "flush",
}

// Options configure an Engine. All must be set.
type Options struct {
	Inbox    *pending.Inbox    // for operations of all kinds
	Receipts *pending.Receipts // for operations that complete in the call
	Protocol progress.Protocol // handles what a post has polled

	// Contention is the least time for which an emulated atomic under contention retries
	// before it fails with ErrContention.
	Contention time.Duration
}

// Engine executes the one-sided operations of a rank. Its methods are the owner's.
type Engine struct {
	opt    Options
	prog   *progress.Engine
	memory *mr.Domain

	links    []*link
	queues   []*Queue
	active   []*Queue // queues with something to post
	inflight inflight
	awaits   awaits
	backoff  backoff
	staging  *mr.Arena // for copies of small application memory

	chain   chain
	grouper onesided.Grouper
	cs      [8]fabric.Completion // filled by goroutines that post
}

// link holds the resources of operations on a link.
type link struct {
	fabric.Link
	pins    *message.Pins
	results slots
	groups  *onesided.Server // for peers' groups
}

// awaits holds the waits of an engine for words of this rank.
type awaits struct {
	list    []*Op
	backoff eager.Backoff
	deaf    bool  // plain writes over some link do not wake this side
	over    error // if not nil, every wait ends with it
}

// Host is the rest of a peer: its connection and the job. The owner calls its methods,
// which must not wait, except for the functions passed to FetchSlots and PublishSlots,
// which run on goroutines of their own.
type Host interface {
	// Connect starts to make a connection, unless it was called before. Queue.Up or
	// Queue.Down follows.
	Connect()

	// Reported handles the link's report that the connection has ended. Queue.Down follows
	// before it returns.
	Reported(err error)

	// Reason returns the error of an operation whose request ended with c.
	Reason(c *fabric.Completion) error

	// Down ends the connection because a request failed with err. Queue.Down follows
	// before it returns.
	Down(err error)

	// Sever closes the connection of a peer that violates the protocol. Queue.Down follows
	// before it returns.
	Sever(err error)

	// Error wraps the error of an operation with the peer.
	Error(op string, err error) error

	// Hold stops or resumes sending messages to the peer.
	Hold(on bool)

	// Probed is called when a probe has read the peer's word.
	Probed()

	// FetchSlots calls done with the value from the peer's PublishSlots, or with an error.
	// It does not call done once the connection has ended.
	FetchSlots(done func(val []byte, err error))

	// PublishSlots calls alloc and publishes its result to the peer's FetchSlots.
	PublishSlots(alloc func() (val []byte, err error))
}

// Queue holds the one-sided operations of this rank with one peer.
type Queue struct {
	// These do not change.
	eng       *Engine
	host      Host
	link      *link
	rank      int
	index     int    // of the link
	pieces    int    // local pieces of one request
	max       uint64 // bytes of one request
	own       bool   // the peer is this rank
	wakes     bool   // a plain write wakes it
	inline    bool   // the link copies a flag with its request
	immediate bool   // requests are often complete when the post returns

	// The connection.
	ep     fabric.Endpoint // nil until there is one
	mapped mapped
	down   error // why the connection ended

	// What is to be posted, and what has been.
	tried    uint   // operations that TryMove and its like attempted
	posts    opList // to be posted; the first may be posted in part
	inflight int    // requests posted, not complete
	full     bool   // the link's queue was full: retry after a completion
	active   bool   // on the engine's list
	fenced   bool   // the next request waits for all reads before it
	loose    int    // operations that are executed out of the order of requests
	control  control
	words    words
	requests requester
	serving  server
	groups   groups
	flushes  flushes
	counts   Counts
}

// control holds the requests that precede the operations of a queue: notifications and
// probes.
type control struct {
	q    *Queue
	list []notice
	sge  [1]fabric.SGE    // destination of a probe
	word fabric.RemoteKey // the word that it reads
}

// notice is a notification or a probe (noteProbe). The answer to a group of gets carries
// their data.
type notice struct {
	imm    uint32
	local  fabric.SGE
	answer onesided.Answer
}

const (
	// maxChain is the number of requests of one Post. It makes the cost of one crossing
	// into C negligible compared with that of the requests.
	maxChain = 32

	// maxPieces is the number of local pieces that the requests of one Post may have:
	// enough for a chain of requests of a few pieces each. Only transfers of many small
	// pieces exceed it; they continue in the next Post.
	maxPieces = 512
)

// slotShift is the position of the slot, plus 1, in the work request ID of an accumulate or
// a group.
const slotShift = 40

// chain holds the work requests of one Post and the operations that they belong to.
type chain struct {
	wrs    [maxChain]fabric.WR
	made   [maxChain]made
	sges   [maxPieces]fabric.SGE
	used   int  // of sges
	pieces int  // requests for pieces of vectors and shapes
	puts   bool // it contains puts in groups: nothing may be posted behind them for now
}

// made describes a work request made by build.
type made struct {
	o     *Op
	mark  onesided.Mark // position of the operation before it
	phase phase
	last  bool  // the last request of the operation
	begun bool  // the operation became the head of its word with this request
	slot  uint8 // slot plus 1 of a request that the target's engine executes
	n     int32 // bytes of the elements of an accumulate
	group group
}

// Max returns how many bytes one request may move. Any goroutine may call it.
func (q *Queue) Max() uint64 { return q.max }

// Immediate reports whether requests are often complete when the post returns. Any
// goroutine may call it.
func (q *Queue) Immediate() bool { return q.immediate }

// Plan makes puts and gets of several pieces use the cheapest method by p, which must not
// change any more, or the forced one. Owner's.
func (q *Queue) Plan(p *logp.Params, forced bool, way logp.Way) {
	q.eng.prog.AssertOwned()
	g := &q.groups
	g.params, g.forced, g.way = p, forced, way
}

// wake adds q to the queues with something to post, once it has a connection.
func (q *Queue) wake() {
	if q.ep == nil {
		q.host.Connect()
		return
	}
	if !q.active {
		q.active = true
		q.eng.active = append(q.eng.active, q)
	}
}

// Explain returns how n puts or gets with the given sum of bytes would be sent, and why.
// With mapped memory they need neither method. Owner's.
func (q *Queue) Explain(k Kind, n, bytes int) logp.PiecesPlan {
	q.eng.prog.AssertOwned()
	return q.groups.plan(k, n, bytes)
}

// Held reports whether messages must not be sent, see Host.Hold.
func (q *Queue) Held() bool { return q.groups.open > 0 }

// Busy reports whether operations are in flight.
func (q *Queue) Busy() bool { return q.flushes.open > 0 }

// Unflushed reports whether a flush has something to wait for or to report.
func (q *Queue) Unflushed() bool { return q.flushes.open > 0 || q.flushes.forgotten.Load() != nil }

// Blame keeps the error of an operation without a waiter for the next flush. Any goroutine
// may call it.
func (q *Queue) Blame(err error) { q.flushes.forgotten.CompareAndSwap(nil, &err) }

// Queued returns the number of operations that are not posted.
func (q *Queue) Queued() int { return q.posts.len() }

// InFlight returns the number of requests that are posted and not complete.
func (q *Queue) InFlight() int { return q.inflight }

// Counts returns the counters.
func (q *Queue) Counts() Counts { return q.counts }

// Used returns a number that grows with each operation that was tried or has ended.
func (q *Queue) Used() uint64 {
	c := &q.counts
	return uint64(q.tried) + c.Puts + c.Gets + c.Atomics + c.Signals + c.Accumulates
}

// piece returns the local side of a request of one piece.
func (c *chain) piece(sge fabric.SGE) []fabric.SGE {
	local := c.sges[c.used : c.used+1 : c.used+1]
	local[0] = sge
	c.used++
	return local
}
