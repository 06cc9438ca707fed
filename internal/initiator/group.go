package initiator

import (
	"time"

	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/logp"
)

// Puts and gets of many pieces are sent as groups if the model says that groups are cheaper
// than a request of the link for each piece. A group uses one of the slots of accumulates,
// and is complete with its acknowledgement.
//
// The target's engine executes groups and accumulates in their order, but requests that the
// link executes itself would overtake them. Therefore nothing else is posted behind puts in
// groups until these are acknowledged, and messages are held back.

// group is the data of one group.
type group struct {
	pieces int32 // none: no group
	bytes  int32
	answer int32         // offset of the bytes of gets in the slot
	from   onesided.Mark // where its operation had come to before it
}

// grouped is the state of an operation in groups.
type grouped struct {
	puts    int    // groups that are not acknowledged, of a put
	chained uint64 // bytes of its walk up to which it goes as a chain
}

// groups holds the groups of one queue, and the state of the choice.
type groups struct {
	open   int // of puts, not acknowledged
	all    int // not acknowledged
	params *logp.Params
	forced bool
	way    logp.Way
	pace   pace
}

// listPerPiece is the approximate size of a piece in the list of a group: a byte or two for
// its size, four for its place, and a new list now and then.
const listPerPiece = 8

// plan chooses the method for n pieces of bytes in all.
func (g *groups) plan(get bool, n, bytes int) logp.PiecesPlan {
	x := logp.Pieces{N: n, Bytes: int64(bytes), List: int64(n * listPerPiece), Get: get}
	pp := x.Plan(g.params, g.pace.late)
	if g.forced {
		pp.Way = g.way
	}
	return pp
}

// took records that the link took a group, of puts or of gets, of an operation. first:
// nothing else may be posted from now on.
func (g *groups) took(put bool, x *group, of *grouped) (first bool) {
	if g.all++; g.all == 1 {
		pp := g.plan(!put, int(x.pieces), int(x.bytes))
		g.pace.begin(pp.Costs[logp.Group].Total() - g.pace.late)
	}
	if !put {
		return false
	}
	of.puts++
	g.open++
	return g.open == 1
}

// ended records that a group is not in flight any more. last: other operations may be
// posted again.
func (g *groups) ended(put bool, of *grouped) (last bool) {
	g.all--
	g.pace.end()
	if !put {
		return false
	}
	of.puts--
	g.open--
	return g.open == 0
}

// pace is the time that a target takes for groups beyond the model's prediction: it may
// compute, or wait for a processor. Only a group with nothing before it is a sample.
type pace struct {
	late  float64 // ns, smoothed
	timed bool
	since time.Time
	want  float64
}

func (p *pace) begin(want float64) { p.timed, p.since, p.want = true, time.Now(), want }

func (p *pace) end() {
	if p.timed {
		p.timed = false
		p.late += (max(float64(time.Since(p.since))-p.want, 0) - p.late) / 4
	}
}

// passed records that an operation was sent as a chain: a pace learned long ago is tried
// again.
func (p *pace) passed() { p.late -= p.late / 32 }
