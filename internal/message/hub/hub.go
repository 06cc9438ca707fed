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

// ErrNoSender means that no rank is left that could send: every other rank of the job is
// gone, or its connection is lost.
var ErrNoSender = errors.New("every other rank is gone or its connection is lost")

// Hub manages the messages with all ranks.
type Hub struct {
	exchange
	all        []*Conversation // by rank
	receivings []*Receiving
	turn       int  // the rank whose waiting messages are offered first
	short      bool // Short was called
	relieved   time.Time
}

// Init prepares h. Set-up path.
func (h *Hub) Init(o Options) {
	h.Options = o
	h.ended = h.conversationEnded
	h.renewed = func(rank int, over error) {
		for _, r := range h.receivings {
			r.renew(rank, over)
		}
	}
	h.shared.Again = h.again
}

// Add makes c, a zero Conversation, the conversation with the next rank, over a link with
// these capabilities. Set-up path.
func (h *Hub) Add(c *Conversation, own bool, caps fabric.Caps, host Host, ahead Ahead) {
	c.x, c.host, c.ahead, c.of, c.own = &h.exchange, host, ahead, len(h.all), own
	c.polled = caps.Immediate || !caps.TargetProgress
	c.wakes = caps.WakesOnWrite
	c.place.it = c
	c.loop = message.Loopback{From: c.of, Shared: &h.shared}
	h.all = append(h.all, c)
}

// Start sets the engine that drives the links. Call it before the first operation. Set-up
// path.
func (h *Hub) Start(prog *progress.Engine) { h.prog = prog }

// Shared returns the common state of the conversations' channels.
func (h *Hub) Shared() *message.Shared { return &h.shared }

// Step sends and receives messages. It reports whether it did anything.
// Hot path.
func (h *Hub) Step() bool {
	if h.short {
		h.relieve()
	}
	return h.step()
}

// Short notes that memory for rings was refused: the next step takes it back from ranks that
// are idle. Owner's.
func (h *Hub) Short() {
	h.prog.AssertOwned()
	h.short = true
}

// relieveEvery bounds how often all ranks are looked at.
const relieveEvery = 100 * time.Millisecond

// relieve gives back rings of ranks that are idle.
func (h *Hub) relieve() {
	h.short = false
	now := time.Now()
	if now.Sub(h.relieved) < relieveEvery {
		return
	}
	h.relieved = now
	for _, c := range h.all {
		if c.ch != nil && c.down == nil && c.ch.Relax(now) {
			h.list.add(&c.place)
		}
	}
}

// Rest requests notifications from peers that this side waits for, if a plain write does
// not wake it, and returns how long the sleep may last, 0 if without limit. After the sleep, with on
// false, it tells no peer: see Conversation.Event.
func (h *Hub) Rest(on bool) time.Duration {
	if !on {
		h.list.all = true
		return 0
	}
	waits, d := h.list.sleep()
	if waits {
		if n := h.backoff.Next(); d == 0 || n < d {
			d = n
		}
	}
	return d
}

// Listen opens the channels from which messages may be received: that of rank only-1, or,
// if only is 0, those of all ranks that open theirs, now or later. Ranks that never send
// cost nothing. Any goroutine may call it.
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

// Cancel withdraws the receive that is use gen of o, unless it has ended. It does not wait.
// Any goroutine may call it.
func (h *Hub) Cancel(o *pending.Operation, gen uint32) {
	h.call(func() {
		if o.Done() || !o.InFlight(gen) {
			return // an operation that is not done now does not end, and is not reused, meanwhile
		}
		switch r := o.Work().(*Op); w := r.owner.(type) {
		case *Conversation:
			w.cancel(r)
		case *Hub:
			r.pending(func(in *message.In) {
				if h.shared.Cancel(in) {
					in.Done.Complete(0, 0, message.ErrCanceled)
				}
			})
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

// Settle returns the ranks at which messages are not known to have arrived although their
// sends are complete.
func (h *Hub) Settle() (late []int) {
	for _, c := range h.all {
		if c.ch != nil && c.down == nil && !c.ch.Settle() {
			late = append(late, c.of)
		}
	}
	return late
}

// End ends all receives from any rank, present and later ones.
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

// NewAny creates a receive from any rank. Any goroutine may call it.
func (h *Hub) NewAny() *Op { return newOp(h, RecvAny, false) }

// NewAnyBatch creates the operation that receives b from any rank, which ends with the last
// of its receives. Any goroutine may call it.
func (h *Hub) NewAnyBatch(b *RecvBatch) *Op {
	o := newOp(h, RecvSeveral, false)
	o.recvs = b
	b.begin(o)
	return o
}

// PostAny posts o, which NewAny has returned. Any goroutine may call it.
func (h *Hub) PostAny(o *Op) {
	if !h.wanted.Load() {
		h.Listen(0)
	}
	h.Inbox.Push(&o.Operation)
	h.prog.Kick()
}

// start implements owner. A receive gets the first waiting message, beginning after the
// rank that was served last, or is put on the list that all channels search.
func (h *Hub) start(o *Op) {
	if o.kind == call {
		if h.over == nil {
			o.call()
		}
		o.Drop()
		return
	}
	if h.over != nil {
		h.fail(o, h.over)
		return
	}
	h.listenAll() // even if a message waits, so that other ranks get their turn
	if o.kind != RecvSeveral {
		o.In.Order = h.shared.Order()
		h.place(&o.In)
		return
	}
	o.recvs.order(&h.shared)
	o.recvs.each(h.place)
}

// again restarts a receive whose message was lost with its sender.
func (h *Hub) again(in *message.In) {
	if h.over != nil {
		in.Done.Complete(0, 0, h.over)
	} else {
		h.place(in)
	}
}

// place gives a receive a waiting message, or puts the receive on the list.
func (h *Hub) place(in *message.In) {
	if h.offer(in) {
		return
	}
	if err := h.noSender(); err != nil {
		in.Done.Complete(0, 0, err)
		return
	}
	h.shared.Post(in)
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

// Receive passes messages to a Taker, including waiting ones, if their tags equal tag in
// all bits that are not set in ignore: messages of rank only-1, or of all ranks if only is
// 0. In the order of receives it follows those posted before.
func (h *Hub) Receive(tag, ignore uint32, only int, to Taker) *Receiving {
	r := newReceiving(len(h.all), tag, ignore, only, to)
	h.Inbox.TakeOver()
	r.in.Order = h.shared.Order()
	h.shared.Post(&r.in)
	h.receivings = append(h.receivings, r)
	h.offerMany(r)
	return r
}

// Resume offers messages again that r has left. Any goroutine may call it, even within the
// Taker's methods.
func (h *Hub) Resume(r *Receiving) {
	h.call(func() {
		if !r.closed {
			clear(r.stalls)
			h.offerMany(r)
		}
	})
}

// Stop ends r: it gets no later messages, and those that it has left go to the receives
// behind it. Messages that it has taken end as usual. Idempotent.
func (h *Hub) Stop(r *Receiving) {
	if !r.closed {
		r.closed = true
		h.shared.Cancel(&r.in)
		h.receivings = slices.DeleteFunc(slices.Clone(h.receivings), func(x *Receiving) bool { return x == r })
		h.passOn(r)
	}
}

// passOn offers the messages that r, which is withdrawn, has left to the receives behind it,
// first to those for one message: they get none that a Receiving before them takes.
func (h *Hub) passOn(r *Receiving) {
	if !slices.Contains(r.stalls, true) {
		return
	}
	for _, c := range h.all {
		if r.stalls[c.of] {
			reoffer(c)
		}
	}
	for _, x := range h.receivings {
		if x.in.Order > r.in.Order {
			h.offer(&x.in)
		}
	}
	h.listenAll()
	h.tellGone()
}

// offerMany offers waiting messages to r.
func (h *Hub) offerMany(r *Receiving) {
	h.offer(&r.in)
	h.listenAll()
	h.tellGone()
}

// tellGone notifies the receivings of the conversations that have ended.
func (h *Hub) tellGone() {
	for _, c := range h.all {
		if c.over == nil {
			continue
		}
		var stalled []*Receiving // those of them that have left a message
		for _, r := range h.receivings {
			if !slices.ContainsFunc(stalled, r.overlaps) {
				r.gone(c.of, c.over) // else r may get messages that one before it has left
			}
			if r.stalls[c.of] {
				stalled = append(stalled, r)
			}
		}
	}
}

// poll implements owner.
func (h *Hub) poll() bool { return false }

// error implements owner.
func (h *Hub) error(op string, err error) error { return h.Error(op, AnyRank, err) }

// blame implements owner: errors of receives from any rank are assigned to this rank.
func (h *Hub) blame(err error) { h.own().blame(err) }

// rank implements owner.
func (h *Hub) rank() int { return AnyRank }

// complete implements owner.
func (h *Hub) complete(o *Op, tag uint32, n int, err error) {
	o.received(tag, n, h.received(&o.In, n, err))
}

// received implements owner.
func (h *Hub) received(in *message.In, n int, err error) error {
	if err == nil {
		return h.all[in.From].received(in, n, nil)
	}
	c := h.own()
	c.counts.Failed++
	return h.error(RecvAny.String(), c.reason(err))
}

func (h *Hub) fail(o *Op, err error) { h.own().fail(o, err) }

// own returns the conversation with this rank itself, which counts operations that have no
// other peer.
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
	h.tellGone()
	if why := h.noSender(); why != nil {
		h.shared.End(why)
	}
}
