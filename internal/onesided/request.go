package onesided

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/mr"
)

// The memory through which one rank makes another execute accumulates: Slots slots of
// SlotSize bytes, each with a header and elements. 32 KiB carry what a request and its
// acknowledgement cost a link of system calls; four keep it busy meanwhile, and cost a pair
// that accumulates 128 KiB on either side.
const (
	Slots      = 4
	SlotSize   = 32 << 10
	HeaderSize = 32
	MaxData    = SlotSize - HeaderSize
)

// version of the header. In version 1 there were 8 slots of 8 KiB, and no Exclusive.
const version = 2

// Errors of requests.
var (
	ErrRequest = errors.New("malformed accumulate")
	ErrAlign   = fmt.Errorf("%w: not a multiple of the element's size", fabric.ErrRemoteInvalid)
	ErrOrder   = fmt.Errorf("%w: the ranks differ in byte order", fabric.ErrNotSupported)
)

// Status is the result of a request at the target, as sent in the acknowledgement.
type Status uint8

// Statuses.
const (
	StatusOK        Status = iota
	StatusRefused          // key, bounds or rights
	StatusMalformed        // unknown to this version
	StatusAlign
	StatusOrder
)

// Err returns nil for StatusOK.
func (s Status) Err() error {
	switch s {
	case StatusOK:
		return nil
	case StatusRefused:
		return fabric.ErrRemoteAccess
	case StatusAlign:
		return ErrAlign
	case StatusOrder:
		return ErrOrder
	}
	return fabric.ErrRemoteInvalid
}

// StatusOf returns the status for err.
func StatusOf(err error) Status {
	switch {
	case err == nil:
		return StatusOK
	case errors.Is(err, fabric.ErrRemoteAccess):
		return StatusRefused
	case errors.Is(err, ErrAlign):
		return StatusAlign
	case errors.Is(err, ErrOrder):
		return StatusOrder
	}
	return StatusMalformed
}

// Request is an accumulate: Count elements of Type are combined with those at Addr.
type Request struct {
	Op    Reduction
	Type  Type
	Count uint32
	Ref   mr.Ref
	Addr  uint64
}

// order returns the byte order of this machine, as encoded in requests.
func order() byte {
	if bigEndian {
		return 2
	}
	return 1
}

// Append appends the header; docs/wire.md has the bytes.
func (r *Request) Append(b []byte) []byte {
	b = append(b, version, byte(r.Op), byte(r.Type), order())
	b = binary.LittleEndian.AppendUint32(b, r.Count)
	b = r.Ref.Append(b)
	b = binary.LittleEndian.AppendUint32(b, 0)
	return binary.LittleEndian.AppendUint64(b, r.Addr)
}

// ParseRequest parses a header, which is not trusted: a valid one is consistent, and its
// elements fit a slot, but only Apply checks the memory. Errors wrap ErrRequest, ErrAlign
// or ErrOrder.
func ParseRequest(b []byte) (r Request, err error) {
	if len(b) < HeaderSize {
		return r, fmt.Errorf("%w: %d bytes, want %d", ErrRequest, len(b), HeaderSize)
	}
	r = Request{
		Op: Reduction(b[1]), Type: Type(b[2]), Count: binary.LittleEndian.Uint32(b[4:]),
		Addr: binary.LittleEndian.Uint64(b[24:]),
	}
	size := uint64(r.Type.Size())
	switch {
	case b[0] != version || size == 0 || !r.Op.Takes(r.Type) || b[3] == 0 || b[3] > 2 || binary.LittleEndian.Uint32(b[20:]) != 0:
		return Request{}, fmt.Errorf("%w: version %d, %v of type %d, byte order %d", ErrRequest, b[0], r.Op, r.Type, b[3])
	case b[3] != order():
		return Request{}, ErrOrder
	case r.Count == 0 || uint64(r.Count)*size > MaxData:
		return Request{}, fmt.Errorf("%w: %d elements", ErrRequest, r.Count)
	case r.Addr%size != 0:
		return Request{}, ErrAlign
	}
	if r.Ref, _, err = mr.ParseRef(b[8:]); err != nil {
		return Request{}, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return r, nil
}

// need is the access that an accumulate requires.
const need = fabric.AccessRemoteWrite | fabric.AccessRemoteAtomic

// Serve executes the request in slot, memory of this rank that the peer may be changing at
// the same time: each byte is read once, except those of the header, which is copied first.
func Serve(d *mr.Domain, slot []byte) error {
	var head [HeaderSize]byte
	copy(head[:], slot)
	r, err := ParseRequest(head[:])
	if err != nil {
		return err
	}
	return r.Apply(d, slot[HeaderSize:])
}

// Apply combines the elements with the memory that the request addresses. Errors are
// *mr.KeyError; nothing has changed then.
func (r *Request) Apply(d *mr.Domain, elements []byte) error {
	n := int(r.Count) * r.Type.Size()
	mem, reg, err := d.Resolve(r.Ref, r.Addr, uint64(n), need)
	if err != nil {
		return err
	}
	Reduce(r.Op, r.Type, mem, elements[:n])
	return reg.Release()
}
