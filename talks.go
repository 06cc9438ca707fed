package rma

// talks are the peers with messages to send or receive. A look at one costs some 30 ns,
// and most of those that only wait for a message wait for long: every step looks at the
// warm ones, where something has moved lately, and at a few of the others in turn. So
// what a step costs does not grow with the peers that are silent, and a message from
// one of n of them waits for at most n/coldLooks steps.
type talks struct {
	list []*Peer // the warm ones first
	warm int
	turn int
	all  bool // the next step leaves none out: before a sleep, and behind it
}

const (
	// coldAfter is after how many steps without anything a talk is cold: long against
	// the round trips of an exchange, some 50 µs.
	coldAfter = 1024
	coldLooks = 4

	// warmFew are looked at faster than chosen from.
	warmFew = 8
)

// listen puts p on the list.
func (h *hub) listen(p *Peer) {
	if k := &p.talk; !k.on {
		k.on, k.at = true, len(h.talks.list)
		h.talks.list = append(h.talks.list, p)
	}
	h.rouse(p)
}

// rouse makes p warm, if it is on the list.
// Hot path.
func (h *hub) rouse(p *Peer) {
	k := &p.talk
	k.calm = 0
	if k.on && k.at >= h.talks.warm {
		h.talks.swap(k.at, h.talks.warm)
		h.talks.warm++
	}
}

func (l *talks) swap(i, j int) {
	a, b := l.list[i], l.list[j]
	l.list[i], l.list[j] = b, a
	a.talk.at, b.talk.at = j, i
}

// cool makes p, which is warm, cold.
func (l *talks) cool(p *Peer) {
	l.warm--
	l.swap(p.talk.at, l.warm)
}

// drop takes p off the list.
func (l *talks) drop(p *Peer) {
	if p.talk.at < l.warm {
		l.cool(p)
	}
	last := len(l.list) - 1
	l.swap(p.talk.at, last)
	l.list[last] = nil
	l.list = l.list[:last]
	p.talk.on = false
}

// step sends and receives what can be.
// Hot path.
func (h *hub) step() bool {
	l := &h.talks
	did := false
	n := l.warm // those that are roused meanwhile come next time
	if l.all {
		l.all = false
		n = len(l.list)
	}
	// Backwards: one that cools or goes is replaced by one that was looked at. One that
	// is roused may take another's turn, but then something has moved, and nobody sleeps.
	for i := n - 1; i >= 0; i-- {
		if i < len(l.list) && h.stepAt(i) {
			did = true
		}
	}
	for range min(coldLooks, len(l.list)-n) {
		if cold := len(l.list) - l.warm; cold > 0 {
			l.turn++
			if h.stepAt(l.warm + l.turn%cold) {
				did = true
			}
		}
	}
	if did {
		h.nap.Reset()
	}
	return did
}

// stepAt steps one talk, and moves it to where it belongs.
func (h *hub) stepAt(i int) bool {
	l := &h.talks
	p := l.list[i]
	did, more := h.stepTalk(p)
	switch {
	case !more:
		l.drop(p)
		p.sleep(false)
	case did:
		h.rouse(p)
	case p.talk.at >= l.warm:
	case p.talk.calm < coldAfter:
		p.talk.calm++
	case len(l.list) > warmFew:
		l.cool(p)
	}
	return did
}
