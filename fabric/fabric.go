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

	// Caps returns the abilities and promises of the link. Constant after opening.
	Caps() Caps

	// Register makes mem accessible to local and, as far as access allows, remote requests.
	// mem must lie outside the Go heap or be pinned (runtime.Pinner) until the region is
	// closed.
	Register(mem []byte, access Access) (Region, error)

	// Alloc returns size bytes of zeroed, page-aligned memory outside the Go
	// heap, registered, of the kind this link serves best (shm: a segment that
	// peers map). Closing the region frees the memory.
	Alloc(size int, access Access) (Region, error)

	// NewEndpoint creates an unconnected endpoint.
	NewEndpoint(o EndpointOptions) (Endpoint, error)

	// Poll makes progress (it also serves requests of peers) and stores up to len(cs)
	// completions of all endpoints of the link into cs. It never blocks and does not
	// allocate. len(cs) must be at least 1.
	Poll(cs []Completion) int

	// FD is a descriptor that becomes readable at the first event after Arm:
	// a completion, a notification, a request of a peer, an endpoint down;
	// and, where Caps.WakesOnWrite is set, a peer's plain write as well.
	// Constant after opening; owned by the link.
	FD() int

	// Arm prepares for sleeping on FD. It returns false if an event is pending already:
	// poll again, do not sleep.
	Arm() (bool, error)

	// Disarm ends the armed state; call it after waking and before polling.
	Disarm()

	// Close closes all endpoints and releases everything. Regions must have been closed
	// before; those still open are closed and reported in the error as ErrRegionsOpen,
	// those that cannot be released yet as ErrInUse. Idempotent.
	Close() error
}

// Endpoint is one connection of a link to one peer.
type Endpoint interface {
	// Address returns the data that the peer's Connect needs, to be exchanged out of band
	// (internal/wireup). At most MaxAddress bytes. It is valid once.
	Address() []byte

	// Connect connects this endpoint with the one whose Address the peer sent. Both sides
	// call it; it returns when this side may post. The address is untrusted input: a bad
	// one gives an error that wraps ErrBadAddress.
	Connect(ctx context.Context, peer []byte) error

	// Post posts wrs to the link in order. n < len(wrs) with a nil error means that the
	// queue is full: keep wrs[n:], poll, and post them again. A non-nil error concerns
	// wrs[n] (*WRError, nothing of it was posted) or the endpoint (ErrNotConnected,
	// ErrDown); wrs[:n] were posted. Does not allocate, does not block.
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
	// ID is returned in every completion of the endpoint. The caller chooses it; the link
	// does not interpret it.
	ID uint32

	// Depth is the number of work requests that may be outstanding. Zero means
	// DefaultDepth. A link may offer more, never less; it fails if it cannot.
	Depth int

	// PeerTimeout bounds the time in which the link detects that the peer is gone once a
	// request is outstanding. Zero means DefaultPeerTimeout. A peer is gone if it has
	// ended, or if its host does not answer: a process that exists but does nothing is not
	// gone. Links round it to their abilities (ibv: 4.096 µs·2^k steps; on shm the kernel
	// reports at once that the peer's process has ended, and a peer that is alive is never
	// gone).
	PeerTimeout time.Duration
}

const (
	// DefaultDepth covers the bandwidth-delay product of every link measured
	// so far with 4 KiB requests; deeper queues only cost memory (ibv: about
	// 600 bytes a slot).
	DefaultDepth = 256

	// DefaultPeerTimeout is longer than the scheduling delays of a busy peer (tens of ms)
	// and short for a waiting user.
	DefaultPeerTimeout = 2 * time.Second
)

// Region is registered memory. Its methods may be called from any goroutine.
type Region interface {
	// Bytes returns the memory. It must not be used after Close.
	Bytes() []byte

	// Addr returns the address of the first byte, as in SGE.Addr and WR.RemoteAddr.
	Addr() uint64

	// LKey returns the local key, for SGEs of local requests.
	LKey() uint32

	// Key returns the key by which peers access the region.
	Key() RemoteKey

	// Access returns the rights given at registration.
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

// Caps describes the abilities of a link and its promises beyond the package's contract.
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

	// MapsAlloc says that peers access memory of Link.Alloc by a shorter path than memory
	// given to Register, so that long-lived memory should be allocated there. If it is
	// false both are alike, and callers may bring memory of a special kind (huge pages).
	MapsAlloc bool

	// Immediate says that a request is often complete when Post returns, so that polling at
	// once is worthwhile. A hint, not a promise.
	Immediate bool

	// TargetProgress says that this side's Poll executes peers' requests, so that this side
	// must poll or sleep on FD for peers to make progress.
	TargetProgress bool
}
