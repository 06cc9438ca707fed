package bench

import (
	"sync/atomic"
	"unsafe"
)

// cell is an aligned 8-byte word of memory that a peer writes.
type cell struct{ p *uint64 }

// cellAt returns the aligned word of mem that holds the byte at off. mem starts
// on a page boundary and is off-heap; off must lie inside it.
func cellAt(mem []byte, off int) cell {
	off &^= 7
	_ = mem[off+7]
	return cell{(*uint64)(unsafe.Pointer(&mem[off]))}
}

// load reads with acquire semantics: what the peer wrote before the word it returns
// is visible, as far as the link guarantees that order.
func (c cell) load() uint64 { return atomic.LoadUint64(c.p) }

func (c cell) store(v uint64) { atomic.StoreUint64(c.p, v) }
