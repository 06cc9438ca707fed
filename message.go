package rma

import (
	"context"

	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/message/hub"
	"github.com/seed33544411/rma/mr"
)

// Send sends msg to the peer, with tag 0. Messages of all modes are matched in the order
// in which they were sent. The request is complete when msg may be reused: soon for a
// message that is copied, after the peer has fetched it for a large one. Completion does
// not mean that the peer has received the message. If the peer has no room, or has not
// called Send or Recv for this rank yet, the send waits; the engine plans messages that
// wait for the same peer together. A message has at most 4 GiB - 1 bytes (ErrTooLarge). Send
// does not allocate after the first send to a peer.
func (p *Peer) Send(msg []byte) Request { return p.SendTag(0, msg) }

// SendTag is Send with a tag, by which receives select messages. See LibraryTags for the
// range of tags.
func (p *Peer) SendTag(tag uint32, msg []byte) Request {
	if r := p.trySend(tag, msg, nil); r.eng != nil {
		return r
	}
	o := p.msg.New(hub.Send)
	o.Out.Data, o.Out.Tag = msg, tag
	return p.message(o)
}

// SendSync is a synchronous SendTag: its request is complete when the peer has matched the
// message with a receive, a handler or a Receiver, and has its bytes; msg may then be
// reused. All messages sent to the peer before have then arrived: each has been matched,
// or waits at the peer for its receive, or, if it is too large to wait there, has been
// announced. An empty synchronous message, for a receive that the peer keeps for this
// purpose, thus flushes the messages to the peer.
//
// A synchronous message does not travel through the peer's ring, and takes a round trip
// longer than a small message of Send.
func SendSync(p *Peer, tag uint32, msg []byte) Request {
	o := p.msg.New(hub.Send)
	o.Out.Data, o.Out.Tag, o.Out.Sync = msg, tag, true
	return p.message(o)
}

// SendBuffer is SendTag from registered memory. Large messages are then fetched without
// copying, registering or pinning.
func (p *Peer) SendBuffer(tag uint32, b Buffer) Request {
	var data []byte
	var lkey, rkey uint32
	rights, err := b.out(p, &data, &lkey, &rkey)
	if err != nil {
		return p.refuse(hub.Send.String(), err)
	}
	if r := p.trySend(tag, data, b.region.reg); r.eng != nil {
		return r
	}
	o := p.msg.New(hub.Send)
	o.Needs(b.region.reg)
	o.Out.Data, o.Out.Tag, o.Out.LKey, o.Out.RKey, o.Out.Registered = data, tag, lkey, rkey, rights.has(PeersRead)
	return p.message(o)
}

// SendFunc is SendTag with a callback: done is called once, with nil when msg may be
// reused, or with the error. It runs in the progress engine, possibly before SendFunc
// returns, and must not wait for anything: see Concurrency in the package's comment. done
// may be nil. SendFunc does not allocate.
// Hot path.
func (p *Peer) SendFunc(tag uint32, msg []byte, done func(error)) {
	if done == nil {
		done = func(error) {} //hot:allow captures nothing, so it is static
	}
	p.SendTag(tag, msg).Then(done)
}

// Recv receives the next message of the peer, whatever its tag (below LibraryTags). Until
// the request is complete buf belongs to the engine. If the message is longer than buf,
// the request fails with a *ShortBufferError, which wraps ErrShortBuffer, and the message
// remains for the next receive.
func (p *Peer) Recv(buf []byte) RecvRequest {
	o := p.msg.New(hub.Recv)
	o.In.Buf, o.In.Any = buf, true
	return RecvRequest{p.message(o)}
}

// RecvTag is Recv of the next message of the peer that has this tag.
func (p *Peer) RecvTag(tag uint32, buf []byte) RecvRequest {
	o := p.msg.New(hub.Recv)
	o.In.Buf, o.In.Tag = buf, tag
	return RecvRequest{p.message(o)}
}

// RecvBuffer is RecvTag into registered memory. Large messages are then placed without
// copying, registering or pinning.
func (p *Peer) RecvBuffer(tag uint32, b Buffer) RecvRequest {
	o := p.msg.New(hub.Recv)
	o.In.Tag = tag
	if mem, err := b.bytes(); err == nil {
		b.n = int(min(uint64(len(mem)), message.MaxSize)) // no message is longer
	}
	rights, err := b.out(p, &o.In.Buf, &o.In.LKey, &o.In.RKey)
	if err != nil {
		return RecvRequest{refuseMessage(p.eng, o, err)}
	}
	o.Needs(b.region.reg)
	o.In.Registered, o.In.Remote = true, rights.has(PeersWrite)
	return RecvRequest{p.message(o)}
}

// RecvFunc is RecvTag for a message that is processed in place: the engine calls use with
// its bytes in one to three parts. They are valid during the call only, and a dishonest
// peer may change them meanwhile. A message that is too large for the ring is fetched to
// buf and passed to use there. use runs in the progress engine and must not wait for
// anything: see Concurrency in the package's comment.
func (p *Peer) RecvFunc(tag uint32, buf []byte, use func(tag uint32, parts [][]byte)) RecvRequest {
	o := p.msg.New(hub.Recv)
	o.In.Buf, o.In.Tag, o.In.Use = buf, tag, use
	return RecvRequest{p.message(o)}
}

// RecvRequest is a receive in flight. Its Request can be passed to WaitAll and WaitAny,
// with those of other operations, but only the methods of RecvRequest describe the message
// received.
type RecvRequest struct{ Request }

// Wait returns the length of the message in bytes. Errors are those of Request.Wait.
func (r RecvRequest) Wait(ctx context.Context) (n int, err error) {
	v, err := r.wait(ctx, nil)
	return int(v), err
}

// WaitTag is Wait that returns the tag of the message as well.
func (r RecvRequest) WaitTag(ctx context.Context) (tag uint32, n int, err error) {
	m, err := r.WaitFrom(ctx)
	return m.Tag, m.Len, err
}

// WaitFrom is Wait that returns the sender, the tag and the length of the message.
func (r RecvRequest) WaitFrom(ctx context.Context) (m Envelope, err error) {
	_, err = r.wait(ctx, &m)
	return m, err
}

// ThenLen is Then, with the same rules for f, and with the length of the message in bytes.
// After an error it is of no meaning.
func (r RecvRequest) ThenLen(f func(n int, err error)) {
	if !r.waitable() {
		r.Then(func(err error) { f(0, err) })
		return
	}
	r.op.ThenLen(f)
}

// trySend sends a message, if it may travel alone and the link takes it at once. Otherwise
// the request is zero and nothing has happened. mem is the registered memory of msg, or nil.
// Hot path.
func (p *Peer) trySend(tag uint32, msg []byte, mem *mr.Registration) Request {
	if len(msg) > initiator.InlineMax || !p.tries() {
		return Request{}
	}
	n := p.msg.TrySend(tag, msg, mem)
	if n == 0 {
		return Request{}
	}
	return newReceipt(p.eng, n)
}

// Tags is a set of tags: all that equal Tag except in the bits set in Ignore. Its methods
// are receives and probes like those of Peer and Engine, for messages with any of these
// tags, and have one order with all others; RecvRequest.WaitTag returns the tag of the
// message. Tags of libraries (see LibraryTags) are matched like others.
//
//	rma.Tags{Tag: step << 8, Ignore: 0xff}.Recv(p, buf) // any part of the step
type Tags struct{ Tag, Ignore uint32 }

// Recv is Peer.RecvTag for any of the tags.
func (t Tags) Recv(p *Peer, buf []byte) RecvRequest {
	o := p.msg.New(hub.Recv)
	o.In.Buf, o.In.Tag, o.In.Ignore = buf, t.Tag, t.Ignore
	return RecvRequest{p.message(o)}
}

// RecvAny is Engine.RecvTag for any of the tags.
func (t Tags) RecvAny(e *Engine, buf []byte) RecvRequest {
	o := e.newAny(buf)
	o.In.Tag, o.In.Ignore = t.Tag, t.Ignore
	return RecvRequest{e.messageAny(o)}
}

// Probe is Peer.Probe for any of the tags.
func (t Tags) Probe(p *Peer) RecvRequest {
	o := p.msg.New(hub.Recv)
	o.In.Tag, o.In.Ignore, o.In.Peek = t.Tag, t.Ignore, true
	return RecvRequest{p.message(o)}
}

// ProbeAny is Engine.Probe for any of the tags.
func (t Tags) ProbeAny(e *Engine) RecvRequest {
	o := e.newAny(nil)
	o.In.Tag, o.In.Ignore, o.In.Peek = t.Tag, t.Ignore, true
	return RecvRequest{e.messageAny(o)}
}

// ErrCanceled is the error of a receive that was withdrawn by Cancel. It comes inside a
// *PeerError.
var ErrCanceled = message.ErrCanceled

// Cancel withdraws the receive; it does not wait. Wait then soon returns the message if
// one had matched, and otherwise an error that wraps ErrCanceled: no message is lost. The
// buffer belongs to the engine until Wait has returned. If the peer may write to the
// buffer and does not give it back within Config.HangTimeout (and a second for each 16
// MiB), the connection is closed, and the error wraps ErrPeerHung. Cancel of a receive
// that has ended has no effect; after Then it withdraws the receive as well. The end of
// the context of a Wait does not withdraw the receive.
func (r RecvRequest) Cancel() {
	if e := r.eng; r.inFlight() && !e.closed.Load() { // Close of the engine ends unmatched receives anyway
		e.proto.hub.Cancel(r.op, r.gen())
	}
}

// Probe reports the next message of the peer that has this tag, without receiving it. The
// request is complete when there is one: Wait, WaitTag and WaitFrom then return its
// length, tag and sender. Done reports whether there is one now, and Cancel ends the
// probe. A probe has its place in the order of receives: it does not report messages that
// match receives posted before it. Another goroutine may receive the message between the
// report and the next call: if several goroutines receive the same tag, use a handler.
func (p *Peer) Probe(tag uint32) RecvRequest {
	o := p.msg.New(hub.Recv)
	o.In.Tag, o.In.Peek = tag, true
	return RecvRequest{p.message(o)}
}

// Batch returns an empty batch for the peer.
func (p *Peer) Batch() *Batch {
	b := &Batch{peer: p}
	b.part = func(err error) { b.whole.EndPart(err) }
	return b
}

// ShortBufferError reports a message of Need bytes that matched a buffer of Have bytes. It
// unwraps to ErrShortBuffer.
type ShortBufferError = message.ShortBufferError

// LibraryTags is the first of the tags that are reserved for libraries built on this
// package, such as rmanet. Receives of any tag (Peer.Recv, Engine.Recv) do not match
// messages with this tag or a greater one. Such messages, except those of a Batch, and
// signals by LibrarySignal are counted apart from the application's operations: see
// Config.Outstanding.
const LibraryTags = message.LibraryTags

// ErrNoSender says that a receive from any rank can get no message, because every other
// rank of the job is gone, or its connection is lost and has not been reset. It comes
// inside a *PeerError whose rank is AnyRank.
var ErrNoSender = hub.ErrNoSender

// Recv receives the next message of any peer, whatever its tag (below LibraryTags);
// RecvRequest.WaitFrom returns its sender. Messages of one peer are received in the order
// in which it sent them. There is no order between peers, but a peer whose message waits
// gets its turn before another peer gets a second one. A message goes to the earliest
// posted receive that matches it, whether that receive is for any peer or for one. The
// request fails only when every other rank is gone or its connection is lost, with an error
// that wraps ErrNoSender and one of the reasons. While it waits, the engine polls all peers,
// which costs about 50 ns per peer and round. Recv does not allocate.
// Hot path.
func (e *Engine) Recv(buf []byte) RecvRequest {
	o := e.newAny(buf)
	o.In.Any = true
	return RecvRequest{e.messageAny(o)}
}

// RecvTag is Recv of the next message of any peer that has this tag.
func (e *Engine) RecvTag(tag uint32, buf []byte) RecvRequest {
	o := e.newAny(buf)
	o.In.Tag = tag
	return RecvRequest{e.messageAny(o)}
}

// RecvFunc is RecvTag for a message that is processed in place: see Peer.RecvFunc.
func (e *Engine) RecvFunc(tag uint32, buf []byte, use func(m Envelope, parts [][]byte)) RecvRequest {
	o := e.newAny(buf)
	o.In.Tag, o.In.Use = tag, func(tag uint32, parts [][]byte) {
		m := Envelope{From: o.In.From, Tag: tag}
		for _, p := range parts {
			m.Len += len(p)
		}
		use(m, parts)
	}
	return RecvRequest{e.messageAny(o)}
}

// Probe reports the next message of any peer that has this tag, without receiving it: see
// Peer.Probe.
func (e *Engine) Probe(tag uint32) RecvRequest {
	o := e.newAny(nil)
	o.In.Tag, o.In.Peek = tag, true
	return RecvRequest{e.messageAny(o)}
}

// Handle registers f as the handler of messages with this tag: f is called for each such
// message of any peer until the handler is closed, in the order in which the peer sent
// them. f runs in the progress engine, on the goroutine that drives it, and must not wait
// for anything: see Concurrency in the package's comment. The message is in one to three
// parts, which are valid during the call; if they lie in the ring, a dishonest peer may
// change them meanwhile.
func (e *Engine) Handle(tag uint32, f func(m Envelope, parts [][]byte)) (*Handler, error) {
	return e.HandleWith(HandlerOptions{Tag: tag}, f)
}

// Handle is Engine.Handle for messages of this peer only.
func (p *Peer) Handle(tag uint32, f func(m Envelope, parts [][]byte)) (*Handler, error) {
	return handle(p.eng, p.rank+1, HandlerOptions{Tag: tag}, &Handler{f: f})
}

// HandleWith is Handle with options: worker goroutines, in which f may wait, several tags,
// and limits.
func (e *Engine) HandleWith(o HandlerOptions, f func(m Envelope, parts [][]byte)) (*Handler, error) {
	return handle(e, 0, o, &Handler{f: f})
}

// Receive registers to as the receiver of messages of all peers, until Receiving.Close: of
// messages whose tag equals tag, except in the bits set in ignore, including those that
// have arrived and wait for a receive. It has its place in the order of receives, like a
// receive from any peer: receives posted before it match first.
func (e *Engine) Receive(tag, ignore uint32, to Receiver) (*Receiving, error) {
	return receive(e, tag, ignore, 0, to)
}

// ReceiveFrom is Engine.Receive for messages of one peer only: those of other ranks pass by
// it to the receives behind it.
func ReceiveFrom(p *Peer, tag, ignore uint32, to Receiver) (*Receiving, error) {
	return receive(p.eng, tag, ignore, p.rank+1, to)
}

// newAny creates a receive from any peer.
func (e *Engine) newAny(buf []byte) *hub.Op {
	o := e.proto.hub.NewAny()
	o.In.Buf = buf
	return o
}

// messageAny posts a receive from any peer.
func (e *Engine) messageAny(o *hub.Op) Request {
	if e.closed.Load() {
		return refuseMessage(e, o, ErrClosed)
	}
	r := newRequest(e, &o.Operation)
	e.proto.hub.PostAny(o)
	return r
}

// RecvBatch is a list of receives that are posted and waited for together, which costs
// less than a request for each. They are posted in the order in which they were added. The
// zero value is an empty list. A RecvBatch must be used by one goroutine at a time and
// must not be copied.
//
// Recv or RecvAny post the receives. Their request is complete when all receives have
// ended, and its error is that of the first that failed. Got then returns the result of
// each, and the list may be posted again unchanged: a stream of messages needs one call of
// Recv and one of Wait for as many messages as the list has receives. From Recv or RecvAny
// until completion, the buffers belong to the engine, and posting the list again fails with
// ErrInUse. So does every posting until Reset if a receive was added meanwhile, which is not
// part of the list.
type RecvBatch struct {
	b   hub.RecvBatch
	bad bool // a receive was added while the list was in flight
	req Request
}

// Add appends a receive of a message with this tag into buf, as Peer.RecvTag.
func (b *RecvBatch) Add(tag uint32, buf []byte) { b.AddTags(Tags{Tag: tag}, buf) }

// AddTags appends a receive of a message with any of these tags into buf.
func (b *RecvBatch) AddTags(t Tags, buf []byte) {
	if b.req.inFlight() {
		b.bad = true
		return
	}
	s := b.b.Add()
	s.Buf, s.In.Tag, s.In.Ignore = buf, t.Tag, t.Ignore
}

// Len returns the number of receives.
func (b *RecvBatch) Len() int { return len(b.b.Slots) }

// Reset empties the list, keeping its memory. It must not be called while the receives are
// in flight.
func (b *RecvBatch) Reset() {
	for i := range b.b.Slots {
		b.b.Slots[i].Buf = nil
	}
	b.b.Slots, b.bad = b.b.Slots[:0], false
}

// Recv posts the receives for messages of p. It does not allocate.
// Hot path.
func (b *RecvBatch) Recv(p *Peer) Request {
	if b.bad || b.req.inFlight() {
		return p.refuse(hub.RecvSeveral.String(), ErrInUse)
	}
	b.req = p.message(p.msg.NewRecvBatch(&b.b))
	return b.req
}

// RecvAny posts the receives for messages of any peer. It does not allocate.
// Hot path.
func (b *RecvBatch) RecvAny(e *Engine) Request {
	if b.bad || b.req.inFlight() {
		return newRefusal(e, &PeerError{Rank: AnyRank, Op: hub.RecvSeveral.String(), Err: ErrInUse})
	}
	b.req = e.messageAny(e.proto.hub.NewAnyBatch(&b.b))
	return b.req
}

// Got returns the description of the message that receive i, counted from 0, has received,
// or its error. It may be called when the request is complete.
func (b *RecvBatch) Got(i int) (Envelope, error) {
	from, tag, n, err := b.b.Slots[i].Got()
	return Envelope{From: from, Tag: tag, Len: n}, err
}

// Cancel withdraws the receives that no message has matched, as RecvRequest.Cancel does.
// The request is complete soon after, also if Then has used it up, and Got tells which
// receives have a message. Any goroutine may call it after Recv or RecvAny.
func (b *RecvBatch) Cancel() { RecvRequest{b.req}.Cancel() }
