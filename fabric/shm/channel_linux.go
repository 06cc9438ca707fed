package shm

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/offheap"
)

// channel is a channel segment as mapped here; layout.go has the picture.
type channel struct {
	mem     []byte
	hdr     *chanHeader
	frames  []frame
	replies []reply
	bounce  []byte
}

// viewChannel is the channel with the given number of frames in mem.
func viewChannel(mem []byte, slots int) channel {
	return channel{
		mem: mem, hdr: overlay[chanHeader](mem, 0), frames: overlays[frame](mem, frameOff, slots),
		replies: overlays[reply](mem, replyOff, maxReqs), bounce: mem[bounceOff(slots):],
	}
}

// newChannel creates a channel for depth requests. The descriptor is the caller's.
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

// mapChannel maps the channel that the peer sent.
func mapChannel(fd int) (c channel, err error) {
	// The header says how large the channel is; until then its first page is
	// all that may be looked at.
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
	if magic != chanMagic || slots < minSlots || slots > maxSlots || slots&(slots-1) != 0 {
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
	mem   []byte
	hdr   *ctlHeader
	table []tableEntry
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
	c = control{mem: mem, hdr: overlay[ctlHeader](mem, 0), table: overlays[tableEntry](mem, tableOff, tableSlots)}
	if magic := c.hdr.magic.Load(); magic != ctlMagic {
		_ = offheap.Free(mem, offheap.Rings)
		return control{}, fmt.Errorf("%w: control segment with magic %#x", ErrCorrupt, magic)
	}
	return c, nil
}
