package message

import "slices"

// Loopback transfers the messages of a rank to itself: each receive gets a copy of the
// first message that it matches. The zero value is ready. It belongs to one goroutine.
type Loopback struct {
	From    int     // as Options.From
	Shared  *Shared // as Options.Shared
	backlog outQueue
	bytes   int // bytes of copies in the backlog
	posted  inQueue
	err     error
}

// Send posts a message. It ends when a receive has matched it, or when it has been copied.
// Copies are bounded like those that a Channel makes of unexpected messages; a synchronous
// message is not copied.
func (l *Loopback) Send(o *Out) {
	if l.err != nil {
		o.Done.Complete(o.Tag, 0, l.err)
		return
	}
	for {
		q, before, in := pick(&l.posted, l.Shared, l.From, o.Tag)
		if in != nil && in.Source != nil {
			in = in.Source.Take(l.From, o.Tag, len(o.Data), true)
		} else if in != nil {
			q.remove(before, in)
		}
		if in == nil {
			l.keep(o)
			return
		}
		if l.pass(o, in) {
			return
		}
	}
}

// keep queues a message for its receive.
func (l *Loopback) keep(o *Out) {
	n, tag := len(o.Data), o.Tag
	if o.Sync || l.bytes+n+asideOverhead > defaultUnexpected {
		l.backlog.push(o)
		return
	}
	l.bytes += n + asideOverhead
	l.backlog.push(&Out{Data: slices.Clone(o.Data), Tag: tag})
	o.Done.Complete(tag, n, nil)
}

// ended ends a message, in the backlog or not.
func (l *Loopback) ended(o *Out, n int, err error) {
	if o.Done != nil {
		o.Done.Complete(o.Tag, n, err)
		return
	}
	l.bytes -= len(o.Data) + asideOverhead
}

// Recv posts a receive.
func (l *Loopback) Recv(in *In) {
	if l.err != nil {
		in.Done.Complete(0, 0, l.err)
		return
	}
	if !l.takeWaiting(in) {
		l.posted.push(in)
	}
}

// takeWaiting passes in the first message that it matches and that no receive before it has
// left for later.
func (l *Loopback) takeWaiting(in *In) bool {
	var before *Out
	for o := l.backlog.head; o != nil; before, o = o, o.next {
		if !in.takes(o.Tag) || l.Shared.owner(nil, in, l.From, o.Tag) != nil {
			continue
		}
		if in.Source != nil {
			if in = in.Source.Take(l.From, o.Tag, len(o.Data), true); in == nil {
				return false
			}
		}
		if !in.Peek && (len(o.Data) <= len(in.Buf) || in.Use != nil) {
			l.backlog.remove(before, o)
		}
		l.pass(o, in)
		return true
	}
	return false
}

// pass copies o to in and ends both. It returns false if only in ends, because o is too
// long for it or because it is a Peek.
func (l *Loopback) pass(o *Out, in *In) bool {
	n, tag := len(o.Data), o.Tag
	in.From = l.From
	switch {
	case in.Peek:
		in.Done.Complete(tag, n, nil)
		return false
	case in.Use != nil:
		part := [1][]byte{o.Data}
		in.Use(tag, part[:])
	case n > len(in.Buf):
		in.Done.Complete(tag, 0, shortBuffer(n, in))
		return false
	default:
		copy(in.Buf, o.Data)
	}
	in.Done.Complete(tag, n, nil)
	l.ended(o, n, nil)
	return true
}

// Sever ends all present and later operations with reason, which must not be nil.
func (l *Loopback) Sever(reason error) {
	if l.err != nil {
		return
	}
	l.err = reason
	for l.backlog.n > 0 {
		l.ended(l.backlog.pop(), 0, reason)
	}
	for l.posted.n > 0 {
		l.posted.pop().Done.Complete(0, 0, reason)
	}
}

// Offer works as Channel.Offer.
func (l *Loopback) Offer(in *In) (taken bool) {
	if l.err != nil || in.Only != 0 && in.Only != l.From+1 {
		return false
	}
	many := in.Source != nil
	for l.backlog.n > 0 && l.takeWaiting(in) {
		if taken = true; !many {
			break // in belongs to its owner again
		}
	}
	return taken
}

// Reoffer works as Channel.Reoffer.
func (l *Loopback) Reoffer() {
	for o := l.backlog.head; o != nil; {
		q, before, in := pick(&l.posted, l.Shared, l.From, o.Tag)
		if in == nil || in.Source != nil {
			o = o.next
			continue
		}
		q.remove(before, in)
		l.takeWaiting(in)
		o = l.backlog.head // callbacks may post messages and receives
	}
}

// Cancel works as Channel.Cancel.
func (l *Loopback) Cancel(in *In) {
	if l.posted.cancel(in) {
		in.Done.Complete(0, 0, ErrCanceled)
	}
}
