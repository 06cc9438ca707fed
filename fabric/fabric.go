package fabric

import (
	"context"
	"time"
)

// Link is one opened transport. See the package comment for the contract and
// for which methods may run concurrently.
type Link interface {
	// Name is the link's short name: "ibv", "shm", "tcp" or "sim".
	Name() string

	// Caps says what the link can do and what it promises. Constant after
	// opening.
	Caps() Caps

	// Register makes mem reachable for local and, as far as access allows,
	// remote requests. mem must lie outside the Go heap or be pinned
	// (runtime.Pinner) until the region is closed.
	Register(mem []byte, access Access) (Region, error)

	// Alloc returns size bytes of zeroed, page-aligned memory outside the Go
	// heap, registered, of the kind this link serves best (shm: a segment that
	// peers map). Closing the region frees the memory.
	Alloc(size int, access Access) (Region, error)

	// NewEndpoint creates an unconnected endpoint.
	NewEndpoint(o EndpointOptions) (Endpoint, error)

	// Poll makes progress (also with what peers ask of this side) and stores
	// up to len(cs) completions of all endpoints of the link into cs. It
	// never blocks and does not allocate. len(cs) must be at least 1.
	Poll(cs []Completion) int

	// FD is a descriptor that becomes readable at the first event after Arm:
	// a completion, a notification, a request of a peer, an endpoint down;
	// and, where Caps.WakesOnWrite is set, a peer's plain write as well.
	// Constant after opening; owned by the link.
	FD() int

	// Arm prepares for sleeping on FD. It returns false when something is
	// pending already: poll again, do not sleep.
	Arm() (bool, error)

	// Disarm ends what Arm began; call it after waking and before polling.
	Disarm()

	// Close closes all endpoints and releases everything. Regions must have
	// been closed before; those still open are closed and reported in the
	// error as ErrRegionsOpen, those that cannot go yet as ErrInUse. Idempotent.
	Close() error
}

// Endpoint is one connection of a link to one peer.
type Endpoint interface {
	// Address is what the peer's Connect needs, to be carried there by other
	// means (internal/wireup). At most MaxAddress bytes. It is valid once.
	Address() []byte

	// Connect joins this endpoint with the one whose Address the peer made.
	// Both sides call it; it returns when this side may post. The address is
	// untrusted input: a bad one gives an error that wraps ErrBadAddress.
	Connect(ctx context.Context, peer []byte) error

	// Post hands wrs to the link in order. n < len(wrs) with a nil error means
	// that the queue is full: keep wrs[n:], poll, and post them again. A
	// non-nil error concerns wrs[n] (*WRError, nothing of it was posted) or
	// the endpoint (ErrNotConnected, ErrDown); wrs[:n] were posted.
	// Does not allocate, does not block.
	Post(wrs []WR) (n int, err error)

	// Err is nil while the endpoint works, and the first reason afterwards.
	Err() error

	// Close ends the endpoint. Requests still outstanding complete with
	// StatusFlushed through Link.Poll; nothing else of the endpoint is
	// reported after that. The peer sees the endpoint go down. Idempotent.
	Close() error
}

// MaxAddress bounds the length of Endpoint.Address in bytes.
const MaxAddress = 512

// EndpointOptions configures one endpoint. The zero value is usable.
type EndpointOptions struct {
	// ID is returned in every completion of the endpoint. The caller's to
	// choose; the link does not look at it.
	ID uint32

	// Depth is how many work requests may be outstanding. Zero means
	// DefaultDepth. A link may offer more, never less; it fails if it cannot.
	Depth int

	// PeerTimeout bounds how long the link may take to notice that the peer
	// is gone once a request is outstanding. Zero means DefaultPeerTimeout. Gone is
	// who has ended, or whose host is not heard of: a process that is there and does
	// nothing is not.
	// Links round it to what they can do (ibv: 4.096 µs·2^k steps; shm is told by the
	// kernel at once when the peer's process ends, and never gives up one that lives).
	PeerTimeout time.Duration
}

const (
	// DefaultDepth covers the bandwidth-delay product of every link measured
	// so far with 4 KiB requests; deeper queues only cost memory (ibv: about
	// 600 bytes a slot).
	DefaultDepth = 256

	// DefaultPeerTimeout is long against a scheduling hiccup of a busy peer
	// (tens of ms) and short against a user's patience.
	DefaultPeerTimeout = 2 * time.Second
)

// Region is registered memory. Its methods may be called from any goroutine.
type Region interface {
	// Bytes is the memory itself. Not to be used after Close.
	Bytes() []byte

	// Addr is the address of the first byte, as in SGE.Addr and
	// WR.RemoteAddr.
	Addr() uint64

	// LKey goes into SGEs of local requests.
	LKey() uint32

	// Key is what peers need to reach the region.
	Key() RemoteKey

	// Access is the rights given at registration.
	Access() Access

	// Close withdraws the registration: later requests of peers fail with
	// StatusRemoteAccess. When it returns nil peers neither read nor write the memory any
	// more (for memory that peers map, see docs/memory-model.md). An error that wraps
	// ErrInUse says that one still may: nothing has been freed, the memory must stay as
	// and where it is, and Close may be called again, also after the link has been
	// closed. It waits for peers for a fraction of a second, the first time. The caller
	// makes sure that no request of its own still uses the region. Idempotent.
	Close() error
}

// Access is a set of rights on a region. Local reading is always allowed.
type Access uint8

// Rights of a region.
const (
	AccessLocalWrite Access = 1 << iota // target of local reads and atomics' results
	AccessRemoteRead
	AccessRemoteWrite
	AccessRemoteAtomic

	// AccessAll is every right.
	AccessAll = AccessLocalWrite | AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic
)

// Caps is what a link can do and what it promises beyond the package's
// contract.
type Caps struct {
	MaxSGE     int    // pieces one wire operation takes; longer lists are split by the link
	MaxInline  int    // bytes that FlagInline may carry
	MaxMessage uint64 // bytes one request may move
	MaxReads   int    // reads and atomics in flight at once; more are queued by the link

	// LastByteLast promises that the last aligned 8 bytes of a write, when the
	// write ends on an 8-byte boundary, become visible at the target after all
	// other bytes of that write. A flag at the end of a block then needs no
	// write of its own.
	LastByteLast bool

	// WakesOnWrite promises that a plain write wakes a target that sleeps on
	// Link.FD. Where it is false only FlagNotify does.
	WakesOnWrite bool

	// AtomicCPU promises that remote atomics are atomic against the CPU
	// atomics of the target as well, not only against each other.
	AtomicCPU bool

	// MapsAlloc says that peers reach memory of Link.Alloc by a shorter way than
	// memory given to Register, so that long-lived memory should come from
	// there. Where it is false both are alike, and whoever wants memory of a
	// kind of its own (huge pages) may bring it.
	MapsAlloc bool

	// Immediate says that a request is often complete when Post has taken it, so
	// that it pays to poll at once. A hint, not a promise.
	Immediate bool

	// TargetProgress says that peers' requests are executed by this side's
	// Poll, so that somebody must poll or sleep on FD for peers to advance.
	TargetProgress bool
}
