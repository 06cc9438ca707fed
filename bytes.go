package rma

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/mr"
)

const (
	// stageMax is the longest slice that is copied through registered memory
	// instead of being registered itself: copying a page costs about as much as
	// finding a registration, and pins nothing.
	stageMax = 4096

	// stageLimit bounds the memory for that; beyond it, slices are registered.
	stageLimit = 8 << 20
)

// PutBytes is Put from memory of any kind: src need not be registered, and may be
// part of the Go heap. Small slices are copied, others are pinned and registered
// until the request is complete, and stay so for the next time as far as
// Config.PinnedLimit allows. Until then src belongs to the engine. Put from
// registered memory costs less.
func (p *Peer) PutBytes(dst Remote, src []byte) Request { return p.user(kindPut, dst, src) }

// GetBytes is Get into memory of any kind, see PutBytes.
func (p *Peer) GetBytes(dst []byte, src Remote) Request { return p.user(kindGet, src, dst) }

func (p *Peer) user(kind kind, at Remote, mem []byte) Request {
	o := newOp(p, kind)
	if len(mem) > 0 {
		o.extend().user.mem = mem
	}
	return p.submit(o, at, uint64(len(mem)))
}

// user is memory of the application that an operation works on, in more.
type user struct {
	mem   []byte
	piece mr.Piece // it is staged here
	pin   message.Pin
}

// stage makes the user's memory fit for the link. The address that it has now is
// kept until unstage: by the pin, or because it is not the memory that moves.
func (t *initiator) stage(p *Peer, o *op) error {
	u := &o.more.user
	n := len(u.mem)
	if n <= stageMax {
		if err := t.stageSmall(p, o); err == nil {
			return nil
		}
	}
	access := fabric.Access(0)
	if o.kind == kindGet {
		access = fabric.AccessLocalWrite
	}
	var err error
	if u.pin, err = p.eng.pins[p.link].Take(u.mem, access); err != nil {
		return err
	}
	if uint64(n) <= p.max {
		o.sge = fabric.NewSGE(u.mem, u.pin.LKey())
		return nil
	}
	c := &o.more.cur
	c.AddLocal(onesided.Piece{Addr: fabric.Addr(u.mem), Len: uint64(n), Key: u.pin.LKey()})
	c.AddRemote(onesided.Piece{Addr: o.remote, Len: uint64(n), Key: o.rkey})
	c.End()
	return nil
}

// stageSmall copies, or makes room for a copy.
func (t *initiator) stageSmall(p *Peer, o *op) error {
	u := &o.more.user
	var err error
	if t.arena == nil {
		if t.arena, err = mr.NewArena(p.eng.memory, mr.ArenaOptions{Limit: stageLimit, Slab: 256 << 10, Access: fabric.AccessLocalWrite}); err != nil {
			return err
		}
	}
	piece, err := t.arena.Alloc(len(u.mem), offheap.Staging)
	if err != nil {
		return err
	}
	if o.sge, err = piece.SGE(p.link, 0, len(u.mem)); err != nil {
		_ = t.arena.Free(piece)
		return err
	}
	u.piece = piece
	if o.kind == kindPut {
		copy(piece.Bytes(), u.mem)
	}
	return nil
}

// unstage gives back what stage took, and what was fetched to the user.
func (t *initiator) unstage(o *op) {
	u := &o.more.user
	if u.piece.Live() {
		if o.kind == kindGet && o.Err == nil {
			copy(u.mem, u.piece.Bytes())
		}
		_ = t.arena.Free(u.piece) // it is live
	}
	o.peer.eng.pins[o.peer.link].Release(&u.pin)
	*u = user{}
}
