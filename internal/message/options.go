package message

import (
	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/rdv"
)

// Options configures one channel. The zero value is usable.
type Options struct {
	// Ring and Rendezvous configure the two streams. Their IDTags are given by
	// IDTag below. Zero fields of Ring mean 64 blocks of 8 KiB.
	Ring       eager.Options
	Rendezvous rdv.Options

	// Params describes the link. Nil means a guess: see DefaultParams.
	Params *logp.Params

	// Policy overrides the model.
	Policy logp.Policy

	// Batch bounds how many messages are planned together. Zero means 256.
	Batch int

	// InPlace is the size from which messages in registered memory are taken in
	// place by the ring, alone and in gathers. Zero means
	// gather.DefaultThreshold, over tcp 16 KiB; negative means never.
	InPlace int

	// Unexpected bounds copies of messages that nobody has asked for, in
	// bytes. Zero means 1 MiB; negative means none.
	Unexpected int

	// IDTag is the first of three tags, IDTag to IDTag+2, in the top 16 bits of
	// the channel's WR IDs.
	IDTag uint16
}

// effective returns o with defaults filled in.
func (o Options) effective() Options {
	if o.Ring.Blocks == 0 {
		o.Ring.Blocks = 64
	}
	if o.Ring.BlockSize == 0 {
		o.Ring.BlockSize = 8192
	}
	o.Ring.IDTag, o.Rendezvous.IDTag = o.IDTag, o.IDTag+1
	if o.Rendezvous.Messages == 0 {
		o.Rendezvous.Messages = 64
	}
	if o.Rendezvous.Regions == 0 {
		o.Rendezvous.Regions = 64
	}
	if o.Rendezvous.Ring.Depth == 0 {
		o.Rendezvous.Ring.Depth = o.Ring.Depth
	}
	if o.Params == nil {
		o.Params = DefaultParams()
	}
	if !o.Params.R.Known() { // else memory that is not registered could not be announced
		p := *o.Params
		p.R = DefaultParams().R
		o.Params = &p
	}
	if o.Batch <= 0 {
		o.Batch = 256
	}
	o.Batch = min(o.Batch, logp.MaxMessages)
	if o.Unexpected == 0 {
		o.Unexpected = 1 << 20
	}
	return o
}

// DefaultParams describes no link in particular: what is used where nothing
// was sampled. 10 GB/s of wire and of copying, 200 ns between operations, 1 µs
// of latency: the choices that follow are those that most systems compile in.
func DefaultParams() *logp.Params {
	line := func(at0, at1M float64) logp.Curve {
		c, err := logp.NewCurve([]logp.Point{{Size: 0, NS: at0}, {Size: 1 << 20, NS: at1M}})
		if err != nil {
			panic(err) // constants
		}
		return c
	}
	return &logp.Params{
		Os: line(200, 105e3), Or: line(100, 100), C: line(10, 105e3), R: line(2000, 40e3),
		G: 200, Ls: 1000, Lh: 1000, CPU: logp.Posting{A: 50, B: 50},
	}
}
