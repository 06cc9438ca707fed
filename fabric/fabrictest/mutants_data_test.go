package fabrictest

import (
	"errors"
	"slices"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
)

func mutants() []mutant {
	return slices.Concat(dataMutants, atomicMutants, orderMutants, accessMutants, queueMutants,
		wakeMutants, goneMutants, connectMutants, allocMutants)
}

// each returns a post hook that changes every request.
func each(f func(e *mutEP, w *fabric.WR)) hooks {
	return hooks{post: func(e *mutEP, ws []fabric.WR) (int, error) {
		ws = clone(ws)
		for i := range ws {
			f(e, &ws[i])
		}
		return e.Endpoint.Post(ws)
	}}
}

// reported returns a poll hook that changes every completion, or drops it (false).
func reported(f func(l *mutLink, c *fabric.Completion) bool) hooks {
	return hooks{poll: func(l *mutLink, cs []fabric.Completion) int {
		n := l.Link.Poll(cs)
		k := 0
		for i := range n {
			if c := cs[i]; f(l, &c) {
				cs[k] = c
				k++
			}
		}
		return k
	}}
}

// lastPiece returns the last piece that is not empty.
func lastPiece(w *fabric.WR) *fabric.SGE {
	for i := len(w.Local) - 1; i >= 0; i-- {
		if w.Local[i].Len > 0 {
			return &w.Local[i]
		}
	}
	return &fabric.SGE{}
}

func is(op fabric.Op) func(w *fabric.WR) bool { return func(w *fabric.WR) bool { return w.Op == op } }

var (
	isWrite = is(fabric.OpWrite)
	isRead  = is(fabric.OpRead)
)

var dataMutants = []mutant{
	{name: "write loses its last byte", by: []string{"WriteSizes", "Gather", "Model", "Inline", "RegisteredMemory"},
		hooks: each(func(_ *mutEP, w *fabric.WR) {
			if isWrite(w) && w.Len() > 0 {
				lastPiece(w).Len--
			}
		})},
	{name: "read loses its last byte", by: []string{"ReadSizes", "Scatter", "Model"},
		hooks: each(func(_ *mutEP, w *fabric.WR) {
			if isRead(w) && w.Len() > 0 {
				lastPiece(w).Len--
			}
		})},
	{name: "write moves a byte too much", by: []string{"WriteSizes"},
		hooks: each(func(_ *mutEP, w *fabric.WR) {
			if p := lastPiece(w); isWrite(w) && p.Len == 4095 {
				p.Len++
			}
		})},
	{name: "large writes land one byte late", by: []string{"WriteSizes"},
		hooks: each(func(_ *mutEP, w *fabric.WR) {
			if isWrite(w) && w.Len() == 1<<16 {
				w.RemoteAddr++
				lastPiece(w).Len--
			}
		})},
	{name: "second block of a write repeats the first", by: []string{"WriteSizes"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			if ws = clone(ws); len(ws) == 1 && isWrite(&ws[0]) && len(ws[0].Local) == 1 && ws[0].Len() == 8193 {
				p := ws[0].Local[0]
				ws[0].Local = []fabric.SGE{p, p, p}
				ws[0].Local[0].Len, ws[0].Local[1].Len = 4096, 4096
				ws[0].Local[2].Addr += 8192
				ws[0].Local[2].Len = 1
			}
			return e.Endpoint.Post(ws)
		}}},
	{name: "pieces swapped", by: []string{"Gather", "Scatter", "Model"},
		hooks: each(func(_ *mutEP, w *fabric.WR) {
			if n := len(w.Local); n > 1 {
				w.Local[n-1], w.Local[n-2] = w.Local[n-2], w.Local[n-1]
			}
		})},
	{name: "pieces beyond MaxSGE forgotten", by: []string{"Gather", "Scatter"},
		hooks: each(func(e *mutEP, w *fabric.WR) {
			if m := e.l.Caps().MaxSGE; len(w.Local) > m {
				w.Local = w.Local[:m]
			}
		})},
	{name: "a split write completes once a part", by: []string{"Gather"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			n, err := e.Endpoint.Post(ws)
			for _, w := range ws[:n] {
				if len(w.Local) > e.l.Caps().MaxSGE && w.Flags&fabric.FlagSignaled != 0 {
					e.l.extra = append(e.l.extra, fabric.Completion{ID: w.ID, EP: e.id, Op: w.Op})
				}
			}
			return n, err
		}}},
	{name: "list ends at an empty piece", by: []string{"Gather", "Scatter"},
		hooks: each(func(_ *mutEP, w *fabric.WR) {
			if i := slices.IndexFunc(w.Local, func(s fabric.SGE) bool { return s.Len == 0 }); i >= 0 {
				w.Local = w.Local[:i]
			}
		})},
	{name: "completes before the data is there", opt: sim.Options{MaxDelay: 50}, by: []string{"WriteSizes", "UnsignaledAreDone"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			ws = clone(ws)
			for i := range ws {
				ws[i].Flags &^= fabric.FlagSignaled
			}
			n, err := e.Endpoint.Post(ws)
			for _, w := range ws[:n] {
				e.l.extra = append(e.l.extra, fabric.Completion{ID: w.ID, EP: e.id, Op: w.Op})
			}
			return n, err
		}}},
	{name: "registered memory is copied once", by: []string{"RegisteredMemory"}, hooks: hooks{
		register: func(l *mutLink, mem []byte, acc fabric.Access) (fabric.Region, error) {
			r, err := l.Link.Alloc(len(mem), acc)
			if err != nil {
				return nil, err
			}
			copy(r.Bytes(), mem)
			return &shamRegion{Region: r, mem: mem}, nil
		}}},
	{name: "inline payload is read after Post", by: []string{"Inline"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			if len(ws) == 1 && ws[0].Flags&fabric.FlagInline != 0 && len(e.held) == 0 {
				e.held = clone(ws)
				return 1, nil
			}
			return e.Endpoint.Post(ws)
		},
		poll: func(l *mutLink, cs []fabric.Completion) int {
			for _, e := range l.eps {
				if len(e.held) > 0 {
					_, _ = e.Endpoint.Post(e.held)
					e.held = nil
				}
			}
			return l.Link.Poll(cs)
		}}},
	{name: "inline looks at the key", by: []string{"Inline"},
		hooks: each(func(_ *mutEP, w *fabric.WR) { w.Flags &^= fabric.FlagInline })},
	{name: "MaxInline promises too much", by: []string{"Inline"}, hooks: hooks{caps: func(c *fabric.Caps) { c.MaxInline++ }}},
	{name: "zero length never completes", by: []string{"ZeroLength"},
		hooks: each(func(_ *mutEP, w *fabric.WR) {
			if w.Len() == 0 {
				w.Flags &^= fabric.FlagSignaled
			}
		})},
	{name: "zero length is refused", by: []string{"ZeroLength"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			if len(ws) > 0 && ws[0].Len() == 0 {
				return 0, &fabric.WRError{Op: ws[0].Op, Reason: "empty"}
			}
			return e.Endpoint.Post(ws)
		}}},
	{name: "zero length wants a key", by: []string{"ZeroLength"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			if len(ws) > 0 && ws[0].Len() == 0 && ws[0].RKey == 0 {
				return 0, &fabric.WRError{Op: ws[0].Op, Reason: "no key"}
			}
			return e.Endpoint.Post(ws)
		}}},
	{name: "zero length writes a byte", by: []string{"ZeroLength"},
		hooks: each(func(_ *mutEP, w *fabric.WR) {
			if isWrite(w) && w.Len() == 0 && len(w.Local) == 1 {
				w.Local[0].Len = 1
			}
		})},
	{name: "notification before the data", opt: sim.Options{MaxDelay: 50}, by: []string{"Notify"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			if len(ws) != 1 || ws[0].Flags&fabric.FlagNotify == 0 {
				return e.Endpoint.Post(ws)
			}
			w := clone(ws)[0]
			w.Flags &^= fabric.FlagNotify
			n, err := e.Endpoint.Post([]fabric.WR{w})
			if n == 1 {
				for _, x := range peers(e) {
					x.l.extra = append(x.l.extra, fabric.Completion{EP: x.id, Op: fabric.OpNotify, Imm: w.Imm, Bytes: uint32(w.Len())})
				}
			}
			return n, err
		}, connect: remember}},
	{name: "immediate loses its upper bits", by: []string{"Notify"},
		hooks: each(func(_ *mutEP, w *fabric.WR) { w.Imm &= 1<<24 - 1 })},
	{name: "notification has the wrong length", by: []string{"Notify"},
		hooks: reported(func(_ *mutLink, c *fabric.Completion) bool {
			if c.Op == fabric.OpNotify && c.Bytes > 1000 {
				c.Bytes--
			}
			return true
		})},
	{name: "notification lost", by: []string{"Notify", "WakeOnNotify"},
		hooks: reported(func(l *mutLink, c *fabric.Completion) bool {
			if c.Op == fabric.OpNotify {
				l.n++
				return l.n != 17
			}
			return true
		})},
	{name: "notification twice", by: []string{"Notify"},
		hooks: reported(func(l *mutLink, c *fabric.Completion) bool {
			if c.Op == fabric.OpNotify {
				if l.n++; l.n == 9 {
					l.extra = append(l.extra, *c)
				}
			}
			return true
		})},
}

// shamRegion returns other memory than is registered.
type shamRegion struct {
	fabric.Region
	mem []byte
}

func (r *shamRegion) Bytes() []byte { return r.mem }
func (r *shamRegion) Addr() uint64  { return r.Region.Addr() }

// execute lets a hook execute requests itself; they complete at the next poll.
func execute(match func(w *fabric.WR) bool, do func(e *mutEP, w *fabric.WR)) hooks {
	return hooks{post: func(e *mutEP, ws []fabric.WR) (int, error) {
		for i := range ws {
			w := &ws[i]
			if !match(w) {
				if n, err := e.Endpoint.Post(ws[i : i+1]); n == 0 || err != nil {
					return i, err
				}
				continue
			}
			if err := e.Endpoint.Err(); err != nil {
				return i, fabric.ErrDown
			}
			do(e, w)
			if w.Flags&fabric.FlagSignaled != 0 {
				e.l.extra = append(e.l.extra, fabric.Completion{ID: w.ID, EP: e.id, Op: w.Op})
			}
		}
		return len(ws), nil
	}}
}

var (
	isAdd    = is(fabric.OpFetchAdd)
	isCAS    = is(fabric.OpCompareSwap)
	isAtomic = func(w *fabric.WR) bool { return isAdd(w) || isCAS(w) }
)

var atomicMutants = []mutant{
	{name: "fetch-add returns the new value", by: []string{"FetchAdd", "AtomicsInOrder", "Model", "RegisteredMemory"},
		hooks: execute(isAdd, func(_ *mutEP, w *fabric.WR) {
			v := at(w.RemoteAddr) + w.Operand
			put(w.RemoteAddr, v)
			put(w.Local[0].Addr, v)
		})},
	{name: "fetch-add of 32 bits", by: []string{"FetchAdd", "Model"},
		hooks: execute(isAdd, func(_ *mutEP, w *fabric.WR) {
			v := at(w.RemoteAddr)
			put(w.Local[0].Addr, v)
			put(w.RemoteAddr, v&^(1<<32-1)|(v+w.Operand)&(1<<32-1))
		})},
	{name: "fetch-add done twice", by: []string{"FetchAdd"},
		hooks: each(func(_ *mutEP, w *fabric.WR) {
			if isAdd(w) {
				w.Operand *= 2
			}
		})},
	{name: "fetch-add writes 16 bytes of result", by: []string{"FetchAdd"},
		hooks: execute(isAdd, func(_ *mutEP, w *fabric.WR) {
			v := at(w.RemoteAddr)
			put(w.Local[0].Addr, v)
			put(w.Local[0].Addr+8, v)
			put(w.RemoteAddr, v+w.Operand)
		})},
	{name: "fetch-add is a read and, later, a write", by: []string{"AtomicContention"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			if w := ws[0]; len(ws) == 1 && isAdd(&w) && len(e.held) == 0 {
				w.Compare = at(w.RemoteAddr)
				e.held = clone([]fabric.WR{w})
				return 1, nil
			}
			return e.Endpoint.Post(ws)
		},
		poll: func(l *mutLink, cs []fabric.Completion) int {
			for _, e := range l.eps {
				for _, w := range e.held {
					put(w.Local[0].Addr, w.Compare)
					put(w.RemoteAddr, w.Compare+w.Operand)
					l.extra = append(l.extra, fabric.Completion{ID: w.ID, EP: e.id, Op: w.Op})
				}
				e.held = nil
			}
			return l.Link.Poll(cs)
		}}},
	{name: "compare-swap always swaps", by: []string{"CompareSwap", "AtomicsInOrder", "Model"},
		hooks: execute(isCAS, func(_ *mutEP, w *fabric.WR) {
			put(w.Local[0].Addr, at(w.RemoteAddr))
			put(w.RemoteAddr, w.Operand)
		})},
	{name: "compare-swap compares 32 bits", by: []string{"CompareSwap"},
		hooks: execute(isCAS, func(_ *mutEP, w *fabric.WR) {
			v := at(w.RemoteAddr)
			put(w.Local[0].Addr, v)
			if uint32(v) == uint32(w.Compare) {
				put(w.RemoteAddr, w.Operand)
			}
		})},
	{name: "compare-swap returns the new value", by: []string{"CompareSwap"},
		hooks: execute(isCAS, func(_ *mutEP, w *fabric.WR) {
			if at(w.RemoteAddr) == w.Compare {
				put(w.RemoteAddr, w.Operand)
			}
			put(w.Local[0].Addr, at(w.RemoteAddr))
		})},
	{name: "misaligned atomics are rounded down", by: []string{"AtomicMisaligned"},
		hooks: each(func(_ *mutEP, w *fabric.WR) {
			if isAtomic(w) {
				w.RemoteAddr &^= 7
			}
		})},
	{name: "misaligned atomics are accepted and do nothing", by: []string{"AtomicMisaligned"},
		hooks: execute(func(w *fabric.WR) bool { return isAtomic(w) && w.RemoteAddr%8 != 0 }, func(*mutEP, *fabric.WR) {})},
	{name: "misaligned atomics kill the endpoint", by: []string{"AtomicMisaligned"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			n, err := e.Endpoint.Post(ws)
			if errors.Is(err, fabric.ErrInvalidWR) {
				_ = e.Endpoint.Close()
			}
			return n, err
		}}},
}
