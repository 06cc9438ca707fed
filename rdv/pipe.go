package rdv

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/scatter"
)

// Means says how the bytes of a transfer become reachable for the peer.
type Means uint8

// Means of SendUnregistered.
const (
	byReference Means = iota // registered by the caller: Send

	// Copy copies chunks into staging memory.
	Copy

	// Register registers the chunks where they lie: no copy, but a call into
	// the kernel for each on devices. The memory must be off the Go heap or
	// pinned until Handler.Sent.
	Register
)

// pipe is the chunked part of an outgoing transfer.
type pipe struct {
	src     []byte
	off     int // bytes of src that were announced
	grow    growth
	by      Means
	chunks  []chunk // ring of those announced and not acknowledged
	sent    uint32  // chunks announced
	acked   uint32
	pending chunk // prepared, waits for room in the ring; len 0: none
	ready   bool  // the receiver has a destination
	queued  bool  // in streams
}

// chunk is a prepared part of a message.
type chunk struct {
	reg    fabric.Region // by registration
	addr   uint64
	len    uint32
	key    uint32
	number uint32 // by copy: span
}

// announced reports whether all of the message was.
func (p *pipe) announced() bool { return p.off == len(p.src) }

// SendUnregistered announces a message whose memory is not registered. Once the
// peer has a destination for it, chunks of it are copied into staging memory, or
// registered, while those before are being fetched; they grow as newGrowth says.
// Handler.Sent with token ends the transfer. m.Size is taken from src.
// ErrTooLarge concerns this message only. Short path, but for what registering
// costs and for the first call, which allocates the staging memory.
func (c *Channel) SendUnregistered(form scatter.Form, pos uint64, src []byte, by Means, tag uint32, token uint64) (ID, Result, error) {
	m := scatter.Message{Pos: pos, Size: uint32(len(src))}
	switch {
	case uint64(len(src)) != uint64(m.Size):
		return 0, Busy, fmt.Errorf("send %d bytes: %w: cut it", len(src), ErrTooLarge)
	case by != Copy && by != Register:
		return 0, Busy, fmt.Errorf("send by means %d: %w", by, ErrOptions)
	case len(src) == 0:
		d := scatter.Descriptor{Form: form, Messages: []scatter.Message{m}} //hot:allow empty messages go another way
		return c.Send(&d, tag, token)
	case form != scatter.FormSequence && form != scatter.FormOffset:
		return 0, Busy, fmt.Errorf("send by %v: %w", form, ErrOptions)
	}
	if err := c.ready(); err != nil {
		return 0, Busy, err
	}
	if err := c.openPipes(by); err != nil {
		return 0, Busy, fmt.Errorf("send unregistered: %w", err)
	}
	slot, ok := c.takeOutgoing()
	if !ok {
		return 0, Busy, c.err
	}
	o, p := &c.out[slot], &c.pipes[slot]
	id := makeID(slot, o.gen+1)
	c.payload = appendOffer(c.payload[:0], form, m)
	if !c.send(KindOffer, id, tag, c.payload) {
		c.stats.Busy++
		return 0, Busy, c.err
	}
	c.outFree = c.outFree[:len(c.outFree)-1]
	o.gen++
	o.state, o.token, o.by, o.n = outAnnounced, token, by, 1
	c.stats.Offers++
	most, rate := c.opt.Chunk, c.opt.CopyRate
	if by == Copy {
		most = min(most, len(c.stage.mem)/2)
	} else {
		rate = c.opt.RegisterRate
	}
	*p = pipe{
		src: src, by: by, chunks: p.chunks, queued: p.queued,
		grow: newGrowth(c.opt.FirstChunk, most, rate, c.opt.LinkRate),
	}
	return id, Accepted, nil
}

// openPipes makes what the first unregistered message needs.
func (c *Channel) openPipes(by Means) error {
	if c.opt.Staging < 0 && by == Copy {
		return fmt.Errorf("%w: no staging memory", ErrOptions)
	}
	chunks := min(c.opt.Chunks, int(c.peer.Chunks))
	if c.pipes == nil {
		c.pipes = make([]pipe, len(c.out))
		for i := range c.pipes {
			c.pipes[i].chunks = make([]chunk, chunks)
		}
	}
	if by == Copy && c.stage.reg == nil {
		return c.stage.open(c.link, c.opt.Staging, len(c.out)*chunks)
	}
	return nil
}

// findPipe returns the chunked transfer that id names, nil if there is none.
func (c *Channel) findPipe(id ID) *pipe {
	o := c.findOutgoing(id)
	if o == nil || o.by == byReference {
		return nil
	}
	return &c.pipes[id.slot()]
}

// onReady starts the chunks of an offer.
func (c *Channel) onReady(id ID) error {
	p := c.findPipe(id)
	if p == nil || p.ready {
		return &ProtocolError{KindReady, id, ErrUnknownID, uint64(id), uint64(len(c.out))}
	}
	p.ready = true
	if !p.queued {
		p.queued = true
		c.streams.push(uint16(id.slot()))
	}
	return nil
}

// onAck takes the memory of chunks back that the peer has fetched.
func (c *Channel) onAck(id ID, fetched uint32) error {
	p := c.findPipe(id)
	switch {
	case p == nil:
		return &ProtocolError{KindAck, id, ErrUnknownID, uint64(id), uint64(len(c.out))}
	case fetched <= p.acked || fetched > p.sent:
		return &ProtocolError{KindAck, id, ErrSize, uint64(fetched), uint64(p.sent)}
	}
	return c.release(p, fetched)
}

// release gives the memory of chunks before number upto back.
func (c *Channel) release(p *pipe, upto uint32) error {
	var err error
	for ; p.acked < upto; p.acked++ {
		err = errors.Join(err, c.drop(&p.chunks[int(p.acked)%len(p.chunks)], p.by))
	}
	return err
}

func (c *Channel) drop(k *chunk, by Means) error {
	reg := k.reg
	switch {
	case by == Copy && k.len > 0:
		c.stage.give(k.number)
	case reg != nil:
		*k = chunk{}
		return reg.Close()
	}
	*k = chunk{}
	return nil
}

// endPipe ends the chunked part of a transfer that is over.
func (c *Channel) endPipe(p *pipe) {
	// Staged chunks that a living peer may still read after a failure stay
	// where they are: nothing is staged any more.
	if c.live || p.by == Register {
		if err := errors.Join(c.release(p, p.sent), c.drop(&p.pending, p.by)); err != nil {
			c.fail(err)
		}
	}
	*p = pipe{chunks: p.chunks, queued: p.queued}
}

// stream prepares and announces chunks: at most one chunk is prepared, so that
// others have their turn. Short path.
func (c *Channel) stream() bool {
	did := false
	for range c.streams.n {
		if !c.live || c.control.n > 0 {
			break
		}
		slot := c.streams.pop()
		p := &c.pipes[slot]
		if !p.ready || p.announced() { // over meanwhile
			p.queued = false
			continue
		}
		c.streams.push(slot)
		prepared := false
		if p.pending.len == 0 {
			if prepared = c.prepare(p); !prepared {
				continue
			}
		}
		if did = c.announce(p, makeID(int(slot), c.out[slot].gen)) || did; prepared {
			return true
		}
	}
	return did
}

// prepare makes the next chunk of p reachable; false: there is no room now.
func (c *Channel) prepare(p *pipe) bool {
	if int(p.sent-p.acked) == len(p.chunks) {
		return false
	}
	before := p.grow
	n := p.grow.take(len(p.src) - p.off)
	part := p.src[p.off : p.off+n]
	if p.by == Register {
		reg, err := c.link.Register(part, fabric.AccessRemoteRead)
		if err != nil {
			c.fail(fmt.Errorf("register chunk of %d bytes: %w", n, err))
			return false
		}
		p.pending = chunk{reg: reg, addr: reg.Addr(), len: uint32(n), key: reg.Key().RKey}
		return true
	}
	number, mem, ok := c.stage.take(n)
	if !ok {
		p.grow = before
		c.stats.NoStaging++
		return false
	}
	copy(mem, part)
	p.pending = chunk{addr: fabric.Addr(mem), len: uint32(n), key: c.stage.reg.Key().RKey, number: number}
	return true
}

// announce tells the peer of the prepared chunk; false: the ring has no room.
func (c *Channel) announce(p *pipe, id ID) bool {
	k := &p.pending
	c.payload = appendChunk(c.payload[:0], scatter.Region{Addr: k.addr, Len: k.len, RKey: k.key})
	if !c.send(KindChunk, id, 0, c.payload) {
		return false
	}
	p.chunks[int(p.sent)%len(p.chunks)] = *k
	p.sent++
	p.off += int(k.len)
	c.stats.Chunks++
	*k = chunk{}
	return true
}
