package wireup

import (
	"fmt"
	"strings"
)

// Approximate cost of a gather to the rank that joins it first: for the gather, and for
// each rank of the job. It bounds the number of open gathers.
const (
	gatherCost = 512
	slotCost   = 24
)

// gather is one exchange: it succeeds when all ranks have joined, or it fails, with the
// same result for all. It is kept until the last rank has received the result.
type gather struct {
	vals    [][]byte // by rank; nil until the rank has joined, or is not waited for
	have    int      // number of ranks that are not nil
	waits   map[*wait]struct{}
	founder int      // the rank that is charged for vals
	failed  *message // the failure sent to all; nil while it may succeed
}

// gatherMax returns the largest size of a rank's value in a gather.
func gatherMax(size int) int { return min(MaxValue, MaxGather/size) }

// enter records that c has joined the gather of m, and returns the gather. It returns nil
// if c was refused, or got its failure.
func (s *state) enter(c *client, m message) *gather {
	g := s.gathers[m.key]
	cost := len(m.val) + len(m.key) + keyCost
	switch {
	case g == nil:
		cost += gatherCost + slotCost*s.size
	case g.vals[c.rank] != nil:
		c.done(m.id, codeExists, nil, 0, "")
		return nil
	case g.failed != nil:
		c.answer(m.id, *g.failed)
		g.received(c.rank)
		s.settle(m.key, g)
		return nil
	}
	if len(m.val) > gatherMax(s.size) || !s.charge(c.rank, cost) {
		c.done(m.id, codeTooLarge, nil, 0, "")
		return nil
	}
	if g == nil {
		g = &gather{vals: make([][]byte, s.size), waits: map[*wait]struct{}{}, founder: c.rank}
		s.gathers[m.key] = g
	}
	if g.vals[c.rank] = m.val; m.val == nil {
		g.vals[c.rank] = []byte{}
	}
	g.have++
	return g
}

func (s *state) gather(c *client, m message) {
	g := s.enter(c, m)
	if g == nil {
		return
	}
	w := &wait{c: c, id: m.id, key: m.key, g: g}
	c.waits[m.id] = w
	g.waits[w] = struct{}{}
	if g.have < s.size {
		if s.nGone > 0 {
			s.failWithout(m.key, g)
		}
		return
	}
	body := appendVals(nil, g.vals)
	for w := range g.waits {
		delete(w.c.waits, w.id)
		w.c.sendValues(w.id, body)
	}
	for r, v := range g.vals {
		s.refund(r, m.key, v)
	}
	s.settle(m.key, g)
}

// giveUp handles a rank that does not wait for the others: its gather fails for all.
func (s *state) giveUp(c *client, m message) {
	if g := s.enter(c, m); g != nil {
		s.giveUpOn(c, m.id, m.key, g)
	}
}

// giveUpOn fails a gather that c has joined.
func (s *state) giveUpOn(c *client, id uint32, key string, g *gather) {
	missing, more, text := s.missing(g.missing(), "has not called it")
	c.done(id, codeTimeout, missing, more, text)
	s.fail(key, g, message{typ: msgDone, code: codeGivenUp, ranks: []uint32{uint32(c.rank)}, text: text})
}

// missingFrom answers with the ranks that have not joined an open gather.
func (s *state) missingFrom(c *client, m message) {
	g := s.gathers[m.key]
	if g == nil || g.failed != nil {
		c.done(m.id, codeOK, nil, 0, "")
		return
	}
	missing, more, text := s.missing(g.missing(), "has not called it")
	c.done(m.id, codeTimeout, missing, more, text)
}

func (g *gather) missing() (ranks []int) {
	for r, v := range g.vals {
		if v == nil {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// failWithout fails a gather that a rank had not joined when it ended. The reason is that of the
// first such rank.
func (s *state) failWithout(key string, g *gather) {
	m := message{typ: msgDone, code: codeGone}
	for r, why := range s.gone {
		if why != "" && g.vals[r] == nil {
			if m.ranks = append(m.ranks, uint32(r)); len(m.ranks) == MaxListed {
				break
			}
		}
	}
	if m.ranks != nil {
		m.text = s.gone[m.ranks[0]]
		s.fail(key, g, m)
	}
}

// fail ends the gather: ranks that wait for it, and ranks that join later, get m.
func (s *state) fail(key string, g *gather, m message) {
	g.failed = &m
	for w := range g.waits {
		delete(w.c.waits, w.id)
		w.c.answer(w.id, m)
	}
	clear(g.waits)
	for r, v := range g.vals {
		switch {
		case v != nil:
			s.refund(r, key, v)
			g.vals[r] = []byte{}
		case s.gone[r] != "":
			g.received(r)
		}
	}
	s.settle(key, g)
}

// heard records that the rank needs no answer any longer.
func (g *gather) received(rank int) {
	if g.vals[rank] == nil {
		g.vals[rank] = []byte{}
		g.have++
	}
}

// settle removes the gather if all have received its result.
func (s *state) settle(key string, g *gather) {
	if g.have == s.size {
		s.stored[g.founder] -= gatherCost + slotCost*s.size
		delete(s.gathers, key)
	}
}

// refund undoes the charge for a value.
func (s *state) refund(rank int, key string, val []byte) {
	s.stored[rank] -= len(val) + len(key) + keyCost
}

// lostFrom updates all gathers when a rank is gone.
func (s *state) lostFrom(rank int) {
	for key, g := range s.gathers {
		if g.failed == nil {
			s.failWithout(key, g)
		} else {
			g.received(rank)
			s.settle(key, g)
		}
	}
}

// missing describes the ranks that never joined the job, and those that joined it but have
// not done what; listed are the first of them.
func (s *state) missing(ranks []int, what string) (listed []int, more int, text string) {
	var absent, late []int
	for _, r := range ranks {
		if s.joined[r] {
			late = append(late, r)
		} else {
			absent = append(absent, r)
		}
	}
	if len(absent) > 0 {
		text = fmt.Sprintf("%s of %d %s not joined", rankList(absent), s.size, have(absent))
	}
	if len(late) > 0 {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s %s%s", rankList(late), have(late), strings.TrimPrefix(what, "has"))
	}
	if who := s.refused.String(); who != "" && len(absent) > 0 {
		text += "; " + who
	}
	more = max(0, len(ranks)-MaxListed)
	return ranks[:len(ranks)-more], more, text
}
