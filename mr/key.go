package mr

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/seed33544411/rma/fabric"
)

// MaxRails bounds the number of links that a registration may be visible on; their numbers
// in keys are less than it.
const MaxRails = 4

// Ref identifies a live registration of one domain: the slot of its table and the epoch of
// the slot's user. A descriptor contains it if the side that owns the memory executes the
// descriptor itself. The zero Ref refers to nothing.
type Ref struct {
	Slot  uint32
	Epoch uint64 // count of registrations (high 32 bits), random (low 32 bits); never 0
}

// RefSize is the size of a marshalled Ref in bytes: slot (4), epoch (8).
const RefSize = 12

func (r Ref) String() string { return fmt.Sprintf("%d#%x", r.Slot, r.Epoch) }

// Append appends the marshalled reference to b.
func (r Ref) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.Slot)
	return binary.LittleEndian.AppendUint64(b, r.Epoch)
}

// ParseRef parses a reference at the front of b and returns the rest. It is not trusted:
// Domain.Resolve checks it. Errors wrap ErrBadKey.
func ParseRef(b []byte) (r Ref, rest []byte, err error) {
	if len(b) < RefSize {
		return r, b, fmt.Errorf("mr: %w: reference of %d bytes, want %d", ErrBadKey, len(b), RefSize)
	}
	r = Ref{Slot: binary.LittleEndian.Uint32(b), Epoch: binary.LittleEndian.Uint64(b[4:])}
	if r.Slot >= MaxRegistrations || r.Epoch == 0 {
		return Ref{}, b, fmt.Errorf("mr: %w: reference %v", ErrBadKey, r)
	}
	return r, b[RefSize:], nil
}

// Key contains everything that a peer needs to access registered memory by any rail:
// bounds, rights and epoch, and the remote key of each rail. A key narrowed by Slice is
// checked by its holder; the package comment describes the checks of the target.
type Key struct {
	Addr   uint64 // of the first byte, in the target's address space
	Len    uint64 // bytes
	Ref    Ref
	Rights fabric.Access
	Rails  uint8            // bit i: RKeys[i] is set
	Owner  uint16           // the owner of the memory, by numbers of the layer above; 0: unknown
	RKeys  [MaxRails]uint32 // by rail number
}

// KeySize is the size of a marshalled Key in bytes; docs/wire.md has the layout.
const KeySize = 48

// Append appends the marshalled key to b.
func (k *Key) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, k.Addr)
	b = binary.LittleEndian.AppendUint64(b, k.Len)
	b = k.Ref.Append(b)
	b = append(b, byte(k.Rights), k.Rails)
	b = binary.LittleEndian.AppendUint16(b, k.Owner)
	for _, r := range k.RKeys {
		b = binary.LittleEndian.AppendUint32(b, r)
	}
	return b
}

// ParseKey parses a key at the front of b and returns the rest. It is not trusted: only the
// target decides whether it is valid. Errors wrap ErrBadKey.
func ParseKey(b []byte) (k Key, rest []byte, err error) {
	if len(b) < KeySize {
		return k, b, fmt.Errorf("mr: %w: %d bytes, want %d", ErrBadKey, len(b), KeySize)
	}
	bad := func(format string, args ...any) (Key, []byte, error) {
		return Key{}, b, fmt.Errorf("mr: %w: "+format, append([]any{ErrBadKey}, args...)...)
	}
	k.Addr = binary.LittleEndian.Uint64(b)
	k.Len = binary.LittleEndian.Uint64(b[8:])
	if k.Len > math.MaxUint64-k.Addr {
		return bad("%d bytes at %#x", k.Len, k.Addr)
	}
	if k.Ref, _, err = ParseRef(b[16:]); err != nil {
		return Key{}, b, err
	}
	k.Rights, k.Rails, k.Owner = fabric.Access(b[28]), b[29], binary.LittleEndian.Uint16(b[30:])
	if k.Rights&^fabric.AccessAll != 0 || k.Rails == 0 || k.Rails>>MaxRails != 0 {
		return bad("rights %#x, rails %#x", b[28], b[29])
	}
	for i := range k.RKeys {
		k.RKeys[i] = binary.LittleEndian.Uint32(b[32+4*i:])
		if k.Rails>>i&1 == 0 && k.RKeys[i] != 0 {
			return bad("remote key for rail %d, which it does not have", i)
		}
	}
	return k, b[KeySize:], nil
}

// Slice narrows the key to n bytes from off on. The error wraps ErrBounds.
func (k *Key) Slice(off, n uint64) (Key, error) {
	if n == 0 || off > k.Len || n > k.Len-off {
		return Key{}, k.refuse(k.Addr+off, n, 0, ErrBounds)
	}
	s := *k
	s.Addr, s.Len = k.Addr+off, n
	return s, nil
}

// Check reports whether the key grants need on n bytes at addr. The holder of a key calls
// it before posting, because a refusal by the target takes the endpoint down. Errors are
// *KeyError. It allocates only on failure.
func (k *Key) Check(addr, n uint64, need fabric.Access) error {
	off := addr - k.Addr // wraps to a large number if addr < k.Addr
	if off > k.Len || n > k.Len-off {
		return k.refuse(addr, n, need, ErrBounds)
	}
	if k.Rights&need != need {
		return k.refuse(addr, n, need, ErrRights)
	}
	return nil
}

func (k *Key) refuse(addr, n uint64, need fabric.Access, err error) error {
	return &KeyError{Ref: k.Ref, Addr: addr, Len: n, Need: need, Err: err}
}
