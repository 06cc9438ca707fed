package eager

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
)

// place says where a message lies in mirror and ring: fill bytes before the
// trailer of block pos, and the run, whole bytes of it at at, the rest at 0.
type place struct {
	pos            uint64
	k, fill        int
	at, whole, run int
	pad            int // zeros at the end of all
}

func (c *Channel) place(pos uint64, k, fill, n int, meta bool) place {
	p := place{pos: pos, k: k, fill: fill, pad: -n & 7}
	if k > 1 {
		if p.run = n + p.pad - fill; meta {
			p.run += metaSize
		}
		p.at, p.whole = c.txRing.runs(pos, p.run)
	}
	return p
}

// seal writes meta and trailer of the first block and returns the block and
// where its payload ends.
func (c *Channel) seal(e *Envelope, p *place, n int) (block []byte, head int) {
	r := &c.txRing
	block = c.out[r.offset(p.pos):][:r.size]
	head = r.room()
	var flags uint8 = flagFirst
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

// fill copies the message to the mirror, zeros behind it, trailer.
func (c *Channel) fill(e *Envelope, p *place, n int, pieces [][]byte) {
	block, head := c.seal(e, p, n)
	dst, then := block[c.txRing.room()-p.fill:head], 0
	for _, b := range pieces {
		for len(b) > 0 {
			for len(dst) == 0 { // the first block may have no room beside meta
				if then++; then == 1 {
					dst = c.out[p.at : p.at+p.whole]
				} else {
					dst = c.out[:p.run-p.whole]
				}
			}
			m := copy(dst, b)
			dst, b = dst[m:], b[m:]
		}
	}
	clear(dst) // up to 7 bytes
}

// request appends the requests that write a message which lies in the mirror.
func (c *Channel) request(p *place) {
	r := &c.txRing
	block := r.offset(p.pos)
	start, head := block+r.room()-p.fill, c.tx.Head()
	if c.cursorOut {
		// The write cursor follows; these are done only as far as pos, because
		// the word of the cursor of this message is still to come.
		n := p.fill + trailerSize
		left := p.run
		if p.at != 0 {
			n += p.whole
			left -= p.whole
		}
		c.write(start, n, p.pos)
		if left > 0 {
			c.write(0, left, p.pos)
		}
		c.sign(c.staged-1, p.pos)
		return
	}
	if p.run > 0 {
		// The run goes first, see the package comment.
		c.write(p.at, p.whole, p.pos)
		if p.whole < p.run {
			c.write(0, p.run-p.whole, p.pos)
		}
	}
	c.write(start, p.fill+trailerSize, head)
	c.sign(c.staged-1, head)
}

// write appends the write of n bytes at off of the mirror to the same place of
// the ring. pos is the position that its completion stands for.
func (c *Channel) write(off, n int, pos uint64) {
	c.append(fabric.NewSGE(c.out[off:off+n], c.outKey), ringStart+off, c.id(pos))
}

// append appends a write of one piece.
func (c *Channel) append(s fabric.SGE, remote int, id uint64) {
	c.sges[c.pieces] = s
	c.appendList(1, int(s.Len), remote, id)
}

// appendList appends a write of the next n pieces, which hold size bytes.
func (c *Channel) appendList(n, size, remote int, id uint64) {
	w := &c.wrs[c.staged]
	*w = fabric.WR{
		ID: id, Local: c.sges[c.pieces : c.pieces+n], RemoteAddr: c.peer.Region.Addr + uint64(remote),
		RKey: c.peer.Region.RKey, Imm: c.peer.Imm, Op: fabric.OpWrite,
	}
	if size <= c.inline {
		w.Flags = fabric.FlagInline
	}
	c.pieces += n
	c.staged++
	c.quiet++
}

// sign makes the staged request i, whose completion stands for pos, signalled
// if it is time: a quarter queue of requests, or Geometry.SignalEvery blocks.
func (c *Channel) sign(i int, pos uint64) {
	if c.quiet >= c.signalWRs || c.tx.Head()-c.signaled >= uint64(c.txRing.SignalEvery()) && pos != c.signaled {
		c.wrs[i].Flags |= fabric.FlagSignaled
		c.quiet, c.signaled = 0, pos
	}
}
