package message

// Loop carries the messages of a rank to itself: each receive gets a copy of the
// first message that it takes. The zero value is ready. It belongs to one
// goroutine.
type Loop struct {
	backlog outQueue
	posted  inQueue
	err     error
}

// Send hands a message in. It ends when a receive has taken it.
func (l *Loop) Send(o *Out) {
	if l.err != nil {
		o.Done.Complete(o.Tag, 0, l.err)
		return
	}
	for {
		before, in := l.posted.find(o.Tag)
		if in == nil {
			l.backlog.push(o)
			return
		}
		l.posted.remove(before, in)
		if l.pass(o, in) {
			return
		}
	}
}

// Recv hands a receive in.
func (l *Loop) Recv(in *In) {
	if l.err != nil {
		in.Done.Complete(0, 0, l.err)
		return
	}
	var before *Out
	for o := l.backlog.head; o != nil; before, o = o, o.next {
		if !in.takes(o.Tag) {
			continue
		}
		if len(o.Data) <= len(in.Buf) || in.Use != nil {
			l.backlog.remove(before, o)
		}
		l.pass(o, in)
		return
	}
	l.posted.push(in)
}

// pass gives o to in and ends both; false if it was too long for in, which ends
// alone.
func (l *Loop) pass(o *Out, in *In) bool {
	n, tag := len(o.Data), o.Tag
	switch {
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
	o.Done.Complete(tag, n, nil)
	return true
}

// Sever ends everything with reason, which must not be nil, now and later.
func (l *Loop) Sever(reason error) {
	if l.err != nil {
		return
	}
	l.err = reason
	for l.backlog.n > 0 {
		o := l.backlog.pop()
		o.Done.Complete(o.Tag, 0, reason)
	}
	for l.posted.n > 0 {
		l.posted.pop().Done.Complete(0, 0, reason)
	}
}
