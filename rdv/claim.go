package rdv

import (
	"encoding/binary"

	"github.com/seed33544411/rma/fabric"
)

// Carrier is implemented by a Handler whose transfers either end may carry out. The owner
// calls its methods from within the calls that call Handler.
type Carrier interface {
	// Destination returns the key by which the peer may write all of message h, which Match
	// or Accept gave one piece, until Received. ok is false if the peer may not.
	Destination(h Handle) (k fabric.RemoteKey, ok bool)

	// Source returns the local memory of the only message of the transfer that Send announced
	// with token, until Sent. ok is false if it is not known.
	Source(token uint64) (s fabric.SGE, ok bool)
}

// maxClaims is the number of transfers that a receiver offers to their senders at a time.
// Others are fetched.
const maxClaims = 16

// States of a claim word, above the id of the transfer.
const (
	claimOpen   = 1 << 32 // neither end has begun
	claimSource = 2 << 32 // the sender writes
	claimSink   = 3 << 32 // the receiver reads
)

// claims are the words by which the two ends of a transfer agree which of them carries it out.
// The receiver has one for each transfer that it offers; the last word receives the results of
// this side's atomics. Zero value: nothing is offered or claimed.
type claims struct {
	link   fabric.Link
	direct fabric.Direct // nil: the link is not suitable
	by     Carrier
	least  uint32 // bytes of a message that is offered
	reg    fabric.Region
	mem    []byte
	free   []uint16
	local  [1]fabric.SGE
	wr     fabric.WR
}

// newClaims returns the claims of a channel. Both ends can carry a transfer out where the
// words are mapped by the peer, so that an atomic needs nobody at the target.
func newClaims(link fabric.Link, ep fabric.Endpoint, h Handler, least int) (c claims) {
	caps := link.Caps()
	by, ok := h.(Carrier)
	if d, direct := ep.(fabric.Direct); ok && direct && least >= 0 && caps.AtomicCPU && caps.MapsAlloc {
		c = claims{link: link, direct: d, by: by, least: uint32(least)}
	}
	return c
}

// open allocates the words at their first use. Setup path.
func (c *claims) open() bool {
	if c.reg != nil || c.direct == nil {
		return c.direct != nil
	}
	reg, err := c.link.Alloc(8*(maxClaims+1), fabric.AccessLocalWrite|fabric.AccessRemoteAtomic)
	if err != nil { // transfers go on without
		c.direct = nil
		return false
	}
	c.reg, c.mem, c.free = reg, reg.Bytes(), freeList(maxClaims)
	c.local[0] = fabric.NewSGE(c.mem[8*maxClaims:8*maxClaims+8], reg.LKey())
	return true
}

// offer opens a word for the transfer with that id, and returns its number.
func (c *claims) offer(id ID) (i uint16, ok bool) {
	if !c.open() || len(c.free) == 0 {
		return 0, false
	}
	i = c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	claimWord(c.mem, int(i)).Store(claimOpen | uint64(id))
	return i, true
}

// addr returns the address of word i.
func (c *claims) addr(i uint16) uint64 { return fabric.Addr(c.mem[8*int(i):]) }

// take claims this side's transfer for this side. False: the peer has claimed it.
func (c *claims) take(i uint16, id ID) bool {
	return claimWord(c.mem, int(i)).CompareAndSwap(claimOpen|uint64(id), claimSink|uint64(id))
}

// taken reports whether the peer has claimed this side's transfer.
func (c *claims) taken(i uint16, id ID) bool {
	return claimWord(c.mem, int(i)).Load() == claimSource|uint64(id)
}

// drop ends the use of word i.
func (c *claims) drop(i uint16) {
	claimWord(c.mem, int(i)).Store(0)
	c.free = append(c.free, i)
}

// win claims a transfer of this side by the word of the receiver.
func (c *claims) win(w claimRef, id ID) bool {
	if !c.open() {
		return false
	}
	c.wr = fabric.WR{
		Op: fabric.OpCompareSwap, Local: c.local[:], RemoteAddr: w.addr, RKey: w.rkey,
		Compare: claimOpen | uint64(id), Operand: claimSource | uint64(id),
	}
	return c.direct.Do(&c.wr) && claimWord(c.mem, maxClaims).Load() == c.wr.Compare
}

func (c *claims) close() error {
	if c.reg == nil {
		return nil
	}
	err := c.reg.Close()
	if err == nil {
		c.reg = nil
	}
	return err
}

// claimRef is a claim word of the receiver, as the sender accesses it.
type claimRef struct {
	addr uint64
	rkey uint32
}

const ctsSize = fabric.RemoteKeySize + 12

func appendCTS(b []byte, k fabric.RemoteKey, w claimRef) []byte {
	b = binary.LittleEndian.AppendUint64(k.Append(b), w.addr)
	return binary.LittleEndian.AppendUint32(b, w.rkey)
}

func parseCTS(b []byte) (k fabric.RemoteKey, w claimRef, why error) {
	if len(b) != ctsSize {
		return k, w, ErrMessage
	}
	k, rest, err := fabric.ParseRemoteKey(b)
	w = claimRef{binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint32(rest[8:])}
	if err != nil || k.Len == 0 || w.addr%8 != 0 {
		return k, w, ErrMessage
	}
	return k, w, nil
}
