package hub

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/fifo"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/pending"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/mr"
)

// Host is the engine's peer: its connection, and its errors. The owner calls all methods
// but Open and Blame, which must not wait.
type Host interface {
	// Open starts to open the channel. Conversation.Opened follows, or the connection ends,
	// after which Renew starts again. Any goroutine may call it.
	Open()

	// Reported handles the link's report that the connection is over. Conversation.Down
	// follows before it returns.
	Reported(err error)

	// Close closes the connection, which is down.
	Close()

	// Reason returns why an operation failed with err, which ended the channel if ended is
	// set.
	Reason(err error, ended bool) error

	// Blame records the error of an operation without a waiter. From any goroutine.
	Blame(err error)
}

// Ahead is the queue of one-sided operations with the same peer. Messages do not overtake them.
type Ahead interface {
	// Last returns the place of the last operation. free: a message that is sent now follows
	// all of them.
	Last() (place uint32, free bool)

	// Passed reports whether a message that is sent now follows the operation at place, and
	// all before it.
	Passed(place uint32) bool
}

// Counts counts the messages with a peer.
type Counts struct {
	Sends, Receives, Batches uint64 // completed without an error; messages of batches are among Sends
	SentBytes, RecvBytes     uint64
	Failed                   uint64 // operations
}

// exchange is the common state of all conversations of a Hub.
type exchange struct {
	Options
	prog    *progress.Engine
	list    pollList
	backoff eager.Backoff
	shared  message.Shared // receives from any rank
	ended   func()         // called when a conversation has ended
	over    error          // there will be no more messages
	// renewed is called when a conversation has a new connection. over is why the last one has ended.
	renewed func(rank int, over error)

	wanted atomic.Bool // receives may take messages of all ranks
	mu     sync.Mutex  // guards wanted against Conversation.told
}

// Options configure a Hub. All must be set.
type Options struct {
	Inbox    *pending.Inbox    // for operations of all kinds
	Receipts *pending.Receipts // for operations that complete in the call
	Protocol progress.Protocol // called if a receive finds operations posted before it

	// Error returns the error of an operation with the rank, which may be AnyRank.
	Error func(op string, rank int, err error) error
	// Closed is the error of operations after the end.
	Closed error
}

// step polls for messages.
// Hot path.
func (x *exchange) step() bool {
	did := x.list.step()
	if did {
		x.backoff.Reset()
	}
	return did
}

// Conversation manages the messages with one rank.
type Conversation struct {
	x      *exchange
	host   Host
	ahead  Ahead
	of     int  // the rank
	own    bool // the rank is this one
	polled bool // see pending.Operation.Begin: a poll of the link is not needed to see the peer's writes
	wakes  bool // a plain write of the peer wakes this side

	begun atomic.Bool // Host.Open was called
	told  bool        // the peer opens its side; guarded by exchange.mu

	ch           *message.Channel // nil until both sides are ready, and with this rank itself
	loop         message.Loopback // with this rank itself
	sends, recvs fifo.Queue[*Op]  // while ch is nil; also sends that wait for operations ahead
	place        polled
	asleep       bool  // the peer has been notified that this side sleeps, and not that it is awake
	woken        bool  // by the peer, since this side slept last
	opened       bool  // opening the channel has ended
	err          error // why there is no channel
	down         error // why the connection has ended
	over         error // why no more messages arrive, after receives from any rank were notified
	counts       Counts
}

// New creates an operation: a Send, or a Recv. From any goroutine.
func (c *Conversation) New(k Kind) *Op { return newOp(c, k, k == Recv && c.polled) }

// NewBatch creates the operation that sends b, which ends with the last of its messages.
// Any goroutine may call it.
func (c *Conversation) NewBatch(b *Batch) *Op {
	o := newOp(c, SendBatch, false)
	o.batch = b
	b.begin(o)
	return o
}

// NewRecvBatch creates the operation that receives b, which ends with the last of its
// receives. Any goroutine may call it.
func (c *Conversation) NewRecvBatch(b *RecvBatch) *Op {
	o := newOp(c, RecvSeveral, c.polled)
	o.recvs = b
	b.begin(o)
	return o
}

// Post posts o, which New has returned. Any goroutine may call it.
// Hot path.
func (c *Conversation) Post(o *Op) {
	if !c.begun.Load() && !o.empty() {
		c.begin()
	}
	if o.kind.receives() && c.x.prog.Hold() {
		c.recv(o)
		c.x.prog.Disown()
		return
	}
	c.x.Inbox.Push(&o.Operation)
	c.x.prog.Kick()
}

// begin opens the channel if it has not been opened.
func (c *Conversation) begin() {
	if !c.begun.Load() && c.begun.CompareAndSwap(false, true) && !c.own {
		c.host.Open()
	}
}

// recv starts a receive. Unless a message is known to wait for it, it does nothing else: a
// waiting goroutine, or the progress goroutine, polls for the message.
// Hot path.
func (c *Conversation) recv(o *Op) {
	c.x.prog.AssertOwned()
	defer progress.Crash() //hot:allow a handler may panic
	if c.x.Inbox.Pending() {
		c.x.Inbox.Push(&o.Operation)
		c.x.Protocol.Step()
		return
	}
	if o.kind == Recv && c.Open() && !o.Stale() {
		o.In.Order = c.x.shared.Order()
		c.ch.Recv(&o.In) // o may have ended, and is its owner's then
		c.x.list.add(&c.place)
	} else {
		c.start(o)
	}
	if c.ch != nil {
		if c.ch.PollLeft(); c.ch.Waits() {
			c.x.step()
		}
	}
}

// TrySend sends a message if it may travel alone and the link takes it at once, and returns
// its receipt. Otherwise it returns 0 and has no effect. mem is the registered memory of msg, or
// nil. Any goroutine may call it.
// Hot path.
func (c *Conversation) TrySend(tag uint32, msg []byte, mem *mr.Registration) (receipt uint64) {
	if !c.x.prog.Hold() {
		return 0
	}
	if _, free := c.ahead.Last(); free && c.sends.Len() == 0 && (mem == nil || mem.Live()) &&
		c.ch != nil && c.down == nil && !c.x.Inbox.Pending() && c.ch.SendNow(tag, msg) {
		receipt = c.x.Receipts.Issue()
		c.counts.Sends++
		c.counts.SentBytes += uint64(len(msg))
	}
	c.x.prog.Disown()
	return receipt
}

// start implements owner.
func (c *Conversation) start(o *Op) {
	c.x.prog.AssertOwned()
	switch {
	case c.x.over != nil:
		c.fail(o, c.x.over)
		return
	case c.down != nil && (!o.kind.receives() || !c.hears()):
		c.fail(o, c.down)
		return
	case o.Stale():
		c.fail(o, pending.ErrForeign)
		return
	}
	switch o.kind {
	case Recv:
		o.In.Order = c.x.shared.Order()
	case RecvSeveral:
		o.recvs.order(&c.x.shared)
	}
	switch {
	case c.err != nil && (c.ch == nil || !o.kind.receives()):
		c.fail(o, c.err)
		return
	case o.empty():
		c.post(o)
		return
	case o.kind.Sends() && waits(c, o):
		c.sends.Push(o)
	case c.own:
		c.post(o)
		return
	case c.ch != nil:
		c.post(o)
	default:
		c.recvs.Push(o)
	}
	c.x.list.add(&c.place)
}

// waits reports whether o, which sends, must wait for the channel, for operations ahead, or behind others
// that do.
func waits(c *Conversation, o *Op) bool {
	place, free := c.ahead.Last()
	o.place = place
	return !free || c.sends.Len() > 0 || c.ch == nil && !c.own
}

// sendWaiting posts what no longer has to wait.
func sendWaiting(c *Conversation) (did bool) {
	for c.sends.Len() > 0 && c.ahead.Passed((*c.sends.Front()).place) {
		c.post(c.sends.Pop())
		did = true
	}
	return did
}

// post passes an operation to the channel.
func (c *Conversation) post(o *Op) {
	switch {
	case o.kind == SendBatch:
		o.batch.post(c.ch, &c.loop)
	case o.kind == Send && c.ch != nil:
		c.ch.Send(&o.Out)
	case o.kind == Send:
		c.loop.Send(&o.Out)
	case o.kind == RecvSeveral && c.ch != nil:
		o.recvs.each(c.ch.Recv)
	case o.kind == RecvSeveral:
		o.recvs.each(c.loop.Recv)
	case c.ch != nil:
		c.ch.Recv(&o.In)
	default:
		c.loop.Recv(&o.In)
	}
}

// poll implements owner.
func (c *Conversation) poll() bool { return c.ch != nil && c.ch.Poll() }

// error implements owner.
func (c *Conversation) error(op string, err error) error { return c.x.Error(op, c.of, err) }

// blame implements owner.
func (c *Conversation) blame(err error) { c.host.Blame(err) }

// rank implements owner.
func (c *Conversation) rank() int { return c.of }

// complete implements owner.
func (c *Conversation) complete(o *Op, tag uint32, n int, err error) {
	switch {
	case o.kind == Recv:
		o.received(tag, n, c.received(&o.In, n, err))
	case err != nil:
		c.fail(o, c.reason(err))
	default:
		if o.kind == SendBatch {
			c.counts.Batches++
			c.counts.Sends += uint64(len(o.batch.Outs))
		} else {
			c.counts.Sends++
		}
		c.counts.SentBytes += uint64(n)
		o.Value = uint64(n)
		o.Finish()
	}
}

// received implements owner.
func (c *Conversation) received(in *message.In, n int, err error) error {
	switch {
	case err != nil:
		c.counts.Failed++
		return c.error(Recv.String(), c.reason(err))
	case !in.Peek:
		c.Received(1, n)
	}
	return nil
}

// Received counts n messages that have arrived, with the given sum of bytes.
func (c *Conversation) Received(n, bytes int) {
	c.counts.Receives += uint64(n)
	c.counts.RecvBytes += uint64(bytes)
}

func (c *Conversation) fail(o *Op, err error) {
	c.counts.Failed++
	o.fail(err)
}

// failWaiting fails the operations that wait for the channel.
func (c *Conversation) failWaiting(q *fifo.Queue[*Op], err error) {
	for q.Len() > 0 {
		c.fail(q.Pop(), err)
	}
}

// reason returns why an operation failed with err.
func (c *Conversation) reason(err error) error {
	return c.host.Reason(err, c.ch != nil && errors.Is(err, c.ch.Err()))
}

// cancel withdraws a receive, if that is still possible.
func (c *Conversation) cancel(o *Op) {
	c.x.prog.AssertOwned()
	switch {
	case c.own:
		o.pending(c.loop.Cancel)
	case c.ch != nil:
		o.pending(c.ch.Cancel)
	case c.recvs.Remove(func(x **Op) bool { return *x == o }):
		o.pending(func(in *message.In) { in.Done.Complete(0, 0, message.ErrCanceled) })
	}
}

// Told records that the peer opens its side of the channel. This side follows if receives
// may take messages of all ranks. Any goroutine may call it.
func (c *Conversation) Told() {
	c.x.mu.Lock()
	c.told = true
	follow := c.x.wanted.Load()
	c.x.mu.Unlock()
	if follow {
		c.begin()
	}
}

// Opened accepts the channel, or the error of opening it, and passes it the operations that
// wait for it. If the peer is gone meanwhile, messages from it may still arrive, because it
// may have had everything that it needs to send.
func (c *Conversation) Opened(ch *message.Channel, err error) {
	c.x.prog.AssertOwned()
	c.ch, c.opened = ch, true
	switch {
	case err == nil:
	case (c.down != nil || errors.Is(err, fabric.ErrPeerGone)) && c.hears():
		c.err = err
		c.failWaiting(&c.sends, err)
	default:
		c.end(err)
		return
	}
	for c.recvs.Len() > 0 {
		c.post(c.recvs.Pop())
	}
	c.recvs = fifo.Queue[*Op]{} // its memory
	if sendWaiting(c); c.sends.Len() == 0 {
		c.sends = fifo.Queue[*Op]{}
	}
	c.x.list.add(&c.place)
}

// hears reports whether receives may still get messages that the peer has sent.
func (c *Conversation) hears() bool {
	return !c.own && !errors.Is(c.down, c.x.Closed) && (c.ch != nil || c.begun.Load() && !c.opened)
}

// step implements pollable.
func (c *Conversation) step() (did, more bool) {
	switch {
	case c.own:
		return sendWaiting(c), c.sends.Len() > 0
	case c.ch == nil:
		return false, c.down == nil && c.Queued() > 0
	case c.down != nil:
		c.host.Close()
		c.Sever()
		return true, false
	}
	sent := sendWaiting(c)
	did, more, err := c.ch.Progress()
	if err != nil {
		c.end(err)
		return true, c.down != nil
	}
	return did || sent, more || c.sends.Len() > 0
}

// sleep implements pollable.
func (c *Conversation) sleep(on bool) (waits bool, rest time.Duration) {
	if c.ch == nil {
		return false, 0
	}
	waits, c.woken = c.down == nil && !c.wakes, false
	if (waits || !on) && c.asleep != on {
		c.asleep = on
		_, _ = c.ch.Sleep(on) // a later flush posts it if it cannot be posted now; sleeps are short meanwhile
	}
	if on {
		rest = c.ch.Rest()
	}
	return waits, rest
}

// Event handles an event of the connection, or a completion of the channel.
func (c *Conversation) Event(e *fabric.Completion) {
	c.x.prog.AssertOwned()
	if e.Op == fabric.OpDown {
		c.x.Inbox.TakeOver() // receives posted before the event get earlier messages
	}
	if e.Op == fabric.OpDown || e.Status != fabric.StatusOK {
		c.host.Reported(e.Err())
	}
	if c.ch == nil {
		return
	}
	if e.Op == fabric.OpNotify && c.down == nil && c.err == nil {
		c.x.list.add(&c.place) // the peer needs an answer, whether or not there are messages for this side
		// A peer that notifies this side again, while it is awake, hears so. Others need not know: to tell all of
		// them after each sleep, and before the next one, costs more than a few notifications.
		if c.asleep && c.woken {
			c.sleep(false)
		}
		c.woken = true
	} else {
		c.x.list.rouse(&c.place)
	}
	c.ch.OnCompletion(e)
	if err := c.ch.Err(); err != nil && e.Op != fabric.OpDown {
		c.end(err)
	}
}

// Down records that the connection has ended; a later call may replace the reason. Messages
// that cannot be sent any longer fail, and so do receives if no more messages will arrive.
func (c *Conversation) Down(err error) {
	c.x.prog.AssertOwned()
	c.down = err
	c.failWaiting(&c.sends, err)
	c.loop.Sever(err)
	switch {
	case c.ch != nil:
		c.x.list.add(&c.place) // its messages end in the next step
	case !c.hears():
		c.failWaiting(&c.recvs, err)
		c.noteEnd(err)
	}
}

// Sever ends all messages of the connection, which is closed.
func (c *Conversation) Sever() {
	c.x.prog.AssertOwned()
	if c.ch != nil {
		c.ch.Sever(c.down)
	}
	c.noteEnd(c.down)
}

// end fails the messages that no channel takes any more. With a channel that has failed it ends
// the connection: memory of messages that the link or the peer may still access is the engine's
// until then.
func (c *Conversation) end(err error) {
	c.x.prog.AssertOwned()
	err = c.reason(err)
	if c.err == nil {
		c.err = err
	}
	c.failWaiting(&c.sends, err)
	c.failWaiting(&c.recvs, err)
	c.noteEnd(err)
	if c.Ended() && c.down == nil {
		c.host.Reported(c.err)
	}
}

// noteEnd notifies receives from any rank, once, that no more messages arrive.
func (c *Conversation) noteEnd(err error) {
	if c.over == nil {
		c.over = err
		c.x.ended()
	}
}

// Renew drops the connection, which is down and idle. It returns the channel, which the
// caller must close, or nil.
func (c *Conversation) Renew() *message.Channel {
	ch := c.ch
	// The first receives, if they were posted too late to open a channel, still wait for it.
	c.failWaiting(&c.recvs, c.down)
	c.x.renewed(c.of, c.over)
	c.ch, c.asleep, c.opened, c.err, c.down, c.over = nil, false, false, nil, nil, nil
	c.loop = message.Loopback{From: c.of, Shared: &c.x.shared}
	c.x.mu.Lock()
	defer c.x.mu.Unlock()
	c.told = false
	return ch
}

// Reopen opens the channel on a new connection, if there was one on the last.
func (c *Conversation) Reopen() {
	if c.begun.Load() && !c.own {
		c.host.Open()
	}
}

// Channel returns the channel, or nil until both sides have opened theirs.
func (c *Conversation) Channel() *message.Channel { return c.ch }

// Open reports whether messages can be exchanged.
func (c *Conversation) Open() bool { return c.ch != nil && c.down == nil && c.err == nil }

// Ended reports whether the channel has ended.
func (c *Conversation) Ended() bool { return c.ch != nil && c.ch.Err() != nil }

// Busy reports whether messages are to be sent or received.
func (c *Conversation) Busy() bool { return c.place.on || c.Queued() > 0 }

// Idle reports whether a connection that is down has no operations left.
func (c *Conversation) Idle() bool { return !c.place.on }

// Queued returns the number of operations that wait for the channel.
func (c *Conversation) Queued() int { return c.sends.Len() + c.recvs.Len() }

// Counts returns the counts of messages.
func (c *Conversation) Counts() Counts { return c.counts }

// reoffer offers waiting messages to the receives behind one that has left them for later,
// and that was withdrawn.
func reoffer(c *Conversation) {
	switch {
	case c.own:
		c.loop.Reoffer()
	case c.ch != nil:
		c.ch.Reoffer()
	}
}

// offer offers waiting messages to a receive from any rank.
func (c *Conversation) offer(in *message.In) (taken bool) {
	switch {
	case c.own:
		return c.loop.Offer(in)
	case c.ch != nil:
		return c.ch.Offer(in)
	}
	return false
}
