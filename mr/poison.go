package mr

import (
	"bytes"
	"fmt"
)

// poisonByte is what freed memory is filled with: an odd word that is neither
// a small number nor an address.
const poisonByte = 0xdb

func (a *Arena) piece(s *slab, slot uint32) []byte {
	off := int(slot) * s.size
	return s.mem[off : off+s.size]
}

func (a *Arena) poison(s *slab, slot uint32) {
	b := a.piece(s, slot)
	for i := range b {
		b[i] = poisonByte
	}
}

// checkPoison returns an error if a free slot was written to.
func (a *Arena) checkPoison(s *slab, slot uint32) error {
	if len(a.scratch) < unit {
		a.scratch = bytes.Repeat([]byte{poisonByte}, unit)
	}
	b := a.piece(s, slot)
	for at := 0; at < len(b); at += unit {
		if !bytes.Equal(b[at:at+unit], a.scratch) {
			return fmt.Errorf("mr: arena: %w: within 64 bytes from offset %d of a piece of %d at %#x",
				ErrUseAfterFree, at, s.size, s.reg.key.Addr+uint64(slot)*uint64(s.size))
		}
	}
	return nil
}
