package hub

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/pending"
	"github.com/seed33544411/rma/internal/progress"
)

// AnyRank is the rank in errors that concern all ranks.
const AnyRank = -1

// ErrNoSender says that no rank is left that could send: every other rank of the job is
// gone.
var ErrNoSender = errors.New("every other rank is gone")

// Hub manages the messages with all ranks.
type Hub struct {
	exchange
	all        []*Conversation // by rank
	receivings []*Receiving
	turn       int   // the rank whose waiting messages are offered first
	over       error // there will be no more messages
}

// Init prepares h. Set-up path.
func (h *Hub) Init(o Options) {
	h.Options = o
	h.ended = h.conversationEnded
	h.shared.Again = h.again
}

// Add makes c, which is zero, the conversation with the next rank, over a link with these
// capabilities. Set-up path.
func (h *Hub) Add(c *Conversation, own bool, caps fabric.Caps, host Host) {
	c.x, c.host, c.of, c.own = &h.exchange, host, len(h.all), own
	c.looks = caps.Immediate || !caps.TargetProgress
	c.wakes = caps.WakesOnWrite
	c.place.it = c
	c.loop = message.Loopback{From: c.of, Shared: &h.shared}
	h.all = append(h.all, c)
}

// Start sets the engine that drives the links, before the first operation. Set-up path.
func (h *Hub) Start(prog *progress.Engine) { h.prog = prog }

// Shared is the common state of the conversations' channels.
func (h *Hub) Shared() *message.Shared { return &h.shared }

// Step sends and receives messages. It reports whether it did anything.
// Hot path.
func (h *Hub) Step() bool { return h.step() }

// Rest asks peers to notify if a plain write does not wake this side and it waits for them.
// It returns how long the rest may last, 0 for ever.
func (h *Hub) Rest(on bool) time.Duration {
	waits, d := h.list.sleep(on)
	if on && waits {
		if n := h.backoff.Next(); d == 0 || n < d {
			d = n
		}
	}
	return d
}

// Listen opens the channels that messages are wanted from: the one of rank
// only-1, or, if that is 0, those of all ranks that have begun to open theirs, or
// will: ranks that never send cost nothing. From any goroutine.
func (h *Hub) Listen(only int) {
	if only != 0 {
		h.all[only-1].begin()
		return
	}
	h.mu.Lock()
	if h.wanted.Swap(true) {
		h.mu.Unlock()
		return
	}
	var told []*Conversation
	for _, c := range h.all {
		if c.told {
			told = append(told, c)
		}
	}
	h.mu.Unlock()
	for _, c := range told {
		c.begin()
	}
}

// Cancel withdraws the receive that use gen of o stands for, unless it has ended. It does
// not wait. From any goroutine.
func (h *Hub) Cancel(o *pending.Operation, gen uint32) {
	h.call(func() {
		if o.Done() || o.Gen() != gen {
			return // what is not done now does not end, and is not used again, meanwhile
		}
		switch r := o.Work().(*Op); w := r.owner.(type) {
		case *Conversation:
			w.cancel(r)
		case *Hub:
			if h.shared.Cancel(&r.In) {
				r.Complete(0, 0, message.ErrCanceled)
			}
		}
	})
}

// call makes the owner call f, after the operations posted before.
func (h *Hub) call(f func()) {
	o := newOp(h, call, false)
	o.call = f
	h.Inbox.Push(&o.Operation)
	h.prog.Kick()
}

// Settle returns the ranks at which the messages whose sends are complete are not known to
// have arrived.
func (h *Hub) Settle() (late []int) {
	for _, c := range h.all {
		if !c.settle() {
			late = append(late, c.of)
		}
	}
	return late
}

// End ends all receives from any rank, now and later.
func (h *Hub) End() {
	h.over = h.Closed
	h.shared.End(h.Closed)
}

// Close releases the channels' memory.
func (h *Hub) Close() error {
	var errs []error
	for _, c := range h.all {
		if c.ch != nil {
			errs = append(errs, c.ch.Close())
		}
	}
	return errors.Join(errs...)
}

// NewAny creates a receive from any rank. From any goroutine.
func (h *Hub) NewAny() *Op { return newOp(h, RecvAny, false) }

// PostAny posts o, which NewAny has returned. From any goroutine.
func (h *Hub) PostAny(o *Op) {
	if !h.wanted.Load() {
		h.Listen(0)
	}
	h.Inbox.Push(&o.Operation)
	h.prog.Kick()
}

// start implements owner. A receive gets the first message that waits for it, beginning
// behind the rank that was served last, or goes on the list that all channels
// look at.
func (h *Hub) start(o *Op) {
	if o.kind == call {
		o.call()
		o.Drop()
		return
	}
	if h.over != nil {
		h.fail(o, h.over)
		return
	}
	o.In.Order = h.shared.Order()
	h.listenAll() // also if a message waits: what others have sent gets its turn then
	h.place(o)
}

// again restarts a receive whose message was lost with its sender.
func (h *Hub) again(in *message.In) {
	o := in.Done.(*Op)
	if h.over != nil {
		h.fail(o, h.over)
	} else {
		h.place(o)
	}
}

// place gives a receive a waiting message, or puts the receive on the list.
func (h *Hub) place(o *Op) {
	if h.offer(&o.In) {
		return
	}
	if err := h.noSender(); err != nil {
		h.fail(o, err)
		return
	}
	h.shared.Post(&o.In)
}

// offer offers waiting messages of all ranks to in, in turn.
func (h *Hub) offer(in *message.In) (taken bool) {
	many := in.Source != nil
	n, first := len(h.all), h.turn
	for i := range n {
		c := h.all[(first+i)%n]
		if c.offer(in) {
			taken = true
			h.turn = (c.of + 1) % n
			if !many {
				return true
			}
		}
	}
	return taken
}

// listenAll makes the channels of all ranks be polled.
func (h *Hub) listenAll() {
	for _, c := range h.all {
		if c.Open() {
			h.list.add(&c.place)
		}
	}
}

// noSender returns the error of a receive from any rank when no other rank is left; a job
// of one rank has only itself.
func (h *Hub) noSender() error {
	if len(h.all) == 1 {
		return nil
	}
	var why error
	for _, c := range h.all {
		if c.own {
			continue
		}
		if c.over == nil {
			return nil
		}
		why = c.over
	}
	return fmt.Errorf("%w: %w", ErrNoSender, why)
}

// Receive passes messages to a Taker, those that wait included, if their tags equal tag
// except in the bits set in ignore: messages of rank only-1, or of all ranks if only is 0.
// In the order of receives it follows those posted before.
func (h *Hub) Receive(tag, ignore uint32, only int, to Taker) *Receiving {
	r := newReceiving(len(h.all), tag, ignore, only, to)
	h.Inbox.TakeOver()
	r.in.Order = h.shared.Order()
	h.shared.Post(&r.in)
	h.receivings = append(h.receivings, r)
	h.offerMany(r)
	return r
}

// Resume offers messages again that r left. From any goroutine, including the Taker's
// methods.
func (h *Hub) Resume(r *Receiving) {
	h.call(func() {
		if !r.closed {
			clear(r.stalls)
			h.offerMany(r)
		}
	})
}

// Stop ends r: it gets no later messages. Messages that it has taken end as usual.
// Idempotent.
func (h *Hub) Stop(r *Receiving) {
	if !r.closed {
		r.closed = true
		h.shared.Cancel(&r.in)
		h.receivings = slices.DeleteFunc(slices.Clone(h.receivings), func(x *Receiving) bool { return x == r })
	}
}

// offerMany offers waiting messages to r.
func (h *Hub) offerMany(r *Receiving) {
	h.offer(&r.in)
	h.listenAll()
	h.tellGone(r)
}

// tellGone notifies r of the conversations that have ended.
func (h *Hub) tellGone(r *Receiving) {
	for _, c := range h.all {
		if c.over != nil {
			r.gone(c.of, c.over)
		}
	}
}

// poll implements owner.
func (h *Hub) poll() bool { return false }

// error implements owner.
func (h *Hub) error(op string, err error) error { return h.Error(op, AnyRank, err) }

// blame implements owner: errors of receives from any rank belong to none.
func (h *Hub) blame(err error) { h.own().blame(err) }

// rank implements owner.
func (h *Hub) rank() int { return AnyRank }

// complete implements owner.
func (h *Hub) complete(o *Op, tag uint32, n int, err error) {
	if err != nil {
		h.fail(o, h.own().reason(err))
		return
	}
	if !o.In.Peek {
		h.all[o.In.From].Received(1, n)
	}
	o.received(tag, n)
}

func (h *Hub) fail(o *Op, err error) { h.own().fail(o, err) }

// own is the conversation with this rank itself, which counts operations without another
// peer.
func (h *Hub) own() *Conversation {
	for _, c := range h.all {
		if c.own {
			return c
		}
	}
	return nil
}

// conversationEnded notifies receives from any rank that a conversation has ended.
func (h *Hub) conversationEnded() {
	for _, r := range h.receivings {
		h.tellGone(r)
	}
	if why := h.noSender(); why != nil {
		h.shared.End(why)
	}
}
