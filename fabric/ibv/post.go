package ibv

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/verbs"
)

// Post implements fabric.Endpoint: one crossing into C for up to chainMax requests.
// Hot path.
func (e *endpoint) Post(wrs []fabric.WR) (n int, err error) {
	if s := e.state.Load(); s != stConnected && s != stSuspended {
		return 0, e.refuse()
	}
	if silent(e) {
		return 0, nil
	}
	if e.apart {
		if n, err = apart(e, wrs); err != nil {
			return 0, err
		}
		wrs, n = wrs[:n], 0
	}
	if e.split.left > 0 {
		if e.advance(); e.split.left > 0 || e.state.Load() == stDown {
			return 0, e.Err()
		}
	}
	for n < len(wrs) {
		if w := &wrs[n]; e.splits(w) {
			if reason := softlink.CheckShape(w, &e.l.caps); reason != "" {
				return n, &fabric.WRError{Index: n, Op: w.Op, Reason: reason}
			}
			if e.held(w) || e.tail-e.head >= e.depth {
				return n, nil
			}
			e.begin(w)
			n++
			if e.split.left > 0 || e.state.Load() == stDown {
				return n, nil
			}
			continue
		}
		m, full, err := e.chain(wrs, n)
		if m > n {
			k, perr := e.submit(wrs, n, m)
			n = k
			if perr != nil || k < m {
				return n, perr
			}
		}
		if err != nil || full {
			return n, err
		}
	}
	return n, nil
}

func (e *endpoint) refuse() error {
	switch e.state.Load() {
	case stNew:
		return fabric.ErrNotConnected
	case stClosed:
		return fmt.Errorf("%w: %w", fabric.ErrDown, e.reason())
	}
	return e.reason() // wraps ErrDown
}

// chain writes requests from wrs[n] on into the link's list, l.wrs[:l.staged], as many as
// there is room for, and takes slots for them. It returns the index of the first request
// not taken, and whether the queue was full or the request invalid.
func (e *endpoint) chain(wrs []fabric.WR, n int) (m int, full bool, err error) {
	l := e.l
	l.staged, l.spared = 0, 0
	for m = n; m < len(wrs); m++ {
		w := &wrs[m]
		if e.held(w) {
			return m, true, nil
		}
		if e.splits(w) {
			return m, false, nil // Post continues
		}
		if reason := softlink.CheckShape(w, &l.caps); reason != "" {
			return m, false, &fabric.WRError{Index: m, Op: w.Op, Reason: reason}
		}
		list := w.Local
		for i := range list {
			if list[i].Len == 0 { // some devices read 0 as 2^31
				if list = e.compact(list); list != nil {
					break
				}
				if l.staged > 0 {
					return m, false, nil // they fit into the next chain
				}
				return m, false, tooMany(e.l, m, w, chainMax)
			}
		}
		pieces := 1
		if len(list) > l.caps.MaxSGE {
			pieces = (len(list) + l.caps.MaxSGE - 1) / l.caps.MaxSGE
			if pieces > chainMax {
				return m, false, tooMany(e.l, m, w, chainMax)
			}
		}
		if l.noInline && w.Flags&fabric.FlagInline != 0 {
			pieces = 1
		}
		slots := pieces
		letter := e.mail.carries(w)
		if letter {
			if slots++; isAtomic(w.Op) || len(list) == 0 {
				pieces, slots = 0, 1
			}
		}
		if slots > chainMax { // the letter takes one
			return m, false, tooMany(e.l, m, w, chainMax-1)
		}
		if used := e.tail - e.head; used >= e.depth || e.depth-used < uint32(slots) {
			return m, true, nil
		}
		if l.staged+slots > chainMax {
			return m, false, nil
		}
		e.stage(w, list, pieces, letter)
		if letter {
			e.mail.stage(w)
		}
	}
	return m, false, nil
}

// tooMany says that w has more pieces than that many requests of the device take.
func tooMany(l *Link, m int, w *fabric.WR, requests int) error {
	return &fabric.WRError{Index: m, Op: w.Op, Reason: fmt.Sprintf("%d local pieces, at most %d", len(w.Local), requests*l.caps.MaxSGE)}
}

// compact copies the pieces that are not empty. It returns nil if this chain has no room
// left; an empty chain always has room.
func (e *endpoint) compact(list []fabric.SGE) []fabric.SGE {
	l := e.l
	free := l.spare[l.spared:]
	k := 0
	for i := range list {
		if list[i].Len == 0 {
			continue
		}
		if k == len(free) {
			return nil
		}
		free[k] = list[i]
		k++
	}
	l.spared += k
	return free[:k:k]
}

// stage appends w, in pieces, to the chain and takes slots for it. more: a letter follows.
func (e *endpoint) stage(w *fabric.WR, list []fabric.SGE, pieces int, more bool) {
	l := e.l
	remote := w.RemoteAddr
	for ; pieces > 0; pieces-- {
		part := list
		if pieces > 1 {
			part, list = list[:l.caps.MaxSGE], list[l.caps.MaxSGE:]
		}
		d := &l.wrs[l.staged]
		l.staged++
		s := &e.slots[e.tail&e.mask()]
		*s = slot{id: w.ID, op: w.Op}
		*d = verbs.SendWR{ID: e.tag | uint64(e.tail), SGL: sgl(part), RemoteAddr: remote, RKey: w.RKey}
		e.tail++
		e.unasked++
		switch w.Op {
		case fabric.OpWrite:
			d.Op = verbs.OpWrite
			switch {
			case w.Flags&fabric.FlagInline == 0:
			case l.noInline:
				d.SGL = e.mail.hold(int((e.tail-1)&e.mask()), list)
			default:
				d.Flags |= verbs.SendInline
			}
			if w.Flags&fabric.FlagNotify != 0 && pieces == 1 && !more {
				d.Op, d.Imm = verbs.OpWriteWithImm, w.Imm
			}
		case fabric.OpRead:
			d.Op = verbs.OpRead
		case fabric.OpFetchAdd:
			d.Op, d.Operand = verbs.OpFetchAdd, w.Operand
		case fabric.OpCompareSwap:
			d.Op, d.Compare, d.Operand = verbs.OpCmpSwap, w.Compare, w.Operand
		}
		if l.soft {
			e.soften(w, d, s)
		} else if w.Flags&fabric.FlagFence != 0 {
			d.Flags |= verbs.SendFence
		}
		if w.Flags&fabric.FlagSignaled != 0 {
			s.flags |= slotSignaled
		}
		if pieces > 1 || more {
			s.flags |= slotMore
			for i := range part {
				remote += uint64(part[i].Len)
			}
		} else if s.flags&slotSignaled != 0 {
			d.Flags |= verbs.SendSignaled
		}
		if e.unasked >= e.askAt {
			d.Flags |= verbs.SendSignaled
		}
		if d.Flags&verbs.SendSignaled != 0 {
			e.unasked = 0
		}
	}
}

// pass passes requests, which have slots, to the device, or keeps them until the endpoint continues.
// Hot path.
func pass(e *endpoint, wrs []verbs.SendWR) (n int, err error) {
	if e.keeps.Load() {
		return e.again.pass(wrs)
	}
	return e.qp.PostSend(wrs)
}

// submit posts the chain, which holds wrs[n:m], and returns the index of the first request
// not posted. The device may accept less than the requested depth; this is rare, but not an
// error.
func (e *endpoint) submit(wrs []fabric.WR, n, m int) (int, error) {
	l := e.l
	k, err := pass(e, l.wrs[:l.staged])
	if k == l.staged {
		return m, nil
	}
	// Release the slots of requests not accepted. The first pieces of a split request cut in
	// the middle are with the device; they have the same effect when the request is posted
	// again.
	e.giveBack(uint32(l.staged - k))
	for m = n; k > 0; k-- {
		if e.slots[(e.tail-uint32(k))&e.mask()].flags&slotMore == 0 {
			m++
		}
	}
	// The last request with a device completion may be among those released.
	e.unasked = e.askAt
	if err != nil {
		return m, &fabric.WRError{Index: m, Op: wrs[m].Op, Reason: err.Error()}
	}
	return m, nil
}
