package ibv

import (
	"math/bits"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/verbs"
)

// psnMask is the width of packet sequence numbers.
const psnMask = 1<<24 - 1

// kept is a request as the device gets it, for as long as its slot is taken.
type kept struct {
	wr      verbs.SendWR // SGL is a part of keep.pieces
	psn     uint32       // of its first packet, if the device has it
	packets uint32       // whose numbers it takes; those of a read are the answer's
}

// keep holds the requests of an endpoint that may have to be posted to another queue pair.
type keep struct {
	reqs     []kept      // by slot
	pieces   []verbs.SGE // maxSGE for each slot
	mem      []byte      // inline for each slot: the payload of inline writes
	maxSGE   int
	inline   int
	mtuShift int
	posted   uint32 // slots before this one are with the device
	psn      uint32 // of the next packet
}

// begin makes room for as many requests as e has slots.
func (k *keep) begin(e *endpoint, mtu verbs.MTU) (err error) {
	n := len(e.slots)
	k.maxSGE, k.inline, k.mtuShift = e.l.caps.MaxSGE, e.l.inline, bits.TrailingZeros(uint(mtu.Bytes()))
	k.reqs, k.pieces, k.psn = make([]kept, n), make([]verbs.SGE, n*k.maxSGE), e.psn
	if k.inline > 0 && k.mem == nil {
		k.mem, err = offheap.Alloc(n*k.inline, offheap.Regions)
	}
	return err
}

func (k *keep) free() error {
	if k.mem == nil {
		return nil
	}
	mem := k.mem
	k.mem = nil
	return offheap.Free(mem, offheap.Regions)
}

func (k *keep) of(seq uint32) *kept { return &k.reqs[seq&uint32(len(k.reqs)-1)] }

// add keeps requests, whose payload still belongs to the link.
// Hot path.
func (k *keep) add(wrs []verbs.SendWR) {
	for i := range wrs {
		w := &wrs[i]
		at := int(uint32(w.ID)) & (len(k.reqs) - 1)
		x := &k.reqs[at]
		list := k.pieces[at*k.maxSGE:][:len(w.SGL)]
		n := uint64(0)
		for j := range w.SGL {
			list[j] = w.SGL[j]
			n += uint64(w.SGL[j].Len)
		}
		if w.Flags&verbs.SendInline != 0 && n > 0 {
			mem := k.mem[at*k.inline:][:k.inline]
			held := 0
			for j := range w.SGL {
				held += copy(mem[held:], fabric.BytesAt(w.SGL[j].Addr, int(w.SGL[j].Len)))
			}
			list[0] = verbs.SGE{Addr: fabric.Addr(mem), Len: uint32(n)}
			list = list[:1]
		}
		x.wr = *w
		x.wr.SGL = list
		x.packets = max(1, uint32((n+1<<k.mtuShift-1)>>k.mtuShift))
	}
}

// sent numbers the packets of requests that the device has taken: those up to seq.
// Hot path.
func (k *keep) sent(seq uint32) {
	for ; k.posted != seq; k.posted++ {
		x := k.of(k.posted)
		x.psn = k.psn
		k.psn += x.packets
	}
}
