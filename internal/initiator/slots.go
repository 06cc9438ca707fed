package initiator

import "github.com/seed33544411/rma/fabric"

// resultSlots is how many atomics may be under way on one link.
const resultSlots = 1024

// slots are words in registered memory of a link that results of atomics come to, and
// flags go out from.
type slots struct {
	region fabric.Region
	free   []int32
}

func newSlots(l fabric.Link) (slots, error) {
	r, err := l.Alloc(8*resultSlots, fabric.AccessLocalWrite)
	if err != nil {
		return slots{}, err
	}
	s := slots{region: r}
	for i := range int32(resultSlots) {
		s.free = append(s.free, resultSlots-1-i)
	}
	return s, nil
}

func (s *slots) bytes(i int32) []byte { return s.region.Bytes()[8*i : 8*i+8] }

// sge names slot i.
func (s *slots) sge(i int32) fabric.SGE { return fabric.NewSGE(s.bytes(i), s.region.LKey()) }

// take gives o a slot, if there is one. It is kept until o has ended.
func (s *slots) take(o *Op) bool {
	if o.slot >= 0 {
		return true
	}
	n := len(s.free)
	if n == 0 {
		return false
	}
	o.slot = s.free[n-1]
	s.free = s.free[:n-1]
	return true
}

// inflight are the operations with requests on a link, by work request ID less 1.
type inflight struct {
	ops  []*Op
	free []uint32
}

// id gives o a work request ID. It is kept until o has ended.
func (f *inflight) id(o *Op) uint64 {
	if o.id == 0 {
		if len(f.free) == 0 {
			f.ops = append(f.ops, nil)
			f.free = append(f.free, uint32(len(f.ops)))
		}
		o.id = f.free[len(f.free)-1]
		f.free = f.free[:len(f.free)-1]
		f.ops[o.id-1] = o
	}
	return uint64(o.id)
}

// find returns the operation of a work request ID, nil if there is none.
func (f *inflight) find(id uint64) *Op {
	if id == 0 || id > uint64(len(f.ops)) {
		return nil
	}
	return f.ops[id-1]
}

// release frees the ID and the slot of o.
func (f *inflight) release(o *Op) {
	if o.id != 0 {
		f.ops[o.id-1] = nil
		f.free = append(f.free, o.id)
		o.id = 0
	}
	if o.slot >= 0 {
		s := &o.q.link.results
		s.free = append(s.free, o.slot)
		o.slot = -1
	}
}
