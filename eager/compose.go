package eager

import (
	"encoding/binary"
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

// place is the place of a message in mirror and ring: fill bytes before the trailer of
// block pos, then the run: whole bytes of it at offset at, the rest at offset 0.
type place struct {
	pos            uint64
	k, fill        int
	at, whole, run int
	pad            int // zeros at the end of the message
}

// WR IDs: the tag in the top 16 bits, then a bit for credit writes whose source word must
// not change before they complete, then the position up to which blocks are done when the
// request is complete.
const (
	idPosBits = 47
	idPosMask = 1<<idPosBits - 1
	idCredit  = 1 << idPosBits
)

func (s *sender) id(pos uint64) uint64 { return uint64(s.tag)<<48 | pos&idPosMask }

func (s *sender) place(pos uint64, k, fill, n int, meta bool) place {
	p := place{pos: pos, k: k, fill: fill, pad: -n & 7}
	if k > 1 {
		if p.run = n + p.pad - fill; meta {
			p.run += metaSize
		}
		p.at, p.whole = s.txRing.runs(pos, p.run)
	}
	return p
}

// seal writes meta and trailer of the first block, and returns the block and the offset
// where its payload ends.
func (s *sender) seal(e *Envelope, p *place, n int) (block []byte, head int) {
	r := &s.txRing
	block = s.out[r.offset(p.pos):][:r.size]
	head = r.room()
	flags := flagFirst | e.flags
	if e.HasMeta {
		head -= metaSize
		flags |= flagMeta
		binary.LittleEndian.PutUint64(block[head:], e.Meta)
	}
	if p.k == 1 {
		flags |= flagLast
	}
	binary.LittleEndian.PutUint64(block[r.room():], uint64(makeTrailer(uint32(n), e.Kind, flags, r.Lap(p.pos))))
	return block, head
}

// fill copies the message, zero padding and trailer to the mirror.
func (s *sender) fill(e *Envelope, p *place, n int, pieces [][]byte) {
	block, head := s.seal(e, p, n)
	dst, then := block[s.txRing.room()-p.fill:head], 0
	for _, b := range pieces {
		for len(b) > 0 {
			for len(dst) == 0 { // the first block may have no room besides meta
				if then++; then == 1 {
					dst = s.out[p.at : p.at+p.whole]
				} else {
					dst = s.out[:p.run-p.whole]
				}
			}
			m := copy(dst, b)
			dst, b = dst[m:], b[m:]
		}
	}
	clear(dst) // up to 7 bytes
}

// request appends the requests that write a message in the mirror.
func (s *sender) request(p *place) {
	r := &s.txRing
	block := r.offset(p.pos)
	start, head := block+r.room()-p.fill, s.tx.Head()
	if s.cursorOut {
		// The write cursor follows. These requests complete only blocks up to pos, because
		// the cursor word of this message is not written yet.
		n := p.fill + trailerSize
		left := p.run
		if p.at != 0 {
			n += p.whole
			left -= p.whole
		}
		s.write(start, n, p.pos)
		if left > 0 {
			s.write(0, left, p.pos)
		}
		s.sign(s.staged-1, p.pos)
		return
	}
	if p.run > 0 {
		// The run is written first, see the package comment.
		s.write(p.at, p.whole, p.pos)
		if p.whole < p.run {
			s.write(0, p.run-p.whole, p.pos)
		}
	}
	s.write(start, p.fill+trailerSize, head)
	s.sign(s.staged-1, head)
}

// write appends the write of n bytes at offset off of the mirror to the same offset of the
// ring. Its completion stands for position pos.
func (s *sender) write(off, n int, pos uint64) {
	s.append(fabric.NewSGE(s.out[off:off+n], s.outKey), ringStart+off, s.id(pos))
}

// append appends a write of one piece.
func (s *sender) append(piece fabric.SGE, remote int, id uint64) {
	s.sges[s.pieces] = piece
	s.appendList(1, int(piece.Len), remote, id)
}

// appendList appends a write of the next n pieces, which hold size bytes.
func (s *sender) appendList(n, size, remote int, id uint64) {
	w := &s.wrs[s.staged]
	*w = fabric.WR{
		ID: id, Local: s.sges[s.pieces : s.pieces+n], RemoteAddr: s.peer.Region.Addr + uint64(remote),
		RKey: s.peer.Region.RKey, Imm: s.peer.Imm, Op: fabric.OpWrite,
	}
	if size <= s.inline {
		w.Flags = fabric.FlagInline
	}
	s.pieces += n
	s.staged++
	s.quiet++
}

// sign makes the staged request i signalled if a quarter queue of requests or
// Geometry.SignalEvery blocks have passed since the last one. Its completion stands for
// pos.
func (s *sender) sign(i int, pos uint64) {
	if s.quiet >= s.signalWRs || s.tx.Head()-s.signaled >= uint64(s.txRing.SignalEvery()) && pos != s.signaled {
		s.wrs[i].Flags |= fabric.FlagSignaled
		s.quiet, s.signaled = 0, pos
	}
}

// makeRoom ensures that n more requests with the given total of SGEs can be staged. For the
// first one it allocates what requests need; if that fails, so does the channel.
func (s *sender) makeRoom(n, pieces int) bool {
	if s.staged+n <= len(s.wrs) && s.pieces+pieces <= len(s.sges) {
		return true
	}
	if s.wrs == nil {
		err := s.prepare(true)
		if err != nil {
			_ = s.fail(err)
		}
		return err == nil
	}
	used := 0 // by waiting requests
	for i := s.first; i < s.staged; i++ {
		used += len(s.wrs[i].Local)
	}
	if s.staged-s.first+n > len(s.wrs) || used+pieces > len(s.sges) {
		return false
	}
	copy(s.sges, s.sges[s.pieces-used:s.pieces])
	copy(s.wrs, s.wrs[s.first:s.staged])
	s.staged, s.first, s.pieces = s.staged-s.first, 0, 0
	for i := range s.staged {
		w := &s.wrs[i]
		w.Local = s.sges[s.pieces : s.pieces+len(w.Local)]
		s.pieces += len(w.Local)
	}
	return true
}

// prepare allocates the mirror of the peer's first ring, if it is missing, and with lists those of
// requests.
func (s *sender) prepare(lists bool) error {
	if s.outReg == nil {
		m, err := openMirror(s.link, &s.txRing, s.sparse)
		if err != nil {
			return fmt.Errorf("mirror of a ring of %d bytes: %w", s.txRing.bytes(), fabric.Shortage(err))
		}
		s.out, s.outReg, s.outKey = m.mem, m.reg, m.reg.LKey()
		s.memory += mirrorMemory(&s.txRing)
	}
	if lists {
		s.wrs, s.sges = make([]fabric.WR, s.batch), make([]fabric.SGE, s.listed)
	}
	return nil
}

// Done reports whether the link no longer uses the memory of messages up to the position
// that StageVec returned. It becomes true when completions are passed to OnCompletion, and
// stays true. Without more traffic it becomes true only if pieces were sent in place.
func (s *sender) Done(pos uint64) bool { return int64(s.tx.Done()-pos) >= 0 }

// signBorrowed makes the last waiting request signalled, so that memory in use by the link
// is released soon. In mode cursor the write cursor may follow later: then the next call
// does it.
func (s *sender) signBorrowed() {
	w := &s.wrs[s.staged-1]
	if head := s.tx.Head(); (w.ID^s.id(head))&^idCredit == 0 {
		w.Flags |= fabric.FlagSignaled
		s.quiet, s.signaled, s.borrowed = 0, head, false
	}
}

// Room is the memory for the payload of a message, in up to three parts: in its first
// block, in the run behind it, and the rest of the run at the start of the ring.
type Room struct {
	parts [3][]byte
}

// Next drops the current part and returns the next one, nil at the end.
func (r *Room) Next() []byte {
	r.parts[0], r.parts[1], r.parts[2] = r.parts[1], r.parts[2], nil
	return r.parts[0]
}

// Put copies b to offset at of the current part, and on into as many parts as necessary. It
// returns the part that is current then, and the offset in it where b ends. Data that does
// not fit the room is dropped.
func (r *Room) Put(at int, b []byte) (part []byte, end int) {
	part = r.parts[0]
	for {
		n := copy(part[at:], b)
		at, b = at+n, b[n:]
		if len(b) == 0 {
			return part, at
		}
		if part, at = r.Next(), 0; part == nil {
			return nil, 0
		}
	}
}
