package eager

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
)

const (
	// packSize is the size of the largest message, with meta and trailer, behind which others
	// are put into its block: of larger ones each has its cache lines to itself anyway.
	packSize = 512

	// packMost is the number of bytes of a block that several messages take: 43 of 8 bytes.
	// More make a stream no faster, and pass more memory through the caches.
	packMost = 1024

	// packLeast is the number of bytes that must be left for another message.
	packLeast = 64
)

// SendShort is Send for a message of one block with meta, written directly into the peer's
// ring if the link maps it. There is no local copy, no request and no completion; the one
// cache line of an empty to medium message is written once. Small messages of a stream share
// blocks, and with them cache lines. It returns false, without effect, if only Send can send
// the message: the ring is not mapped or is full, requests wait to be posted, the message is
// longer than a block, or the peer's mode is not ModeLap.
//
// Hot path.
func (s *sender) SendShort(kind uint8, meta uint64, b []byte) bool {
	r := &s.txRing
	body := (len(b) + 7) &^ 7
	n := body + metaSize + trailerSize
	if s.near == nil || !s.open || s.first != s.staged || n > int(r.size) || s.tx.PeerSleeps() {
		return false
	}
	low, pos, opens := s.low-n, s.tx.Head()-1, s.low < n
	if opens {
		if s.tx.Free(flowctl.Data) == 0 && (s.applyCredit() != nil || s.tx.Free(flowctl.Data) == 0) {
			return false // s.err keeps the error
		}
		low, pos = int(r.size)-n, pos+1
	}
	flags, next, follows := uint8(flagFirst|flagLast|flagMeta), 0, 0
	if n <= packSize && appends(s, low) {
		flags, next, follows = flags|flagMore, trailerSize, low
	}
	mem := s.near.Reach(fabric.AccessRemoteWrite, s.peer.Region.RKey, s.peer.Region.Addr+uint64(ringStart+r.offset(pos)+low-next), n+next)
	if len(mem) != n+next {
		return false
	}
	if s.low = follows; next > 0 {
		binary.LittleEndian.PutUint64(mem, 0) // there is no next message yet
		mem = mem[next:]
	}
	switch len(b) {
	case 8:
		binary.LittleEndian.PutUint64(mem, binary.LittleEndian.Uint64(b))
	default:
		clear(mem[copy(mem, b):body])
	}
	binary.LittleEndian.PutUint64(mem[body:], meta)
	store64(mem, body+metaSize, uint64(makeTrailer(uint32(len(b)), kind, flags, r.Lap(pos))))
	s.near.Stored(false)
	if opens {
		s.tx.Reserve(1, flowctl.Data)
		// Mapped writes were complete when Reach allowed this; no completion is needed to know
		// that the mirror is free.
		_ = s.tx.Complete(pos + 1)
		s.signaled, s.quiet = pos+1, 0
	}
	s.stats.Sent++
	if s.back.rx.Due(true) {
		s.creditShort()
	}
	return true
}

// appends reports whether another message may be put before a small one, where low bytes of its
// block are left. One that follows a message of the peer is probably its answer: it has a block
// for itself, because the peer polls for it, and would fetch the line while this side writes the
// next message to it.
//
// Hot path.
func appends(s *sender, low int) bool {
	was := s.answered
	s.answered = s.back.reached()
	return was == s.answered && low >= packLeast && low > int(s.txRing.size)-packMost && s.txRing.Every > 1
}

// creditShort returns credit that is due, as flush does.
func (s *sender) creditShort() {
	if s.creditOut {
		return // of two credit words the newer must be written last
	}
	mem := s.near.Reach(fabric.AccessRemoteWrite, s.rz.theirs.RKey, s.rz.theirs.Addr+creditCell, 8)
	if len(mem) != 8 {
		return // it remains due
	}
	store64(mem, 0, s.back.rx.Word())
	s.near.Stored(false)
	s.stats.Credits++
}
