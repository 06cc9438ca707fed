package verbs

import "encoding/binary"

// littleEndian is the byte order of this machine.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// SGE is one piece of local memory. Its layout is that of struct ibv_sge. Addr
// is an integer that the garbage collector does not see: the memory must be
// off-heap or pinned until the request completes.
type SGE struct {
	Addr uint64
	Len  uint32
	LKey uint32
}

// SendOp is the operation of a SendWR.
type SendOp uint8

// Operations.
const (
	OpWrite SendOp = iota
	OpWriteWithImm
	OpSend
	OpSendWithImm
	OpRead
	OpCmpSwap
	OpFetchAdd
	OpLocalInv
	OpBindMW
	OpSendWithInv
	numSendOps
)

// String names the operation.
func (o SendOp) String() string {
	return name("send-op", []string{"write", "write with immediate", "send", "send with immediate", "read",
		"compare-swap", "fetch-add", "local invalidate", "bind window", "send with invalidate"}, int(o))
}

// SendFlags modify a SendWR.
type SendFlags uint8

// Flags.
const (
	SendFence     SendFlags = 1 << 0 // start after all earlier reads and atomics are complete
	SendSignaled  SendFlags = 1 << 1 // complete even if successful
	SendSolicited SendFlags = 1 << 2 // the completion at the peer is solicited
	SendInline    SendFlags = 1 << 3 // copy the payload during PostSend; LKeys are not checked
)

// String lists the flags.
func (f SendFlags) String() string {
	return bitNames([]string{"fence", "signaled", "solicited", "inline"}, uint32(f))
}

// SendWR is one request for the send queue. Fields that its operation does not use are
// ignored.
type SendWR struct {
	ID         uint64
	SGL        []SGE
	RemoteAddr uint64 // writes, reads, atomics (8-byte aligned)
	Compare    uint64 // OpCmpSwap
	Operand    uint64 // OpFetchAdd: addend; OpCmpSwap: new value
	RKey       uint32 // of the remote memory; with OpSendWithInv, OpLocalInv: key to invalidate
	Imm        uint32 // of the operations with immediate, in host order
	Op         SendOp
	Flags      SendFlags

	// Datagram is the destination, of UD queue pairs only.
	Datagram *Datagram

	// Bind holds the parameters of OpBindMW.
	Bind *WindowBind
}

// Datagram is the destination of a UD request.
type Datagram struct {
	AH   *AH
	QPN  uint32
	QKey uint32
}

// RecvWR is one request for a receive queue.
type RecvWR struct {
	ID  uint64
	SGL []SGE
}
