package initiator

import (
	"sync/atomic"
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

// Op is one operation. The caller sets its arguments, which it has checked, between New and
// Queue.Post.
type Op struct {
	pending.Operation
	next *Op // in its list
	q    *Queue

	sge              fabric.SGE
	remote           uint64
	compare, operand uint64
	rkey             uint32
	kind             Kind
	queued           bool   // on a list of the queue: some of it is not posted
	loose            bool   // not executed in the order of the link's requests
	divides          bool   // may be divided over rails
	id               uint32 // of its work requests, while it has any
	place            uint32 // in the order of the queue; may wrap around
	pending          int32  // work requests posted and not complete; of a flush, operations
	epoch            uint32 // flushes of this epoch and of later ones wait for it
	slot             int32  // of the result of an atomic, -1 if none
	more             *more
}

// more holds the fields that most operations do not need.
type more struct {
	cur  onesided.Cursor  // of an operation of many pieces; keeps the capacity of its lists
	mems mr.Registrations // in which local pieces lie; the same
	extra
}

// extra is the part of more that recycle clears.
type extra struct {
	phase    phase // of an operation of several steps
	flag     flag  // of a PutSignal
	await    awaited
	emulated      // of an atomic that links do not implement
	user     user // memory of any kind
	acc      accumulate
	grouped
	divided
	whole  *Op  // this is a piece of
	apart  bool // not counted
	others int  // other parts of the request, which have not ended
	ended  bool // all of it but these
}

// phase is the progress of an operation of several steps.
type phase uint8

const (
	phaseData   phase = iota
	phaseFlag         // of a PutSignal: the flag
	phaseNotify       // on links where nothing else wakes the target
	phaseEnd
)

// flag is the word that a PutSignal changes.
type flag struct {
	addr uint64
	rkey uint32
	add  bool
}

// awaited is a word of this rank that an operation waits for.
type awaited struct {
	reg  *mr.Registration // held until the wait ends
	mem  []byte
	of   onesided.Type
	cond onesided.Cond
	from *Queue // queue of the peer that is to change the word, nil if any peer may
}

// emulated holds the arguments of an emulated atomic.
type emulated struct {
	rmw   onesided.RMW
	tries int
	since time.Duration // when it began to back off, by the engine's clock
	until time.Duration
	head  bool   // is in words.heads
	other *Op    // the next head in its bucket
	line  opList // operations on the same word, behind this one
}

// accumulate holds the arguments of an Accumulate.
type accumulate struct {
	src   []byte
	size  int  // bytes of src at first: on mapped memory, what is combined leaves src
	pos   int  // bytes of src already passed to the link
	begun bool // listed in requester.begun
	req   onesided.Request
	n     uint64 // bytes from remote on, in which all elements of the target lie

	// Of several pieces, or with a result.
	how onesided.Combining // of type 0: one piece without a result
	old []byte
}

// user is local memory of any kind of an operation.
type user struct {
	mem   []byte
	piece mr.Piece // copy of the memory in the staging arena
	pin   message.Pin
	pins  [mr.MaxRails]message.Pin // on the links of other rails than rail 0
}

// group is the data of one group.
type group struct {
	pieces int32 // 0: not a group
	bytes  int32
	answer int32         // offset in the slot of the data of gets
	from   onesided.Mark // position of the operation before this group
}

// grouped is the state of an operation that is sent in groups.
type grouped struct {
	puts    int    // groups of a put that are not acknowledged
	chained uint64 // bytes of the transfer up to which it is sent as a chain
	waits   uint64 // position, plus 1, of the last group that was chosen; it may lack a slot
}

// opList is a list of operations in order.
type opList struct{ head, tail *Op }

func (l *opList) push(o *Op) {
	if l.tail == nil {
		l.head = o
	} else {
		l.tail.next = o
	}
	l.tail = o
}

func (l *opList) pop() *Op {
	o := l.head
	if l.head = o.next; l.head == nil {
		l.tail = nil
	}
	o.next = nil
	return o
}

// prepend puts the operations of m before those of l.
func (l *opList) prepend(m opList) {
	if m.head == nil {
		return
	}
	if m.tail.next = l.head; l.head == nil {
		l.tail = m.tail
	}
	l.head = m.head
}

func (l *opList) len() (n int) {
	for o := l.head; o != nil; o = o.next {
		n++
	}
	return n
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

// await is a wait for a word, with what a check of the word needs side by side.
type await struct {
	mem  []byte
	seen uint64 // bits of the word when it was last found not to meet the condition
	of   onesided.Type
	o    *Op
}

// awaits holds the waits of an engine for words of this rank.
type awaits struct {
	list    []await
	backoff eager.Backoff
	deaf    bool  // plain writes over some link do not wake this side
	over    error // if not nil, every wait ends with it
	next    int   // in list: the first to check at the next turn
	all     bool  // the next step checks all of them
}

// backoff holds the loops of all peers that wait before their next attempt.
type backoff struct {
	began time.Time
	list  []*Op
}

// inflight holds the operations with requests on a link, by work request ID less 1.
type inflight struct {
	ops  []*Op
	free []uint32
}

// slots are words in registered memory of a link: atomics return their results to them, and
// flags are written from them.
type slots struct {
	region fabric.Region
	free   []int32
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

	// Refused records that this side has refused a request of the peer with err: the peer
	// will close the connection because of it.
	Refused(err error)

	// Error wraps the error of an operation with the peer.
	Error(op string, err error) error

	// RailLost closes the connection of a rail (Rails.Up), which has failed.
	// Rails.Down follows before it returns, and Rails.Closed when the peer has closed
	// it as well.
	RailLost(i int, err error)

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
	last     uint32 // place of the last operation that has started
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
	rails    Rails
	small    atomic.Uint32 // set of logarithms of sizes that may be sent over other rails than rail 0
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

// flushes holds the flushes of a queue, in order. Each flush ends an epoch. Operations and
// flushes carry the number of their epoch: a flush waits for the operations of its own
// epoch and of earlier ones.
type flushes struct {
	list      opList
	epoch     uint32                // the current epoch
	open      int32                 // operations posted, not ended
	forgotten atomic.Pointer[error] // the first error since the last flush of an operation without a waiter
}

// guess is the value last seen in a word of a peer.
type guess struct{ addr, value uint64 }

// words holds the words of a peer that emulated atomics change. Each has a head, the atomic
// in progress; later ones of this rank on the same word wait in its line.
type words struct {
	heads [headBuckets]*Op // by hash of the address
	n     int              // heads
	redo  opList           // heads whose next compare-and-swap is to be posted
	seen  [guesses]guess
}

const (
	headBuckets = 32 // as many words as a Post has requests
	guesses     = 8  // words of a peer whose value is remembered, a power of two
)

// requester is the initiator's side of the slots through which a peer executes accumulates
// and groups. It holds local copies of the slots in the peer's memory, and is created with
// the first accumulate or group.
type requester struct {
	q     *Queue
	state way
	waits *Op    // the accumulate that waits for slots first
	use   uint32 // its generation: it may have ended on mapped memory
	mine  fabric.Region
	there fabric.RemoteKey
	free  uint16 // bit s: slot s is not in use
	slots [onesided.Slots]asked
	begun []*Op // accumulates with requests in flight
}

// way is the state of a requester.
type way uint8

const (
	wayNone way = iota
	wayOpening
	wayOpen
	wayFailed // the last attempt
)

// asked describes how a slot is used.
type asked struct {
	o     *Op  // the operation that awaits the acknowledgement
	write bool // the write to the slot is in flight
	group
}

// server is the target's side of the slots: it executes a peer's accumulates and groups.
type server struct {
	q      *Queue
	begun  bool
	over   bool          // a group of puts or gets was refused, as a link refuses a request: later requests are not executed
	region fabric.Region // the slots that the peer writes to; nil until there are any
}

// groups holds the groups of one queue, and the state that chooses between groups and
// chains.
type groups struct {
	open   int // groups of puts that are not acknowledged
	all    int // groups that are not acknowledged
	params *logp.Params
	forced bool
	way    logp.Way
	pace   pace
	chains [Get + 1]chainPace // by kind, Put or Get
}

// pace is the time that a target takes for groups beyond the model's prediction: it may be
// computing, or waiting for a processor. Only a group sent with nothing in flight is a
// sample.
type pace struct {
	late  float64 // ns, smoothed
	timed bool
	since time.Time
	want  float64
}

// chainPace is what chains cost on a link that executes requests as they are posted, over the
// predicted cost: the model's figures are of memory that the link has allocated, and memory of
// the application may take a system call for each piece.
type chainPace struct {
	factor float64 // smoothed; 0: not known
	posts  uint    // of chains
}

// mapped gives access to the peer's mapped memory. It is the endpoint, nil if the link does
// not map memory.
type mapped struct {
	fabric.Direct
	longest uint64 // longest run that is copied in this way, in bytes
}

// PartKeys holds the keys of an operation's memory on one rail.
type PartKeys struct {
	LKey, RKey uint32
	Link       int  // index of the rail's link
	Has        bool // both sides have registered the memory there
}

// divided is the division of an operation.
type divided struct {
	keys  [mr.MaxRails]PartKeys
	parts [mr.MaxRails]part
	lens  [mr.MaxRails]int64 // the plan: bytes by rail
	plan  bool               // lens is set
	left  int                // parts that are not complete
	began time.Time
	way   int    // in which it is sent
	after bool   // rail 0 had requests in flight when it began
	held  bool   // nothing may overtake it
	long  bool   // it has slices, of which the other fields describe one
	rest  uint64 // bytes of the slices after this one
	probe bool   // sent to measure rails, whatever was predicted
	split bool   // its pieces become operations
}

// part is one part of an operation.
type part struct {
	off, n uint32
	rail   uint8
	idle   bool      // posted with nothing else in flight on the rail
	marked bool      // posted behind a mark
	since  time.Time // posted
	index  uint64    // number of puts before it on the rail's connection
}

// duePart is a part that is to be posted.
type duePart struct {
	o *Op
	i uint8
}

// Rails are the connections of a queue. Owner's.
type Rails struct {
	q     *Queue
	rail  [mr.MaxRails]rail
	open  int           // divided operations in flight
	held  int           // those that nothing of another way may overtake
	line  int           // the rail, from 1, on which puts may follow those held; 0: none
	of    *Op           // all in flight are pieces of this one; nil: or not
	reads int           // requests of divided gets in flight on rail 0
	due   []duePart     // parts to be posted when their rail takes them, or has been closed
	by    [ways + 1]int // those of each way, and probes
	ended time.Time     // when the last divided operation ended
	moved time.Time     // when the estimate of a rail changed by a quarter last
	mixed time.Time     // when operations of several ways were in flight last
	whole uint          // operations in a row that were predicted to gain nothing
	tried [32]trial     // by the logarithm of the size
	some  bool          // there was a rail
	turns uint          // operations of any kind, once there was one
}

// rail is one connection.
type rail struct {
	ep       fabric.Endpoint // nil: none; of rail 0 the queue's
	closed   bool            // both sides have closed it
	inflight int             // parts
	bytes    int64           // of these
	marks
	last    time.Time // completion
	cost    logp.Rail
	known   float64 // PerByte when it changed last
	samples int     // of cost since it was connected, or since sample forgot them
	untimed int     // divided operations since the last sample
	stats   RailCounts
}

// marks is what a rail has marked.
type marks struct {
	mine      fabric.Region    // MarksSize bytes, of the queue
	theirs    fabric.RemoteKey // the peer's word; shorter than 8 bytes: no put follows another one
	puts      uint64           // begun
	placing   int              // puts in flight
	marked    uint64           // the last mark that was posted
	confirmed uint64           // the last mark that is known to be placed
	placed    uint64           // the last mark of the peer, which has closed the rail
}

// RailCounts counts what has been sent over a rail by divided operations.
type RailCounts struct {
	Parts, Bytes uint64  // complete
	Again        uint64  // parts that were posted again because their rail had ended
	PerByte      float64 // ns: the present estimate
	Up           bool
}

// Ways other than wayDivided are numbers of rails, which carry the operation whole.
const (
	wayFirst   = 0
	wayDivided = mr.MaxRails
	ways       = mr.MaxRails + 1
)

// trial compares the ways of operations of one size.
type trial struct {
	cost  [ways]float64 // ns per byte, smoothed; 0: not known
	since [ways]uint    // the turn when it was tried, or put off
	pause [ways]uint    // turns after which it is tried again, for each burst of the trial
	tries [ways]uint8   // up to pauses
	worse [ways]float64 // by how much it was slower than the best one when due was set
	turn  uint
	last  int // the best way of the last turn
	other int // the way that is being tried
	left  int // operations that will be sent that way, at most
	depth int // the most operations in flight since a way was tried
	series
}

// series are operations of one way that have ended one after the other.
type series struct {
	way       int
	n         int
	bytes, ns float64
}

// Counts holds the numbers of operations with a peer. Each is counted when it ends.
type Counts struct {
	Puts, Gets, Atomics, Signals, Accumulates uint64 // completed without an error
	PutBytes, GetBytes                        uint64 // moved by these
	Groups                                    uint64 // groups of pieces sent
	Served                                    uint64 // accumulates of the peer executed here
	AtomicRetries                             uint64 // repeated compare-and-swaps of emulated atomics
	Failed                                    uint64 // operations that failed
	Retries                                   uint64 // posts refused because the link's queue was full
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

// piece returns the local side of a request of one piece.
func (c *chain) piece(sge fabric.SGE) []fabric.SGE {
	local := c.sges[c.used : c.used+1 : c.used+1]
	local[0] = sge
	c.used++
	return local
}
