package shm

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/offheap"
)

// channel is a mapped channel segment; layout.go shows its layout.
type channel struct {
	mem     []byte
	hdr     *chanHeader
	frames  []frame
	replies []reply
	bounce  []byte
}

// viewChannel returns the channel with the given number of frames in mem.
func viewChannel(mem []byte, slots int) channel {
	return channel{
		mem: mem, hdr: overlay[chanHeader](mem, 0), frames: overlays[frame](mem, frameOff, slots),
		replies: overlays[reply](mem, replyOff, maxReqs), bounce: mem[bounceOff(slots):],
	}
}

// newChannel creates a channel for depth requests. The caller owns the descriptor.
func newChannel(depth int) (c channel, fd int, err error) {
	slots := minSlots
	for slots < depth {
		slots *= 2
	}
	if fd, err = newMemfd("rma-shm-channel", chanSize(slots), bounceOff(slots)); err != nil {
		return c, -1, err
	}
	mem, err := offheap.Map(fd, chanSize(slots), offheap.Rings)
	if err == nil {
		err = seal(fd, false)
	}
	if err != nil {
		_ = unix.Close(fd)
		_ = offheap.Free(mem, offheap.Rings)
		return c, -1, err
	}
	c = viewChannel(mem, slots)
	c.hdr.magic.Store(chanMagic)
	c.hdr.slots.Store(uint32(slots))
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	c.hdr.nonce[0].Store(binary.NativeEndian.Uint64(nonce[:]))
	c.hdr.nonce[1].Store(binary.NativeEndian.Uint64(nonce[8:]))
	for i := range c.frames {
		c.frames[i].seq.Store(uint64(i) + 1 - uint64(slots)) // as if consumed a lap ago
	}
	return c, fd, nil
}

// mapChannel maps the channel that the peer sent, and may have left meanwhile: the socket tells that.
func mapChannel(fd int) (c channel, err error) {
	// The header contains the size of the channel; until that is known only the first page
	// may be read.
	if err := checkMemfd(fd, layoutPages); err != nil {
		return c, err
	}
	head, err := offheap.MapRead(fd, layoutPages, offheap.Rings)
	if err != nil {
		return c, err
	}
	hdr := overlay[chanHeader](head, 0)
	magic, slots := hdr.magic.Load(), int(hdr.slots.Load())
	_ = offheap.Free(head, offheap.Rings)
	if magic != chanMagic && magic != chanLeft || slots < minSlots || slots > maxSlots || slots&(slots-1) != 0 {
		return c, fmt.Errorf("%w: channel with magic %#x and %d slots", ErrCorrupt, magic, slots)
	}
	mem, err := mapPeer(fd, uint64(chanSize(slots)), offheap.Rings)
	if err != nil {
		return c, err
	}
	return viewChannel(mem, slots), nil
}

// control is the peer's control segment, mapped read-only.
type control struct {
	mem     []byte
	hdr     *ctlHeader
	table   []tableEntry
	holders *atomic.Int32 // from 1: the endpoint
}

// entries returns the table without its end that was never used: most of its pages, which would be mapped for nothing.
func (c *control) entries() []tableEntry {
	return c.table[:min(c.hdr.used.Load(), tableSlots)]
}

// mapControl maps the control segment that the peer sent.
func mapControl(fd int) (c control, err error) {
	if err := checkMemfd(fd, ctlSize); err != nil {
		return c, err
	}
	mem, err := offheap.MapRead(fd, ctlSize, offheap.Rings)
	if err != nil {
		return c, err
	}
	c = control{mem: mem, hdr: overlay[ctlHeader](mem, 0), table: overlays[tableEntry](mem, tableOff, tableSlots), holders: new(atomic.Int32)}
	c.holders.Store(1)
	if magic := c.hdr.magic.Load(); magic != ctlMagic {
		_ = offheap.Free(mem, offheap.Rings)
		return control{}, fmt.Errorf("%w: control segment with magic %#x", ErrCorrupt, magic)
	}
	return c, nil
}

// hold returns c for one more who releases it.
func (c *control) hold() control {
	c.holders.Add(1)
	return *c
}

// release lets go of the segment.
func (c *control) release() error {
	if c.holders == nil || c.holders.Add(-1) > 0 {
		return nil
	}
	return offheap.Free(c.mem, offheap.Rings)
}

// frameSender is the sending end of the ring in the peer's channel.
type frameSender struct {
	slots   []frame
	tail    uint64      // frames published
	seen    uint64      // the peer's head when it was last read
	starved bool        // reserve found no room and asked the peer for a wake-up
	peer    *chanHeader // header of the ring
}

// fits reports whether the ring has room for k more frames, by the peer's head when it was
// last read.
func (s *frameSender) fits(k int) bool { return s.tail+uint64(k)-s.seen <= uint64(len(s.slots)) }

// reserve reports whether the ring has room for k more frames. If it has none, it asks the
// peer to wake this side when it has.
func (s *frameSender) reserve(k int) (bool, error) {
	if !s.fits(k) {
		if err := s.readHead(); err != nil {
			return false, err
		}
	}
	switch fits := s.fits(k); {
	case !fits:
		s.starved = true
		s.peer.starved.Store(1)
		err := s.readHead() // the peer may have made room before it could see the request
		return err == nil && s.fits(k), err
	case s.starved:
		s.starved = false
		s.peer.starved.Store(0)
	}
	return true, nil
}

// readHead reads the head that the peer has published. A head that runs backwards or past
// the tail is a corruption.
func (s *frameSender) readHead() error {
	h := s.peer.head.Load()
	if s.tail-h > s.tail-s.seen {
		return fmt.Errorf("%w: ring head %d outside [%d, %d]", ErrCorrupt, h, s.seen, s.tail)
	}
	s.seen = h
	return nil
}

// push publishes a frame. There must be room.
func (s *frameSender) push(m *message) {
	f := &s.slots[s.tail&uint64(len(s.slots)-1)]
	f.w = m.words()
	s.tail++
	f.seq.Store(s.tail)
}

func (s *frameSender) pushNotify(imm, bytes uint32) {
	s.push(&message{kind: frameNotify, imm: imm, bytes: bytes})
}

// bye sends the last frame, so that the peer's next Poll detects the end. If the ring is
// full, the end of the socket reports it.
func (s *frameSender) bye() {
	if n := uint64(len(s.slots)); n > 0 && s.tail-s.peer.head.Load() < n {
		s.push(&message{kind: frameBye})
	}
}

// frameReceiver is the receiving end of the ring in this side's channel.
type frameReceiver struct {
	slots     []frame
	head      uint64 // frames consumed
	published uint64 // the last published head
	own       *chanHeader
}

// ready reports whether the slot that the peer fills next has changed since it was last
// consumed.
func (r *frameReceiver) ready() bool {
	return r.next().seq.Load() != r.head+1-uint64(len(r.slots))
}

// next returns the slot that the peer fills next.
func (r *frameReceiver) next() *frame { return &r.slots[r.head&uint64(len(r.slots)-1)] }

// publish publishes the head once per quarter of the ring: the peer still sees three
// quarters free, and the cache line of the head is not written for every frame. It reports
// whether the peer waits for room and must be woken.
func (r *frameReceiver) publish() (wanted bool) {
	if r.head-r.published < uint64(len(r.slots))/4 {
		return false
	}
	r.published = r.head
	r.own.head.Store(r.head)
	return r.own.starved.Load() != 0
}
