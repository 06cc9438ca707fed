package message

// pending holds messages that were taken in place by ring messages, by rising
// position: a ring buffer that grows.
type pending struct {
	buf   []*Out
	first int
	n     int
}

func (p *pending) push(o *Out) {
	if p.n == len(p.buf) {
		grown := make([]*Out, max(2*len(p.buf), 64))
		for i := range p.n {
			grown[i] = p.buf[(p.first+i)%len(p.buf)]
		}
		p.buf, p.first = grown, 0
	}
	p.buf[(p.first+p.n)%len(p.buf)] = o
	p.n++
}

func (p *pending) peek() *Out { return p.buf[p.first] }

func (p *pending) pop() *Out {
	o := p.buf[p.first]
	p.buf[p.first] = nil
	p.first = (p.first + 1) % len(p.buf)
	p.n--
	return o
}

// reap ends the messages that the link is done with. Short path.
func (c *Channel) reap() (did bool) {
	for c.flying.n > 0 && c.ring.Done(c.flying.peek().pos) {
		c.sent(c.flying.pop(), nil)
		did = true
	}
	return did
}

// groups are announced transfers, by token less one.
type groups struct {
	heads []*Out // lists of the messages of a transfer
	free  []uint32
}

// used is how many transfers are announced and not over.
func (g *groups) used() int { return len(g.heads) - len(g.free) }

func (g *groups) put(head *Out) (token uint64) {
	if len(g.free) == 0 {
		g.free = append(g.free, uint32(len(g.heads)))
		g.heads = append(g.heads, nil)
	}
	i := g.free[len(g.free)-1]
	g.free = g.free[:len(g.free)-1]
	g.heads[i] = head
	return uint64(i) + 1
}

func (g *groups) take(token uint64) *Out {
	i := uint32(token - 1)
	head := g.heads[i]
	g.heads[i] = nil
	g.free = append(g.free, i)
	return head
}

// sent ends a message.
func (c *Channel) sent(o *Out, err error) {
	c.pins.release(&o.pin)
	n := len(o.Data)
	if err == nil {
		c.stats.Sent++
		c.stats.SentBytes += uint64(n)
	} else {
		n = 0
	}
	done, tag := o.Done, o.Tag
	o.next, o.Data = nil, nil
	if done != nil {
		done.Complete(tag, n, err)
	}
}
