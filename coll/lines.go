package coll

import (
	"math"
	"slices"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/onesided"
)

// Data that another processor has just written comes from there line by line, which takes longer than data of the
// rank's own. Ranks that take turns find much of it in the cache of their processor. That is so of
// areas, of messages with their header, which the sender has written, and of memory of a call that its rank has
// written in the operation.

// lineRates are by how much longer it takes, in ns for a byte: of the first page, where the processor does not fetch ahead yet,
// of up to privateBytes, which are still in the cache of the processor that has written them last, and of the rest, in
// a cache that they share or in memory. It does not follow from the latency of the path: with 140 ns two ranks took 6 ns more for a line of
// a page, 3 for one of 128 KiB, and 1 for the rest; on other processors, with 177 ns, 25.
//
// hop is the time, in ns, from a store until the other processor has seen it, as one that looks for it again and again. It
// does not follow from the latency of messages either, most of which is work: two virtual machines' processors that shared a core
// took 60, and 250 to 300 when the host had moved them to two cores.
type lineRates struct{ page, private, rest, hop float64 }

// nearLines are those of two near processors, for predictions without a team.
var nearLines = lineRates{page: 0.1, private: 0.05, rest: 0.015, hop: 100}

// lineTimes are by how much longer a page, a piece of linePiece, and such a piece of the rest take, and a hop, in ns.
type lineTimes [4]uint32

const pageBytes, privateBytes = 4 << 10, 128 << 10

// time returns by how much longer n bytes take, in ns.
func (l lineRates) time(n int) float64 {
	page, private := min(n, pageBytes), min(n, privateBytes)
	return l.page*float64(page) + l.private*float64(private-page) + l.rest*float64(n-private)
}

// The rate of a page is measured by pagesTimed of them, every second one, the other rates by pieces of linePiece bytes behind these.
const linePiece, pagesTimed = 32 << 10, 4

// lineBytes returns how much of the areas they are measured by.
func (a *area) lineBytes() int { return min(4*privateBytes, a.half) &^ (linePiece - 1) }

// writeLines writes to the area of this rank what measureLines reads, the end of it first. It reports
// whether it could. The lock of the board is held, and keeps the areas mapped.
func (a *area) writeLines(me int) bool {
	if a.mappings == nil {
		return false
	}
	mine := a.bytes(me, 0, 0, a.lineBytes())
	for at := len(mine) - tellSize; at >= 0; at -= tellSize {
		mine[at]++
	}
	onesided.Store64(a.ball(me), 0)
	return true
}

// ball is the word of a rank's area by which it measures hops: not among what measureLines reads.
func (a *area) ball(rank int) []byte { return a.bytes(rank, 1, 0, 8) }

// hopsTimed is the number of round trips by which a hop is measured, and hopPatience the longest wait of each.
const hopsTimed, hopPatience = 64, 10 * time.Millisecond

// measureHop measures a hop between two ranks, which both call it, and returns it in ns to the lower one. It returns 0 if
// the other one does not answer within patience. The lock of the board is held.
func (a *area) measureHop(me, other int, patience time.Duration) uint32 {
	if a.mappings == nil {
		return 0
	}
	var took []int64 // on the lower rank
	mine, theirs := a.ball(me), a.ball(other)
	for i := uint64(1); i <= hopsTimed; i++ {
		began := cpu.Ticks()
		if me < other {
			onesided.Release64(theirs, i)
		}
		for onesided.Load64(mine) < i {
			if cpu.Pause(); cpu.Duration(cpu.Ticks()-began) > patience {
				return 0
			}
		}
		if me > other {
			onesided.Release64(theirs, i)
			continue
		}
		took = append(took, max(1, int64(cpu.Duration(cpu.Ticks()-began))/2))
	}
	return median(took)
}

// measureLines copies what a rank has written by writeLines, and once more, and returns by how much
// longer the first copy took. The lock of the board is held.
func (a *area) measureLines(rank int) (ns lineTimes) {
	if a.mappings == nil {
		return ns
	}
	theirs := a.bytes(rank, 0, 0, a.lineBytes())
	to := make([]byte, linePiece)
	clear(to) // the first access of a page takes longer
	for at := 0; at < len(theirs); at += pageBytes {
		to[0] += theirs[at]
	}
	pages := 2 * pagesTimed * pageBytes
	private := min(privateBytes, len(theirs))
	ns[0] = moreTime(to, theirs[:pages], pageBytes, 2*pageBytes)
	ns[1] = moreTime(to, theirs[pages:private], linePiece, linePiece)
	ns[2] = moreTime(to, theirs[private:], linePiece, linePiece)
	return ns
}

// moreTime returns the median of how much longer the first copy of pieces takes than the second one.
func moreTime(to, from []byte, piece, distance int) uint32 {
	var more []int64
	for at := 0; at+piece <= len(from); at += distance {
		first := copied(to, from[at:at+piece])
		more = append(more, max(0, first-copied(to, from[at:at+piece])))
	}
	return median(more)
}

// median returns the median of times in ns, which it sorts; 0 of none.
func median(ns []int64) uint32 {
	if len(ns) == 0 {
		return 0
	}
	slices.Sort(ns)
	return uint32(min(ns[len(ns)/2], math.MaxUint32))
}

// copied returns the time of a copy in ns.
func copied(to, from []byte) int64 {
	began := time.Now()
	copy(to, from)
	return int64(time.Since(began))
}

// lineRatesOf returns what measureLines has measured, for a byte.
func lineRatesOf(ns lineTimes) lineRates {
	return lineRates{float64(ns[0]) / pageBytes, float64(ns[1]) / linePiece, float64(ns[2]) / linePiece, float64(ns[3])}
}
