package message

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// Channel carries messages between this rank and one other, both ways. Make it
// with Open, exchange Setup, then Connect. It belongs to the owner of its link.
type Channel struct {
	link fabric.Link
	ep   fabric.Endpoint
	opt  Options
	ring *eager.Channel
	long *rdv.Channel
	plan *logp.Planner
	pins *Pins
	err  error
	live bool

	settling  bool // nothing is sent any more, see Settle
	draining  bool // what came before the end is being taken
	finished  bool // all of it was
	releasing bool

	// Sending.
	backlog   outQueue
	seq       uint64 // of the last message handed in
	inPlace   int    // size from which registered memory is taken in place
	piece     [1]gather.Piece
	alone     int  // longest message that goes eager without planning
	ringBusy  bool // out of credit when freeWas blocks were free
	freeWas   int  // free blocks of the ring when it refused
	longBusy  bool // descriptors were refused
	queueFull bool // the link's queue refused what was for the ring
	longNew   bool // something was handed to long, and waits for its Flush
	// Writes were refused.
	writeBusy bool
	wants     wants
	src       [1]fabric.SGE
	flying    pending
	groups    tokens[Out] // announced transfers
	batch     logp.Batch
	first     []*Out // of the backlog, as many as the batch has messages
	modes     []logp.Mode
	part      []int32 // of the plan, in which each message travels
	planned   []int   // places in first of those that the batch has
	gone      []bool  // handed to a stream: no longer ours
	group     []int   // of the messages of one descriptor, in first
	packer    *gather.Packer
	packs     []gather.Message
	tags      []byte
	desc      scatter.Descriptor
	train     train
	head      []byte     // of a gather, while it is made
	probe     logp.Batch // that the model is asked about

	// Receiving.
	posted  inQueue
	next    uint64 // sequence number of the next message
	held    heldQueue
	unexp   unexpected
	open    bool // a gather is being taken apart
	lease   eager.Lease
	split   gather.Splitter
	run     segments // instead of split, where it can be
	tagsIn  tagReader
	tag     uint32 // of the current segment
	parts   [3][]byte
	dst     [1]fabric.SGE
	lie     error // of the peer, found within rdv
	matched []*In // matched, and not ended: see turn.go
	ready   []*In
	lost    []*In // whose message was lost, until the end of the channel is through
	fetch   map[rdv.Handle]*In
	ads     adverts

	learn learner
	stats Stats
}

// Stats counts what a channel did.
type Stats struct {
	Sent, SentBytes         uint64 // messages that ended well
	Received, ReceivedBytes uint64
	Plans                   uint64                // backlogs planned
	Messages                [logp.NumModes]uint64 // sent each way
	Gathers, Descriptors    uint64
	Written                 uint64 // of those scattered: written to an advertised destination
	Copied                  uint64 // of those scattered: from memory that could not be registered
	Adverts, LateAdverts    uint64 // of this side; of these, made when a message was on its way
	Unexpected              uint64 // messages copied aside
	NoCredit                uint64 // refusals for want of room at the peer
	QueueFull               uint64 // and of the link's queue
	Backlog                 int    // waiting
	Learn                   LearnStats
}

// Open makes a channel on an endpoint that is, or is about to be, connected.
// Setup path.
func Open(link fabric.Link, ep fabric.Endpoint, o Options) (*Channel, error) {
	c := &Channel{link: link, ep: ep, opt: o.effective(link.Name()), next: 1, fetch: map[rdv.Handle]*In{}}
	o = c.opt
	var err error
	if c.plan, err = logp.NewPlanner(o.Params, &logp.PlannerConfig{Policy: o.Policy}); err != nil {
		return nil, fmt.Errorf("open message channel: %w", err)
	}
	if err = c.learn.open(&o); err != nil {
		return nil, fmt.Errorf("open message channel: %w", err)
	}
	if c.ring, err = eager.Open(link, ep, o.Ring); err != nil {
		return nil, fmt.Errorf("open message channel: %w", err)
	}
	if c.long, err = rdv.Open(link, ep, handler{c}, o.Rendezvous); err != nil {
		return nil, errors.Join(fmt.Errorf("open message channel: %w", err), c.ring.Close())
	}
	if c.pins = o.Pins; c.pins == nil {
		if c.pins, err = NewPins(link, o.Pinned); err != nil {
			return nil, errors.Join(fmt.Errorf("open message channel: %w", err), c.long.Close(), c.ring.Close())
		}
	}
	c.unexp.limit = max(o.Unexpected, 0)
	return c, nil
}

// Connect takes the peer's set-up. Setup path.
func (c *Channel) Connect(setup []byte) error {
	ring, long, err := parseSetup(setup)
	if err == nil {
		err = c.ring.Connect(ring)
	}
	if err == nil {
		err = c.long.Connect(long)
	}
	if err != nil {
		return fmt.Errorf("connect message channel: %w", err)
	}
	c.limit(long)
	c.live = true
	return nil
}

// Err is why the channel ended, nil while it works.
func (c *Channel) Err() error { return c.err }

// Stats returns the counters.
func (c *Channel) Stats() Stats {
	s := c.stats
	s.Backlog, s.Learn = c.backlog.n, c.learn.snapshot()
	ring, long := c.ring.Stats(), c.long.Stats()
	s.NoCredit, s.QueueFull = ring.NoCredit+long.Busy, ring.QueueFull+long.QueueFull
	return s
}

// Memory is what the channel holds, in bytes.
func (c *Channel) Memory() int {
	return c.ring.Stats().Memory + c.long.Stats().Memory + c.unexp.bytes
}

// Send hands a message in. Nothing is posted before Progress. Messages over
// MaxSize end at once with ErrTooLarge. Short path.
func (c *Channel) Send(o *Out) {
	switch {
	case c.err != nil:
		c.sent(o, c.err)
		return
	case uint64(len(o.Data)) > MaxSize:
		c.sent(o, fmt.Errorf("send %d bytes: %w: at most %d", len(o.Data), ErrTooLarge, uint64(MaxSize)))
		return
	}
	c.seq++
	o.seq, o.outState = c.seq, outState{}
	c.backlog.push(o)
}

// SendAll hands in all of outs, in order. Short path.
func (c *Channel) SendAll(outs []Out) {
	if c.err != nil || len(outs) == 0 {
		for i, n := 0, len(outs); i < n; i++ { // the last one may be the end of outs
			c.Send(&outs[i])
		}
		return
	}
	for i := range outs {
		o := &outs[i]
		if uint64(len(o.Data)) > MaxSize {
			for ; i < len(outs); i++ {
				c.Send(&outs[i])
			}
			return
		}
		c.seq++
		o.seq, o.outState = c.seq, outState{}
		c.backlog.push(o)
	}
}

// Progress does what can be done: takes what came, posts what waits, ends what
// is through. Call it after the link was polled. more says that something is
// left that Progress has to be called for. A non-nil error is the channel's
// end. Short path.
func (c *Channel) Progress() (did, more bool, err error) {
	if !c.live {
		c.finish()
		return false, false, c.err
	}
	busy, err := c.long.Progress()
	if err != nil {
		c.fail(err)
		c.finish()
		return true, false, c.err
	}
	did = c.arrive() || busy
	did = !c.settling && c.transmit() || did
	did = c.reap() || did
	did = c.advertise() || did
	c.flushLong()
	done := true
	if c.err == nil {
		if done, err = c.ring.Progress(false); err != nil {
			c.fail(err)
		}
	}
	if c.err != nil {
		c.finish()
	}
	more = !done || c.backlog.n > 0 || c.flying.n > 0 || c.posted.n > 0 || c.opt.Shared != nil && c.opt.Shared.Len() > 0 || !c.long.Idle()
	return did, more, c.err
}

// OnCompletion takes a completion or an event of the channel's endpoint. It
// returns false if it is not the channel's. Short path.
func (c *Channel) OnCompletion(cpl *fabric.Completion) bool {
	a, b := c.ring.OnCompletion(cpl), c.long.OnCompletion(cpl)
	if a || b {
		if c.learn.step >= timing {
			c.seen()
		}
		if err := c.ring.Err(); err != nil {
			c.fail(err)
		}
		if err := c.long.Err(); err != nil {
			c.fail(err)
		}
		if c.err != nil {
			c.finish()
		}
	}
	return a || b
}

// Sleep sets or clears the sleep bit at the peer, see eager.Channel.Sleep.
func (c *Channel) Sleep(on bool) (done bool, err error) {
	a, err := c.ring.Sleep(on)
	b, err2 := c.long.Sleep(on)
	return a && b, errors.Join(err, err2)
}
