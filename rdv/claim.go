package rdv

import "github.com/seed33544411/rma/fabric"

// Carrier is implemented by a Handler whose transfers either end may carry out. The owner
// calls its methods from within the calls that call Handler.
type Carrier interface {
	// Destination returns the key by which the peer may write all of message h, which Match
	// or Accept gave one piece, until Received. ok is false if the peer may not.
	Destination(h Handle) (k fabric.RemoteKey, ok bool)

	// Source returns the local memory of the only message of the transfer that Send or Write
	// was given token for, until Sent, and the key by which the peer may read it, 0 if it may
	// not. ok is false if it is not known.
	Source(token uint64) (s fabric.SGE, rkey uint32, ok bool)

	// Into returns the first n bytes of the destination that Advertise was given token for,
	// registered for local writing, until Filled. ok is false if that is not possible.
	Into(token uint64, n uint32) (s fabric.SGE, ok bool)
}

// maxClaims is the number of claim words of a receiver. Transfers without one are carried out
// by one end.
const maxClaims = 16

// claims are the words by which the two ends of a transfer agree which of them copies which
// slice: this side's, one for each transfer to it that is shared. Zero value: nothing is.
type claims struct {
	link   fabric.Link
	ep     fabric.Endpoint
	direct fabric.Direct // nil: the link is not suitable
	by     Carrier
	least  uint32 // bytes of a message that is offered
	*claimWords
}

// claimWords is the memory of the words; it is created at their first use.
type claimWords struct {
	reg  fabric.Region
	mem  []byte
	free []uint16
}

// newClaims returns the claims of a channel. Both ends can carry a transfer out where the
// words are mapped by the peer, so that changing one needs nobody at the target.
func newClaims(link fabric.Link, ep fabric.Endpoint, h Handler, least int) (c claims) {
	caps := link.Caps()
	by, ok := h.(Carrier)
	if d, direct := ep.(fabric.Direct); ok && direct && least >= 0 && caps.AtomicCPU && caps.MapsAlloc {
		c = claims{link: link, ep: ep, direct: d, by: by, least: uint32(least)}
	}
	return c
}

// open allocates the words at their first use. Setup path.
func (c *claims) open() bool {
	if c.claimWords != nil || c.direct == nil {
		return c.direct != nil
	}
	reg, err := fabric.AllocFor(c.link, c.ep, 8*maxClaims, fabric.AccessLocalWrite|fabric.AccessRemoteAtomic)
	if err != nil { // transfers go on without
		c.direct = nil
		return false
	}
	c.claimWords = &claimWords{reg, reg.Bytes(), freeList(maxClaims)}
	return true
}

// take opens a word of that name, and returns its number.
func (c *claims) take(name uint64) (i uint16, ok bool) {
	if !c.open() || len(c.free) == 0 {
		return 0, false
	}
	i = c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	claimWord(c.mem, int(i)).Store(name)
	return i, true
}

// ref returns word i as the peer accesses it.
func (c *claims) ref(i uint16) claimRef {
	return claimRef{fabric.Addr(c.mem[8*int(i):]), c.reg.Key().RKey}
}

// drop ends the use of word i.
func (c *claims) drop(i uint16) {
	claimWord(c.mem, int(i)).Store(0)
	c.free = append(c.free, i)
}

// reach returns the memory of a word of the peer, nil if it cannot be accessed now.
func (c *claims) reach(w claimRef) []byte {
	if c.direct == nil {
		return nil
	}
	return c.direct.Reach(fabric.AccessRemoteAtomic, w.rkey, w.addr, 8)
}

func (c *claims) close() error {
	if c.claimWords == nil {
		return nil
	}
	err := c.reg.Close()
	if err == nil {
		c.claimWords = nil
	}
	return err
}
