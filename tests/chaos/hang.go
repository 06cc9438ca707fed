//go:build linux

package main

import (
	"context"
	"slices"
	"syscall"
	"time"
)

// pause stops a rank for less than HangTimeout and lets it go on: nothing fails, and
// everybody goes on where they were. Or everybody is stopped: time that has passed
// for none of them is held against none.
func pause(ctx context.Context, r *round) {
	s := jobSpec{Ranks: pick(r, 2, 3, 4), Fabric: pick(r, "shm", "tcp"), Root: pick(r, "unix", "tcp")}
	s.Work = work{Ops: some(r, 1+r.IntN(4), allOps()), Seed: r.Uint64(), Max: 1 << (12 + r.IntN(9))}
	j := begin(r, s)
	if j == nil {
		return
	}
	defer j.kill()
	stop := j.procs[:1]
	if r.IntN(4) == 0 {
		stop = j.procs
	} else {
		at := r.IntN(len(j.procs))
		stop = j.procs[at : at+1]
	}
	length := pick(r, 50*time.Millisecond, 500*time.Millisecond, 2500*time.Millisecond, 4*time.Second)
	wait(ctx, time.Duration(r.ExpFloat64()*float64(50*time.Millisecond)))
	for _, p := range stop {
		p.signal(syscall.SIGSTOP)
	}
	wait(ctx, length)
	for _, p := range stop {
		p.signal(syscall.SIGCONT)
	}
	for _, p := range j.procs {
		for _, e := range p.find(is("fail")) {
			r.fault("rank %d: %s with rank %d failed when ranks were stopped for %v: %s", p.rank, e.Op, e.Peer, length, e.Text)
		}
	}
	if len(r.faults) == 0 {
		goOn(r, j, j.procs, -2)
	}
	j.finish(r, endLimit)
}

// hangTimeout is the patience of jobs in which a rank hangs for good.
const hangTimeout = 2 * time.Second

// hang stops a rank for good: every operation with it ends in ErrPeerHung, the others
// go on.
func hang(ctx context.Context, r *round) {
	s := jobSpec{Ranks: pick(r, 2, 3, 4), Fabric: pick(r, "shm", "tcp"), Root: pick(r, "unix", "tcp")}
	s.Work = work{Ops: some(r, 1+r.IntN(4), pairNames()), Seed: r.Uint64(), Max: 1 << (12 + r.IntN(9))}
	s.Env = []string{"RMA_HANG_TIMEOUT=" + hangTimeout.String()}
	victim := r.IntN(s.Ranks)
	j := begin(r, s)
	if j == nil {
		return
	}
	defer j.kill()
	wait(ctx, time.Duration(r.ExpFloat64()*float64(100*time.Millisecond)))
	stopped := now()
	j.procs[victim].signal(syscall.SIGSTOP)
	survivors := slices.Delete(slices.Clone(j.procs), victim, victim+1)
	for _, p := range survivors {
		told(r, p, victim, stopped+hangTimeout, "hung", "HangTimeout after a stop to error", tellLimit)
	}
	goOn(r, j, survivors, victim)
	j.procs[victim].signal(syscall.SIGCONT) // it is too late
	j.finish(r, endLimit, victim)
}
