package verbs

import (
	"errors"
	"fmt"
	"math/bits"
)

// WC is one completion. Its layout is that of struct ibv_wc, so that the library fills a
// list of them itself.
//
// Of a failed completion only ID, Status, VendorErr and QPN are valid.
type WC struct {
	ID        uint64 // of the work request
	Status    WCStatus
	Op        WCOp
	VendorErr uint32
	ByteLen   uint32 // of receives, reads and atomics
	rawImm    uint32 // immediate in network byte order, or the invalidated key
	QPN       uint32 // local queue pair
	SrcQP     uint32 // UD: sender's queue pair
	Flags     WCFlags
	PKeyIndex uint16
	SLID      uint16
	SL        uint8
	PathBits  uint8
}

// Imm returns the immediate value, valid if Flags has WCWithImm.
func (w *WC) Imm() uint32 { return ntoh32(w.rawImm) }

// InvalidatedRKey returns the key that the sender invalidated, valid if Flags has
// WCWithInv.
func (w *WC) InvalidatedRKey() uint32 { return w.rawImm }

// Err returns nil for a successful completion, else a *WCError. It allocates on failure
// only.
func (w *WC) Err() error {
	if w.Status == WCSuccess {
		return nil
	}
	return &WCError{ID: w.ID, Status: w.Status, Vendor: w.VendorErr, QPN: w.QPN}
}

// ntoh32 converts between network and host byte order.
func ntoh32(v uint32) uint32 {
	if littleEndian {
		return bits.ReverseBytes32(v)
	}
	return v
}

func ntoh64(v uint64) uint64 {
	if littleEndian {
		return bits.ReverseBytes64(v)
	}
	return v
}

// WCFlags say which parts of a completion are valid.
type WCFlags uint32

// Completion flags.
const (
	WCWithGRH WCFlags = 1 << 0 // the first 40 bytes received are the global routing header
	WCWithImm WCFlags = 1 << 1
	WCCsumOK  WCFlags = 1 << 2
	WCWithInv WCFlags = 1 << 3
)

// String lists the flags.
func (f WCFlags) String() string {
	return bitNames([]string{"grh", "imm", "csum-ok", "inv"}, uint32(f))
}

// WCOp is the kind of the completed request.
type WCOp int32

// Completion kinds.
const (
	WCSend WCOp = iota
	WCWrite
	WCRead
	WCCompSwap
	WCFetchAdd
	WCBindMW
	WCLocalInv
	WCTSO
	WCRecv        WCOp = 128
	WCRecvWithImm WCOp = 129 // a peer's write with immediate
)

// String names the kind.
func (o WCOp) String() string {
	return name("wc-op", []string{"send", "write", "read", "compare-swap", "fetch-add", "bind window",
		"local invalidate", "tso", 128: "receive", 129: "receive of write with immediate"}, int(o))
}

// WCStatus is the result of a work request.
type WCStatus int32

// Completion statuses.
const (
	WCSuccess WCStatus = iota
	WCLocLenErr
	WCLocQPOpErr
	WCLocEECOpErr
	WCLocProtErr
	WCFlushErr
	WCMWBindErr
	WCBadRespErr
	WCLocAccessErr
	WCRemInvReqErr
	WCRemAccessErr
	WCRemOpErr
	WCRetryExcErr
	WCRNRRetryExcErr
	WCLocRDDViolErr
	WCRemInvRDReqErr
	WCRemAbortErr
	WCInvEECNErr
	WCInvEECStateErr
	WCFatalErr
	WCRespTimeoutErr
	WCGeneralErr
	WCTMErr
	WCTMRndvIncomplete
	numWCStatus
)

// Sentinels that a WCError unwraps to, by the caller's possible reactions.
var (
	ErrWCFlushed      = errors.New("flushed")
	ErrWCLocal        = errors.New("request is wrong at this side")
	ErrWCRemoteAccess = errors.New("remote access refused")
	ErrWCRemote       = errors.New("request failed at the remote side")
	ErrWCPeer         = errors.New("peer does not answer")
	ErrWCNotReady     = errors.New("peer has no receive posted")
	ErrWCDevice       = errors.New("device failure")
)

type wcText struct {
	name string
	kind error
	todo string
}

var wcTexts = [numWCStatus]wcText{
	WCSuccess:          {"success", nil, ""},
	WCLocLenErr:        {"local length error", ErrWCLocal, "a message is longer than the receive posted for it, or than the port allows"},
	WCLocQPOpErr:       {"local queue pair operation error", ErrWCLocal, "the request does not fit the type or state of its queue pair"},
	WCLocEECOpErr:      {"local EE context operation error", ErrWCLocal, "reliable datagrams are not supported"},
	WCLocProtErr:       {"local protection error", ErrWCLocal, "a local piece lies outside the region of its LKey, or the region lacks the right to write locally"},
	WCFlushErr:         {"flushed", ErrWCFlushed, "an earlier request of the queue pair failed, or it was moved to the error state; look at the first completion that failed"},
	WCMWBindErr:        {"memory window bind error", ErrWCLocal, "the region lacks AccessMWBind, or the window does not fit into it"},
	WCBadRespErr:       {"bad response", ErrWCRemote, "the peer answered something that makes no sense: is it the queue pair that this one is connected to?"},
	WCLocAccessErr:     {"local access error", ErrWCLocal, "a peer's write reached memory without the right to be written"},
	WCRemInvReqErr:     {"remote invalid request", ErrWCRemote, "the peer's queue pair does not allow this operation, or its receive is too short"},
	WCRemAccessErr:     {"remote access error", ErrWCRemoteAccess, "the remote key is stale or wrong, the address lies outside its region, or region or queue pair of the peer lack the right"},
	WCRemOpErr:         {"remote operation error", ErrWCRemote, "the peer failed to carry it out; its own error says why"},
	WCRetryExcErr:      {"transport retries exceeded", ErrWCPeer, "the peer is dead, unreachable or not in RTR: check that it runs, the addresses (GID index) of both sides, and UDP port 4791 in firewalls"},
	WCRNRRetryExcErr:   {"receiver-not-ready retries exceeded", ErrWCNotReady, "the peer posted no receive in time: post more of them there, or raise RNRRetry"},
	WCLocRDDViolErr:    {"local RDD violation", ErrWCLocal, "reliable datagrams are not supported"},
	WCRemInvRDReqErr:   {"remote invalid RD request", ErrWCRemote, "reliable datagrams are not supported"},
	WCRemAbortErr:      {"remote aborted", ErrWCRemote, "the peer gave the operation up"},
	WCInvEECNErr:       {"invalid EE context number", ErrWCLocal, "reliable datagrams are not supported"},
	WCInvEECStateErr:   {"invalid EE context state", ErrWCLocal, "reliable datagrams are not supported"},
	WCFatalErr:         {"fatal error", ErrWCDevice, "the device failed: see the kernel's log"},
	WCRespTimeoutErr:   {"response timeout", ErrWCPeer, "the peer did not answer"},
	WCGeneralErr:       {"general error", ErrWCDevice, "see the vendor's code and the kernel's log"},
	WCTMErr:            {"tag matching error", ErrWCLocal, "a tag list operation failed"},
	WCTMRndvIncomplete: {"tag matching rendezvous incomplete", ErrWCLocal, "software must finish the rendezvous"},
}

// String describes the status.
func (s WCStatus) String() string {
	if s >= 0 && s < numWCStatus {
		return wcTexts[s].name
	}
	return fmt.Sprintf("wc-status(%d)", int32(s))
}

// WCError reports a failed work request. It unwraps to one of the ErrWC sentinels, or to
// none if the status is unknown.
type WCError struct {
	ID     uint64 // of the work request
	Status WCStatus
	Vendor uint32 // the device's own code, 0 if none
	QPN    uint32 // local queue pair
}

func (e *WCError) Error() string {
	s := fmt.Sprintf("work request %#x on queue pair %#x: %v", e.ID, e.QPN, e.Status)
	if e.Vendor != 0 {
		s += fmt.Sprintf(" (vendor code %#x)", e.Vendor)
	}
	if e.Status > 0 && e.Status < numWCStatus {
		s += ": " + wcTexts[e.Status].todo
	}
	return s
}

// Unwrap returns the sentinel of the status.
func (e *WCError) Unwrap() error {
	if e.Status > 0 && e.Status < numWCStatus {
		return wcTexts[e.Status].kind
	}
	return nil
}
