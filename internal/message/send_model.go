package message

import (
	"math"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// limit fills in what the model must know of the link, the wire formats and
// the peer.
func (c *Channel) limit(peer rdv.Setup) {
	caps := c.link.Caps()
	threshold := c.opt.InPlace
	if threshold == 0 {
		threshold = inPlaceFrom(c.link.Name())
	}
	window, credit, block := c.ring.Window()
	most := c.ring.GatherLimits(eager.Envelope{Kind: kindTagged})
	const (
		perSegment = 3  // size of two bytes, tag of one, consecutive numbers
		slack      = 64 // header and tags of a gather of one message are shorter
	)
	if c.inPlace = threshold; threshold < 0 || c.ring.MaxInPlace() == 0 {
		c.inPlace = math.MaxInt
	}
	c.batch.Limits = logp.Limits{
		EagerMax:     int64(c.ring.MaxPayload(flowctl.Data, true)),
		EagerInPlace: min(int64(c.inPlace), logp.MaxSize),
		EagerBlock:   int64(block),
		Ring:         int64(window),
		Credit:       int64(credit),
		GatherMax:    max(int64(most.Bytes)-slack, 0),
		GatherCopy:   min(int64(c.inPlace)-1, logp.MaxSize),
		MaxSGE:       int32(min(caps.MaxSGE, most.InPlace+1)),
		ScatterSegs:  int32(min(int(peer.Messages), int(peer.Regions), c.opt.Rendezvous.Messages, c.opt.Rendezvous.Regions)),
		Header:       16, Segment: perSegment,
		DescSegment: scatter.SequenceMessageSize + scatter.RegionSize, ReadRequest: 28,
		Cursor: c.ring.Mode() == eager.ModeCursor,
	}
	c.packer = gather.NewPacker(gather.Seq, most, threshold)
	c.train.room, c.train.run = most.Bytes, make([]*Out, c.opt.Batch)
	c.bound()
}

// inPlaceFrom is the default of Options.InPlace. Over tcp a request that takes
// memory in place ends with an answer of the peer, which costs both sides some
// 6 µs: as much as copying 32 KiB at both ends. rmabench ablate: one message of
// 1 KiB takes twice as long in place, a gather of 16 messages of 2 KiB 1.4 times;
// at 16 KiB the difference is lost in the noise, at 32 KiB copying takes 1.1 times
// as long. Over shm the link copies as well, and a piece costs it what 2 KiB do
// (BenchmarkInPlace): a gather of 16 messages of 512 bytes takes 1.6 times as long in
// place, of 4 KiB as long, of 8 KiB three quarters; one message alone is the
// same either way.
func inPlaceFrom(link string) int {
	switch link {
	case "tcp":
		return 16 << 10
	case "shm":
		return 4 << 10
	}
	return gather.DefaultThreshold
}

// SetParams makes later plans follow p, and forgets what was learned. Allocates. Errors wrap logp.ErrParams.
func (c *Channel) SetParams(p *logp.Params) error {
	if err := c.replan(p); err != nil {
		return err
	}
	return c.learn.restart(p)
}

// replan is SetParams without forgetting what was learned.
func (c *Channel) replan(p *logp.Params) error {
	if err := c.plan.SetParams(p); err != nil {
		return err
	}
	if c.live {
		c.bound()
	}
	return nil
}

// SetPolicy makes later plans follow o. Allocates. Errors wrap logp.ErrParams.
func (c *Channel) SetPolicy(o logp.Policy) error {
	if err := c.plan.SetPolicy(o); err != nil {
		return err
	}
	c.opt.Policy = o
	if c.live {
		c.bound()
	}
	return nil
}

// Params are those in use.
func (c *Channel) Params() logp.Params { return c.plan.Params() }

// Limits are those that the model is given.
func (c *Channel) Limits() logp.Limits { return c.batch.Limits }

// bound finds the length up to which a message alone goes eager for certain.
func (c *Channel) bound() {
	c.alone = -1
	// A gather of one message is the same write with a header more: where the model
	// thinks it faster, it has learned that from larger ones. Where it thinks a small
	// rendezvous faster, it was taught by a machine that was busy with other things.
	chosen := !c.opt.Policy.Forced && len(c.opt.Policy.Table) == 0
	eagerAt := func(n int64) bool {
		if chosen && n < advertFrom {
			return true // a descriptor is such a message itself, with a read and an answer behind it
		}
		b := logp.Batch{Messages: []logp.Message{{Size: n, Flags: logp.Registered | logp.DestRegistered}}, Limits: c.batch.Limits}
		p, err := c.plan.Plan(&b)
		if err != nil {
			return false
		}
		m := p.Modes()
		one := logp.ModeSet(0)
		return m == one.With(logp.Eager) || chosen && m == one.With(logp.Gather) && n < int64(c.inPlace)
	}
	for n := int64(0); n <= c.batch.Limits.EagerMax && eagerAt(n); n = max(2*n, 64) {
		c.alone = int(n)
	}
	c.boundLarge()
	c.boundTrain()
}

// neighbour is where the message before ended, 0 if nothing can be joined to it.
type neighbour struct {
	end uint64
	key uint32
}

// describe says of a message what the model must know.
func (n *neighbour) describe(o *Out) logp.Message {
	f := logp.DestRegistered // not known here: assume the best, the peer pays the rest
	if o.Registered {
		f |= logp.Registered
		if at := fabric.Addr(o.Data); at != 0 {
			if at == n.end && o.RKey == n.key {
				f |= logp.Joined
			}
			n.end, n.key = at+uint64(len(o.Data)), o.RKey
		}
	} else {
		n.end = 0
	}
	if o.Urgent {
		f |= logp.Urgent
	}
	return logp.Message{Size: int64(len(o.Data)), Flags: f}
}

// view takes the first messages off the backlog, to c.first, describes them to
// the model, and plans: their modes are in c.modes, the parts
// of the plan that they belong to in c.part.
func (c *Channel) view() error {
	b := &c.batch
	b.Messages, c.first, c.modes, c.gone, c.planned = b.Messages[:0], c.first[:0], c.modes[:0], c.gone[:0], c.planned[:0]
	c.part = c.part[:0]
	var n neighbour
	for c.backlog.n > 0 && len(c.first) < c.opt.Batch {
		o := c.backlog.pop()
		c.assign(o)
		c.first = append(c.first, o)
		c.part = append(c.part, 0)
		c.gone = append(c.gone, false)
		if o.wanted {
			c.modes = append(c.modes, direct)
			n.end = 0
			continue
		}
		c.planned = append(c.planned, len(c.modes))
		c.modes = append(c.modes, logp.Eager)
		b.Messages = append(b.Messages, n.describe(o))
	}
	if len(b.Messages) == 0 {
		return nil
	}
	c.waits(b)
	plan, err := c.plan.Plan(b)
	if err != nil {
		return err
	}
	c.stats.Plans++
	c.learn.total = plan.Total
	for i := range plan.Parts {
		p := &plan.Parts[i]
		for _, k := range p.Messages {
			k := c.planned[k]
			c.modes[k], c.part[k] = p.Mode, int32(i)
			if o := c.first[k]; o.overtaken && p.Mode == logp.Scatter {
				c.modes[k] = o.mode
			}
		}
	}
	return nil
}
