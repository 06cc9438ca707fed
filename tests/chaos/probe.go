//go:build linux

package main

import (
	"slices"
	"sync"
	"time"
)

// latency holds the durations of the probes of a phase.
type latency struct {
	mu    sync.Mutex
	phase string // "": they are not kept
	began time.Time
	took  []time.Duration
}

// probe is a small get, put or fetch-add of the lower rank, which is timed.
func (l *line) probe(i uint64) (err error) {
	if l.eng.Rank() > l.p.Rank() {
		<-l.ctx.Done()
		return nil
	}
	b, _ := l.scratch(64)
	start := time.Now()
	switch i % 3 {
	case 0:
		err = l.p.Get(b, l.at(l.area(0))).Wait(l.ctx)
	case 1:
		err = l.p.Put(l.at(l.area(0)), b).Wait(l.ctx)
	default:
		_, err = l.p.FetchAdd(l.word(wordAdd), 1).Wait(l.ctx)
	}
	d := time.Since(start)
	l.latency.mu.Lock()
	defer l.latency.mu.Unlock()
	if l.latency.phase != "" {
		l.latency.took = append(l.latency.took, d)
	}
	return err
}

// phase reports the durations of this phase's probes, and begins the next.
func (k *rank) phase(next string) {
	l := &k.latency
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != "" {
		if len(l.took) == 0 { // one takes longer than all of the phase
			l.took = append(l.took, time.Since(l.began))
		}
		slices.Sort(l.took)
		k.say(event{Ev: "p99", Op: l.phase, N: len(l.took), At: l.took[len(l.took)*99/100]})
	}
	l.phase, l.began, l.took = next, time.Now(), l.took[:0]
}
