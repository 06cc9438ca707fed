package verbs

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

// MR is a registered memory region.
type MR struct {
	h          uintptr
	buf        []byte
	addr       uint64
	iova       uint64
	lkey, rkey uint32
	pin        *runtime.Pinner // of RegisterPinned
}

// Register registers mem, which must lie outside the Go heap (mmap) and stay mapped until
// the region is closed.
func (p *PD) Register(mem []byte, access Access) (*MR, error) {
	return p.register(mem, access, nil, false)
}

// RegisterIOVA registers mem with iova as the address of its first byte in local and remote
// requests.
func (p *PD) RegisterIOVA(mem []byte, iova uint64, access Access) (*MR, error) {
	return p.register(mem, access, &iova, false)
}

// RegisterPinned registers a slice of the Go heap and pins it until the region is closed.
func (p *PD) RegisterPinned(mem []byte, access Access) (*MR, error) {
	return p.register(mem, access, nil, true)
}

func (p *PD) register(mem []byte, access Access, iova *uint64, pin bool) (*MR, error) {
	op := fmt.Sprintf("register %d bytes for %v", len(mem), access)
	h, err := p.use(op)
	if err != nil {
		return nil, err
	}
	if len(mem) == 0 {
		return nil, fmt.Errorf("%s: %w: empty", op, ErrInvalid)
	}
	if access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && access&AccessLocalWrite == 0 {
		return nil, fmt.Errorf("%s: %w: remote writing needs AccessLocalWrite as well", op, ErrInvalid)
	}
	m := &MR{buf: mem}
	if pin {
		m.pin = new(runtime.Pinner)
		m.pin.Pin(unsafe.SliceData(mem))
	}
	m.addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	m.iova = m.addr
	if iova != nil {
		m.iova = *iova
	}
	r, lkey, rkey, no := rawRegMR(h, uintptr(m.addr), len(mem), m.iova, access)
	if no != 0 {
		if pin {
			m.pin.Unpin()
		}
		hint := ""
		switch no {
		case syscall.EFAULT:
			hint = "part of it is not mapped, or mapped without the right that the region asks for"
		case syscall.EINVAL, syscall.EOPNOTSUPP:
			hint = "the device or its driver does not know one of these rights"
		}
		return nil, memFail(op, no, uint64(len(mem)), hint)
	}
	m.h, m.lkey, m.rkey = r, lkey, rkey
	return m, nil
}

// Bytes returns the memory.
func (m *MR) Bytes() []byte { return m.buf }

// Addr returns the address of the first byte for SGEs and remote requests.
func (m *MR) Addr() uint64 { return m.iova }

// LKey returns the key for local SGEs.
func (m *MR) LKey() uint32 { return m.lkey }

// RKey returns the key for requests of peers.
func (m *MR) RKey() uint32 { return m.rkey }

// SGE returns n bytes of the region from offset off. Like a slice expression, it panics if
// they are not inside.
func (m *MR) SGE(off, n int) SGE {
	_ = m.buf[off : off+n]
	return SGE{Addr: m.iova + uint64(off), Len: uint32(n), LKey: m.lkey}
}

// Close withdraws the registration. Memory windows bound to the region must be closed
// before. Requests that still use the region fail. The memory itself remains the caller's.
func (m *MR) Close() error {
	if m.h == 0 {
		return nil
	}
	if no := rawDeregMR(m.h); no != 0 {
		return closeFail("deregister memory", no)
	}
	m.h = 0
	if m.pin != nil {
		m.pin.Unpin()
	}
	return nil
}

// MWType is the kind of a memory window.
type MWType int32

// Memory windows of type 1 are bound by [QP.Bind], which gives them a new key;
// those of type 2 by a request (OpBindMW) with a key that the program chooses,
// and peers may invalidate them (OpSendWithInv).
const (
	MWType1 MWType = 1
	MWType2 MWType = 2
)

// String names the type.
func (t MWType) String() string { return name("mw-type", []string{1: "1", 2: "2"}, int(t)) }

// MW is a memory window: a right of access to a part of a region that is granted and
// withdrawn without a registration.
type MW struct {
	h    uintptr
	rkey uint32
}

// WindowBind describes the memory to bind a window to. RKey is the new key of a type 2
// window, see [NextRKey]. Len 0 unbinds.
type WindowBind struct {
	MW     *MW
	MR     *MR
	Addr   uint64
	Len    uint64
	Access Access
	RKey   uint32
}

// AllocMW creates an unbound window.
func (p *PD) AllocMW(t MWType) (*MW, error) {
	op := fmt.Sprintf("allocate memory window of type %v", t)
	h, err := p.use(op)
	if err != nil {
		return nil, err
	}
	mw, rkey, no := rawAllocMW(h, t)
	if no != 0 {
		return nil, fail(op, no, "see DeviceAttr.MaxMW and CapFlags")
	}
	return &MW{h: mw, rkey: rkey}, nil
}

// RKey returns the present key of the window. A bind of type 2 does not change it: the key
// of the request is the valid one there.
func (m *MW) RKey() uint32 { return m.rkey }

// NextRKey returns key with its low 8 bits, the tag that programs may choose, incremented.
func NextRKey(key uint32) uint32 { return key&^0xff | (key+1)&0xff }

// Bind binds a type 1 window; the completion carries id. MW.RKey returns the new key.
func (q *QP) Bind(id uint64, flags SendFlags, b WindowBind) error {
	const op = "bind memory window"
	if q.h == 0 || b.MW == nil || b.MW.h == 0 || b.MR == nil || b.MR.h == 0 {
		return fmt.Errorf("%s: %w", op, ErrClosed)
	}
	rkey, no := rawBindMW(q.h, b.MW.h, id, flags, b.MR.h, b.Addr, b.Len, b.Access)
	if no != 0 {
		return fail(op, no, "does the region have AccessMWBind?")
	}
	b.MW.rkey = rkey
	return nil
}

// Close releases the window.
func (m *MW) Close() error {
	if m.h == 0 {
		return nil
	}
	if no := rawDeallocMW(m.h); no != 0 {
		return closeFail("release memory window", no)
	}
	m.h = 0
	return nil
}
