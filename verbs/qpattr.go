package verbs

import (
	"fmt"
	"syscall"
)

// AttrMask selects fields of a QPAttr.
type AttrMask uint32

// Attribute mask bits.
const (
	AttrState         AttrMask = 1 << 0
	AttrCurState      AttrMask = 1 << 1
	AttrSQDNotify     AttrMask = 1 << 2
	AttrAccess        AttrMask = 1 << 3
	AttrPKeyIndex     AttrMask = 1 << 4
	AttrPort          AttrMask = 1 << 5
	AttrQKey          AttrMask = 1 << 6
	AttrAV            AttrMask = 1 << 7
	AttrPathMTU       AttrMask = 1 << 8
	AttrTimeout       AttrMask = 1 << 9
	AttrRetryCount    AttrMask = 1 << 10
	AttrRNRRetry      AttrMask = 1 << 11
	AttrRQPSN         AttrMask = 1 << 12
	AttrMaxReads      AttrMask = 1 << 13
	AttrAltPath       AttrMask = 1 << 14
	AttrMinRNRTimer   AttrMask = 1 << 15
	AttrSQPSN         AttrMask = 1 << 16
	AttrMaxReadsDest  AttrMask = 1 << 17
	AttrPathMigration AttrMask = 1 << 18
	AttrCap           AttrMask = 1 << 19
	AttrDestQPN       AttrMask = 1 << 20
)

var attrNames = []string{"state", "current state", "sqd notify", "access", "pkey index", "port", "qkey",
	"address vector", "path mtu", "timeout", "retry count", "rnr retry", "rq psn", "max reads",
	"alternate path", "min rnr timer", "sq psn", "max reads of the peer", "path migration", "cap", "dest qpn"}

// String lists the attributes.
func (m AttrMask) String() string { return bitNames(attrNames, uint32(m)) }

// AHAttr is a path to a peer.
type AHAttr struct {
	DGID         GID // with Global
	FlowLabel    uint32
	DLID         uint16 // InfiniBand
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	Global       bool // always on RoCE
	Port         uint8
}

// QPAttr holds the attributes of a queue pair. Times are in the encodings of
// the InfiniBand specification.
type QPAttr struct {
	State, CurState QPState
	PathMTU         MTU
	PathMigration   int32
	QKey            uint32
	RQPSN, SQPSN    uint32 // 24 bits
	DestQPN         uint32 // 24 bits
	Access          Access
	Cap             QPCap
	AH, AltAH       AHAttr
	PKeyIndex       uint16
	AltPKeyIndex    uint16
	SQDNotify       bool
	SQDraining      bool
	MaxReads        uint8 // reads and atomics in flight from here
	MaxReadsDest    uint8 // reads and atomics in flight from the peer that are served
	MinRNRTimer     uint8 // 0-31, see RNRTimer
	Port            uint8
	Timeout         uint8 // 4.096 µs · 2^Timeout; 0 means infinite
	RetryCount      uint8 // 0-7. Some devices (rxe) retry forever at 7
	RNRRetry        uint8 // 0-7; 7 means infinite
	AltPort         uint8
	AltTimeout      uint8
}

// Modify changes the attributes selected by mask. See the table of transitions in the
// InfiniBand specification, or the helpers below.
func (q *QP) Modify(a *QPAttr, mask AttrMask) error {
	op := func() string { return fmt.Sprintf("modify queue pair %#x (%v)", q.num, mask) }
	if mask&AttrState != 0 {
		op = func() string { return fmt.Sprintf("move queue pair %#x to %v", q.num, a.State) }
	}
	if q.h == 0 {
		return fmt.Errorf("%s: %w", op(), ErrClosed)
	}
	no := rawModifyQP(q.h, a, mask)
	if no == 0 {
		return nil
	}
	hint := ""
	switch no {
	case syscall.EINVAL:
		hint = fmt.Sprintf("the state does not allow it, or one of these attributes is out of range or missing: %v", mask)
	case syscall.ETIMEDOUT, syscall.ENETUNREACH, syscall.EHOSTUNREACH:
		hint = "no route to the peer's address from this GID: check the GID index and the route"
	}
	return fail(op(), no, hint)
}

// Query returns the attributes selected by mask; devices may fill in more.
func (q *QP) Query(mask AttrMask) (QPAttr, error) {
	op := fmt.Sprintf("query queue pair %#x", q.num)
	if q.h == 0 {
		return QPAttr{}, fmt.Errorf("%s: %w", op, ErrClosed)
	}
	a, no := rawQueryQP(q.h, mask)
	return a, fail(op, no, "")
}

// State returns the present state.
func (q *QP) State() (QPState, error) {
	a, err := q.Query(AttrState)
	return a.State, err
}

// ToReset moves the queue pair to RESET: outstanding requests are dropped without
// completion; existing completions stay in the completion queue.
func (q *QP) ToReset() error {
	return q.Modify(&QPAttr{State: StateReset}, AttrState)
}

// ToErr moves the queue pair to the error state: outstanding requests complete as flushed.
func (q *QP) ToErr() error {
	return q.Modify(&QPAttr{State: StateErr}, AttrState)
}

// ToInit moves an RC or UC queue pair from RESET to INIT. access holds the rights of the
// peer. Receives may be posted from now on.
func (q *QP) ToInit(port int, pkeyIndex uint16, access Access) error {
	return q.Modify(&QPAttr{State: StateInit, Port: uint8(port), PKeyIndex: pkeyIndex, Access: access},
		AttrState|AttrPort|AttrPKeyIndex|AttrAccess)
}

// ToInitUD moves a UD queue pair from RESET to INIT.
func (q *QP) ToInitUD(port int, pkeyIndex uint16, qkey uint32) error {
	return q.Modify(&QPAttr{State: StateInit, Port: uint8(port), PKeyIndex: pkeyIndex, QKey: qkey},
		AttrState|AttrPort|AttrPKeyIndex|AttrQKey)
}

// ToRTR moves the queue pair from INIT to ready-to-receive. Of a, RC uses AH, PathMTU,
// DestQPN, RQPSN, MaxReadsDest and MinRNRTimer; UC all of these but the last two; UD none
// (a may be nil).
func (q *QP) ToRTR(a *QPAttr) error {
	if q.typ == UD {
		return q.Modify(&QPAttr{State: StateRTR}, AttrState)
	}
	b := *a
	b.State = StateRTR
	mask := AttrState | AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN
	if q.typ == RC {
		mask |= AttrMaxReadsDest | AttrMinRNRTimer
	}
	return q.Modify(&b, mask)
}

// ToRTS moves the queue pair from RTR to ready-to-send. Of a, RC uses SQPSN,
// Timeout, RetryCount, RNRRetry and MaxReads; UC and UD only SQPSN.
func (q *QP) ToRTS(a *QPAttr) error {
	b := *a
	b.State = StateRTS
	mask := AttrState | AttrSQPSN
	if q.typ == RC {
		mask |= AttrTimeout | AttrRetryCount | AttrRNRRetry | AttrMaxReads
	}
	return q.Modify(&b, mask)
}
