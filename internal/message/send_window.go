package message

import (
	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/logp"
)

// The ring of the peer follows the traffic: the first one serves peers that exchange a message
// now and then, and the sender asks for a larger one when the ring was full, or when messages
// were announced several times for the reason alone that it was too small. Rings grow up to
// commonRing, and beyond where the path has more bytes in flight.

const (
	// commonRing is the size in bytes beyond which a ring only hides latency: with 64 blocks
	// of 8 KiB, credit is returned after 32 messages, far more than are in flight in one
	// round trip within a host or a rack.
	commonRing = 64 * 8192

	// windowPatience is the number of times that messages are announced for want of a larger
	// ring. Each costs a round trip more than necessary; a larger ring costs two, memory, and
	// new bounds of the model.
	windowPatience = 4

	// windowGrowth is the factor by which a ring grows at a time.
	windowGrowth = 8
)

// window is the state of the size of the peer's ring.
type window struct {
	moves uint32 // rings of the peer that have followed the first
	tight int    // plans in which the present one was too small
	want  int    // bytes of the largest ring that is worth it
}

// worth returns the size in bytes of the largest ring that the parameters justify, up to most.
func worth(p *logp.Params, most int) int {
	return min(max(commonRing, int(min(2*p.Flight(), 1<<30))), most)
}

// full asks for a larger ring because this one was full.
func (w *window) full(ring *eager.Channel) {
	if have := ring.Stats().PeerRing; have < w.want {
		w.tight = 0
		ring.Want(min(windowGrowth*have, w.want))
	}
}

// announced looks for a planned message that would travel through a larger ring.
func (w *window) announced(b *batch, ring *eager.Channel) {
	if b.Limits.Ring >= commonRing || w.want == 0 {
		return
	}
	for i, o := range b.first {
		if b.modes[i] == logp.Scatter && int64(len(o.Data)) > b.Limits.EagerMax && len(o.Data) <= commonRing/8 {
			if w.tight++; w.tight >= windowPatience {
				w.full(ring)
			}
			return
		}
	}
}
