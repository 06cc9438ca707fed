package scatter

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Form is what a message says about its place at the receiver.
type Form uint8

// Forms.
const (
	FormSequence Form = 1 // Message.Pos is a sequence number: the receiver matches it
	FormOffset   Form = 2 // Message.Pos is an offset in the destination, in bytes
)

// String returns the name of the form.
func (f Form) String() string {
	switch f {
	case FormSequence:
		return "sequence"
	case FormOffset:
		return "offset"
	}
	return fmt.Sprintf("form(%d)", uint8(f))
}

// Message is one message of the batch. Larger ones than 4 GiB - 1 are for the
// layer above to cut.
type Message struct {
	Pos  uint64 // sequence number or destination offset
	Size uint32 // bytes, 0 allowed
}

// Region is one contiguous run of the sender's registered memory.
type Region struct {
	Addr uint64
	Len  uint32 // bytes, at least 1
	RKey uint32
}

// Descriptor is a batch to be fetched. The zero value is ready to Parse into;
// its slices are reused.
type Descriptor struct {
	Form     Form
	Messages []Message
	Regions  []Region
}

// Sizes on the wire, in bytes.
const (
	HeaderSize          = 16
	SequenceMessageSize = 8
	OffsetMessageSize   = 12
	RegionSize          = 16
)

// MaxCount bounds messages and regions of any descriptor: counts have 16 bits.
const MaxCount = math.MaxUint16

// Bounds is what a receiver is willing to take.
type Bounds struct {
	Messages int // 1 to MaxCount
	Regions  int // 1 to MaxCount
}

// MaxSize is the length of the longest descriptor within the bounds.
func (b Bounds) MaxSize() int {
	return HeaderSize + b.Messages*OffsetMessageSize + b.Regions*RegionSize
}

func messageSize(f Form) int {
	if f == FormOffset {
		return OffsetMessageSize
	}
	return SequenceMessageSize
}

// Append appends the marshalled descriptor to b. What Parse would refuse is
// refused here with the same error, and b returned as it was.
func (d *Descriptor) Append(b []byte) ([]byte, error) {
	if err := d.check(Bounds{MaxCount, MaxCount}); err != nil {
		return b, err
	}
	le := binary.LittleEndian
	var base uint64
	if d.Form == FormSequence {
		base = d.Messages[0].Pos
	}
	b = append(b, byte(d.Form), 0)
	b = le.AppendUint16(b, uint16(len(d.Messages)))
	b = le.AppendUint16(b, uint16(len(d.Regions)))
	b = append(b, 0, 0)
	b = le.AppendUint64(b, base)
	for i := range d.Messages {
		m := &d.Messages[i]
		b = le.AppendUint32(b, m.Size)
		if d.Form == FormSequence {
			b = le.AppendUint32(b, uint32(m.Pos-base))
		} else {
			b = le.AppendUint64(b, m.Pos)
		}
	}
	for i := range d.Regions {
		r := &d.Regions[i]
		b = le.AppendUint64(b, r.Addr)
		b = le.AppendUint32(b, r.Len)
		b = le.AppendUint32(b, r.RKey)
	}
	return b, nil
}

// Parse reads a descriptor from the front of b into d and returns the rest. d
// is undefined after an error, a *DescriptorError. It reads every byte of b once.
func (d *Descriptor) Parse(b []byte, bounds Bounds) (rest []byte, err error) {
	le := binary.LittleEndian
	d.Form, d.Messages, d.Regions = 0, d.Messages[:0], d.Regions[:0]
	if len(b) < HeaderSize {
		return b, &DescriptorError{"header", 0, ErrTruncated, uint64(len(b)), HeaderSize}
	}
	d.Form = Form(b[0])
	if b[1] != 0 || b[6] != 0 || b[7] != 0 || d.Form != FormSequence && d.Form != FormOffset {
		return b, &DescriptorError{"header", 0, ErrForm, uint64(d.Form), uint64(FormOffset)}
	}
	messages, regions := int(le.Uint16(b[2:])), int(le.Uint16(b[4:]))
	base := le.Uint64(b[8:])
	if d.Form == FormOffset && base != 0 {
		return b, &DescriptorError{"header", 0, ErrForm, base, 0}
	}
	if err := checkCounts(messages, regions, bounds); err != nil {
		return b, err
	}
	each := messageSize(d.Form)
	if want := HeaderSize + messages*each + regions*RegionSize; len(b) < want {
		return b, &DescriptorError{"header", 0, ErrTruncated, uint64(len(b)), uint64(want)}
	}
	p := b[HeaderSize:]
	for i := range messages {
		m := Message{Size: le.Uint32(p)}
		if d.Form == FormSequence {
			delta := le.Uint32(p[4:])
			m.Pos = base + uint64(delta)
			if m.Pos < base {
				return b, &DescriptorError{"message", i, ErrOrder, m.Pos, base}
			}
			if i == 0 && delta != 0 {
				return b, &DescriptorError{"message", i, ErrOrder, uint64(delta), 0}
			}
		} else {
			m.Pos = le.Uint64(p[4:])
		}
		d.Messages = append(d.Messages, m)
		p = p[each:]
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
