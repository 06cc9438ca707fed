package shm

import "sync/atomic"

// Layouts of shared memory. Fixed width, naturally aligned, words written by different
// sides on different cache lines; asserted in tests.
//
// Control segment: one per link, written by its owner, mapped read-only by peers.
//
//	0      ctlHeader
//	4096   tableEntry × tableSlots (index: low bits of the remote key)
//
// Channel segment: one per endpoint, created by its owner and mapped writable by the peer.
// It carries data from the peer to the owner (frames) and the peer's answers to the owner's
// requests (replies), with the bounce buffers of these requests.
//
//	0            chanHeader
//	replyOff     reply × maxReqs
//	frameOff     frame × slots (power of two)
//	page-aligned bounce buffers, chunkSize × maxReqs
const (
	ctlMagic    = 0x33306c74_63616d72 // "rmactl03"
	chanMagic   = 0x31306e68_63616d72 // "rmachn01"
	chanLeft    = 0                   // instead of it when the endpoint is down
	tableOff    = 4096
	tableSlots  = 1 << 14
	entrySize   = 64
	ctlSize     = tableOff + tableSlots*entrySize
	lineSize    = 64
	replyOff    = 256
	frameOff    = replyOff + maxReqs*lineSize
	minSlots    = 256
	maxSlots    = 1 << 16
	layoutPages = 4096
	nonceOff    = 16  // of chanHeader.nonce
	probeOff    = 192 // of chanHeader.probe
)

// maxReqs is the number of requests to the target's progress engine in flight on one
// endpoint, and chunkSize the size of one in bytes. 16 × 32 KiB keep a copying target busy
// while the initiator fills the next buffers, and fit a second-level cache. Why not larger:
// they would evict the data that is being copied. Why not smaller: each pays the hand-over
// of about 0.2 µs. The buffers cost only address space until they are used.
const (
	maxReqs   = 16
	chunkSize = 32 << 10
)

// ctlHeader is the start of a control segment.
type ctlHeader struct {
	magic atomic.Uint64
	used  atomic.Uint32 // table entries in use, now or before: no later one is
	_     [52]byte
	sleep atomic.Uint64 // sleeping, watching; above them the number of the sleep
	_     [56]byte
	cpus  [maxCPUs / 64]atomic.Uint64 // processors that the owner's process may run on, a bit each; 0: unknown
}

// Bits of ctlHeader.sleep.
const (
	sleeping  = 1 << iota // the owner sleeps on Link.FD
	watching              // and plain writes wake it as well: see fabric.Watching
	nextSleep             // one sleep
)

// maxCPUs bounds the processor numbers in a control segment.
const maxCPUs = 4096

// tableEntry publishes one region under a sequence lock: gen is odd while the
// owner changes the other words.
type tableEntry struct {
	gen    atomic.Uint32
	key    atomic.Uint32 // 0: withdrawn
	base   atomic.Uint64
	size   atomic.Uint64
	flags  atomic.Uint32 // fabric.Access
	seg    atomic.Uint32 // segment that holds the region, 0: private memory
	segOff atomic.Uint64 // offset of the region in the segment
	_      [24]byte
}

// chanHeader is the start of a channel segment.
type chanHeader struct {
	magic atomic.Uint64
	slots atomic.Uint32
	_     [4]byte
	nonce [2]atomic.Uint64 // the peer reads it through process_vm_readv
	_     [32]byte

	head atomic.Uint64 // owner: frames consumed, published at intervals
	_    [56]byte

	starved atomic.Uint32 // peer: request for a wake-up when head moves
	hazard  atomic.Uint32 // peer: key in use by process_vm_*, 0 if none
	refused atomic.Uint32 // peer: status of its last request, if the owner's side refused it
	_       [52]byte

	probe atomic.Uint64 // peer: writes here through process_vm_writev
	_     [56]byte
}

// reply is the peer's answer to one request of the owner. seq is stored last:
// the request's number + 1.
type reply struct {
	seq    atomic.Uint64
	status atomic.Uint64 // fabric.Status
	value  atomic.Uint64
	_      [40]byte
}

// frame is one slot of the ring from peer to owner. seq is stored last: the
// frame's position + 1. Only the two parties' seq accesses order the words.
type frame struct {
	seq atomic.Uint64
	w   frameWords
}

type frameWords [7]uint64

// bounceOff returns the offset of the bounce buffers in a channel with slots frames.
func bounceOff(slots int) int {
	return (frameOff + slots*lineSize + layoutPages - 1) &^ (layoutPages - 1)
}

// chanSize returns the size of a channel segment with slots frames.
func chanSize(slots int) int { return bounceOff(slots) + maxReqs*chunkSize }
