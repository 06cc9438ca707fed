package gather

import (
	"cmp"
	"fmt"
	"math"
)

// DefaultThreshold is the size in bytes from which registered memory is sent in place.
// With 32 messages whose memory is reused after each gather, both methods cost the same at
// 64 bytes over SoftRoCE, at 128 over shm and at 512 over tcp (rmabench ablate compares
// them, study "gather source"). Why not smaller: a piece in place needs a completion and
// holds the sender's memory until then, an adapter fetches it over the bus separately, and
// below 512 bytes shm gains at most 200 ns per message. Why not larger: at 1 KiB copying
// costs 3.7 times as much over SoftRoCE, 1.6 times over shm, 1.1 times over tcp.
const DefaultThreshold = 512

// Message is one message of a batch.
type Message struct {
	Data       []byte
	At         uint64 // sequence number
	LKey       uint32 // of Registered memory
	Registered bool   // Data may be sent in place
}

// Limits bounds one gather.
type Limits struct {
	Bytes   int // longest payload, header included
	InPlace int // pieces in place; 0: all are copied
}

// Packer makes gathers of kind Seq of batches. It reuses its buffers.
type Packer struct {
	threshold int
	limits    Limits
	entries   []Entry
	pieces    []Piece
	header    []byte
}

// NewPacker returns a Packer. Registered messages of at least threshold bytes are sent in
// place; 0 means DefaultThreshold, negative means never.
func NewPacker(l Limits, threshold int) *Packer {
	return &Packer{threshold: cmp.Or(threshold, DefaultThreshold), limits: l}
}

// Pack makes a gather of as many of the first messages as fit and returns their number: the
// next gather begins with msgs[n]. A gather ends at its limits, and before a message whose
// number does not ascend. An error, with n == 0, concerns
// msgs[0], which fits no gather: ErrTooLarge or ErrOrder. Pack allocates only to grow the
// buffers.
//
// Hot path.
func (p *Packer) Pack(msgs []Message) (n int, err error) {
	p.entries, p.pieces, p.header = p.entries[:0], p.pieces[:0], p.header[:0]
	if len(msgs) == 0 {
		return 0, nil
	}
	var s shape
	body, inPlace := 0, 0
	p.pieces = append(p.pieces, Piece{}) // the header
	for i := range msgs {
		m := &msgs[i]
		if len(m.Data) > p.limits.Bytes-body {
			break
		}
		e := Entry{At: m.At, Size: uint32(len(m.Data))}
		direct := m.Registered && p.threshold >= 0 && len(m.Data) >= p.threshold && len(m.Data) > 0 && p.limits.InPlace > 0
		if direct {
			if inPlace == p.limits.InPlace {
				break
			}
			inPlace++
		}
		if !s.add(Seq, e, p.limits.Bytes-body-len(m.Data)) {
			break
		}
		body += len(m.Data)
		p.entries = append(p.entries, e)
		p.pieces = append(p.pieces, Piece{Data: m.Data, LKey: m.LKey, InPlace: direct})
	}
	if s.n == 0 {
		p.pieces = p.pieces[:0]
		m := &msgs[0]
		if s.add(Seq, Entry{At: m.At, Size: uint32(min(len(m.Data), max(p.limits.Bytes, 0)))}, math.MaxInt) {
			return 0, fmt.Errorf("pack %d bytes, limit %d with a header of %d: %w", len(m.Data), p.limits.Bytes, headerLen(1, s.layout), ErrTooLarge)
		}
		return 0, fmt.Errorf("pack %d bytes at %d: %w", len(m.Data), m.At, ErrOrder)
	}
	p.header = s.append(p.header, Seq, p.entries)
	p.pieces[0].Data = p.header
	return s.n, nil
}

// Pieces returns the payload of the last gather, header first. It is valid until the next
// Pack.
func (p *Packer) Pieces() []Piece { return p.pieces }
