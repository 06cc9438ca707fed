package message

import (
	"math"
	"math/bits"
	"slices"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/rdv"
)

// model is the cost model of a sender: the planner, its limits from the link, the wire
// formats and the peer, and the decisions that do not depend on the backlog. These are
// computed when the parameters are set, so that small messages need no plan.
type model struct {
	*streams
	planner *logp.Planner
	limits  logp.Limits

	// Bounds, in bytes. Backlogs without a message longer than runMax for their number of
	// messages are sent as coalesced runs: see send_coalesce.go.
	inPlace   int             // size from which registered memory is taken in place
	alone     int             // longest message that goes eager without planning
	writeFrom int             // size from which messages are written to advertised receives
	runMax    [runClasses]int // by runClass; -1: no runs
}

// cacheAfter is logp.PlannerConfig.CacheAfter. The bounds alone take some fifty plans, each time
// that the parameters or the ring change.
const cacheAfter = 256

// leastAdvertised is the lower bound of the size from which receives are advertised. An
// advertisement and its answer are two ring messages: whatever the parameters say, which
// may have been measured on a busy machine, a message that is hardly longer is cheaper in
// the ring.
const leastAdvertised = 1 << 10

// limit sets the planner's limits other than parameters. most is the largest gather of the
// ring, threshold is Options.InPlace with its default.
func (m *model) limit(peer rdv.Setup, most gather.Limits, threshold int) {
	caps := m.link.Caps()
	window, credit, block := m.ring.Window()
	if m.inPlace = threshold; threshold < 0 || m.ring.MaxInPlace() == 0 {
		m.inPlace = math.MaxInt
	}
	m.limits = wireLimits
	m.limits.EagerMax = int64(m.ring.MaxPayload(flowctl.Data, true))
	m.limits.EagerInPlace = min(int64(m.inPlace), logp.MaxSize)
	m.limits.EagerBlock = int64(block)
	m.limits.Ring = int64(window)
	m.limits.Credit = int64(credit)
	m.limits.GatherMax = max(int64(most.Bytes)-slack, 0)
	m.limits.GatherCopy = min(int64(m.inPlace)-1, logp.MaxSize)
	m.limits.MaxSGE = int32(min(caps.MaxSGE, most.InPlace+1))
	m.limits.ScatterSegs = int32(min(int(peer.Messages), int(peer.Regions), m.opt.Rendezvous.Messages, m.opt.Rendezvous.Regions))
	m.limits.Cursor = m.ring.Mode() == eager.ModeCursor
}

// inPlaceFrom is the default of Options.InPlace. Over tcp a request with memory in place
// ends with an answer from the peer, which costs both sides about 6 µs: as much as copying
// 32 KiB at both ends. rmabench ablate: in place, one message of 1 KiB takes twice as long,
// a gather of 16 messages of 2 KiB 1.4 times; at 16 KiB the difference is within the noise,
// at 32 KiB copying takes 1.1 times as long. Over shm the link copies as well, and a piece
// costs it as much as 2 KiB (BenchmarkInPlace): in place, a gather of 16 messages of 512
// bytes takes 1.6 times as long, of 4 KiB equally long, of 8 KiB three quarters; a single
// message takes the same time either way.
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

// bound computes the bounds: first the length up to which a single message is certainly
// eager.
func (m *model) bound() {
	m.alone = -1
	// A gather of one message is the same write with an additional header: if the model
	// predicts that it is faster, it has learned that from larger ones. If it predicts that
	// a small rendezvous is faster, the parameters were measured on a busy machine.
	chosen := m.opt.Policy.Free()
	eagerAt := func(n int64) bool {
		if chosen && n < leastAdvertised {
			return true // a descriptor is a ring message itself, followed by a read and an answer
		}
		b := logp.Batch{Messages: []logp.Message{{Size: n, Flags: logp.Registered | logp.DestRegistered}}, Limits: m.limits}
		p, err := m.planner.Plan(&b)
		if err != nil {
			return false
		}
		modes, none := p.Modes(), logp.ModeSet(0)
		return modes == none.With(logp.Eager) || chosen && modes == none.With(logp.Gather) && n < int64(m.inPlace)
	}
	for _, n := range m.probes(0, 64, m.limits.EagerMax) {
		if n > m.limits.EagerMax || !eagerAt(n) {
			break
		}
		m.alone = int(n)
	}
	m.boundLarge()
	m.boundRuns()
}

// probes returns the sizes up to most at which the bounds ask the planner, in ascending order:
// first, then from next on by octaves, and those at which a table changes the mode.
func (m *model) probes(first, next, most int64) []int64 {
	sizes := []int64{first}
	for n := next; n <= most; n *= 2 {
		sizes = append(sizes, n)
	}
	if rules := m.opt.Policy.Table; !m.opt.Policy.Forced && len(rules) > 0 {
		for i := range rules {
			for _, n := range [...]int64{rules[i].MaxSize, rules[i].MaxSize + 1} {
				if n > first && n <= most {
					sizes = append(sizes, n)
				}
			}
		}
		slices.Sort(sizes)
	}
	return sizes
}

// boundLarge computes the length from which a single message is announced, and that from
// which one is written if its destination is known: the alternatives there are the ring and
// the mode of a policy. Under a table, no shorter one is announced and no longer one is not:
// the rest follows the table message by message. A message is written from the length for
// registered memory on: the receiver knows its own memory.
func (m *model) boundLarge() {
	m.advertiseFrom, m.writeFrom = m.boundsLarge(logp.Registered | logp.DestRegistered)
	m.advertisePrivate, _ = m.boundsLarge(logp.DestRegistered) // what is not registered is charged once
}

// boundsLarge is boundLarge for messages with these flags.
func (m *model) boundsLarge(there logp.Flags) (advertise, write int) {
	advertise = math.MaxInt
	b := logp.Batch{Messages: make([]logp.Message, 1), Limits: m.limits}
	free := m.opt.Policy.Free()
	for _, n := range m.probes(1, 2, 1<<30) {
		b.Messages[0] = logp.Message{Size: n, Flags: there}
		p, err := m.planner.Plan(&b)
		announced := err == nil && p.Modes() == logp.ModeSet(0).With(logp.Scatter)
		switch {
		case !announced:
			advertise = math.MaxInt
		case advertise == math.MaxInt:
			advertise = int(n)
		}
		if announced && free {
			break
		}
	}
	write = advertise
	if p := m.planner.Params(); advertise < math.MaxInt && free {
		write = max(min(write, int(min(p.DirectFrom(&b.Limits, there), math.MaxInt32))), m.alone+1)
		advertise = max(advertise, leastAdvertised)
	}
	if m.opt.Adverts < 0 {
		advertise = math.MaxInt
	}
	return advertise, write
}

// runClasses is the number of classes of backlogs with a bound of their own: 1, 2 to 3, 4
// to 7, and more messages.
const runClasses = 4

// runClass returns the class of a backlog of n messages.
func runClass(n int) int { return min(bits.Len(uint(n)), runClasses) - 1 }

// boundRuns computes which backlogs are sent as coalesced runs. If a gather is best for any
// number of equal messages of every size up to a bound, it is best for mixtures of them:
// the time that a gather saves is a sum over messages, less its own cost. For the same
// reason, a result for some number of messages holds for larger numbers.
func (m *model) boundRuns() {
	m.runMax = [...]int{-1, -1, -1, -1}
	if !m.opt.Policy.Forced && len(m.opt.Policy.Table) > 0 || m.limits.GatherMax <= 0 {
		return
	}
	probe := logp.Batch{Limits: m.limits}
	gathers := func(n int, size int64) bool {
		mode, err := m.planner.Single(equal(&probe, n, size))
		return err == nil && mode == logp.Gather
	}
	// More than the ring holds may be better fetched; a batch of 64 messages does not show
	// that.
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

// equal makes b a batch of n messages of one size.
func equal(b *logp.Batch, n int, size int64) *logp.Batch {
	b.Messages = b.Messages[:0]
	for range n {
		b.Messages = append(b.Messages, logp.Message{Size: size, Flags: logp.Registered | logp.DestRegistered})
	}
	return b
}

// isRun reports whether b would be sent as a coalesced run.
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

// waits sets how long b has to wait for resources that earlier batches hold: the ring, if
// it has no room for all of b now, and the peer's list of transfers.
func (m *model) waits(b *logp.Batch) {
	l := &b.Limits
	free := int64(m.ring.Free(flowctl.Data)) * l.EagerBlock
	b.Wait = [logp.NumModes]float64{}
	full := m.rendezvous.Full()
	if free >= l.Ring && !full {
		return
	}
	var one, alone int64 // bytes of the ring: in one gather, eager
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
		b.Wait[logp.Scatter] = 2*p.Ls + p.Lh // until a transfer in flight ends
	}
}

// neighbour is the preceding message of a batch.
type neighbour struct {
	alone int    // model.alone
	end   uint64 // of its memory, 0 if nothing can be joined to it
	key   uint32
	tag   uint32
}

// describe describes a message to the model.
func (n *neighbour) describe(o *Out) logp.Message {
	f := logp.DestRegistered // not known here: assume the best case, the peer pays the rest
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

// add appends the description of a message to those before it. A descriptor has messages of one
// tag, so that a small message between others of other tags would need one to itself.
func (n *neighbour) add(ms []logp.Message, o *Out) []logp.Message {
	m := n.describe(o)
	if k := len(ms) - 1; k >= 0 {
		switch last := &ms[k]; {
		case o.Tag == n.tag:
			last.Flags &^= logp.Apart
		case k == 0 && last.Size <= int64(n.alone):
			last.Flags |= logp.Apart
		}
		if o.Tag != n.tag && len(o.Data) <= n.alone {
			m.Flags |= logp.Apart
		}
	}
	n.tag = o.Tag
	return append(ms, m)
}
