package message

import (
	"fmt"
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/internal/fifo"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// sender is the sending direction of a channel: it holds the backlog, chooses modes, and
// passes the messages to the streams. Its other methods lie in the files of the modes:
//
//	send_backlog.go     the backlog, planned or not
//	send_ring.go        through the ring, single or gathered
//	send_coalesce.go    through the ring, in coalesced runs
//	send_rendezvous.go  announced, or written to advertised receives
//
// and send_window.go adapts the size of the peer's ring.
type sender struct {
	*streams
	model model
	learn learner
	stats SendCounts

	// The backlog: messages that were posted and not passed to a stream. seq is the number
	// of the last one posted. batch is its front while sendBatch runs.
	backlog outQueue
	seq     uint64
	batch   batch

	// The last refusal, until it is known not to repeat: see blocked.
	ringBusy     bool // out of credit when freeWas blocks were free
	freeWas      int  // free blocks of the ring when it refused
	around       bool // the ring was full for long: all messages are announced instead
	stall        stall
	queueFull    bool // the link's queue refused a request for the ring
	announceBusy bool // descriptors were refused
	writeBusy    bool // writes were refused

	// Messages that a stream has and the link or the peer still reads: inflight in the
	// ring, by rising position; groups by rendezvous, each a list of the messages of one
	// transfer.
	inflight fifo.Queue[*Out]
	groups   tokens[Out]

	peer   rdv.Setup
	window window

	// dests holds the receives that the peer has advertised.
	dests destinations

	gathered bool // the last planned backlog was one gather

	// Scratch of the ring: the piece of a message in place; the messages of a gather and
	// the packer that lays them out; the messages of a coalesced run, the bound of a gather
	// in bytes, and its header and tags.
	piece  [1]gather.Piece
	packs  []gather.Message
	packer *gather.Packer
	run    []*Out
	room   int
	head   []byte
	tags   []byte

	// Scratch of the rendezvous: a descriptor, the indices of its messages in the batch,
	// the memory of one that is written.
	desc  scatter.Descriptor
	group []int
	src   [1]fabric.SGE
}

// SendStats counts the messages that a channel sent, and what it learned from them.
type SendStats struct {
	SendCounts
	Learn LearnStats
}

// SendCounts are the counters of SendStats.
type SendCounts struct {
	Sent                 uint64                // messages sent without an error
	Plans                uint64                // backlogs planned
	Messages             [logp.NumModes]uint64 // messages sent, by mode
	Gathers, Descriptors uint64
	Written              uint64 // scattered messages written to an advertised receive
	Copied               uint64 // scattered messages from memory that could not be registered
	Backlog              int    // messages that wait
}

// open prepares a sender to be connected.
func (s *sender) open(shared *streams) (err error) {
	o := &shared.opt
	s.streams, s.model.streams, s.learn.model = shared, shared, &s.model
	s.window.follow(o.Params, o.RingMost)
	if s.model.planner, err = logp.NewPlanner(o.Params, &logp.PlannerConfig{Policy: o.Policy, CacheAfter: cacheAfter}); err != nil {
		return err
	}
	s.learn.open(o)
	return nil
}

// connect accepts the peer's parameters of its rendezvous, and adapts to its present ring.
func (s *sender) connect(peer rdv.Setup) {
	threshold := s.opt.InPlace
	if threshold == 0 {
		threshold = inPlaceFrom(s.link.Name())
	}
	most := s.ring.GatherLimits(eager.Envelope{Kind: kindTagged})
	s.model.limit(peer, most, threshold)
	s.batch.Limits = s.model.limits
	s.packer = gather.NewPacker(most, threshold)
	s.room = most.Bytes
	s.model.bound()
	s.peer, s.ringBusy, s.around, s.stall = peer, false, false, stall{}
}

// SetParams sets the parameters of later plans, and discards learned corrections.
// Allocates. Errors wrap logp.ErrParams.
func (s *sender) SetParams(p *logp.Params) error {
	p = registering(p, s.link.Name())
	if err := s.model.replan(p); err != nil {
		return err
	}
	s.window.follow(p, s.opt.RingMost)
	s.rendezvous.SetRates(p.Rates())
	s.learn.restart(p)
	return nil
}

// SetPolicy sets the policy of later plans. Allocates. Errors wrap logp.ErrParams.
func (s *sender) SetPolicy(o logp.Policy) error { return s.model.setPolicy(o) }

// Params returns the parameters in use.
func (s *sender) Params() logp.Params { return s.model.planner.Params() }

// Limits returns the limits for the model.
func (s *sender) Limits() logp.Limits { return s.model.limits }

// Send posts a message. The link gets it in the next Progress. Messages longer than MaxSize
// end at once with ErrTooLarge.
//
// Hot path.
func (s *sender) Send(o *Out) {
	s.opt.Owner.Assert()
	switch {
	case s.err != nil:
		s.sent(o, s.err)
		return
	case uint64(len(o.Data)) > MaxSize:
		s.sent(o, tooLarge(len(o.Data)))
		return
	}
	s.seq++
	o.seq, o.outState = s.seq, outState{}
	s.backlog.push(o)
}

func tooLarge(n int) error {
	return fmt.Errorf("send %d bytes: %w: at most %d", n, ErrTooLarge, uint64(MaxSize))
}

// SendAll posts all of outs, in order.
//
// Hot path.
func (s *sender) SendAll(outs []Out) {
	s.opt.Owner.Assert()
	if s.err != nil || len(outs) == 0 {
		for i, n := 0, len(outs); i < n; i++ { // when the last one ends, outs may be reused
			s.Send(&outs[i])
		}
		return
	}
	for i := range outs {
		o := &outs[i]
		if uint64(len(o.Data)) > MaxSize {
			for ; i < len(outs); i++ {
				s.Send(&outs[i])
			}
			return
		}
		s.seq++
		o.seq, o.outState = s.seq, outState{}
		s.backlog.push(o)
	}
}

// taken reports whether the ring took a message. It records a failure of the ring, or that
// the ring accepts no more messages, and why.
func (s *sender) taken(r eager.Result, err error) bool {
	switch {
	case err != nil:
		s.fail(err)
		return false
	case r != eager.Accepted:
		s.queueFull = r != eager.NoCredit
		s.ringBusy, s.freeWas = r == eager.NoCredit, s.ring.Free(flowctl.Data)
		if s.ringBusy {
			s.window.full(s.ring)
		}
		return false
	}
	return true
}

// count counts messages passed to a stream.
func (s *sender) count(m logp.Mode, n int) { s.stats.Messages[m] += uint64(n) }

// sent ends a message.
func (s *sender) sent(o *Out, err error) {
	s.unregister(o)
	n := len(o.Data)
	if err == nil {
		s.stats.Sent++
	} else {
		n, err = 0, blame(err)
	}
	done, tag := o.Done, o.Tag
	o.next = nil
	if done != nil {
		done.Complete(tag, n, err)
	}
}

// reap ends the messages of the ring that the link has sent.
//
// Hot path.
func (s *sender) reap() (did bool) {
	for s.inflight.Len() > 0 && s.ring.Done((*s.inflight.Front()).pos) {
		s.sent(s.inflight.Pop(), nil)
		did = true
	}
	return did
}

// endWaiting ends the messages of the backlog because the channel has failed.
func (s *sender) endWaiting() {
	for s.backlog.n > 0 {
		s.sent(s.backlog.pop(), s.err)
	}
}

// sever ends the messages that the link was still reading.
func (s *sender) sever() {
	for s.inflight.Len() > 0 {
		s.sent(s.inflight.Pop(), s.err)
	}
}

// destinations are the receives that the peer has advertised, with the state that
// determines which messages take them. See doc.go and docs/wire.md for the rules.
type destinations struct {
	open []destination // in the order of their receives
	free [64]uint64    // number of the last message without an advertised receive, by hash of its tag
	any  uint64        // the same over all tags
	late uint32        // late answers given
}

type destination struct {
	id  rdv.ID
	tag uint32
	len uint32
	any bool
}

// last returns the number of the last message without an advertised receive that a receive
// of tag, or of any tag, may take.
func (d *destinations) last(anyTag bool, tag uint32) uint64 {
	if anyTag {
		return d.any
	}
	return d.free[spread(tag)%uint32(len(d.free))]
}

// takes reports whether the receive behind x matches tag.
func (x *destination) takes(tag uint32) bool {
	if x.any {
		return tag < LibraryTags
	}
	return x.tag == tag
}

// pass records that message seq takes no advertised receive.
func (d *destinations) pass(tag uint32, seq uint64) {
	d.free[spread(tag)%uint32(len(d.free))] = seq
	if tag < LibraryTags {
		d.any = seq
	}
}

// stall measures how long the peer has taken no message. It counts steps, each twice as
// long as the one before and ended by the first check after it, so that a process that was
// not scheduled for long has waited for one step only.
type stall struct {
	steps   uint8 // steps that have ended, up to stallSteps
	polls   uint32
	backoff eager.Backoff // lengths of the steps
	until   time.Time     // the end of the present step
}

const (
	// stallSteps last 13 ms. A peer that computes or waits for a processor has usually
	// taken a message by then.
	stallSteps = 8

	// stallPolls is the number of polls for each reading of the clock: about 5 µs.
	stallPolls = 64
)

// poll counts another poll in which the peer took no message, and reports whether that has
// lasted long.
func (w *stall) poll() bool {
	if w.polls++; w.polls%stallPolls == 0 {
		w.look(time.Now())
	}
	return w.steps == stallSteps
}

// look ends the current step if it is over, and returns the remainder of the step that is
// then current. After the last step, lengths keep growing as those of eager.Backoff.
func (w *stall) look(now time.Time) time.Duration {
	w.polls = max(w.polls, 1)
	if left := w.until.Sub(now); left > 0 {
		return left
	}
	if !w.until.IsZero() {
		w.steps = min(w.steps+1, stallSteps)
	}
	d := w.backoff.Next()
	w.until = now.Add(d)
	return d
}
