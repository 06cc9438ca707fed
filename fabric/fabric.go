package fabric

import (
	"context"
	"time"

	"github.com/seed33544411/rma/internal/bulk"
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
	// and, where Caps.WakesOnWrite is set, a peer's plain write as well, except as Watching says.
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
	// call it; it returns when this side may post, see Caps.ConnectsAlone. The address is
	// untrusted input: a bad one gives an error that wraps ErrBadAddress.
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

// Resumer is implemented by endpoints that continue on another connection when theirs is lost. No
// request fails by that: each is executed once and in order, and completes once. Until there is a
// connection, requests wait; the endpoint goes down if there is none in time.
type Resumer interface {
	// Outages returns how many connections were lost so far, and why there is none at present, nil
	// if there is one. OpPath follows each change. Owner's.
	Outages() (lost uint64, why error)
}

// Networked is implemented by links that hear of the networks of this host.
type Networked interface {
	// NetworkUp returns a channel that is closed when an interface comes up next: peers that
	// could not be reached may be reached then. Any goroutine may call it.
	NetworkUp() <-chan struct{}
}

// Rejoiner is implemented by Resumers that agree on the next connection by letters, which the caller
// carries out of band, as the addresses.
type Rejoiner interface {
	Resumer

	// Rejoin makes the next connection together with the peer's Rejoin. It is called when OpPath says that
	// there is none, or the endpoint then seeks a better one, when the peer sends a letter although there is one, and when the
	// endpoint was closed. If it fails, the endpoint is down; if the endpoint is, it tells the peer. One goroutine at a time, which
	// does not own the link; it must have returned before the link is closed.
	Rejoin(ctx context.Context, by Courier) error

	// Seeks reports whether there is a connection, and Rejoin may find a better one. Owner's.
	Seeks() bool
}

// Courier carries the letters of a Rejoiner.
type Courier struct {
	Own  func(func())                              // runs its argument as the owner of the link
	Send func(ctx context.Context, b []byte) error // sends a letter of at most MaxLetter bytes; they arrive in order
	Next func(ctx context.Context) ([]byte, error) // waits for the peer's next letter, which is untrusted
	Sent func() bool                               // reports whether Next will return one at once
}

// Fallible is implemented by links that can tell whether they can connect endpoints. Any goroutine may call it.
type Fallible interface {
	// Usable returns nil, or why no endpoint can be connected at present. With ErrDeviceGone nothing
	// of the link works any more.
	Usable() error
}

// Namer is implemented by links whose regions may have the keys of another link.
type Namer interface {
	// RegisterAs is Register for memory that has these local and remote keys. It fails if another region
	// of the link has one of them.
	RegisterAs(mem []byte, access Access, local, remote uint32) (Region, error)
}

// Fork is implemented by links that connect each endpoint over one of two links: see package fallback.
type Fork interface {
	Fallible

	// Over returns the link that carries the requests of ep, an endpoint that Forked.Settle has returned,
	// and whether atomics over it exclude those that other peers of the target may post over the first link. Both may
	// change when OpPath says that ep continues on another connection.
	Over(ep Endpoint) (l Link, atomics bool)
}

// Carried is implemented by links whose endpoints can continue by endpoints of another link, carriers.
type Carried interface {
	// CarryOn says how carriers are created. It is called before the first endpoint is.
	CarryOn(by func(EndpointOptions) (Endpoint, error))

	// Carries reports whether the requests of ep are carried by the other link, and whether atomics over it then exclude
	// those that others post over the first. Any goroutine may call it.
	Carries(ep Endpoint) (is, atomics bool)

	// Completed makes a completion of a carrier one of the endpoint that it carries. It returns false if there
	// is none, or the next Poll returns it. It leaves completions of other endpoints as they are. Owner's.
	Completed(c *Completion) bool
}

// Forked is an endpoint of a Fork until it is connected.
type Forked interface {
	Endpoint

	// Settle returns the endpoint to use instead from now on, when Connect has returned nil, and one to
	// close, which may be nil.
	Settle() (ep, unused Endpoint)
}

// Settle returns the endpoint to use in the place of ep, which is connected, and one to close, which may be
// nil: ep itself and nil unless it is Forked.
func Settle(ep Endpoint) (used, unused Endpoint) {
	if f, is := ep.(Forked); is {
		return f.Settle()
	}
	return ep, nil
}

// MaxAddress bounds the length of Endpoint.Address in bytes, MaxLetter that of a Courier's letter.
const MaxAddress, MaxLetter = 512, 1000

// Distant is implemented by endpoints that know how far away their peer is, over a network.
type Distant interface {
	// Distance returns what Connect measured. Constant once Connect has returned.
	Distance() Distance
}

// Distance is how far away a peer is.
type Distance struct {
	Class string        // "host": this host; "near"; "long": farther than the link's bound
	RTT   time.Duration // shortest round trip seen while connecting; 0: unknown
}

// EndpointOptions configures one endpoint. The zero value is usable.
type EndpointOptions struct {
	// ID is returned in every completion of the endpoint. The caller chooses it; the link
	// does not interpret it.
	ID uint32

	// Depth is the number of work requests that may be outstanding. Zero means
	// DefaultDepth. A link may offer more, never less; it fails if it cannot.
	Depth int

	// PeerTimeout bounds the time in which the link detects, once a request is outstanding,
	// that the peer is gone. Zero means DefaultPeerTimeout. A peer is gone if it has ended,
	// or if its host does not answer; a process that exists but does nothing is not gone.
	// Links round the value to one that they support (ibv: 4.096 µs·2^k steps; on shm the
	// kernel reports at once that the peer's process has ended, and a peer that is alive is
	// never gone).
	PeerTimeout time.Duration

	// Final says that the endpoint ends with its connection, although the link's others are Rejoiners:
	// nobody carries letters for it.
	Final bool

	// Prove says that Connect returns only when the peer has answered over the endpoint, or asked, and fails if it does
	// not within PeerTimeout or so; for links whose Connect does not wait for the peer. Both sides set it.
	Prove bool

	// Second asks a Fork not to connect the endpoint over its first link.
	Second bool
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

	// Close withdraws the registration: later requests of peers fail with StatusRemoteAccess.
	// After it has returned nil, peers neither read nor write the memory (for memory that
	// peers map, see docs/memory-model.md). An error that wraps ErrInUse means that a peer
	// may still access it: nothing has been freed, the memory must stay unchanged and in
	// place, and Close may be called again, also after the link has been closed. The first
	// call waits for peers for a fraction of a second. The caller ensures that none of its
	// own requests uses the region. Idempotent: what is said of nil holds for each of several
	// calls, also at the same time.
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
	// given to Register, so that long-lived memory should be allocated there. If it is false,
	// both paths are alike, and callers may register memory of a special kind (huge pages).
	MapsAlloc bool

	// Immediate says that a request is often complete when Post returns, so that polling at
	// once is worthwhile. A hint, not a promise.
	Immediate bool

	// ConnectsAlone says that Connect does not wait for the peer's Connect. Requests posted
	// before that are late, and fail with StatusPeerGone if it takes longer than PeerTimeout:
	// the two sides should tell each other that they are connected before they post.
	ConnectsAlone bool

	// TargetProgress says that this side's Poll executes peers' requests, so that this side
	// must poll or sleep on FD for peers to make progress.
	TargetProgress bool
}

// Direct is an optional interface of endpoints: it executes requests with this processor's
// own loads and stores if the peer's memory is mapped here, or is this process's own, even
// if the link maps none (Caps.MapsAlloc). It is intended for single small
// requests, for which Post and Poll would cost more than the requests themselves. Such a
// link has Caps.AtomicCPU. Its methods are the owner's, like Post; none blocks or
// allocates.
type Direct interface {
	// Do executes wr before it returns, in order behind the requests posted before, and
	// without a completion. It returns false, without any effect, if it cannot execute wr at
	// present (a request posted before is not complete, the target must make progress, the
	// key is not valid, the endpoint is down): Post it instead. wr has one local piece, of at
	// least one byte; all its flags but FlagInline and FlagQuiet are ignored.
	Do(wr *WR) bool

	// Reach returns n bytes of the peer's memory to which its key grants this access, for the
	// caller to load from and store to, in order behind everything posted. It returns nil
	// where Do would return false. The bytes may be used until the next call of a method of
	// the link or of one of its endpoints, other than Local: the next Reach may unmap them. A
	// call of Stored must follow, one for any number of them; Region.Close may wait for it.
	Reach(need Access, rkey uint32, addr uint64, n int) []byte

	// Local returns the memory of a local piece, or nil if a request that needs these rights
	// must not name it. It is valid as long as the result of Reach, and over calls of Reach.
	Local(need Access, piece SGE) []byte

	// Stored ends the use of the result of Reach: it wakes the peer if it sleeps and, with quiet,
	// watches its memory (FlagQuiet).
	Stored(quiet bool)
}

// Watching is an optional interface of links whose owner can sleep through plain writes and atomics of
// peers: they then cost the peer no system call.
type Watching interface {
	// Watch says whether the owner looks at memory that peers change. If not, requests with FlagQuiet do not
	// make FD readable. It holds for later calls of Arm; before the first call, the owner does. Owner's.
	Watch(on bool)
}

// PeerAllocator is an optional interface of links whose Alloc tells every peer of the memory.
type PeerAllocator interface {
	// AllocFor is Alloc for memory that only the peer of ep is to access: the others are not
	// told of it. It does not restrict them. Setup path.
	AllocFor(ep Endpoint, size int, access Access) (Region, error)
}

// AllocFor allocates memory that only the peer of ep, an endpoint of l, is to access.
func AllocFor(l Link, ep Endpoint, size int, access Access) (Region, error) {
	if a, ok := l.(PeerAllocator); ok {
		return a.AllocFor(ep, size, access)
	}
	return l.Alloc(size, access)
}

// Mapper is an optional interface of links that map memory of peers.
type Mapper interface {
	// Map returns n bytes of the memory of ep's peer to which its key grants this access, for loads,
	// stores and atomics until release is called, even if the region, the endpoint or the link
	// is closed meanwhile: nobody else uses the memory then. It returns nil if the endpoint is
	// not up, the key is not valid, or the memory is not mapped; later says that it will be when
	// the peer's announcement has arrived. It neither waits for requests nor wakes the peer.
	// Owner's; release may be called by any goroutine, once.
	Map(ep Endpoint, need Access, rkey uint32, addr uint64, n int) (mem []byte, release func() error, later bool)
}

// Attacher is an optional interface of links to processes of this host from which the system
// copies memory that nobody has registered.
type Attacher interface {
	// Attach returns access to the memory of the process of ep's peer, or nil where the system does
	// not permit it, or ep is not up. Owner's.
	Attach(ep Endpoint) Attachment
}

// Attachment is access to all memory of a process of this host, without its doing. It outlives the
// endpoint and the link.
type Attachment interface {
	// Read copies len(dst) bytes at addr of the process to dst. It fails with ErrPeerGone if
	// the process has ended, and with another error if it has no such memory; then it is unknown
	// how much has been copied. One goroutine calls it at a time.
	Read(dst []byte, addr uint64) error

	// Write copies src to addr of the process, which permits it, and fails as Read does.
	Write(src []byte, addr uint64) error

	// Ended reports whether the process has ended. Any goroutine may call it, until Close.
	Ended() bool

	// Close releases the access. No Read or Write runs, and none follows.
	Close() error
}

// Serving is implemented by links that can tell when Poll has executed requests of peers
// (Caps.TargetProgress), which causes no completion. A loop that polls less often, or
// sleeps, after polls without completions counts such a poll as a busy one: the peer that
// waits for the answer is likely to send more.
type Serving interface {
	// Served returns a counter, modulo 2^32, that has changed if Poll did such work. It may
	// have changed because of answers of peers as well. Owner's.
	Served() uint32
}

// PrivateReader is implemented by links that reach memory of a peer that they have not
// allocated in another way than memory that they have.
type PrivateReader interface {
	// ReadPrivate copies from one memory of this process to another as the link reads such
	// memory of a peer, so that the time of that can be measured. The lengths must be equal.
	// It reports whether it did; if not, the peer's processor has a part in it. Owner's.
	ReadPrivate(dst, src []byte) bool
}

// CopyTuner is implemented by links that copy large blocks with the processor and let
// callers set the sizes from which on each method is used. Methods may be called from any
// goroutine at any time; a request in flight keeps its method.
type CopyTuner interface {
	// Copies returns the present choice.
	Copies() CopyChoice

	// SetCopies replaces the switch points by ones determined for two processes on the host's
	// largest cache; source names their origin in one word. Points forced by the user stay.
	SetCopies(plan bulk.Plan, source string)
}

// CopyChoice holds the sizes from which on a link uses each method of copying, and their
// origin.
type CopyChoice struct {
	Plan   bulk.Plan
	Kernel string // instructions of bulk.Stream: see bulk.Kernel
	Source string // "caches", "measured", "profile", "forced", or one of these and the forced points
	Cache  uint64 // bytes of the largest cache that this process uses, 0 if unknown
	Users  int    // processes that use it, as far as the link can tell: at least 1
}

// Neighbour is implemented by endpoints to processes of the same host.
type Neighbour interface {
	// Near returns the distance between the peer's processors and this process's, and the
	// method of access to its private memory. Constant once Connect has returned.
	Near() Vicinity
}

// Vicinity describes a peer on the same host.
type Vicinity struct {
	Class   string // topo.Near: "core", "l2", "l3", "socket", "far"; "" if it varies or is unknown
	Private string // access to its private memory: "process_vm" or "bounce"
	Reason  string // why process_vm is not used, "" if it is
}
