package message

import (
	"math"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/logp"
)

// DefaultLearn is the number of messages sent alone between two that are timed. A message
// that is not timed pays one decrement, one that is pays about 500 ns, so that learning
// costs 2 ns per message. Every 64th planned backlog is timed: plans stop using a mode that
// has become slow after about 1500 backlogs.
const DefaultLearn = 256

const (
	// A planned backlog counts for learnPlanned messages, because it costs more, and so
	// does a wrong choice.
	learnPlanned    = 4
	learnDescriptor = 32
	// learnPublish is the least number of timed backlogs between two changes of the
	// planner's parameters: each change discards its plans.
	learnPublish = 8
	// driftFactor: a mode that is so much slower driftAfter times in a row needs a new
	// measurement of the link. Smaller factors occur on a busy machine: plans follow them,
	// and they pass.
	driftFactor = 2
	driftAfter  = 32
	// learnRetry is the part of the interval after which the next attempt follows if the
	// link was busy; after each further one twice as many messages, up to learnPatience
	// intervals. In a stream it is busy whenever it is asked, and each attempt takes two
	// messages off the short path, which costs some µs.
	learnRetry    = 8
	learnPatience = 8
)

// learner times a backlog at intervals, from the first step of sending it to its last event
// that the sender observes, and learns from the time (logp.Observer). A time counts only if
// nothing else of this channel was in flight: the backlog before is signalled, and if it is
// not complete by then, the link was busy.
type learner struct {
	*model
	left  int            // backlogs until the next step
	every int            // 0: off
	again int            // backlogs until the next attempt if the link is busy
	from  logp.Params    // to compare with
	obs   *logp.Observer // nil until a backlog is timed
	clock func() int64
	scale func() float64 // ns per tick of the clock; 0: not known yet

	step        learnStep
	sign        bool // the current backlog ends with a completion
	signed      bool // and has something to complete
	pos         uint64
	token       uint64 // of the descriptor that is timed; 0: none
	sent        uint64 // number of descriptors before
	start       int64
	mode        logp.Mode
	batch       logp.Batch // the backlog that is timed
	unpublished int        // timed since the planner's parameters changed; from learnPublish on they may change
	moved       bool       // there are corrections that the planner does not have
	drift       logp.ModeSet
	slow        [logp.NumModes]int // consecutive times that a mode exceeded driftFactor
	stats       LearnStats
}

type learnStep uint8

const (
	resting learnStep = iota
	quiet             // the backlog before is signalled
	timing            // a backlog is in flight
	late              // it has been for a whole interval
)

// LearnStats counts the backlogs that a channel has learned from.
type LearnStats struct {
	Timed, Busy, Lost uint64 // backlogs timed; not timed because the link was busy; timed without a result
	Waited            uint64 // transfers that waited for a receive
	Tried             uint64 // backlogs sent in an avoided mode as an experiment
	Told              uint64 // changes of the planner's parameters
	Modes             [logp.NumModes]logp.Learned
	Drift             logp.ModeSet // modes so far from Params that the link should be measured again
}

// open starts learning from p if it is enabled.
func (l *learner) open(o *Options) {
	l.left = math.MaxInt
	if o.Learn <= 0 || !o.Policy.Free() {
		return
	}
	l.every, l.left, l.unpublished = o.Learn, o.Learn, learnPublish
	l.again = max(l.every/learnRetry, 1)
	l.clock, l.scale = o.clock, func() float64 { return 1 }
	if l.clock == nil {
		l.clock, l.scale = cpu.Ticks, sinceOpen()
	}
	l.restart(o.Params)
}

// restart discards the results.
func (l *learner) restart(p *logp.Params) {
	if l.every > 0 {
		l.from, l.obs = *p, nil
		l.step, l.token, l.moved, l.drift, l.slow = resting, 0, false, 0, [logp.NumModes]int{}
	}
}

// observe makes the observer if there is none. It fails only with parameters that the planner
// would have refused.
func (l *learner) observe() (ok bool) {
	if l.obs == nil {
		l.obs, _ = logp.NewObserver(&l.from)
	}
	return l.obs != nil
}

// sinceOpen measures the length of a tick over the time since the channel was opened: a
// measurement of its own would take longer than opening a channel may.
func sinceOpen() func() float64 {
	const enough = 20 * time.Millisecond
	t, ticks, ns := time.Now(), cpu.Ticks(), 0.0
	return func() float64 {
		if ns == 0 {
			if d := time.Since(t); d >= enough {
				ns = float64(d) / float64(cpu.Ticks()-ticks)
			}
		}
		return ns
	}
}

// timeNext is called at each interval of backlogs, and reports whether the current one is
// to be signalled or timed. announced is the number of transfers that wait for the peer.
func (l *learner) timeNext(announced int) bool {
	if l.every == 0 {
		l.left = math.MaxInt
		return false
	}
	l.left = l.every
	switch l.step {
	case timing:
		l.step = late
		return false
	case late: // the link or the peer is stuck, or does not complete the traffic in time
		l.step, l.token = resting, 0
		l.stats.Lost++
		return false
	case quiet:
		l.step = resting
		// If nothing was signalled, the backlog before was announced, and everything before
		// it is complete when that is.
		if l.signed && !l.ring.Done(l.pos) || announced > 0 {
			l.left, l.again = l.again, min(2*l.again, learnPatience*l.every)
			l.stats.Busy++
			return false
		}
		l.step, l.again = timing, max(l.every/learnRetry, 1)
		return true
	}
	l.step, l.left = quiet, 1
	return true
}

// begin is called when the current backlog, for which timeNext has returned true, has been
// planned. It may change the modes of b. descriptors is the number sent so far.
func (l *learner) begin(b *batch, descriptors uint64) {
	l.sign, l.signed, l.token, l.sent = true, false, 0, descriptors
	if l.step != timing {
		return
	}
	m, one := b.oneMode()
	if !one || !l.observe() {
		l.step = resting
		l.stats.Lost++
		return
	}
	if try, ok := l.obs.Try(&b.Batch, b.total); ok && try != m {
		m = try
		for i := range b.modes {
			b.modes[i] = m
		}
		l.stats.Tried++
	}
	l.mode = m
	l.batch.Messages = append(l.batch.Messages[:0], b.Messages...)
	l.batch.Limits = b.Limits
	l.start = l.clock()
}

// posted is called when the backlog has been passed to the streams, completely or not.
func (l *learner) posted(all bool, descriptors uint64) {
	l.sign = false
	switch {
	case l.step != timing:
	case !all, l.mode != logp.Scatter && !l.signed,
		l.mode == logp.Scatter && (l.token == 0 || descriptors != l.sent+1):
		l.step, l.token = resting, 0
		l.stats.Lost++
	}
}

// completed is called with every completion of the channel's endpoint.
func (l *learner) completed() {
	if l.step >= timing && l.mode != logp.Scatter && l.ring.Done(l.pos) {
		l.learned(l.clock() - l.start)
	}
}

// fetched is called when the descriptor that is timed has been fetched.
func (l *learner) fetched(err error) {
	l.token = 0
	switch {
	case l.step < timing: // the backlog before the one to be timed
	case err != nil:
		l.step = resting
		l.stats.Lost++
	case l.rendezvous.Waited():
		l.step = resting
		l.stats.Waited++
	default:
		l.learned(l.clock() - l.start)
	}
}

// learned records a time.
func (l *learner) learned(ticks int64) {
	l.step = resting
	ns := float64(ticks) * l.scale()
	if ns == 0 {
		return
	}
	l.stats.Timed++
	l.unpublished++
	l.moved = l.obs.Observe(&l.batch, l.mode, ns) || l.moved
	if l.moved && l.unpublished > learnPublish {
		p := l.obs.Refiner().Params()
		if l.replan(&p) == nil {
			l.moved, l.unpublished = false, 0
			l.stats.Told++
		}
	}
	was := l.drift
	switch x := l.obs.Refiner().Learned(l.mode); {
	case !x.Drift:
		l.drift &^= 1 << l.mode
		l.slow[l.mode] = 0
	case x.Factor < driftFactor:
		l.slow[l.mode] = 0
	default:
		if l.slow[l.mode]++; l.slow[l.mode] >= driftAfter {
			l.drift = l.drift.With(l.mode)
		}
	}
	if l.drift&^was != 0 && l.opt.Drift != nil {
		l.opt.Drift(l.drift)
	}
}

// snapshot returns the counters.
func (l *learner) snapshot() LearnStats {
	s := l.stats
	s.Drift = l.drift
	for m := range s.Modes {
		s.Modes[m].Factor = 1
		if l.obs != nil {
			s.Modes[m] = l.obs.Refiner().Learned(logp.Mode(m))
		}
	}
	return s
}
