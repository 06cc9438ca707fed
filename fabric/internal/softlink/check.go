package softlink

import (
	"github.com/seed33544411/rma/fabric"
)

// CheckShape says what is wrong with the form of wr under caps, "" if nothing:
// what every link refuses at Post. It looks at no key and no memory.
func CheckShape(wr *fabric.WR, caps *fabric.Caps) string {
	n := wr.Len()
	switch wr.Op {
	case fabric.OpWrite:
		if wr.Flags&fabric.FlagInline != 0 && n > uint64(caps.MaxInline) {
			return "inline payload larger than Caps.MaxInline"
		}
	case fabric.OpRead:
		if wr.Flags&(fabric.FlagInline|fabric.FlagNotify) != 0 {
			return "FlagInline and FlagNotify are for writes"
		}
	case fabric.OpFetchAdd, fabric.OpCompareSwap:
		if wr.Flags&(fabric.FlagInline|fabric.FlagNotify) != 0 {
			return "FlagInline and FlagNotify are for writes"
		}
		if len(wr.Local) != 1 || wr.Local[0].Len != 8 {
			return "an atomic takes one local piece of 8 bytes"
		}
		if wr.RemoteAddr%8 != 0 {
			return "remote address of an atomic must be a multiple of 8"
		}
	default:
		return "not an operation"
	}
	if n > caps.MaxMessage {
		return "longer than Caps.MaxMessage"
	}
	return ""
}

// CheckLocal reports whether all local pieces of wr lie in regions of this side
// with the rights the operation needs.
func (t *KeyTable) CheckLocal(wr *fabric.WR) bool {
	if wr.Flags&fabric.FlagInline != 0 {
		return true
	}
	var need fabric.Access
	if wr.Op != fabric.OpWrite {
		need = fabric.AccessLocalWrite
	}
	for i := range wr.Local {
		s := &wr.Local[i]
		if s.Len != 0 && !t.Allows(s.LKey, s.Addr, uint64(s.Len), need) {
			return false
		}
	}
	return true
}

// RemoteNeed is the right that op needs at the target.
func RemoteNeed(op fabric.Op) fabric.Access {
	switch op {
	case fabric.OpWrite:
		return fabric.AccessRemoteWrite
	case fabric.OpRead:
		return fabric.AccessRemoteRead
	default:
		return fabric.AccessRemoteAtomic
	}
}
