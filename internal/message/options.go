package message

import (
	"cmp"
	"slices"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/internal/owned"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/sampling"
	"github.com/seed33544411/rma/scatter"
)

// Options configures one channel. The zero value is usable.
type Options struct {
	// Ring and Rendezvous configure the two streams. IDTag below sets their IDTags. Zero
	// fields of Ring mean 64 blocks of 8 KiB.
	Ring       eager.Options
	Rendezvous rdv.Options

	// Params describes the link. Nil means the estimate of sampling.Defaults.
	Params *logp.Params

	// Policy overrides the model.
	Policy logp.Policy

	// Batch bounds the number of messages that are planned together. Zero means 256.
	Batch int

	// InPlace is the size in bytes from which the ring takes messages in registered memory
	// in place, alone and in gathers. Zero means gather.DefaultThreshold, over shm 4 KiB,
	// over tcp 16 KiB; negative means never.
	InPlace int

	// Pins keeps memory registered that messages and receives use without registering it.
	// The caller closes it, after the channel. Nil: the channel has its own, of Pinned
	// bytes as for NewPins.
	Pins   *Pins
	Pinned int64

	// Rings, if set, makes the rings follow the traffic within this budget: beyond the default
	// size on paths with more bytes in flight.
	Rings *eager.Budget

	// SmallRings makes rings that follow the traffic small at first. Zero fields of Ring and
	// Rendezvous.Ring then mean the smallest.
	SmallRings bool

	// RingMost bounds a ring that has grown, of either side, in bytes. Zero means 16 MiB.
	RingMost int

	// Posted passes the channel the operations that callbacks of the channel's methods have posted
	// elsewhere, and reports whether there were any. The receiver calls it before it copies a
	// message aside, as the callback of a message may have posted the receive of the next one.
	// Nil: there is no such place.
	Posted func() bool

	// Owner asserts, in programs built with the tag rmadebug, that the owner of the link
	// calls the channel. Nil asserts nothing.
	Owner *owned.Holder

	// Adverts bounds the receives that are advertised to the peer at a time, so that it
	// writes their messages in place. Zero means 16; negative means none.
	Adverts int

	// Unexpected bounds the copies of unexpected messages, in bytes. Zero means 1 MiB;
	// negative means none.
	Unexpected int

	// Staged copies large messages from memory that is not registered to staging memory, in
	// chunks, as those whose memory cannot be registered, instead of registering it.
	Staged bool

	// From identifies the channel to receives from several channels, which are in Shared.
	// Shared may be nil.
	From   int
	Shared *Shared

	// Rails reads long messages over several connections with the peer, if the peer has its own as
	// well. Nil: there is one.
	Rails Rails

	// Learn is the number of messages sent alone between two that are timed to find out
	// whether the link still matches Params; a planned backlog counts for four. The results
	// correct later plans. See DefaultLearn. Zero means never. It has no effect under a
	// Policy.
	Learn int

	// Drift is called by the owner, from within the channel's methods, when a mode turns
	// out to be so far from Params that the link should be measured again. Its argument is
	// the set of these modes. Nil: only Stats reports drift.
	Drift func(logp.ModeSet)

	// IDTag is the first of three tags, IDTag to IDTag+2, in the top 16 bits of
	// the channel's WR IDs.
	IDTag uint16

	clock func() int64 // ns, for tests; nil: cycles
}

const (
	defaultUnexpected = 1 << 20
	defaultSegments   = 64 // of a descriptor
)

// slack is more than the header and tags of a gather of one message take, in bytes.
const slack = 64

// wireLimits are the limits that depend on the wire formats alone. A segment is a size of two
// bytes and a tag of one, with consecutive numbers.
var wireLimits = logp.Limits{Header: 16, Segment: 3, DescSegment: scatter.MessageSize + scatter.RegionSize, ReadRequest: 28}

// effective returns o with defaults filled in, for a link of that name.
func (o Options) effective(link string) Options {
	if o.Rings != nil {
		o.RingMost = cmp.Or(o.RingMost, 16<<20)
		first, steps := eager.Step{Blocks: 64, BlockSize: 8192}, ringSteps
		if o.SmallRings {
			first = firstRing
			grow(&o.Rendezvous.Ring, firstControls, controlSteps, o.Rings)
			o.Rendezvous.Ring.Late = true
		}
		o.Ring.MaxPeerRing = max(o.RingMost, ringBytes(steps[0]), ringBytes(first))
		steps = slices.DeleteFunc(slices.Clone(steps), func(s eager.Step) bool {
			return ringBytes(s) <= ringBytes(first) || ringBytes(s) > o.Ring.MaxPeerRing
		})
		grow(&o.Ring, first, steps, o.Rings)
	}
	o.Ring.Blocks = cmp.Or(o.Ring.Blocks, 64)
	o.Ring.BlockSize = cmp.Or(o.Ring.BlockSize, 8192)
	o.Ring.IDTag, o.Rendezvous.IDTag = o.IDTag, o.IDTag+1
	if o.Rendezvous.Adverts = o.Adverts; o.Adverts < 0 {
		o.Rendezvous.Adverts = 0 // adverts of the peer are still answered
	}
	if o.Rendezvous.Transfers == 0 {
		o.Rendezvous.Transfers, o.Rendezvous.Window = 2048, 16
	}
	o.Rendezvous.Messages = cmp.Or(o.Rendezvous.Messages, defaultSegments)
	o.Rendezvous.Regions = cmp.Or(o.Rendezvous.Regions, defaultSegments)
	o.Rendezvous.Ring.Depth = cmp.Or(o.Rendezvous.Ring.Depth, o.Ring.Depth)
	o.Rendezvous.Rails = o.Rails != nil
	if o.Params == nil {
		guess := sampling.Defaults(link)
		o.Params = &guess
	}
	o.Params = registering(o.Params, link)
	if o.Batch <= 0 {
		o.Batch = 256
	}
	o.Batch = min(o.Batch, logp.MaxMessages)
	o.Unexpected = cmp.Or(o.Unexpected, defaultUnexpected)
	return o
}

// The first rings, and those that may follow. Each of the two fits a
// page with its cells. The ring of the rendezvous holds the longest descriptor from the beginning.
var (
	firstRing     = eager.Step{Blocks: 8, BlockSize: 448}
	firstControls = eager.Step{Blocks: 16, BlockSize: 192, Control: 10, Every: 4}

	ringSteps = []eager.Step{
		{Blocks: 64, BlockSize: 1024}, {Blocks: 64, BlockSize: 8192},
		{Blocks: 256, BlockSize: 8192}, {Blocks: 1024, BlockSize: 8192}, {Blocks: 2048, BlockSize: 8192},
	}
	controlSteps = []eager.Step{{Blocks: 32, BlockSize: 256, Control: 8, Every: 8}}
)

func ringBytes(s eager.Step) int { return s.Blocks * s.BlockSize }

// grow makes a ring begin with first, and follow steps, if o says nothing else.
func grow(o *eager.Options, first eager.Step, steps []eager.Step, b *eager.Budget) {
	if o.Blocks == 0 && o.BlockSize == 0 {
		o.Blocks, o.BlockSize, o.Control, o.Every = first.Blocks, first.BlockSize, first.Control, first.Every
		o.Steps, o.Budget = steps, b
	}
}

// registering returns p with a guess where it does not say what registering takes: else memory
// that is not registered could not be announced.
func registering(p *logp.Params, link string) *logp.Params {
	if p.R.Known() {
		return p
	}
	q := *p
	q.R = sampling.Defaults(link).R
	return &q
}
