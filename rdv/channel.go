package rdv

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/fifo"
	"github.com/seed33544411/rma/scatter"
)

// Channel is the rendezvous side of one connection, both directions: a source and
// a sink, which share the ring for control messages and the link. It belongs to
// the goroutine that owns its link. Make it with Open, exchange Setup with the
// peer, then Connect.
type Channel struct {
	core
	source
	sink
	drained  bool   // what the peer had said before the failure was taken
	closed   bool   //
	messages []byte // scratch for payloads received
}

// Open makes a channel on an endpoint that is, or is about to be, connected.
// Setup path.
func Open(link fabric.Link, ep fabric.Endpoint, h Handler, o Options) (*Channel, error) {
	shared, err := newCore(link, ep, h, o)
	if err != nil {
		return nil, fmt.Errorf("open rendezvous channel: %w", err)
	}
	c := &Channel{core: shared, messages: make([]byte, max(shared.opt.bounds().MaxSize(), 64))}
	c.source.core, c.sink.core = &c.core, &c.core
	return c, nil
}

// Setup is what the peer needs for its Connect.
func (c *Channel) Setup() Setup {
	o := &c.opt
	return Setup{
		Transfers: uint16(o.Transfers), Adverts: uint16(o.Adverts), Messages: uint16(o.Messages),
		Regions: uint16(o.Regions), Chunks: uint16(o.Chunks), Ring: c.ring.Setup(),
	}
}

// Connect takes the peer's set-up, which is not trusted. The endpoint must be
// connected before the first Progress. Setup path.
func (c *Channel) Connect(s Setup) error {
	switch {
	case c.err != nil:
		return c.err
	case c.live:
		return ErrConnected
	}
	// Through the codec: it is the one place that checks.
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
	// Answers that can wait at once: ready, ack and FIN for each incoming
	// transfer; an answer to each advert of the peer; a revocation of each of ours.
	c.answers = fifo.NewRing[answer](3*c.opt.Transfers + 2*adverts)
	c.turns = fifo.NewRing[uint16](c.opt.Transfers + len(c.jobs))
	c.live = true
	return nil
}

// Send announces a batch that lies in registered memory; the peer fetches it.
// Handler.Sent with token ends the transfer; until then the sources are not to
// be changed or withdrawn. d is free again on return. tag travels with it,
// uninterpreted. A non-nil error concerns this batch only (scatter's errors,
// ErrTooLarge) or is the channel's end.
//
// Hot path.
func (c *Channel) Send(d *scatter.Descriptor, tag uint32, token uint64) (ID, Result, error) {
	c.flushAnswers()
	return c.sendBatch(d, tag, token)
}

// SendUnregistered announces a message whose memory is not registered. Once the
// peer has a destination for it, chunks of it are copied into staging memory, or
// registered, while those before are being fetched; they grow as newGrowth says.
// Handler.Sent with token ends the transfer. m.Size is taken from src.
// ErrTooLarge concerns this message only. It costs what registering costs, and the
// first call allocates the staging memory.
func (c *Channel) SendUnregistered(form scatter.Form, pos uint64, src []byte, by Means, tag uint32, token uint64) (ID, Result, error) {
	switch m := (scatter.Message{Pos: pos, Size: uint32(len(src))}); {
	case uint64(len(src)) != uint64(m.Size):
		return 0, Busy, fmt.Errorf("send %d bytes: %w: cut it", len(src), ErrTooLarge)
	case by != Copy && by != Register:
		return 0, Busy, fmt.Errorf("send by means %d: %w", by, ErrOptions)
	case len(src) == 0:
		return c.Send(&scatter.Descriptor{Form: form, Messages: []scatter.Message{m}}, tag, token)
	case form != scatter.FormSequence && form != scatter.FormOffset:
		return 0, Busy, fmt.Errorf("send by %v: %w", form, ErrOptions)
	}
	c.flushAnswers()
	return c.sendUnregistered(form, pos, src, by, tag, token)
}

// Advertise offers the peer a destination for what w says (uninterpreted): k.Len
// bytes, at most 4 GiB - 1, registered for remote writing. Handler.Filled with
// token ends the advert; until then the memory is the peer's to write.
//
// Hot path.
func (c *Channel) Advertise(w Want, k fabric.RemoteKey, token uint64) (ID, Result, error) {
	c.flushAnswers()
	return c.advertise(w, k, token)
}

// Stats returns the counters.
func (c *Channel) Stats() Stats {
	s := c.stats
	s.Outgoing, s.Incoming = c.transfers, c.fetching
	s.Advertised, s.Writing = len(c.mine)-len(c.mineFree), len(c.jobs)-len(c.jobsFree)
	s.Memory = c.ring.Stats().Memory + len(c.stage.mem)
	return s
}

// Idle reports that nothing is outstanding in either direction and nothing waits to
// be posted: it is asked in every round.
//
// Hot path.
func (c *Channel) Idle() bool {
	return c.source.idle() && c.sink.idle() && c.answers.Len() == 0 && c.first == c.staged && c.reads == 0 && c.writes == 0
}

// Progress does what can be done: takes the peer's control messages, posts
// requests and answers, returns credit. Call it after the link was polled, and
// again while did is true. A non-nil error is the channel's end.
//
// Hot path.
func (c *Channel) Progress() (did bool, err error) {
	if c.live && (c.busy() || c.ring.Waiting()) {
		did = c.receive()
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

// busy reports whether this side has anything to do of its own: it is asked in every
// round.
//
// Hot path.
func (c *Channel) busy() bool {
	return c.first != c.staged || c.turns.Len() != 0 || c.answers.Len() != 0 || c.streams.Len() != 0
}

// Flush posts what was announced, written and answered since the last Progress, which
// does it otherwise. Call it behind the last of several Send, Write, Advertise or
// Decline that are not to wait for the next poll of the link.
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

// Settle reports whether all answers that were due are placed at the peer, or never
// will be because the channel has failed. Call it, and poll the link, until it does.
func (c *Channel) Settle() bool {
	if err := c.Flush(); err != nil || !c.live {
		return true
	}
	return c.answers.Len() == 0 && c.ring.Settle()
}

// Sleep sets or clears the sleep bit at the peer, see eager.Channel.Sleep.
func (c *Channel) Sleep(on bool) (done bool, err error) { return c.ring.Sleep(on) }

// OnCompletion takes a completion of the channel's endpoint. It returns false
// if it is not the channel's: other tag. Other users of the endpoint want to
// see OpDown as well.
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
