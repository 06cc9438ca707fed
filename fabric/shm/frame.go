package shm

import "fmt"

// frameKind is the kind of a frame.
type frameKind uint8

const (
	frameNotify      frameKind = iota + 1
	frameWrite                 // bounce buffer → target memory
	frameRead                  // target memory → bounce buffer
	frameFetchAdd              // the reply's value is the old value of the word
	frameCompareSwap           // the reply's value is the old value of the word
	frameBye                   // the sender's endpoint is down; nothing follows
)

// message is a decoded frame.
//
//	word 0  kind (bits 0-7), request slot (16-31), imm (32-63)
//	word 1  address
//	word 2  key (0-31), bytes (32-63)
//	word 3  operand
//	word 4  compare
//	word 5  request number
//	word 6  0
type message struct {
	kind    frameKind
	slot    uint16 // number of the reply and of the bounce buffer
	imm     uint32
	addr    uint64
	key     uint32
	bytes   uint32
	operand uint64
	compare uint64
	req     uint64
}

// words encodes m.
func (m *message) words() frameWords {
	return frameWords{
		uint64(m.kind) | uint64(m.slot)<<16 | uint64(m.imm)<<32,
		m.addr,
		uint64(m.key) | uint64(m.bytes)<<32,
		m.operand, m.compare, m.req, 0,
	}
}

// parseFrame decodes w, which a peer wrote, and checks everything that does not depend on
// the region it names. An error means that the peer is corrupt.
func parseFrame(w *frameWords) (m message, err error) {
	m = message{
		kind: frameKind(w[0]), slot: uint16(w[0] >> 16), imm: uint32(w[0] >> 32),
		addr: w[1], key: uint32(w[2]), bytes: uint32(w[2] >> 32),
		operand: w[3], compare: w[4], req: w[5],
	}
	ok := w[0]&0xff00 == 0 && w[6] == 0
	switch m.kind {
	case frameNotify:
		ok = ok && m.slot == 0
	case frameBye:
		ok = ok && *w == frameWords{uint64(frameBye)}
	case frameWrite, frameRead:
		ok = ok && m.slot < maxReqs && m.bytes <= chunkSize
	case frameFetchAdd, frameCompareSwap:
		ok = ok && m.slot < maxReqs && m.bytes == 8 && m.addr%8 == 0
	default:
		ok = false
	}
	if !ok {
		bad := *w // so that w itself stays on the caller's stack
		return message{}, fmt.Errorf("%w: frame %#x", ErrCorrupt, bad[:])
	}
	return m, nil
}
