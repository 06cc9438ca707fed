package message

import (
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/flowctl"
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

	// farTrip is the credit trip in ns of a path whose rings grow by what is observed. The
	// parameters of such a path say how long a trip is, but not how much is in flight: the
	// time of a byte is less than the jitter of trips of milliseconds.
	farTrip = 500e3

	// limitedTrips is the number of trips within which a ring is filled that limits the
	// stream. It takes one for the credit if the link is faster; a ring that takes longer is
	// large enough, or the receiver is slow.
	limitedTrips = 3
)

// window is the state of the size of the peer's ring.
type window struct {
	moves uint32 // rings of the peer that have followed the first
	tight int    // plans in which the present one was too small
	want  int    // bytes of the largest ring that is worth it
	most  int    // of the largest ring that is allowed

	// On far paths.
	trip  time.Duration // of credit; 0: the path is not far
	head  uint64        // position in the ring at since, when it was full
	since time.Time
}

// CommonLimits returns the limits of a channel whose peer has a ring of commonRing, for messages in
// memory that is not registered: what is known before there is a channel. Rings of far paths may be
// larger.
func CommonLimits() logp.Limits {
	const block, trailer, meta = 8192, 8, 8 // a gather has no meta
	g := flowctl.DefaultGeometry(commonRing / block)
	l := wireLimits
	l.EagerBlock, l.Ring, l.Credit = block, int64(g.Blocks-g.Control)*block, int64(g.Every)*block
	l.EagerMax = int64(g.MaxRun()*block) - trailer - meta
	l.GatherMax = int64(g.MaxRun()*block) - trailer - slack
	l.ScatterSegs = defaultSegments
	return l
}

// follow adapts the bounds to the parameters of the path. Rings have most bytes at most.
func (w *window) follow(p *logp.Params, most int) {
	w.want, w.most, w.trip = min(max(commonRing, int(min(2*p.Flight(), 1<<30))), most), most, 0
	if trip := p.CreditTrip(); trip >= farTrip {
		w.trip = time.Duration(trip)
	}
}

// full asks for a larger ring because this one was full.
func (w *window) full(ring *eager.Channel) {
	have := ring.Stats().PeerRing
	want := w.want
	if w.trip > 0 && have < w.most {
		if data, _, block := ring.Window(); w.limits(ring.Head(), uint64(data/block), time.Now()) {
			want = w.most
		}
	}
	if have < want {
		w.tight = 0
		ring.Want(min(windowGrowth*have, want))
	}
}

// limits reports whether a ring with room for that number of blocks, which is full now, at
// position head, limits a stream over a far path: it was filled twice as fast as credit can
// come back.
func (w *window) limits(head, blocks uint64, now time.Time) bool {
	n := head - w.head
	if !w.since.IsZero() && n < 2*blocks {
		return false // too little to tell
	}
	limited := !w.since.IsZero() && now.Sub(w.since) <= limitedTrips*w.trip*time.Duration(n)/time.Duration(blocks)
	w.head, w.since = head, now
	return limited
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
