package rdv

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/fifo"
	"github.com/seed33544411/rma/scatter"
)

// Channel is the rendezvous side of one connection, both directions: a source and
// a sink, which share the ring for control messages and the link. It belongs to
// the goroutine that owns its link. Create it with Open, exchange Setup with the
// peer, then call Connect.
type Channel struct {
	core
	source
	sink
	drained  bool // drain was called
	closed   bool
	messages []byte // scratch for received payloads; created when needed
}

// Open creates a channel on an endpoint that is connected or about to be. Setup path.
func Open(link fabric.Link, ep fabric.Endpoint, h Handler, o Options) (*Channel, error) {
	shared, err := newCore(link, ep, h, o)
	if err != nil {
		return nil, fmt.Errorf("open rendezvous channel: %w", err)
	}
	c := &Channel{core: shared}
	c.source.core, c.sink.core = &c.core, &c.core
	return c, nil
}

// Setup returns the data that the peer's Connect needs.
func (c *Channel) Setup() Setup {
	o := &c.opt
	return Setup{
		Transfers: uint16(o.Transfers), Adverts: uint16(o.Adverts), Messages: uint16(o.Messages),
		Regions: uint16(o.Regions), Chunks: uint16(o.Chunks), Rails: c.byRails != nil, Ring: c.ring.Setup(),
	}
}

// Connect accepts the peer's set-up, which is not trusted. The endpoint must be connected
// before the first Progress. Setup path.
func (c *Channel) Connect(s Setup) error {
	switch {
	case c.err != nil:
		return c.err
	case c.live:
		return ErrConnected
	}
	// Only the codec checks a set-up, so s passes through it.
	s, _, err := ParseSetup(s.Append(nil))
	if err == nil {
		err = c.ring.Connect(s.Ring)
	}
	if err != nil {
		return fmt.Errorf("connect rendezvous channel: %w", err)
	}
	c.peer = s
	adverts := min(int(s.Adverts), c.opt.Adverts)
	c.source.connect(min(int(s.Transfers), c.opt.Transfers), adverts)
	c.sink.connect(adverts)
	// Answers that can wait at once: ready, ack and FIN for each incoming transfer, the end of
	// each outgoing one that this side has carried, an answer to each advert of the peer, a
	// revocation and the end of each advert of this side.
	c.answers = fifo.NewRing[answer](4*c.opt.Transfers + 3*adverts)
	c.turns = fifo.NewRing[uint16](c.opt.Transfers + adverts)
	c.live = true
	return nil
}

// Send announces a batch in registered memory, which the peer fetches. Handler.Sent with
// token ends the transfer; until then the sources must not be changed or withdrawn. d may
// be reused on return. tag is passed to the peer, uninterpreted. Errors of scatter and
// ErrTooLarge concern this batch only; any other error ends the channel.
//
// Hot path.
func (c *Channel) Send(d *scatter.Descriptor, tag uint32, token uint64) (ID, Result, error) {
	return c.SendRails(d, nil, tag, token)
}

// SendRails is Send, of a batch of one message in one region, if keys is not nil: its keys on
// further connections, which the peer must want (ReadsRails).
//
// Hot path.
func (c *Channel) SendRails(d *scatter.Descriptor, keys *RailKeys, tag uint32, token uint64) (ID, Result, error) {
	c.flushAnswers()
	return c.sendBatch(d, keys, tag, token)
}

// SendUnregistered announces a message whose memory is not registered. When the peer has a
// destination for it, its chunks are copied into staging memory, or registered, while
// earlier chunks are being fetched; their sizes grow as newGrowth says. Handler.Sent with
// token ends the transfer. m.Size is taken from src. ErrTooLarge concerns this message
// only. The call costs as much as a registration, and the first one allocates the staging
// memory.
func (c *Channel) SendUnregistered(pos uint64, src []byte, by Means, tag uint32, token uint64) (ID, Result, error) {
	switch m := (scatter.Message{Pos: pos, Size: uint32(len(src))}); {
	case uint64(len(src)) != uint64(m.Size):
		return 0, Busy, fmt.Errorf("send %d bytes: %w: cut it", len(src), ErrTooLarge)
	case by != Copy && by != Register:
		return 0, Busy, fmt.Errorf("send by means %d: %w", by, ErrOptions)
	case len(src) == 0:
		return c.Send(&scatter.Descriptor{Messages: []scatter.Message{m}}, tag, token)
	}
	c.flushAnswers()
	return c.sendUnregistered(pos, src, by, tag, token)
}

// Advertise offers the peer a destination of k.Len bytes, at most 4 GiB - 1, registered for
// remote writing. w describes its purpose, uninterpreted. Handler.Filled with token ends
// the advert; until then the peer may write the memory.
//
// Hot path.
func (c *Channel) Advertise(w Want, k fabric.RemoteKey, token uint64) (ID, Result, error) {
	c.flushAnswers()
	return c.advertise(w, k, token)
}

// Stats returns the counters.
func (c *Channel) Stats() Stats {
	s := c.stats
	s.Writing = len(c.jobs) - len(c.jobsFree)
	for _, sh := range c.shares.each() {
		if sh.busy && sh.use == shareWrite {
			s.Writing++
		}
	}
	s.Memory = c.ring.Stats().Memory + len(c.stage.mem)
	return s
}

// Idle reports that nothing is outstanding in either direction and nothing waits to be
// posted. It is called in every round.
//
// Hot path.
func (c *Channel) Idle() bool {
	return c.source.idle() && c.sink.idle() && c.answers.Len() == 0 && c.shares.n == 0 && c.first == c.staged && c.reads == 0 && c.writes == 0
}

// Progress processes the peer's control messages, posts requests and answers, and returns
// credit. Call it after polling the link, and again while did is true. A non-nil error ends
// the channel.
//
// Hot path.
func (c *Channel) Progress() (did bool, err error) {
	if c.live && c.shares.n > 0 {
		did = c.share()
	}
	if c.live && (c.busy() || c.ring.Waiting()) {
		did = c.receive() || did
		did = c.post() || did
		did = c.flushAnswers() || did
		did = c.stream() || did
	}
	if c.live {
		if _, err := c.ring.Progress(false); err != nil {
			c.fail(err)
		}
	}
	c.sweep()
	return did, c.err
}

// Urgent reports whether a destination that is known now should be told, or given to a message,
// in this call: always, unless either end can carry a transfer and the peer has sent nothing.
//
// Hot path.
func (c *Channel) Urgent() bool { return c.live && (c.claims.direct == nil || c.ring.Waiting()) }

// busy reports whether this side has anything outstanding of its own. It is called in every
// round.
//
// Hot path.
func (c *Channel) busy() bool {
	return c.shares.n != 0 || c.first != c.staged || c.turns.Len() != 0 || c.answers.Len() != 0 || c.streams.Len() != 0
}

// Flush posts announcements, writes and answers since the last Progress, which otherwise
// posts them. Call it after the last of several Send, Write, Advertise or Decline that
// should not wait for the next poll of the link.
//
// Hot path.
func (c *Channel) Flush() error {
	if c.live {
		c.post()
		c.flushAnswers()
	}
	if c.live {
		if _, err := c.ring.Flush(); err != nil {
			c.fail(err)
		}
	}
	return c.err
}

// Settle reports whether all answers that were due are placed at the peer, or never will be
// because the channel has failed. Call it, and poll the link, until it returns true.
func (c *Channel) Settle() bool {
	if err := c.Flush(); err != nil || !c.live {
		return true
	}
	return c.answers.Len() == 0 && c.ring.Settle()
}

// Sleep sets or clears the sleep bit at the peer, see eager.Channel.Sleep.
func (c *Channel) Sleep(on bool) (done bool, err error) { return c.ring.Sleep(on) }

// OnCompletion handles a completion of the channel's endpoint. It returns false if the
// completion has another tag and does not belong to the channel. Other users of the
// endpoint must handle OpDown as well.
//
// Hot path.
func (c *Channel) OnCompletion(cpl *fabric.Completion) bool {
	switch {
	case cpl.Op == fabric.OpNotify:
		return c.ring.OnCompletion(cpl)
	case cpl.Op == fabric.OpDown:
		c.ring.OnCompletion(cpl)
		c.severed = true
		c.fail(c.ring.Err())
	case uint16(cpl.ID>>48) == c.opt.IDTag:
		c.ring.OnCompletion(cpl)
		if err := c.ring.Err(); err != nil {
			c.fail(err)
		}
	case uint16(cpl.ID>>48) == c.opt.IDTag+1:
		c.onData(cpl)
	default:
		return false
	}
	c.sweep()
	return true
}

// Fetched ends what RailReader.ReadRails began: nothing reads into the piece any longer. If that has failed,
// the channel reads the message.
func (c *Channel) Fetched(h Handle, err error) {
	t := &c.in[h.id().slot()]
	if c.closed || t.inflight == 0 || t.id != h.id() {
		return
	}
	t.inflight--
	switch {
	case !c.live:
		c.sweep()
	case err != nil:
		c.queueTurn(t)
	default:
		c.stats.OverRails++
		t.upto = t.runEnd
		c.endRun(t, t.runEnd)
		c.advance(t)
	}
}
