package rdv

import (
	"fmt"
	"math"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/scatter"
)

// Options configures one channel. The zero value is usable.
type Options struct {
	// Transfers is the number of transfers of either direction that may be outstanding.
	// Zero means 16, as many as links keep reads in flight: more transfers would only wait
	// here instead of at the sender. At most 4096.
	Transfers int

	// Window is the number of these that are started before Channel.Widen asks for more.
	// Zero means Transfers.
	Window int

	// Adverts is the number of advertised destinations of either direction that may be
	// outstanding. Zero means 16. At most 4096.
	Adverts int

	// Messages and Regions bound one batch. Zero means 64: beyond that the descriptor's
	// bytes are no longer small compared with what batching saves. At most 1024.
	Messages, Regions int

	// Chunk bounds the bytes of one request. Zero means 1 MiB: at 100 Gb/s that takes 80
	// µs, so that a request's fixed costs are below 2 %, and other transfers and control
	// messages wait no longer than that.
	Chunk int

	// Chunks is the number of announced chunks of one unregistered message that may be
	// outstanding. Zero means 8: with two, copying and fetching overlap; the others hide
	// the latency of the acknowledgement. At most 64.
	Chunks int

	// Staging is the size of the memory for chunks of unregistered messages, in bytes. It
	// is allocated at the first such message. Zero means 2 MiB. Negative means none:
	// SendUnregistered is refused.
	Staging int

	// FirstChunk is the size of the first chunk in bytes. Zero means 64 KiB: small, because
	// nothing is in flight while it is being copied, and not smaller, because the fixed
	// cost of a read would dominate.
	FirstChunk int

	// CopyRate, RegisterRate and LinkRate are the sampled bandwidths of copying
	// into staging, of registering and of the link, in bytes per second. A chunk
	// is larger than the one before by the ratio of preparing to sending. Zero
	// means unknown; the ratio is then 2.
	CopyRate, RegisterRate, LinkRate float64

	// Carry is the least size in bytes of an announced message that the sender may write
	// instead of the receiver reading it, if the link and the Handler (see Carrier) allow it;
	// both copy slices of one of 256 KiB or more. Zero means 64 KiB: the agreement costs a
	// control message and an atomic, some 0.2 µs. Negative means none, also for adverts.
	Carry int

	// Rails makes the Handler, which must be a RailReader, read messages that are announced with
	// their keys on further connections.
	Rails bool

	// Ring configures the ring for control messages. Zero fields mean 32 blocks of 256
	// bytes, 8 of them for the longest descriptor, and credit every 8. IDTag below sets its
	// IDTag.
	Ring eager.Options

	// IDTag is the first of two tags, IDTag and IDTag+1, in the top 16 bits of the WR IDs:
	// those of the ring and of the data.
	IDTag uint16
}

const (
	maxSlots  = 4096
	maxBatch  = 1024
	maxChunks = 64
	// commonRing is the size of the ring for control messages in bytes.
	commonRing = 32 * 256
	// batchWRs is the number of requests of one Post.
	batchWRs = 8
)

// effective returns o with defaults filled in, checked.
func (o Options) effective(caps fabric.Caps) (Options, error) {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&o.Transfers, 16)
	def(&o.Window, o.Transfers)
	def(&o.Adverts, 16)
	def(&o.Messages, 64)
	def(&o.Regions, 64)
	def(&o.Chunk, 1<<20)
	def(&o.Chunks, 8)
	def(&o.Staging, 2<<20)
	def(&o.FirstChunk, 64<<10)
	def(&o.Carry, 64<<10)
	def(&o.Ring.Blocks, 32)
	def(&o.Ring.BlockSize, commonRing/32)
	def(&o.Ring.Control, max(o.Ring.Blocks/4, 1))
	def(&o.Ring.Every, max(o.Ring.Blocks/4, 1))
	o.Ring.IDTag = o.IDTag
	for _, x := range []struct {
		name     string
		v, limit int
	}{
		{"transfers", o.Transfers, maxSlots}, {"window", o.Window, o.Transfers}, {"adverts", o.Adverts, maxSlots}, {"messages", o.Messages, maxBatch},
		{"regions", o.Regions, maxBatch}, {"chunk", o.Chunk, 1 << 30}, {"chunks", o.Chunks, maxChunks},
		{"first chunk", o.FirstChunk, 1 << 30}, {"carry", max(o.Carry, 1), math.MaxInt32}, {"staging", max(o.Staging, 1), 1 << 30},
	} {
		if x.v < 1 || x.v > x.limit {
			return o, fmt.Errorf("%w: %s %d, want 1 to %d", ErrOptions, x.name, x.v, x.limit)
		}
	}
	if o.CopyRate < 0 || o.RegisterRate < 0 || o.LinkRate < 0 {
		return o, fmt.Errorf("%w: rates %g, %g and %g bytes per second", ErrOptions, o.CopyRate, o.RegisterRate, o.LinkRate)
	}
	if caps.MaxSGE < 1 || caps.MaxReads < 1 {
		return o, fmt.Errorf("%w: the link takes %d pieces and %d reads", ErrOptions, caps.MaxSGE, caps.MaxReads)
	}
	return o, nil
}

func (o *Options) bounds() scatter.Bounds {
	return scatter.Bounds{Messages: o.Messages, Regions: o.Regions}
}
