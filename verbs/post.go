package verbs

import (
	"fmt"
	"syscall"
	"unsafe"
)

// A list of requests is written as a chain of struct abi_send_wr into C memory of the queue
// pair and posted by one crossing. Passing the caller's list itself would pass Go pointers
// to Go pointers; converting it in C would mean a call for every request.
//
// The layouts below are those of abi_linux.h: asserted in shim_linux.c and in TestLayouts.
// Pointers are integers here: they point into C memory, so the collector may ignore them,
// and writing them needs no barrier.
type (
	sendWR struct {
		id       uint64
		next     uintptr
		sgl      uintptr
		numSGE   int32
		op       uint32
		flags    uint32
		imm      uint32 // big-endian, or key to invalidate
		remote   uint64 // ud: ah
		rkeyOr   uint64 // rdma: rkey in the low-address half; atomic: compare or addend; ud: qpn, qkey
		swap     uint64
		atomKey  uint32
		_        uint32
		_        uint32 // srqn
		_        uint32
		mw       uintptr
		mwRKey   uint32
		_        uint32
		mwMR     uintptr
		mwAddr   uint64
		mwLen    uint64
		mwAccess uint32
		_        uint32
	}
	recvWR struct {
		id     uint64
		next   uintptr
		sgl    uintptr
		numSGE int32
		_      uint32
	}
)

const (
	// chainMax is the largest number of requests per crossing. At 64, a crossing (35-80 ns)
	// costs about a nanosecond per request; more would only increase the memory of every
	// queue pair (176 bytes a slot).
	chainMax = 64

	// chainSGEs is the least number of pieces that a chain holds. A chain whose pieces do not
	// fit is cut there, so requests of many pieces need more crossings, each of which moves
	// much data.
	chainSGEs = 256
)

// chain is C memory for requests of one kind and their pieces.
type chain[WR sendWR | recvWR] struct {
	mem    uintptr
	wrs    []WR  // in C memory, each with the address of the next
	sges   []SGE // in C memory
	sgeMem uintptr
	maxSGE int // of one request
}

// init allocates n requests, at most chainMax; next returns the field of a request that
// holds the address of the next one. ok is false if C has no memory.
func (c *chain[WR]) init(n, maxSGE int, next func(*WR) *uintptr) (ok bool) {
	if n < 1 {
		return true
	}
	var wr WR
	n = min(n, chainMax)
	size, pieces := uintptr(n)*unsafe.Sizeof(wr), max(min(chainSGEs, n*maxSGE), maxSGE)
	mem := rawCalloc(int(size) + pieces*int(unsafe.Sizeof(SGE{})))
	if mem == 0 {
		return false
	}
	*c = chain[WR]{
		mem: mem, wrs: valuesAt[WR](mem, n),
		sges: valuesAt[SGE](mem+size, pieces), sgeMem: mem + size, maxSGE: maxSGE,
	}
	for i := range c.wrs {
		*next(&c.wrs[i]) = mem + uintptr(i+1)*unsafe.Sizeof(wr)
	}
	return true
}

func (c *chain[WR]) free() {
	if c.mem != 0 {
		rawFree(c.mem)
	}
	*c = chain[WR]{}
}

func (d *sendWR) behind() *uintptr { return &d.next }

func (d *recvWR) behind() *uintptr { return &d.next }

// PostSend posts wrs to the send queue in order, by one crossing into C for up to 64
// requests. n < len(wrs) with a nil error means that the queue is full: keep wrs[n:] and
// poll first. A non-nil error concerns wrs[n]; wrs[:n] were posted. The list and its SGLs
// may be reused at once, the memory that they name after the completion. PostSend allocates
// on failure only.
//
// One goroutine at a time for each queue pair.
// Hot path.
func (q *QP) PostSend(wrs []SendWR) (n int, err error) {
	c := &q.sq
	if q.h == 0 {
		return 0, ErrClosed
	}
	for n < len(wrs) {
		k, s := 0, 0
		for k < len(c.wrs) && n+k < len(wrs) {
			w := &wrs[n+k]
			if len(w.SGL) > len(c.sges)-s {
				if len(w.SGL) > c.maxSGE {
					err = &PostError{Index: n + k, Reason: fmt.Sprintf("%d pieces, the queue pair takes %d", len(w.SGL), c.maxSGE)}
				}
				break
			}
			d := &c.wrs[k]
			d.id = w.ID
			d.sgl = c.sgeMem + uintptr(s)*unsafe.Sizeof(SGE{})
			d.numSGE = int32(len(w.SGL))
			d.op = uint32(w.Op)
			d.flags = uint32(w.Flags)
			if len(w.SGL) == 1 {
				c.sges[s] = w.SGL[0]
				s++
			} else {
				s += copy(c.sges[s:], w.SGL)
			}
			if reason := d.fill(w); reason != "" {
				err = &PostError{Index: n + k, Reason: reason}
				break
			}
			k++
		}
		if k == 0 {
			return n, err
		}
		last := &c.wrs[k-1]
		next := last.next
		last.next = 0
		rc := rawPostSend(q.h, c.mem)
		last.next = next
		if rc != 0 {
			return posted(n, rc)
		}
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// fill writes the fields that depend on the operation, and returns what is wrong with w, ""
// if nothing.
func (d *sendWR) fill(w *SendWR) string {
	switch w.Op {
	case OpWrite, OpRead:
		d.remote = w.RemoteAddr
		d.setRKey(w.RKey)
	case OpWriteWithImm:
		d.remote = w.RemoteAddr
		d.setRKey(w.RKey)
		d.imm = ntoh32(w.Imm)
	case OpFetchAdd:
		d.remote, d.rkeyOr, d.atomKey = w.RemoteAddr, w.Operand, w.RKey
	case OpCmpSwap:
		d.remote, d.rkeyOr, d.swap, d.atomKey = w.RemoteAddr, w.Compare, w.Operand, w.RKey
	case OpSend, OpSendWithImm, OpSendWithInv:
		d.imm = ntoh32(w.Imm)
		if w.Op == OpSendWithInv {
			d.imm = w.RKey
		}
		if w.Datagram != nil {
			if w.Datagram.AH == nil || w.Datagram.AH.h == 0 {
				return "no open address handle"
			}
			d.remote = uint64(w.Datagram.AH.h)
			p := (*[2]uint32)(unsafe.Pointer(&d.rkeyOr))
			p[0], p[1] = w.Datagram.QPN, w.Datagram.QKey
		}
	case OpLocalInv:
		d.imm = w.RKey
	case OpBindMW:
		b := w.Bind
		if b == nil || b.MW == nil || b.MW.h == 0 || b.MR == nil || b.MR.h == 0 {
			return "no open window and region to bind"
		}
		d.mw, d.mwRKey, d.mwMR = b.MW.h, b.RKey, b.MR.h
		d.mwAddr, d.mwLen, d.mwAccess = b.Addr, b.Len, uint32(b.Access)
	default:
		return "unknown operation"
	}
	return ""
}

// setRKey stores the key at the place of wr.rdma.rkey, the first half of its word.
func (d *sendWR) setRKey(k uint32) { *(*uint32)(unsafe.Pointer(&d.rkeyOr)) = k }

// PostRecv posts wrs to the receive queue. See [QP.PostSend].
func (q *QP) PostRecv(wrs []RecvWR) (n int, err error) {
	if q.h == 0 {
		return 0, ErrClosed
	}
	return postRecv(&q.rq, q.h, wrs, rawPostRecv)
}

// postRecv posts wrs to a receive queue by raw.
func postRecv(c *chain[recvWR], h uintptr, wrs []RecvWR, raw func(h, wr uintptr) uint64) (n int, err error) {
	for n < len(wrs) {
		k, s := 0, 0
		for k < len(c.wrs) && n+k < len(wrs) {
			w := &wrs[n+k]
			if len(w.SGL) > len(c.sges)-s {
				if len(w.SGL) > c.maxSGE {
					err = &PostError{Index: n + k, Reason: fmt.Sprintf("%d pieces, the queue takes %d", len(w.SGL), c.maxSGE)}
				}
				break
			}
			d := &c.wrs[k]
			d.id = w.ID
			d.sgl = c.sgeMem + uintptr(s)*unsafe.Sizeof(SGE{})
			d.numSGE = int32(len(w.SGL))
			s += copy(c.sges[s:], w.SGL)
			k++
		}
		if k == 0 {
			if err == nil {
				err = &PostError{Index: n, Reason: "the queue pair has no receive queue of its own"}
			}
			return n, err
		}
		last := &c.wrs[k-1]
		next := last.next
		last.next = 0
		rc := raw(h, c.mem)
		last.next = next
		if rc != 0 {
			return posted(n, rc)
		}
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// posted decodes a refusal: base requests of earlier chains and those before the refused
// one were accepted.
func posted(base int, rc uint64) (int, error) {
	n := base + int(rc>>32)
	no := syscall.Errno(uint32(rc))
	if no == syscall.ENOMEM || no == syscall.EAGAIN {
		return n, nil
	}
	reason := ""
	switch no {
	case syscall.EINVAL:
		reason = "wrong state or type of the queue pair, too much inline data, or a misaligned atomic"
	case syscall.ENOSYS, syscall.EOPNOTSUPP:
		reason = "the device does not have the operation"
	}
	return n, &PostError{Index: n, Errno: no, Reason: reason}
}

// PostError reports a request that was not accepted. It unwraps to ErrInvalid, or to the
// errno of the library.
type PostError struct {
	Index  int           // in the list that was posted
	Errno  syscall.Errno // 0 if the package itself refused
	Reason string
}

func (e *PostError) Error() string {
	s := fmt.Sprintf("post work request %d", e.Index)
	if e.Errno != 0 {
		s += ": " + e.Errno.Error()
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Unwrap returns the errno, or ErrInvalid if there is none.
func (e *PostError) Unwrap() error {
	if e.Errno != 0 {
		return e.Errno
	}
	return ErrInvalid
}
