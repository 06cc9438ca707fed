package initiator

import (
	"time"

	"github.com/seed33544411/rma/logp"
)

// Puts and gets of many pieces are sent as groups if the model predicts that groups are
// cheaper than one request of the link per piece. A group uses a slot of the accumulates,
// and is complete when it is acknowledged.
//
// The target's engine executes groups and accumulates in order, but requests that the link
// executes would overtake them. Therefore nothing else is posted behind puts in groups
// until these are acknowledged, and messages are held back.

// listPerPiece is the approximate size in bytes of a piece in the list of a group: one or
// two for its size, four for its place, and sometimes a new list.
const listPerPiece = 8

// plan chooses the method for n pieces with the given sum of bytes.
func (g *groups) plan(k Kind, n, bytes int) logp.PiecesPlan {
	x := logp.Pieces{N: n, Bytes: int64(bytes), List: int64(n * listPerPiece), Get: k == Get}
	pp := x.Plan(g.params, logp.Lateness{Chain: g.chains[k].factor, Group: g.pace.late})
	if g.forced {
		pp.Way = g.way
	}
	return pp
}

// took records that the link took a group of puts or of gets. first: nothing else may be
// posted from now on.
func (g *groups) took(k Kind, x *group, of *grouped) {
	if g.all++; g.all == 1 {
		pp := g.plan(k, int(x.pieces), int(x.bytes))
		g.pace.begin(pp.Costs[logp.Group].Total() - g.pace.late)
	}
	if k == Put {
		of.puts++
		g.open++
	}
}

// ended records that a group is no longer in flight.
func (g *groups) ended(put bool, of *grouped) {
	g.all--
	g.pace.end()
	if put {
		of.puts--
		g.open--
	}
}

// outlier bounds what one sample counts, by what was known: beyond, something else may have
// had the processor meanwhile, and the way would not be taken, nor measured, for a long time.
const outlier = 4

func (p *pace) begin(want float64) { p.timed, p.since, p.want = true, time.Now(), want }

func (p *pace) end() {
	if p.timed {
		p.timed = false
		p.learn(max(float64(time.Since(p.since))-p.want, 0))
	}
}

// learn takes a sample of late.
func (p *pace) learn(late float64) {
	p.late += (min(late, outlier*(p.late+p.want)) - p.late) / 4
}

// passed records that an operation was sent as a chain. The measured delay decays, so that
// groups are tried again.
func (p *pace) passed() { p.late -= p.late / 32 }

// chainTurns is how many posts there are for each one that is timed: the clock costs little
// more than a small piece.
const chainTurns = 16

// due reports whether a post of a chain is to be timed.
func (p *chainPace) due() bool {
	p.posts++
	return p.posts%chainTurns == 1 || p.posts < chainTurns
}

// learn takes a sample, that of a post that took as much longer than predicted.
func (p *chainPace) learn(factor float64) {
	if p.factor == 0 {
		p.factor = 1
	}
	p.factor += (min(factor, outlier*p.factor) - p.factor) / 4
}
