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

// round is one run of a part: its random choices and its findings.
type round struct {
	*rand.Rand
	part  *part
	no    int
	quick bool // a short run, for tests

	mu     sync.Mutex
	faults []string
	took   map[figure][]time.Duration
	counts map[string]int
	held   map[string]int // by promise: number of checks
	broken map[string]int // and of violations
}

// figure is a duration that is measured.
type figure struct {
	name  string
	bound time.Duration // the promise on a machine that has a processor for every process; 0: none
	hard  time.Duration // a longer duration is a fault: on a machine with fewer processors a job takes longer, a job that hangs never ends
}

// Figures with a bound.
var (
	deathToError = figure{"death to error", 50 * time.Millisecond, tellLimit}
	hangToError  = figure{"stop to error, beyond HangTimeout", hangTimeout / 10, tellLimit}
	cutToError   = figure{"cut to error, beyond PeerTimeout", 500 * time.Millisecond, tellLimit}
)

// newRound returns the round of that number; its choices depend on the three arguments
// only.
func newRound(p *part, seed uint64, no int) *round {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", p.name, no)
	return &round{Rand: rand.New(rand.NewPCG(seed, h.Sum64())), part: p, no: no,
		took: map[figure][]time.Duration{}, counts: map[string]int{}, held: map[string]int{}, broken: map[string]int{}}
}

// fault records a broken promise. From any goroutine.
func (r *round) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// failed reports whether there is an error, and records it as a fault.
func (r *round) failed(err error) bool {
	if err != nil {
		r.fault("%v", err)
	}
	return err != nil
}

// measure records a duration.
func (r *round) measure(f figure, d time.Duration) {
	r.mu.Lock()
	r.took[f] = append(r.took[f], d)
	r.mu.Unlock()
	if d > f.hard {
		r.fault("%s took %v, limit %v", f.name, d.Round(time.Millisecond), f.hard)
	}
}

// count adds n to a count of the part.
func (r *round) count(figure string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[figure] += n
}

// leftOut is the prefix of counts of actions that this machine refused.
const leftOut = "left out: "

// leaveOut records that this machine refuses an action.
func (r *round) leaveOut(why error) { r.count(leftOut+why.Error(), 1) }

// hear adds the checks, counts and faults that a rank reported; what describes the
// disturbance.
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

// about returns a random duration with that mean.
func (r *round) about(mean time.Duration) time.Duration {
	return time.Duration(r.ExpFloat64() * float64(mean))
}

// pick returns one of the values.
func pick[T any](r *round, of ...T) T { return of[r.IntN(len(of))] }

// some returns n different ones of the values, in any order.
func some[T any](r *round, n int, of []T) []T {
	of = slices.Clone(of)
	r.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	return of[:min(n, len(of))]
}
