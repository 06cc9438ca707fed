package message

// inflight holds messages whose memory ring messages have taken in place, by rising
// position in the ring, until the link is done with them: a ring buffer that grows.
type inflight struct {
	buf   []*Out
	first int
	n     int
}

func (p *inflight) push(o *Out) {
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

func (p *inflight) peek() *Out { return p.buf[p.first] }

func (p *inflight) pop() *Out {
	o := p.buf[p.first]
	p.buf[p.first] = nil
	p.first = (p.first + 1) % len(p.buf)
	p.n--
	return o
}

// tokens name things under way by small numbers, from 1, that the peer sends back.
// Transfers are announced under the token of the list of their messages, destinations
// advertised under that of their receive.
type tokens[T any] struct {
	held []*T // by token less one
	free []uint32
}

// used is how many tokens are out.
func (t *tokens[T]) used() int { return len(t.held) - len(t.free) }

func (t *tokens[T]) put(x *T) (token uint64) {
	if len(t.free) == 0 {
		t.free = append(t.free, uint32(len(t.held)))
		t.held = append(t.held, nil)
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.held[i] = x
	return uint64(i) + 1
}

func (t *tokens[T]) take(token uint64) *T {
	i := uint32(token - 1)
	x := t.held[i]
	t.held[i] = nil
	t.free = append(t.free, i)
	return x
}
