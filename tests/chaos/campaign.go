//go:build linux

package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// part is one way of disturbing jobs.
type part struct {
	name string
	what string // for the list of --help
	run  func(ctx context.Context, r *round)
}

// round is one run of a part: its random choices, and what it finds.
type round struct {
	*rand.Rand
	part  *part
	no    int
	quick bool // a short run, for tests

	mu     sync.Mutex
	faults []string
	took   map[figure][]time.Duration
	counts map[string]int
	held   map[string]int // by promise: how often it was checked
	broken map[string]int // and how often it did not hold
}

// figure is something whose duration counts.
type figure struct {
	name  string
	bound time.Duration // what is promised on a machine that has a processor for every process; 0: nothing
	hard  time.Duration // beyond it is a fault: a machine that has not takes its time, a job that hangs takes for ever
}

// Figures with a bound.
var (
	deathToError = figure{"death to error", 50 * time.Millisecond, tellLimit}
	hangToError  = figure{"stop to error, beyond HangTimeout", hangTimeout / 10, tellLimit}
	cutToError   = figure{"cut to error, beyond PeerTimeout", 500 * time.Millisecond, tellLimit}
)

// newRound returns the round of that number; its choices depend on the three alone.
func newRound(p *part, seed uint64, no int) *round {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", p.name, no)
	return &round{Rand: rand.New(rand.NewPCG(seed, h.Sum64())), part: p, no: no,
		took: map[figure][]time.Duration{}, counts: map[string]int{}, held: map[string]int{}, broken: map[string]int{}}
}

// fault notes a broken promise. From any goroutine.
func (r *round) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// measure notes how long something took.
func (r *round) measure(f figure, d time.Duration) {
	r.mu.Lock()
	r.took[f] = append(r.took[f], d)
	r.mu.Unlock()
	if d > f.hard {
		r.fault("%s took %v, limit %v", f.name, d.Round(time.Millisecond), f.hard)
	}
}

// count adds to a figure of the part.
func (r *round) count(figure string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[figure] += n
}

// leftOut is the beginning of the name under which a round counts that this machine
// refused to do something.
const leftOut = "left out: "

// leaveOut notes that this machine refuses to do something.
func (r *round) leaveOut(why error) { r.count(leftOut+why.Error(), 1) }

// hear takes over what a rank has checked, counted and found wrong; what says what was
// done to it.
func (r *round) hear(p *proc, what string) {
	for _, e := range p.find(is("bad")) {
		r.fault("%srank %d: %s", what, p.rank, e.Text)
		r.mu.Lock()
		r.broken[e.Kind]++
		r.mu.Unlock()
	}
	for _, e := range p.find(is("held")) {
		r.mu.Lock()
		r.held[e.Op] += e.N
		r.mu.Unlock()
	}
	for _, e := range p.find(is("count")) {
		r.count(e.Op, e.N)
	}
}

// pick returns one of the values.
func pick[T any](r *round, of ...T) T { return of[r.IntN(len(of))] }

// some returns n different ones of the values, in any order.
func some[T any](r *round, n int, of []T) []T {
	of = slices.Clone(of)
	r.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	return of[:min(n, len(of))]
}
