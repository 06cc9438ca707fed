package bringup

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// Path is the path to a rank, and what the cost model knows of it.
type Path struct {
	Link   string
	Class  sampling.Class // of the peer; empty before the first connection
	Of     sampling.Class // of the peers that Params were measured with: the nearest to Class where that has not been measured
	Source string         // of Params: "defaults", "profile", "measurement", or the rank that told them
	Params *logp.Params   // towards the rank; not changed
}

// String says it in words.
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

// Surveys counts the measurements of paths beside the program.
type Surveys struct {
	Paths int           // measured
	Time  time.Duration // that took
	Bytes int64         // moved by operations of this side, and by batches both ways
}

// pathKind is what paths that share figures have in common.
type pathKind struct {
	link  int
	class sampling.Class
}

// maxSurveys is how often a class is measured that brings nothing: the first peer may have
// been one that ends.
const maxSurveys = 3

// paths are the figures of all paths of a rank. Its methods may be called from any goroutine.
type paths struct {
	turn chan struct{} // held by who measures: two at once would measure each other

	mu    sync.Mutex
	known map[pathKind]*figures
	fails map[pathKind]int
	class []sampling.Class // by rank
	of    []*figures       // by rank
	done  Surveys
}

// open begins with those of the link for each rank.
func (p *paths) open(of []*figures) {
	*p = paths{
		turn:  make(chan struct{}, 1),
		known: map[pathKind]*figures{}, fails: map[pathKind]int{},
		class: make([]sampling.Class, len(of)), of: of,
	}
}

// path is the path to the rank, which is the higher one if up.
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

// arrive notes of which class the rank turned out to be, and gives it the figures of that,
// or of the nearest class that has any. changed: these are others than before.
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

// figures of that kind, nil if there are none.
func (p *paths) figures(k pathKind) *figures {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[k]
}

// add makes f known for its class.
func (p *paths) add(link int, f *figures) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[pathKind{link, f.Class}] = f
}

// use gives the rank figures.
func (p *paths) use(rank int, f *figures) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.class[rank], p.of[rank] = f.Class, f
}

// waiting lists the ranks of f's class that other figures stand in for, those in to by the
// link.
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

// failed counts a measurement that brought nothing.
func (p *paths) failed(k pathKind, took time.Duration, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done.Time += took
	p.done.Bytes += bytes
	p.fails[k]++
}

// measured counts one of the path to the rank, and makes its figures known.
func (p *paths) measured(rank int, k pathKind, f *figures, took time.Duration, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done.Time += took
	p.done.Bytes += bytes
	p.done.Paths++
	p.known[k], p.class[rank], p.of[rank] = f, f.Class, f
}

func (p *paths) surveys() Surveys {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}
