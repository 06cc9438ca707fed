package hub

import "time"

// pollList holds the conversations with messages to send or receive. A poll of one costs
// about 30 ns, and most of those that only wait for a message wait for long. Every step
// therefore polls the warm ones, with recent activity, and a few of the others in turn. The
// cost of a step does not grow with the number of silent peers, and a message from one of n
// of them waits for at most n/coldPolls steps.
type pollList struct {
	list []*polled // the warm ones first
	warm int
	turn int
	all  bool // the next step polls all: before and after a sleep
}

// polled is the place of a conversation in a pollList.
type polled struct {
	it   pollable
	on   bool // on the list
	at   int  // index on the list
	calm int  // steps without activity
}

// pollable is an element of a pollList.
type pollable interface {
	// step reports whether anything was sent or received, and whether there is more to do.
	step() (did, more bool)

	// sleep notifies the peer whether this side sleeps, if writes do not wake it. It
	// reports whether that is so, and how long the sleep may last nevertheless, 0 if
	// without limit.
	sleep(on bool) (waits bool, rest time.Duration)
}

const (
	// coldAfter is the number of steps without activity after which a conversation is cold:
	// about 50 µs, long compared with the round trips of an exchange.
	coldAfter = 1024
	coldPolls = 4

	// warmFew is the number of conversations up to which polling all is faster than
	// choosing.
	warmFew = 8
)

// add puts p on the list, or makes it warm if it is there.
func (l *pollList) add(p *polled) {
	if !p.on {
		p.on, p.at = true, len(l.list)
		l.list = append(l.list, p)
	}
	l.rouse(p)
}

// rouse makes p warm, if it is on the list.
// Hot path.
func (l *pollList) rouse(p *polled) {
	p.calm = 0
	if p.on && p.at >= l.warm {
		l.swap(p.at, l.warm)
		l.warm++
	}
}

func (l *pollList) swap(i, j int) {
	a, b := l.list[i], l.list[j]
	l.list[i], l.list[j] = b, a
	a.at, b.at = j, i
}

// cool makes p, which is warm, cold.
func (l *pollList) cool(p *polled) {
	l.warm--
	l.swap(p.at, l.warm)
}

// drop removes p from the list.
func (l *pollList) drop(p *polled) {
	if p.at < l.warm {
		l.cool(p)
	}
	last := len(l.list) - 1
	l.swap(p.at, last)
	l.list[last] = nil
	l.list = l.list[:last]
	p.on = false
}

// step polls the conversations whose turn it is. It reports whether any had activity.
// Hot path.
func (l *pollList) step() (did bool) {
	n := l.warm // conversations that become warm meanwhile are polled next time
	if l.all {
		l.all = false
		n = len(l.list)
	}
	// Backwards: one that cools or is dropped is replaced by one that was polled. One that
	// becomes warm may take another's turn, but then there was activity, and the engine
	// does not sleep.
	for i := n - 1; i >= 0; i-- {
		if i < len(l.list) && l.stepAt(i) {
			did = true
		}
	}
	for range min(coldPolls, len(l.list)-n) {
		if cold := len(l.list) - l.warm; cold > 0 {
			l.turn++
			if l.stepAt(l.warm + l.turn%cold) {
				did = true
			}
		}
	}
	return did
}

// stepAt polls one conversation, and moves it to its place.
func (l *pollList) stepAt(i int) bool {
	p := l.list[i]
	did, more := p.it.step()
	switch {
	case !more:
		l.drop(p)
		p.it.sleep(false)
	case did:
		l.rouse(p)
	case p.at >= l.warm:
	case p.calm < coldAfter:
		p.calm++
	case len(l.list) > warmFew:
		l.cool(p)
	}
	return did
}

// sleep notifies all peers on the list that this side sleeps, unless they take it for asleep since an
// earlier sleep. It reports whether writes of any of them do not wake it, and how long the sleep may
// last nevertheless, 0 if without limit.
func (l *pollList) sleep() (waits bool, rest time.Duration) {
	l.all = true
	for _, p := range l.list {
		w, d := p.it.sleep(true)
		waits = waits || w
		if d != 0 && (rest == 0 || d < rest) {
			rest = d
		}
	}
	return waits, rest
}
