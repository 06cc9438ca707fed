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
	took   map[string][]time.Duration // by figure: see measure
	counts map[string]int
}

// newRound returns the round of that number; its choices depend on the three alone.
func newRound(p *part, seed uint64, no int) *round {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", p.name, no)
	return &round{Rand: rand.New(rand.NewPCG(seed, h.Sum64())), part: p, no: no,
		took: map[string][]time.Duration{}, counts: map[string]int{}}
}

// fault notes a broken promise. From any goroutine.
func (r *round) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// measure notes how long something took; bound is what is promised on a machine that
// has a processor for every process. It is reported; what counts as a fault is hard,
// which allows for a machine that has not.
func (r *round) measure(figure string, d, hard time.Duration) {
	r.mu.Lock()
	r.took[figure] = append(r.took[figure], d)
	r.mu.Unlock()
	if d > hard {
		r.fault("%s took %v, limit %v", figure, d.Round(time.Millisecond), hard)
	}
}

// count adds to a figure of the part.
func (r *round) count(figure string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[figure] += n
}

// pick returns one of the values.
func pick[T any](r *round, of ...T) T { return of[r.IntN(len(of))] }

// some returns n different ones of the values, in any order.
func some[T any](r *round, n int, of []T) []T {
	of = slices.Clone(of)
	r.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	return of[:min(n, len(of))]
}
