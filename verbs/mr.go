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

// Register registers mem, which must lie outside the Go heap (mmap) and stay
// mapped until the region is closed.
func (p *PD) Register(mem []byte, access Access) (*MR, error) {
	return p.register(mem, access, nil, false)
}

// RegisterIOVA is Register with another name for the first byte: remote and
// local requests name it iova instead of its address.
func (p *PD) RegisterIOVA(mem []byte, iova uint64, access Access) (*MR, error) {
	return p.register(mem, access, &iova, false)
}

// RegisterPinned registers a slice of the Go heap, pinned until the region is
// closed.
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

// Bytes is the memory.
func (m *MR) Bytes() []byte { return m.buf }

// Addr is the address of the first byte as SGEs and peers name it.
func (m *MR) Addr() uint64 { return m.iova }

// LKey goes into local SGEs.
func (m *MR) LKey() uint32 { return m.lkey }

// RKey is what peers need besides the address.
func (m *MR) RKey() uint32 { return m.rkey }

// SGE names n bytes of the region from offset off. It panics when they are not
// inside, like a slice expression.
func (m *MR) SGE(off, n int) SGE {
	_ = m.buf[off : off+n]
	return SGE{Addr: m.iova + uint64(off), Len: uint32(n), LKey: m.lkey}
}

// Close withdraws the registration; memory windows bound to it must be closed
// before. Requests that still use the region fail. The memory itself remains
// the caller's.
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
