package message

import (
	"errors"
	"math"
	"slices"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/rdv"
)

// States of the advert of a receive.
const (
	adNone    uint8 = iota // there is none, or it came too late
	adOpen                 // the peer may write Buf until it answers
	adSettled              // answered: the peer knows which message the receive takes
)

// Reasons of a declined advert, on the wire.
const (
	// whySpoken: a message that goes another way takes the receive, or is too long
	// for it.
	whySpoken = 0

	// whyLate: a message that was under way before may take it. The other bits are
	// the low ones of the number of the last such message.
	whyLate    = 1 << 31
	lateNumber = whyLate - 1
)

// Note of an advert: any tag, and how many late answers its maker had heard of.
const (
	noteAny   = 1 << 31
	noteEpoch = noteAny - 1
)

const (
	advertScan = 64 // receives looked at for one more advert
	advertTags = 16 // tags without advert that are remembered while looking
	mostTries  = 3  // adverts of one receive

	// advertFrom is from which size on the model may have receives advertised. An
	// advert and its answer are two messages of the ring themselves: whatever the
	// parameters say, which a busy machine may have measured, a message that is
	// hardly longer is cheaper in the ring.
	advertFrom = 1 << 10
)

// adverts are the destinations that this side has advertised.
type adverts struct {
	tokens[In]
	written []written // messages that wait for their turn, by rising number
	heard   uint32    // late answers
	min     int       // buffers from that size on are advertised
	waiting int       // receives posted that may be, and are not
	dirty   bool      // something has changed since they were looked at
	odds    odds
}

// written is a message that lies in the buffer of in.
type written struct {
	seq  uint64
	tag  uint32
	size uint32
	in   *In
}

// advertise tells the peer of receives whose message it does not have on its way
// yet. A receive may be advertised when all before it that compete for a message
// with it are: only then does the peer know which one it takes. Short path, but
// for registering.
func (c *Channel) advertise() (did bool) {
	a := &c.ads
	if !a.dirty || a.waiting == 0 || c.err != nil {
		return false
	}
	room := c.long.MayAdvertise()
	if room <= 0 {
		return false // dirty stays
	}
	a.dirty = false              // again when a message comes, a receive, or an answer
	var other [advertTags]uint32 // tags of receives that are not advertised
	others, looked := 0, 0
	for in := c.posted.head; in != nil; in = in.next {
		if looked++; looked > advertScan {
			break
		}
		if in.ad != adNone || in.Peek {
			continue
		}
		free := in.Any && others == 0 || !in.Any && in.Ignore == 0 && !slices.Contains(other[:others], in.Tag)
		if free && in.waits && c.opt.Shared != nil {
			free = !c.opt.Shared.rivals(in, c.opt.From)
		}
		if free && in.waits && c.next > in.after && c.ads.odds.good(in) {
			if room == 0 {
				a.dirty = true
				break
			}
			if c.offer(in) {
				room--
				did = true
				continue
			}
			if c.err != nil {
				break
			}
		}
		if in.Any || in.Ignore != 0 || others == len(other) {
			break
		}
		other[others] = in.Tag
		others++
	}
	return did
}

// watch notes a receive that was posted: it may be advertised if it is as large as
// a message that is announced. One that uses messages in place may not: it takes
// longer ones from the ring than its buffer, so that the peer would not know. Nor
// is memory registered a second time that the caller has registered for itself alone,
// or registered at all, before the message is known, that would not be kept after.
func (c *Channel) watch(in *In) {
	if !in.Remote && (in.Registered || int64(len(in.Buf)) > c.pins.most) {
		return
	}
	if len(in.Buf) >= c.ads.min && in.Use == nil && uint64(len(in.Buf)) <= math.MaxUint32 {
		in.waits = true
		c.ads.waiting++
		c.ads.dirty = true
	}
}

// unwatch notes one that is not going to be advertised, or is.
func (c *Channel) unwatch(in *In) {
	if in.waits {
		in.waits = false
		c.ads.waiting--
	}
	c.ads.dirty = true // those behind it may be now
}

// offer advertises in.
func (c *Channel) offer(in *In) bool {
	k := fabric.RemoteKey{Addr: fabric.Addr(in.Buf), Len: uint64(len(in.Buf)), RKey: in.RKey}
	if !in.Remote {
		if err := c.pinIn(in, len(in.Buf)); err != nil {
			c.unwatch(in)
			return false
		}
		k.RKey = in.pin.rkey
	}
	w := rdv.Want{Pos: c.next, Tag: in.Tag, Note: c.ads.heard & noteEpoch}
	if in.Any {
		w.Tag, w.Note = 0, w.Note|noteAny
	}
	token := c.ads.put(in)
	id, res, err := c.long.Advertise(w, k, token)
	if err != nil {
		c.fail(err)
	}
	if err != nil || res != rdv.Accepted {
		c.ads.take(token)
		c.ads.dirty = true
		return false
	}
	in.ad, in.adID = adOpen, id
	c.longNew = true
	in.tries++
	c.unwatch(in)
	c.stats.Adverts++
	return true
}

// Filled ends an advert: the peer does not write there any more.
func (h handler) Filled(token uint64, a rdv.Answer, err error) {
	c := h.Channel
	in := c.ads.take(token)
	in.ad = adSettled
	c.ads.dirty = true
	declined := errors.Is(err, rdv.ErrDeclined)
	if errors.Is(err, rdv.ErrCancelled) {
		declined = a.Why != rdv.WhyRevoked // it was answered before it was revoked
	}
	switch {
	case errors.Is(err, rdv.ErrCancelled) && !declined:
		c.ads.heard++
		in.ad = adNone
	case declined && a.Why&whyLate != 0:
		c.ads.heard++
		c.stats.LateAdverts++
		c.ads.odds.change(in, -2)
		in.ad = adNone
		// Again, when the message that may take it has come and did not.
		in.after = c.next + uint64(int64(int32(a.Why-uint32(c.next))<<1>>1))
		if in.tries < mostTries && !in.matched {
			c.watch(in)
		}
	case declined && a.Why != whySpoken:
		c.refuse(peerError("advert declined for reason %d", a.Why))
	case err == nil && (in.matched || a.Pos < c.next || !in.takes(a.Tag)):
		c.refuse(peerError("message %d, tag %d, written where it does not belong", a.Pos, a.Tag))
		in.err = c.lie
	case err == nil:
		c.ads.odds.change(in, 1)
		w := written{a.Pos, a.Tag, a.Bytes, in}
		i := len(c.ads.written)
		for i > 0 && c.ads.written[i-1].seq > w.seq {
			i--
		}
		c.ads.written = slices.Insert(c.ads.written, i, w)
	}
	if in.cancel && in.ad == adNone && !in.matched {
		c.Cancel(in)
		return
	}
	if in.ended {
		c.received(in, in.tag, int(in.size), in.err)
	}
}

// takeWritten delivers the written message whose turn it is. It lies in the
// buffer of the receive that takes it, or the peer lied.
func (c *Channel) takeWritten() {
	w := c.ads.written[0]
	c.ads.written = slices.Delete(c.ads.written, 0, 1)
	if c.draining && !c.posted.has(w.in) {
		c.bury(w.seq, w.tag) // its receive stands behind a lost message
		return
	}
	in := c.match(w.tag, int(w.size), false)
	c.next++
	if in != w.in {
		err := peerError("message %d written to a receive that is not its", w.seq)
		if in != nil {
			c.received(in, w.tag, 0, err)
		}
		c.fail(err)
		return
	}
	c.received(in, w.tag, int(w.size), nil)
}

// odds guesses whether an advert is going to be used: by tag, from what became of
// the last ones.
type odds struct {
	tag    [16]int8
	any    int8
	always bool // for tests
}

const mostOdds = 4

func (o *odds) at(in *In) *int8 {
	if in.Any {
		return &o.any
	}
	return &o.tag[spread(in.Tag)%uint32(len(o.tag))]
}

func (o *odds) good(in *In) bool { return *o.at(in) >= 0 || o.always }

func (o *odds) change(in *In, by int8) {
	p := o.at(in)
	*p = min(max(*p+by, -mostOdds), mostOdds)
}

// small notes that a receive got a message of the ring.
func (c *Channel) small(in *In) {
	if len(in.Buf) >= c.ads.min && in.Use == nil {
		c.ads.odds.change(in, -1)
	}
}

// large notes that a receive that could have been advertised got a message that
// was announced.
func (c *Channel) large(in *In) {
	if in.tries == 0 && (in.Remote || !in.Registered) && in.ad == adNone && in.Use == nil {
		c.ads.odds.change(in, 1)
	}
}

// spread mixes a tag (Fibonacci hashing).
func spread(tag uint32) uint32 { return tag * 0x9e3779b1 >> 24 }
