package tcp

import (
	"encoding/binary"
	"errors"

	"github.com/seed33544411/rma/fabric"
)

// Every frame starts with a header of headerSize bytes, little-endian:
//
//	 0       1       2       3       4                               8
//	+-------+-------+-------+-------+-------------------------------+
//	|  op   | flags | status|   0   |  ack: requests executed here  |
//	+-------+-------+-------+-------+-------------------------------+
//	|  seq: number of the request   |  imm: of a notifying write    |
//	+-------------------------------+-------------------------------+
//	|  n: bytes (see op)            |  rkey                         |
//	+-------------------------------+-------------------------------+
//	|  addr: target address                                         |
//	+---------------------------------------------------------------+
//
// followed by n bytes of payload, except after opRead, where n is the requested size, and
// with wireLanes, where the payload uses the lanes. Fields that an op does not use are
// zero.
//
// Requests of one side are numbered from 0 in the order in which they are sent; replies and
// refusals are sent in the order of the requests they answer. ack counts the requests of
// the other side that this side has executed, modulo 2^32.
const headerSize = 32

// wireOp is the type of a frame.
type wireOp uint8

const (
	opWrite       wireOp = 1 + iota // payload → addr
	opRead                          // n bytes at addr are requested
	opFetchAdd                      // payload: addend (8), 0 (8)
	opCompareSwap                   // payload: new value (8), expected (8)
	opReadReply                     // answers read seq
	opAtomicReply                   // answers atomic seq; payload: old value (8)
	opAck                           // only the ack field
	opNak                           // request seq was refused with status; the sender executes no more
	opBulk                          // on a lane: n bytes of request or answer seq, from its byte addr
	numOps
)

const (
	wireAck    uint8 = 1 << iota // write: acknowledge soon; opAck: acknowledge now
	wireNotify                   // write: report it with imm
	wireLanes                    // write, answer to a read: the payload uses the lanes
	wireReply                    // opBulk: of an answer
	wireAgain                    // opRead: it was accepted on a connection that was lost, and its answer has not arrived
	wireEnd                      // opAck: the sender closes its endpoint
)

// operandsSize is the payload of an atomic request, resultSize of its reply.
const (
	operandsSize = 16
	resultSize   = 8
)

// maxMessage is the largest size of one request: as on ibv devices.
const maxMessage = 1 << 31

type header struct {
	addr   uint64
	ack    uint32
	seq    uint32
	imm    uint32
	n      uint32
	rkey   uint32
	op     wireOp
	flags  uint8
	status fabric.Status
}

// Malformed frames, one error for each kind so that Endpoint.Err is specific.
var (
	errShortHeader = errors.New("frame header cut short")
	errBadOp       = errors.New("unknown frame type")
	errBadFlags    = errors.New("flags not allowed for the frame type")
	errBadField    = errors.New("non-zero field not used by the frame type")
	errBadLength   = errors.New("length not allowed for the frame type")
	errBadStatus   = errors.New("status not allowed for the frame type")
)

// put writes the header to b, which has at least headerSize bytes.
// Hot path.
func (h *header) put(b []byte) {
	_ = b[headerSize-1]
	b[0], b[1], b[2], b[3] = byte(h.op), h.flags, byte(h.status), 0
	binary.LittleEndian.PutUint32(b[4:], h.ack)
	binary.LittleEndian.PutUint32(b[8:], h.seq)
	binary.LittleEndian.PutUint32(b[12:], h.imm)
	binary.LittleEndian.PutUint32(b[16:], h.n)
	binary.LittleEndian.PutUint32(b[20:], h.rkey)
	binary.LittleEndian.PutUint64(b[24:], h.addr)
}

// append appends the header to b.
func (h *header) append(b []byte) []byte {
	var a [headerSize]byte
	h.put(a[:])
	return append(b, a[:]...)
}

// size returns the size of the frame on the wire in bytes.
func (h *header) size() uint64 {
	if h.op == opRead || h.flags&wireLanes != 0 {
		return headerSize
	}
	return headerSize + uint64(h.n)
}

// parse parses a header at the front of b and checks everything that does not depend on the
// connection.
// Hot path.
func (h *header) parse(b []byte) error {
	if len(b) < headerSize {
		return errShortHeader
	}
	h.op, h.flags, h.status = wireOp(b[0]), b[1], fabric.Status(b[2])
	h.ack = binary.LittleEndian.Uint32(b[4:])
	h.seq = binary.LittleEndian.Uint32(b[8:])
	h.imm = binary.LittleEndian.Uint32(b[12:])
	h.n = binary.LittleEndian.Uint32(b[16:])
	h.rkey = binary.LittleEndian.Uint32(b[20:])
	h.addr = binary.LittleEndian.Uint64(b[24:])
	if b[3] != 0 {
		return errBadField
	}
	if h.op == opWrite { // the most frequent one first
		switch {
		case h.flags&^(wireAck|wireNotify|wireLanes) != 0:
			return errBadFlags
		case h.n > maxMessage || h.flags&wireLanes != 0 && h.n == 0:
			return errBadLength
		case h.status != 0 || h.flags&wireNotify == 0 && h.imm != 0:
			return errBadField
		}
		return nil
	}
	return h.checkRest()
}

func (h *header) checkRest() error {
	flags, target, length := uint8(0), false, h.n == 0
	switch h.op {
	case opRead:
		flags, target, length = wireAgain, true, h.n <= maxMessage
	case opFetchAdd, opCompareSwap:
		target, length = true, h.n == operandsSize
	case opReadReply:
		flags, length = wireLanes, h.n <= maxMessage && (h.n != 0 || h.flags == 0)
	case opAtomicReply:
		length = h.n == resultSize
	case opAck:
		flags = wireAck | wireEnd
		if h.seq != 0 {
			return errBadField
		}
	case opBulk:
		// Acknowledgements are sent on the first connection only.
		if h.ack != 0 || h.rkey != 0 || h.addr >= maxMessage {
			return errBadField
		}
		flags, target, length = wireReply, true, h.n != 0 && h.n <= maxMessage
	case opNak:
		switch h.status {
		case fabric.StatusRemoteAccess, fabric.StatusRemoteInvalid, fabric.StatusRemoteOp:
		default:
			return errBadStatus
		}
	default:
		return errBadOp
	}
	switch {
	case h.flags&^flags != 0:
		return errBadFlags
	case !length:
		return errBadLength
	case h.imm != 0, h.op != opNak && h.status != 0, !target && (h.addr != 0 || h.rkey != 0):
		return errBadField
	}
	return nil
}
