package initiator

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/mr"
)

const (
	// stageMax is the longest slice that is copied through registered memory instead of
	// being registered: copying a page costs about as much as finding a registration, and
	// pins nothing.
	stageMax = 4096

	// stageLimit bounds the memory of these copies; beyond it, slices are registered.
	stageLimit = 8 << 20
)

// stage prepares the user's memory for a link. Its address stays valid until unstage,
// because it is pinned or a copy is transferred instead.
func (u *user) stage(o *Op) error {
	q := o.q
	n := len(u.mem)
	if n <= stageMax {
		if err := u.stageSmall(o); err == nil {
			return nil
		}
	}
	access := fabric.Access(0)
	if o.kind == Get {
		access = fabric.AccessLocalWrite
	}
	var err error
	if u.pin, err = q.link.pins.Take(u.mem, access); err != nil {
		return err
	}
	if o.divides {
		u.stageRails(o, access)
	}
	if uint64(n) <= q.max {
		o.sge = fabric.NewSGE(u.mem, u.pin.LKey())
		return nil
	}
	c := &o.more.cur
	c.AddLocal(onesided.Piece{Addr: fabric.Addr(u.mem), Len: uint64(n), Key: u.pin.LKey()})
	c.AddRemote(onesided.Piece{Addr: o.remote, Len: uint64(n), Key: o.rkey})
	c.End()
	if o.divides {
		o.slices(fabric.Addr(u.mem))
	}
	return nil
}

// stageRails registers the memory on the links of all rails that are up. A rail where that
// fails gets no part.
func (u *user) stageRails(o *Op, access fabric.Access) {
	keys := &o.more.keys
	keys[0].LKey = u.pin.LKey()
	for i := 1; i < len(keys); i++ {
		k := &keys[i]
		if k.Has = k.Has && o.q.rails.rail[i].ep != nil; !k.Has {
			continue
		}
		var err error
		u.pins[i], err = o.q.eng.links[k.Link].pins.Take(u.mem, access)
		k.LKey, k.Has = u.pins[i].LKey(), err == nil
	}
}

// stageSmall copies the memory, or allocates the memory of a copy.
func (u *user) stageSmall(o *Op) error {
	q, e := o.q, o.q.eng
	var err error
	if e.staging == nil {
		if e.staging, err = mr.NewArena(e.memory, mr.ArenaOptions{Limit: stageLimit, Slab: 256 << 10, Access: fabric.AccessLocalWrite}); err != nil {
			return err
		}
	}
	piece, err := e.staging.Alloc(len(u.mem), offheap.Staging)
	if err != nil {
		return err
	}
	if o.sge, err = piece.SGE(q.index, 0, len(u.mem)); err != nil {
		_ = e.staging.Free(piece)
		return err
	}
	u.piece = piece
	if o.kind == Put {
		copy(piece.Bytes(), u.mem)
	}
	return nil
}

// unstage releases the memory that stage took, and copies fetched data to the user's
// memory.
func (u *user) unstage(o *Op) {
	if u.piece.Live() {
		if o.kind == Get && o.Err == nil {
			copy(u.mem, u.piece.Bytes())
		}
		_ = o.q.eng.staging.Free(u.piece) // a live piece: cannot fail
	}
	o.q.link.pins.Release(&u.pin)
	if o.more.divided.keys[0].Has {
		for i := range u.pins {
			o.q.eng.links[o.more.divided.keys[i].Link].pins.Release(&u.pins[i])
		}
	}
	*u = user{}
}
