package scatter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// form is the first byte of a descriptor: its messages have sequence numbers.
const form = 1

// Message is one message of the batch. The layer above splits messages larger than 4 GiB -
// 1.
type Message struct {
	Pos  uint64 // sequence number
	Size uint32 // bytes, 0 allowed
}

// Region is one contiguous run of the sender's registered memory.
type Region struct {
	Addr uint64
	Len  uint32 // bytes, at least 1
	RKey uint32
}

// Descriptor describes a batch to be fetched. The zero value is ready for Parse, which
// reuses its slices.
type Descriptor struct {
	Messages []Message
	Regions  []Region
}

// Sizes on the wire, in bytes.
const (
	HeaderSize  = 16
	MessageSize = 8
	RegionSize  = 16
)

// MaxCount bounds messages and regions of any descriptor: counts have 16 bits.
const MaxCount = math.MaxUint16

// Bounds limits the descriptors that a receiver accepts.
type Bounds struct {
	Messages int // 1 to MaxCount
	Regions  int // 1 to MaxCount
}

// MaxSize returns the length of the longest descriptor within the bounds.
func (b Bounds) MaxSize() int {
	return HeaderSize + b.Messages*MessageSize + b.Regions*RegionSize
}

// Append appends the marshalled descriptor to b. It rejects descriptors that Parse would
// reject, with the same error, and returns b unchanged.
func (d *Descriptor) Append(b []byte) ([]byte, error) {
	if err := d.check(Bounds{MaxCount, MaxCount}); err != nil {
		return b, err
	}
	le := binary.LittleEndian
	base := d.Messages[0].Pos
	b = append(b, form, 0)
	b = le.AppendUint16(b, uint16(len(d.Messages)))
	b = le.AppendUint16(b, uint16(len(d.Regions)))
	b = append(b, 0, 0)
	b = le.AppendUint64(b, base)
	for i := range d.Messages {
		m := &d.Messages[i]
		b = le.AppendUint32(b, m.Size)
		b = le.AppendUint32(b, uint32(m.Pos-base))
	}
	for i := range d.Regions {
		r := &d.Regions[i]
		b = le.AppendUint64(b, r.Addr)
		b = le.AppendUint32(b, r.Len)
		b = le.AppendUint32(b, r.RKey)
	}
	return b, nil
}

// Parse parses a descriptor at the front of b into d and returns the rest. d is undefined
// after an error, a *DescriptorError. It reads every byte of b once.
func (d *Descriptor) Parse(b []byte, bounds Bounds) (rest []byte, err error) {
	le := binary.LittleEndian
	d.Messages, d.Regions = d.Messages[:0], d.Regions[:0]
	if len(b) < HeaderSize {
		return b, &DescriptorError{"header", 0, ErrTruncated, uint64(len(b)), HeaderSize}
	}
	if b[0] != form || b[1] != 0 || b[6] != 0 || b[7] != 0 {
		return b, &DescriptorError{"header", 0, ErrForm, uint64(b[0]), form}
	}
	messages, regions := int(le.Uint16(b[2:])), int(le.Uint16(b[4:]))
	base := le.Uint64(b[8:])
	if err := checkCounts(messages, regions, bounds); err != nil {
		return b, err
	}
	if want := HeaderSize + messages*MessageSize + regions*RegionSize; len(b) < want {
		return b, &DescriptorError{"header", 0, ErrTruncated, uint64(len(b)), uint64(want)}
	}
	p := b[HeaderSize:]
	for i := range messages {
		delta := le.Uint32(p[4:])
		m := Message{Size: le.Uint32(p), Pos: base + uint64(delta)}
		if m.Pos < base {
			return b, &DescriptorError{"message", i, ErrOrder, m.Pos, base}
		}
		if i == 0 && delta != 0 {
			return b, &DescriptorError{"message", i, ErrOrder, uint64(delta), 0}
		}
		d.Messages = append(d.Messages, m)
		p = p[MessageSize:]
	}
	for range regions {
		d.Regions = append(d.Regions, Region{Addr: le.Uint64(p), Len: le.Uint32(p[8:]), RKey: le.Uint32(p[12:])})
		p = p[RegionSize:]
	}
	if err := d.check(bounds); err != nil {
		return b, err
	}
	return p, nil
}

func checkCounts(messages, regions int, b Bounds) error {
	if messages < 1 || messages > min(b.Messages, MaxCount) {
		return &DescriptorError{"message", messages, ErrCount, uint64(messages), uint64(b.Messages)}
	}
	// A batch of empty messages has no source.
	if regions > min(b.Regions, MaxCount) {
		return &DescriptorError{"region", regions, ErrCount, uint64(regions), uint64(b.Regions)}
	}
	return nil
}

// check reports whether d is valid on the wire. Sums cannot wrap: they have at most 2^16
// terms of 32 bits.
func (d *Descriptor) check(b Bounds) error {
	if err := checkCounts(len(d.Messages), len(d.Regions), b); err != nil {
		return err
	}
	total, err := d.checkMessages()
	if err != nil {
		return err
	}
	var source uint64
	for i := range d.Regions {
		r := &d.Regions[i]
		if r.Len == 0 || uint64(r.Len) > math.MaxUint64-r.Addr {
			return &DescriptorError{"region", i, ErrAddress, r.Addr, uint64(r.Len)}
		}
		source += uint64(r.Len)
	}
	if source != total {
		return &DescriptorError{"region", len(d.Regions), ErrSize, source, total}
	}
	return nil
}

// checkMessages checks the order and returns the sum of the sizes.
func (d *Descriptor) checkMessages() (total uint64, err error) {
	first := d.Messages[0].Pos
	for i := range d.Messages {
		m := &d.Messages[i]
		total += uint64(m.Size)
		switch {
		case i > 0 && m.Pos <= d.Messages[i-1].Pos:
			return 0, &DescriptorError{"message", i, ErrOrder, m.Pos, d.Messages[i-1].Pos}
		case m.Pos-first > math.MaxUint32:
			return 0, &DescriptorError{"message", i, ErrOrder, m.Pos, first + math.MaxUint32}
		}
	}
	return total, nil
}

// Sentinels for errors.Is. Every *DescriptorError wraps ErrDescriptor and one
// of the others.
var (
	ErrDescriptor = errors.New("bad scatter descriptor")

	ErrTruncated = errors.New("truncated")
	ErrForm      = errors.New("unknown form, or reserved bits set")
	ErrCount     = errors.New("count out of bounds")
	ErrSize      = errors.New("sizes of messages and of source regions do not agree")
	ErrOrder     = errors.New("messages out of order")
	ErrAddress   = errors.New("address range is empty or wraps")
)

// DescriptorError reports what is invalid in a descriptor, and where.
type DescriptorError struct {
	Field string // "header", "message" or "region"
	Index int    // of the message or region
	Why   error  // one of the sentinels
	Have  uint64 // the offending number
	Want  uint64 // its bound
}

func (e *DescriptorError) Error() string {
	return fmt.Sprintf("%v: %s %d: %v (%#x, bound %#x)", ErrDescriptor, e.Field, e.Index, e.Why, e.Have, e.Want)
}

// Unwrap returns ErrDescriptor and the reason.
func (e *DescriptorError) Unwrap() []error { return []error{ErrDescriptor, e.Why} }
