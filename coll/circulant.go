package coll

import (
	"math"
	"math/bits"
	"slices"
)

// A broadcast of n blocks on a circulant graph takes n-1+⌈log2 p⌉ rounds for any number p of ranks,
// the least that is possible if a rank sends and receives one block in a round. In round k of each
// phase of ⌈log2 p⌉ rounds, every rank sends to the one that is skip k above it (Träff 2024, "Optimal
// Broadcast Schedules in Logarithmic Time with Applications to Broadcast, All-Broadcast, Reduction
// and All-Reduction", from which the skips and the search for a rank's blocks are). A reduction is
// its reverse. Ranks are counted from the root here.

// circulantRound is the part of a rank in a round.
type circulantRound struct {
	to, from   int // ranks above the root
	send, recv int // blocks, none if there is none
}

// circulantRounds returns the rounds in which n blocks come to the rank v above the root of p.
func circulantRounds(p, v, n int) []circulantRound {
	skips := circulantSkips(p)
	q := len(skips) - 1
	if q == 0 {
		return nil
	}
	idle := (q - (n-1)%q) % q // rounds at the beginning of the first phase that would send nothing
	mine := circulantBlocks(skips, v)
	rounds := make([]circulantRound, q, n-1+2*q)
	theirs := make([]int, q) // what the ranks to which this one sends receive
	for k := range rounds {
		to := (v + skips[k]) % p
		rounds[k] = circulantRound{to: to, from: (v - skips[k] + p) % p}
		theirs[k] = circulantBlocks(skips, to)[k]
	}
	for i := idle; i < n-1+q+idle; i++ {
		k, first := i%q, i-i%q-idle // the first round of the phase sends that block of the root
		r := rounds[k]
		block := func(of, blocks int) int {
			if b := blocks + first; of > 0 && b >= 0 {
				return min(b, n-1)
			}
			return int(none)
		}
		r.send, r.recv = block(r.to, theirs[k]), block(v, mine[k])
		rounds = append(rounds, r)
	}
	return rounds[q:]
}

// circulantSkips returns the distances to the ranks that a rank sends to, the least, 1, first, and p.
func circulantSkips(p int) []int {
	skips := make([]int, bits.Len(uint(p-1))+1)
	for k := len(skips) - 1; k >= 0; k-- {
		skips[k] = p
		p = (p + 1) / 2
	}
	return skips
}

// circulantBlocks returns the blocks that the rank v above the root receives in each round of a
// phase, from the first one that the root sends in it on: the one that comes to the rank in the
// phase in which the root sends it, and negative numbers, of earlier phases.
func circulantBlocks(skips []int, v int) []int {
	q := len(skips) - 1
	s := circulantSearch{skips: skips, v: v + skips[q], below: 2 * skips[q], left: 1<<(q+1) - 1, blocks: make([]int, 0, q+1)}
	top := q
	for k, rest := q-1, v; k >= 0 && rest > 0; k-- {
		if skips[k] <= rest {
			top, rest = k, rest-skips[k]
		}
	}
	s.left &^= 1 << top
	s.from(0, q)
	for k, e := range s.blocks {
		if s.blocks[k] = e - q; e == q {
			s.blocks[k] = top
		}
	}
	return s.blocks
}

// circulantSearch looks for the ways by which blocks come to a rank. The way of a block begins
// with the skip in whose round the root sends it, and leads through sums of ever smaller skips. In
// round k the rank receives the block that has come furthest to the rank that is skip k below, and
// that it has not received in an earlier round.
type circulantSearch struct {
	skips  []int
	v      int    // the rank, in the next turn around the ranks
	below  int    // the ways end below the last one that was found
	left   uint64 // skips that are not the end of a way
	blocks []int  // by round: the skip that ends the way
}

// from continues a way that has come to at by skips up to e.
func (s *circulantSearch) from(at, e int) {
	for ; e >= 0 && len(s.blocks) < len(s.skips)-1; e-- {
		next := at + s.skips[e]
		if s.left&(1<<e) == 0 || next > s.v-s.skips[len(s.blocks)] || next >= s.below {
			continue
		}
		if next <= s.v-s.skips[len(s.blocks)+1] {
			s.from(next, e)
		}
		if k := len(s.blocks); k == len(s.skips)-1 || at > s.v-s.skips[k+1] {
			return
		}
		if s.left&(1<<e) != 0 {
			s.below = next
			s.left &^= 1 << e
			s.blocks = append(s.blocks, e)
		}
	}
}

// roundBytes is the data that takes about as long to send as a message takes besides, in bytes.
const roundBytes = 16 << 10

// circulantDivision returns the number of blocks of n bytes by which the rounds among p ranks take
// the least time, if a message takes as long as roundBytes besides its data: with q = ⌈log2 p⌉,
// (k-1+q)·(n/k + roundBytes) is least for that k.
func circulantDivision(p, n int) int {
	q := bits.Len(uint(p - 1))
	return max(1, int(math.Sqrt(float64(q-1)*float64(n)/roundBytes)))
}

// circulant makes the part of a rank in an operation on a circulant graph.
type circulant struct {
	*builder
	root int
	sent []int32
	most int // messages that are sent at a time
}

// rounds returns the rounds with n bytes, in which the ranks are those of the team, and the number
// of blocks. Blocks of a segment are sent one after the other, as the rounds demand; two smaller ones
// at a time hide the latency of each other.
func (c *circulant) rounds(n int) (rounds []circulantRound, blocks int) {
	blocks = circulantDivision(c.size, n)
	rounds = circulantRounds(c.size, (c.rank-c.root+c.size)%c.size, blocks)
	for i := range rounds {
		rounds[i].to, rounds[i].from = (rounds[i].to+c.root)%c.size, (rounds[i].from+c.root)%c.size
	}
	if c.most = 2; n/blocks >= segment {
		c.most = 1
	}
	return rounds, blocks
}

// turn returns the step after which the next message may be sent.
func (c *circulant) turn() int32 {
	if n := len(c.sent); n >= c.most {
		return c.sent[n-c.most]
	}
	return none
}

func (c *circulant) bcast(m mem) {
	rounds, n := c.rounds(m.n)
	blocks, got := c.blocks(m, n), slices.Repeat([]int32{none}, n)
	for _, r := range rounds {
		if i := r.send; i >= 0 {
			c.sent = append(c.sent, c.send(r.to, blocks[i], got[i], c.turn()))
		}
		if i := r.recv; i >= 0 {
			got[i] = c.recv(r.from, blocks[i])
		}
	}
}

// reduce is a broadcast backwards: where a rank would send a block, it reduces what it is given,
// and where it would receive one, it gives what it has reduced.
func (c *circulant) reduce(send, recv mem) {
	if c.rank != c.root {
		recv = c.temp(send.n)
	} else if c.size == 1 {
		c.copy(recv, send)
	}
	rounds, n := c.rounds(send.n)
	blocks, acc, last := c.blocks(send, n), c.blocks(recv, n), slices.Repeat([]int32{none}, n)
	for _, r := range slices.Backward(rounds) {
		if i := r.recv; i >= 0 {
			c.sent = append(c.sent, c.give(r.from, blocks[i], last[i], c.turn()))
		}
		if i := r.send; i >= 0 {
			last[i] = c.takeOnto(r.to, acc[i], blocks[i], false, last[i])
			blocks[i] = acc[i]
		}
	}
}
