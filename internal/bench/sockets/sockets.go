package sockets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrRequest marks a request that cannot be executed.
var ErrRequest = errors.New("sockets: invalid request")

// Request says what to measure.
type Request struct {
	Transports []string      `json:"transports"`
	Workloads  []string      `json:"workloads,omitempty"` // empty: all that the program has
	Conns      []int         `json:"conns"`
	Busy       []int         `json:"busy"` // numbers of threads of another process that compute
	Rounds     int           `json:"rounds"`
	Time       time.Duration `json:"time"` // of a series
}

// Bounds of a request.
const (
	maxConns  = 1024
	maxBusy   = 1024
	maxRounds = 10_000
)

// Check reports why the request cannot be executed. The workloads are those of the program
// that runs the ranks, which checks them.
func (r *Request) Check() error {
	for _, t := range r.Transports {
		if !slices.Contains(Transports, t) {
			return fmt.Errorf("%w: transport %q: want %v", ErrRequest, t, Transports)
		}
	}
	for _, n := range r.Conns {
		if n < 1 || n > maxConns {
			return fmt.Errorf("%w: %d connections: want 1 to %d", ErrRequest, n, maxConns)
		}
	}
	for _, n := range r.Busy {
		if n < 0 || n > maxBusy {
			return fmt.Errorf("%w: %d busy threads: want 0 to %d", ErrRequest, n, maxBusy)
		}
	}
	switch {
	case len(r.Transports) == 0 || len(r.Conns) == 0 || len(r.Busy) == 0:
		return fmt.Errorf("%w: no transport, number of connections or of busy threads", ErrRequest)
	case r.Rounds < 1 || r.Rounds > maxRounds || r.Time <= 0:
		return fmt.Errorf("%w: %d rounds of %v", ErrRequest, r.Rounds, r.Time)
	}
	return nil
}

// CheckWorkloads reports why this program cannot run the workloads.
func (r *Request) CheckWorkloads() error {
	_, err := r.choose(Workloads())
	return err
}

// choose returns the workloads of the request.
func (r *Request) choose(have []Workload) ([]Workload, error) {
	if len(r.Workloads) == 0 {
		return have, nil
	}
	var ws []Workload
	for _, name := range r.Workloads {
		i := slices.IndexFunc(have, func(w Workload) bool { return w.Name == name })
		if i < 0 {
			var names []string
			for _, w := range have {
				names = append(names, w.Name)
			}
			return nil, fmt.Errorf("%w: workload %q: this program has %v", ErrRequest, name, names)
		}
		ws = append(ws, have[i])
	}
	return ws, nil
}

// Result is one series.
type Result struct {
	Round     int     `json:"round"`
	Busy      int     `json:"busy"`
	Transport string  `json:"transport"`
	Workload  string  `json:"workload"`
	Conns     int     `json:"conns"`
	Bytes     int     `json:"bytes,omitempty"` // of an operation that streams
	Ops       int     `json:"ops"`
	Seconds   float64 `json:"seconds"`
	CPU       float64 `json:"cpu_seconds"` // of both processes
	P50       float64 `json:"p50_us"`      // of an operation, as its goroutine sees it
	P99       float64 `json:"p99_us"`
}

// PerOp returns the time of the series divided by its operations, in µs.
func (r *Result) PerOp() float64 { return r.Seconds * 1e6 / float64(r.Ops) }

// CPUPerOp returns the processor time of both processes for an operation, in µs.
func (r *Result) CPUPerOp() float64 { return r.CPU * 1e6 / float64(r.Ops) }

// warm is the part of a series' time that precedes it.
const warm = 5

// maxSamples bounds the durations that a lane keeps; of longer series these are the first.
const maxSamples = 1 << 16

// series makes operations for the time d, after a warm-up that the server has finished, and sets r's
// figures; cpu returns the processor time of both processes.
func series(ctx context.Context, d time.Duration, c Client, r *Result, cpu func() (time.Duration, error)) error {
	if _, err := run(ctx, d/warm, c, r.Conns); err != nil {
		return err
	}
	if err := c.Finish(); err != nil {
		return err
	}
	before, err := cpu()
	if err != nil {
		return err
	}
	begun := time.Now()
	lanes, err := run(ctx, d, c, r.Conns)
	if err == nil {
		err = c.Finish()
	}
	if err != nil {
		return err
	}
	r.Seconds = time.Since(begun).Seconds()
	after, err := cpu()
	if err != nil {
		return err
	}
	r.CPU = (after - before).Seconds()
	var all []time.Duration
	for _, l := range lanes {
		r.Ops += l.ops
		all = append(all, l.took...)
	}
	slices.Sort(all)
	r.P50 = float64(all[len(all)/2]) / 1e3
	r.P99 = float64(all[len(all)*99/100]) / 1e3
	return nil
}

// lane is what the goroutine of one connection has done.
type lane struct {
	ops  int
	took []time.Duration
}

// run lets conns goroutines make one operation after the other, at least one each.
func run(ctx context.Context, d time.Duration, c Client, conns int) ([]lane, error) {
	lanes := make([]lane, conns)
	errs := make([]error, conns)
	var over atomic.Bool
	timer := time.AfterFunc(d, func() { over.Store(true) })
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { over.Store(true) })()
	var g sync.WaitGroup
	for i := range lanes {
		l := &lanes[i]
		g.Go(func() {
			for at := time.Now(); ; {
				if errs[i] = c.Op(i); errs[i] != nil {
					over.Store(true)
					return
				}
				now := time.Now()
				if l.ops++; len(l.took) < maxSamples {
					l.took = append(l.took, now.Sub(at))
				}
				at = now
				if over.Load() {
					return
				}
			}
		})
	}
	g.Wait()
	return lanes, errors.Join(errors.Join(errs...), ctx.Err())
}
