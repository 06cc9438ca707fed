package fabric

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/seed33544411/rma/internal/enum"
)

// Op names a one-sided operation, or the event a completion stands for.
type Op uint8

// Operations of a WR, and the events OpNotify, OpDown and OpPath that appear in
// completions only.
const (
	OpInvalid     Op = iota
	OpWrite          // local pieces, in order → contiguous remote memory
	OpRead           // contiguous remote memory → local pieces, in order
	OpFetchAdd       // remote 8 bytes += Operand; the old value → one local piece of 8 bytes
	OpCompareSwap    // if remote 8 bytes == Compare, = Operand; the old value → one local piece of 8 bytes
	OpNotify         // event: a peer's write with FlagNotify has arrived; Imm and Bytes are set
	OpDown           // event: the endpoint failed, without a call of Close; once an endpoint
	OpPath           // event: the endpoint has lost its connection, or continues on another one: see Resumer
)

var opNames = []string{OpWrite: "write", OpRead: "read", OpFetchAdd: "fetch-add", OpCompareSwap: "compare-swap", OpNotify: "notify", OpDown: "down", OpPath: "path"}

// String returns the name of the operation.
func (o Op) String() string { return enum.Name("op", opNames, o) }

// Flags modify a WR.
type Flags uint8

// Flags of a WR.
const (
	// FlagSignaled asks for a completion on success.
	FlagSignaled Flags = 1 << iota

	// FlagInline copies the payload out of the local pieces during Post: they may be reused
	// at once and their LKey is not checked. At most Caps.MaxInline bytes. Writes only.
	FlagInline

	// FlagFence starts the request only after all earlier reads and atomics of
	// the endpoint are complete.
	FlagFence

	// FlagNotify reports the write to the target as an OpNotify completion
	// that carries Imm, after all its bytes are visible. Writes only, zero
	// length included.
	FlagNotify

	// FlagQuiet says that the target need not be woken by the request unless it watches its memory: see
	// Watching. Links for which that makes no difference ignore it. FlagNotify overrides it.
	FlagQuiet
)

// SGE is one piece of local memory: a scatter/gather element. Its layout is that of struct
// ibv_sge, so that lists can be passed to a device unchanged. Addr is an integer: the
// garbage collector does not see it, and the memory must be off-heap or pinned. See
// [NewSGE].
type SGE struct {
	Addr uint64
	Len  uint32
	LKey uint32
}

// WR is one work request.
type WR struct {
	ID         uint64 // returned in the completion
	Local      []SGE  // local pieces; empty means zero length
	RemoteAddr uint64 // target address; 8-byte aligned for atomics
	Compare    uint64 // OpCompareSwap
	Operand    uint64 // OpFetchAdd: addend; OpCompareSwap: new value
	RKey       uint32
	Imm        uint32 // with FlagNotify
	Op         Op
	Flags      Flags
}

// Len returns the number of bytes of the local pieces.
func (w *WR) Len() uint64 {
	var n uint64
	for i := range w.Local {
		n += uint64(w.Local[i].Len)
	}
	return n
}

// Completion is the end of one work request, or an event of an endpoint.
type Completion struct {
	ID     uint64 // of the WR; 0 for events
	EP     uint32 // EndpointOptions.ID
	Imm    uint32 // OpNotify
	Bytes  uint32 // OpNotify: length of a write of up to Caps.MaxSGE pieces, 0 if it is not known since another link carries (Carried); else undefined
	Vendor uint32 // device-specific detail of a failure, 0 if none
	Op     Op
	Status Status
}

// Err returns nil for a successful completion, else an *OpError. It allocates on failure
// only.
func (c *Completion) Err() error {
	if c.Status == StatusOK {
		return nil
	}
	return &OpError{Op: c.Op, Status: c.Status, Endpoint: c.EP, Vendor: c.Vendor}
}

// RemoteKey names a region of a peer; a request needs nothing else to access it.
type RemoteKey struct {
	Addr uint64 // address of the first byte
	Len  uint64 // bytes
	RKey uint32
}

// RemoteKeySize is the size of a marshalled RemoteKey in bytes:
// address (8), length (8), key (4), all little-endian.
const RemoteKeySize = 20

// Append appends the marshalled key to b.
func (k RemoteKey) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, k.Addr)
	b = binary.LittleEndian.AppendUint64(b, k.Len)
	return binary.LittleEndian.AppendUint32(b, k.RKey)
}

// ParseRemoteKey parses a key at the front of b and returns the rest. It does not verify
// the key: only the target decides whether it is valid.
func ParseRemoteKey(b []byte) (k RemoteKey, rest []byte, err error) {
	if len(b) < RemoteKeySize {
		return k, b, fmt.Errorf("%w: %d bytes, want %d", ErrBadKey, len(b), RemoteKeySize)
	}
	k.Addr = binary.LittleEndian.Uint64(b)
	k.Len = binary.LittleEndian.Uint64(b[8:])
	k.RKey = binary.LittleEndian.Uint32(b[16:])
	if k.Len > math.MaxUint64-k.Addr {
		return RemoteKey{}, b, fmt.Errorf("%w: address %#x + length %#x wraps", ErrBadKey, k.Addr, k.Len)
	}
	return k, b[RemoteKeySize:], nil
}
