package eager

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
)

// SendShort is Send of a message of one block with meta, made where it is to lie: in the
// peer's ring, where the link maps that. There is no copy of it here, no request and no
// completion; the one cache line that an empty to medium message needs is written once.
// It reports false, and has done nothing, wherever Send would have to be asked: the
// ring is not mapped here or full, something waits to be posted, the message is
// longer than a block, the peer's mode is not ModeLap.
//
// Hot path.
func (s *sender) SendShort(kind uint8, meta uint64, b []byte) bool {
	r := &s.txRing
	if s.near == nil || !s.live || s.first != s.staged || len(b) > r.room()-metaSize || s.tx.PeerSleeps() {
		return false
	}
	if s.tx.Free(flowctl.Data) == 0 && (s.applyCredit() != nil || s.tx.Free(flowctl.Data) == 0) {
		return false // the error is kept
	}
	pos := s.tx.Head()
	body := (len(b) + 7) &^ 7
	n := body + metaSize + trailerSize
	mem := s.near.Reach(fabric.AccessRemoteWrite, s.peer.Region.RKey, s.peer.Region.Addr+uint64(ringStart+r.offset(pos)+int(r.size)-n), n)
	if len(mem) != n {
		return false
	}
	switch len(b) {
	case 8:
		binary.LittleEndian.PutUint64(mem, binary.LittleEndian.Uint64(b))
	default:
		clear(mem[copy(mem, b):body])
	}
	binary.LittleEndian.PutUint64(mem[body:], meta)
	store64(mem, body+metaSize, uint64(makeTrailer(uint32(len(b)), kind, flagFirst|flagLast|flagMeta, r.Lap(pos))))
	s.near.Stored()
	s.tx.Reserve(1, flowctl.Data)
	// What is mapped was carried out when Reach allowed this; no completion is needed
	// to know that the mirror is free.
	_ = s.tx.Complete(pos + 1)
	s.signaled, s.quiet = pos+1, 0
	s.stats.Sent++
	s.stats.SentBytes += uint64(len(b))
	if s.back.rx.Due(true) {
		s.creditShort()
	}
	return true
}

// creditShort returns credit that is due, as flush does.
func (s *sender) creditShort() {
	if s.creditOut {
		return // of two words the last must be the newer
	}
	mem := s.near.Reach(fabric.AccessRemoteWrite, s.peer.Region.RKey, s.peer.Region.Addr+creditCell, 8)
	if len(mem) != 8 {
		return // it stays due
	}
	store64(mem, 0, s.back.rx.Word())
	s.near.Stored()
	s.stats.Credits++
}
