package initiator

// maxExpand is how many pieces of an operation become operations at once.
const maxExpand = 32

// expand makes operations of the next pieces of the first operation of the list, which stand before
// it, or instead of it once there are no more.
func (x *Rails) expand(l *opList) {
	q, o := x.q, l.head
	m := o.more
	var ps opList
	for n := 0; n < maxExpand && !m.cur.Done(); n++ {
		sge := q.eng.chain.sges[:1]
		_, remote, _ := m.cur.Next(sge, q.max)
		p := New(q, o.kind)
		p.Local(sge[0])
		p.Remote(remote.Addr, remote.Key)
		if p.extend().whole = o; sge[0].Len >= WholeFrom {
			p.Divide(&m.keys)
		}
		p.queued, p.place = true, o.place
		o.pending++
		ps.push(p)
	}
	if m.cur.Done() {
		l.pop().queued = false
	}
	l.prepend(ps)
}
