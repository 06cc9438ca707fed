package message

import (
	"math"
	"math/bits"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// model is the cost model as a sender asks it: the planner, what the planner must know
// of the link, the wire formats and the peer, and the answers that do not depend on the
// backlog. Those are computed when the parameters are set, so that small messages need
// no plan.
type model struct {
	*streams
	planner *logp.Planner
	limits  logp.Limits
	probe   logp.Batch // that the planner is asked about

	// Bounds, in bytes. Backlogs of messages none of which is longer than runMax says for
	// their number are sent as coalesced runs: see send_coalesce.go.
	inPlace   int             // size from which registered memory is taken in place
	alone     int             // longest message that goes eager without planning
	writeFrom int             // size from which messages are written to advertised receives
	runMax    [runClasses]int // by runClass; -1: none
}

// leastAdvertised is from which size on the model may have receives advertised. An
// advertisement and its answer are two messages of the ring themselves: whatever the
// parameters say, which a busy machine may have measured, a message that is
// hardly longer is cheaper in the ring.
const leastAdvertised = 1 << 10

// limit fills in what the planner must know besides parameters. most is the largest
// gather of the ring, threshold as Options.InPlace without 0.
func (m *model) limit(peer rdv.Setup, most gather.Limits, threshold int) {
	caps := m.link.Caps()
	window, credit, block := m.ring.Window()
	const (
		perSegment = 3  // size of two bytes, tag of one, consecutive numbers
		slack      = 64 // header and tags of a gather of one message are shorter
	)
	if m.inPlace = threshold; threshold < 0 || m.ring.MaxInPlace() == 0 {
		m.inPlace = math.MaxInt
	}
	m.limits = logp.Limits{
		EagerMax:     int64(m.ring.MaxPayload(flowctl.Data, true)),
		EagerInPlace: min(int64(m.inPlace), logp.MaxSize),
		EagerBlock:   int64(block),
		Ring:         int64(window),
		Credit:       int64(credit),
		GatherMax:    max(int64(most.Bytes)-slack, 0),
		GatherCopy:   min(int64(m.inPlace)-1, logp.MaxSize),
		MaxSGE:       int32(min(caps.MaxSGE, most.InPlace+1)),
		ScatterSegs:  int32(min(int(peer.Messages), int(peer.Regions), m.opt.Rendezvous.Messages, m.opt.Rendezvous.Regions)),
		Header:       16, Segment: perSegment,
		DescSegment: scatter.SequenceMessageSize + scatter.RegionSize, ReadRequest: 28,
		Cursor: m.ring.Mode() == eager.ModeCursor,
	}
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

// replan makes later plans follow p. Errors wrap logp.ErrParams.
func (m *model) replan(p *logp.Params) error {
	if err := m.planner.SetParams(p); err != nil {
		return err
	}
	if m.live {
		m.bound()
	}
	return nil
}

// setPolicy makes later plans follow o. Errors wrap logp.ErrParams.
func (m *model) setPolicy(o logp.Policy) error {
	if err := m.planner.SetPolicy(o); err != nil {
		return err
	}
	m.opt.Policy = o
	if m.live {
		m.bound()
	}
	return nil
}

// bound computes the bounds: first the length up to which a message alone goes eager
// for certain.
func (m *model) bound() {
	m.alone = -1
	// A gather of one message is the same write with a header more: where the model
	// thinks it faster, it has learned that from larger ones. Where it thinks a small
	// rendezvous faster, it was taught by a machine that was busy with other things.
	chosen := !m.opt.Policy.Forced && len(m.opt.Policy.Table) == 0
	eagerAt := func(n int64) bool {
		if chosen && n < leastAdvertised {
			return true // a descriptor is such a message itself, with a read and an answer behind it
		}
		b := logp.Batch{Messages: []logp.Message{{Size: n, Flags: logp.Registered | logp.DestRegistered}}, Limits: m.limits}
		p, err := m.planner.Plan(&b)
		if err != nil {
			return false
		}
		modes, none := p.Modes(), logp.ModeSet(0)
		return modes == none.With(logp.Eager) || chosen && modes == none.With(logp.Gather) && n < int64(m.inPlace)
	}
	for n := int64(0); n <= m.limits.EagerMax && eagerAt(n); n = max(2*n, 64) {
		m.alone = int(n)
	}
	m.boundLarge()
	m.boundRuns()
}

// boundLarge finds the length from which on a message alone is announced, and
// that from which on one is written where its destination is known: there the
// alternatives are the ring, and the mode of a policy.
func (m *model) boundLarge() {
	m.advertiseFrom, m.writeFrom = math.MaxInt, math.MaxInt
	b := logp.Batch{Messages: make([]logp.Message, 1), Limits: m.limits}
	for n := int64(1); n <= 1<<30; n *= 2 {
		b.Messages[0] = logp.Message{Size: n, Flags: logp.Registered | logp.DestRegistered}
		if p, err := m.planner.Plan(&b); err == nil && p.Modes() == logp.ModeSet(0).With(logp.Scatter) {
			m.advertiseFrom = int(n)
			break
		}
	}
	m.writeFrom = m.advertiseFrom
	if p := m.planner.Params(); m.advertiseFrom < math.MaxInt && !m.opt.Policy.Forced && len(m.opt.Policy.Table) == 0 {
		m.writeFrom = max(min(m.writeFrom, int(min(p.DirectFrom(&b.Limits), math.MaxInt32))), m.alone+1)
		m.advertiseFrom = max(m.advertiseFrom, leastAdvertised)
	}
	if m.opt.Adverts < 0 {
		m.advertiseFrom = math.MaxInt
	}
}

// runClasses is how many classes of backlogs have a bound of their own: of 1, of 2 or 3,
// of 4 to 7, and of more messages.
const runClasses = 4

// runClass is the class of a backlog of n messages.
func runClass(n int) int { return min(bits.Len(uint(n)), runClasses) - 1 }

// boundRuns finds which backlogs are sent as coalesced runs. That a gather is best for equal messages of
// all sizes up to some one, in any number, holds for mixtures of them as well: what
// a gather saves is a sum over messages, less what it costs by itself. For the same reason
// what holds for some number of messages holds for more of them.
func (m *model) boundRuns() {
	m.runMax = [...]int{-1, -1, -1, -1}
	if len(m.opt.Policy.Table) > 0 || m.limits.GatherMax <= 0 {
		return
	}
	gathers := func(n int, size int64) bool {
		mode, err := m.planner.Single(m.equal(n, size))
		return err == nil && mode == logp.Gather
	}
	// More than the ring holds may be better fetched, which 64 messages do not show.
	most := min(m.inPlace, 1<<16, int(m.limits.Ring)/m.opt.Batch) - 1
	for class := runClasses - 1; class >= 0; class-- {
		last := class == runClasses-1
		for _, size := range [...]int{0, 8, 32, 128, 512, 2 << 10, 8 << 10, 32 << 10, 1 << 16} {
			size = min(size, most)
			if size == m.runMax[class] || !gathers(1<<class, int64(size)) || last && !gathers(64, int64(size)) {
				break
			}
			m.runMax[class] = size
		}
		if m.runMax[class] < 0 {
			return
		}
		most = m.runMax[class]
	}
}

// equal is a batch of n messages of one size, to ask the model about.
func (m *model) equal(n int, size int64) *logp.Batch {
	b := &m.probe
	b.Limits = m.limits
	b.Messages = b.Messages[:0]
	for range n {
		b.Messages = append(b.Messages, logp.Message{Size: size, Flags: logp.Registered | logp.DestRegistered})
	}
	return b
}

// isRun reports whether b would go as a coalesced run.
func (m *model) isRun(b *logp.Batch) bool {
	if len(b.Messages) == 0 {
		return false
	}
	most := int64(m.runMax[runClass(len(b.Messages))])
	for i := range b.Messages {
		if x := &b.Messages[i]; x.Size > most || x.Flags&logp.Urgent != 0 {
			return false
		}
	}
	return true
}

// waits sets how long b has to wait for what earlier batches still hold: the ring,
// where it has no room for all of b now, and the peer's list of transfers.
func (m *model) waits(b *logp.Batch) {
	l := &b.Limits
	free := int64(m.ring.Free(flowctl.Data)) * l.EagerBlock
	b.Wait = [logp.NumModes]float64{}
	full := m.rendezvous.Full()
	if free >= l.Ring && !full {
		return
	}
	var one, alone int64 // of the ring: in one gather, eager
	for i := range b.Messages {
		n := b.Messages[i].Size + int64(l.Header)
		one += n
		alone += (n + l.EagerBlock - 1) / l.EagerBlock * l.EagerBlock
	}
	if alone <= free && !full {
		return
	}
	p := m.planner.Params()
	b.Wait[logp.Eager] = p.CreditWait(l, free, alone)
	b.Wait[logp.Gather] = p.CreditWait(l, free, one)
	if full {
		b.Wait[logp.Scatter] = 2*p.Ls + p.Lh // of one of those under way
	}
}

// neighbour is where the message before ended, 0 if nothing can be joined to it.
type neighbour struct {
	end uint64
	key uint32
}

// describe describes a message to the model.
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
