package bringup

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// Path describes the path to a rank, and its parameters in the cost model.
type Path struct {
	Link   string
	Class  sampling.Class // of the peer; empty before the first connection
	Of     sampling.Class // of the peers with which Params were measured: the nearest to Class if that has not been measured
	Source string         // of Params: "defaults", "profile", "measurement", or the rank that has published them
	Params *logp.Params   // towards the rank; immutable
}

// String describes the path in words.
func (p Path) String() string {
	class, of := "not known yet", ""
	if p.Class != "" {
		class = string(p.Class)
	}
	if p.Of != p.Class && p.Of != "" {
		of = fmt.Sprintf(" of class %s", p.Of)
	}
	return fmt.Sprintf("%s, class %s; parameters%s: %s", p.Link, class, of, p.Source)
}

// Surveys counts the measurements of paths in the background.
type Surveys struct {
	Paths int           // measured
	Time  time.Duration // that they took
	Bytes int64         // moved by operations of this side, and by batches in both directions
}

// pathKind identifies paths that share figures.
type pathKind struct {
	link  int
	class sampling.Class
}

// maxSurveys bounds the failed measurements of a class. It is above 1, because a peer may
// end during the first.
const maxSurveys = 3

// paths are the figures of all paths of a rank. Its methods may be called from any goroutine.
type paths struct {
	turn chan struct{} // held during a measurement: two at once would disturb each other

	mu    sync.Mutex
	known map[pathKind]*figures
	fails map[pathKind]int
	class []sampling.Class // by rank
	of    []*figures       // by rank
	done  Surveys
}

// open initialises p with the figures of the link for each rank.
func (p *paths) open(of []*figures) {
	*p = paths{
		turn:  make(chan struct{}, 1),
		known: map[pathKind]*figures{}, fails: map[pathKind]int{},
		class: make([]sampling.Class, len(of)), of: of,
	}
}

// path returns the path to the rank, which is above this one if up.
func (p *paths) path(rank int, up bool) Path {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.of[rank]
	params := f.Down
	if up {
		params = f.Up
	}
	return Path{Class: p.class[rank], Of: f.Class, Source: f.source, Params: params}
}

// arrive records the class of the rank, and assigns it the figures of that class, or of the
// nearest class with figures. It reports whether these differ from those before.
func (p *paths) arrive(rank int, k pathKind) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.class[rank] = k.class
	var among []sampling.Class
	for x := range p.known {
		if x.link == k.link {
			among = append(among, x.class)
		}
	}
	near, ok := k.class.Nearest(among)
	if !ok {
		return false
	}
	before := p.of[rank]
	p.of[rank] = p.known[pathKind{k.link, near}]
	return p.of[rank] != before
}

// figures returns the figures of that kind, nil if there are none.
func (p *paths) figures(k pathKind) *figures {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[k]
}

// add records f as the figures of its class.
func (p *paths) add(link int, f *figures) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[pathKind{link, f.Class}] = f
}

// use assigns figures to the rank.
func (p *paths) use(rank int, f *figures) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.class[rank], p.of[rank] = f.Class, f
}

// waiting lists the ranks of f's class, reached by the link according to to, that use other
// figures.
func (p *paths) waiting(to []int, link int, f *figures) (ranks []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for rank, c := range p.class {
		if to[rank] == link && c == f.Class && p.of[rank] != f {
			ranks = append(ranks, rank)
		}
	}
	return slices.Clip(ranks)
}

// hopeless reports whether measuring that kind has failed too often.
func (p *paths) hopeless(k pathKind) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fails[k] >= maxSurveys
}

// failed counts a failed measurement.
func (p *paths) failed(k pathKind, took time.Duration, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done.Time += took
	p.done.Bytes += bytes
	p.fails[k]++
}

// measured counts a measurement, and records its figures as those of the class.
func (p *paths) measured(k pathKind, f *figures, took time.Duration, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done.Time += took
	p.done.Bytes += bytes
	p.done.Paths++
	p.known[k] = f
}

func (p *paths) surveys() Surveys {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}
