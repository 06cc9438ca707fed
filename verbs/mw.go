package verbs

import "fmt"

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

// MW is a memory window: a right to a part of a region that can be given and
// withdrawn without registering.
type MW struct {
	h    uintptr
	rkey uint32
}

// WindowBind is what a window is bound to. RKey is the new key of a type 2
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

// RKey is the present key of the window. A bind of type 2 does not change it:
// there the request's key counts.
func (m *MW) RKey() uint32 { return m.rkey }

// NextRKey is the key that follows key in the tag that programs may choose, the
// low 8 bits.
func NextRKey(key uint32) uint32 { return key&^0xff | (key+1)&0xff }

// Bind binds a type 1 window; the completion carries id. The new key is
// MW.RKey.
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
