//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// pause stops a rank for less than HangTimeout and resumes it: nothing fails, and all ranks
// continue. Or it stops all ranks: time in which none of them ran does not count as a hang.
// Or it starves the rank instead of stopping it.
func pause(ctx context.Context, r *round) {
	s := jobSpec{Ranks: pick(r, 2, 3, 4), Fabric: pick(r, "shm", "tcp"), Root: pick(r, "unix", "tcp")}
	s.Work = work{Ops: some(r, 1+r.IntN(4), allOps()), Seed: r.Uint64(), Max: 1 << (12 + r.IntN(9))}
	j := begin(r, s)
	if j == nil {
		return
	}
	defer j.kill()
	one := j.procs[r.IntN(len(j.procs))]
	how := r.IntN(4)
	length := pick(r, 50*time.Millisecond, 500*time.Millisecond, 2500*time.Millisecond, 4*time.Second)
	wait(ctx, r.about(50*time.Millisecond))
	var resume func()
	switch how {
	case 0:
		for _, p := range j.procs {
			p.signal(syscall.SIGSTOP)
		}
		resume = func() {
			for _, p := range j.procs {
				p.signal(syscall.SIGCONT)
			}
		}
	case 1:
		var err error
		if resume, err = starve(one); err != nil {
			r.leaveOut(fmt.Errorf("SCHED_IDLE: %w", err))
			return
		}
		r.count("starved by SCHED_IDLE", 1)
	default:
		resume = someHalt(r, one)
	}
	wait(ctx, length)
	resume()
	if noneFailed(r, j, fmt.Sprintf("when ranks were stopped for %v", length)) {
		goOn(r, j.procs, -2)
	}
	j.finish(r)
}

// hangTimeout is the HangTimeout of jobs in which a rank hangs for good: longer than a busy
// machine leaves a rank without a processor, which is a hang as well.
const hangTimeout = 4 * time.Second

// hang halts a rank for good: every operation with it ends in ErrPeerHung, and the others
// continue. Or it starves the rank, which may make progress at times: then failures are
// still of that kind.
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
	wait(ctx, r.about(100*time.Millisecond))
	survivors := slices.Delete(slices.Clone(j.procs), victim, victim+1)
	if r.IntN(4) == 0 {
		feed, err := starve(j.procs[victim])
		if err != nil {
			r.leaveOut(fmt.Errorf("SCHED_IDLE: %w", err))
			return
		}
		wait(ctx, 2*hangTimeout)
		feed()
		given := 0
		for _, p := range survivors {
			given += len(blamed(r, p, victim, "hung"))
		}
		r.count("starved by SCHED_IDLE", 1)
		r.count("operations given up with who starved", given)
		goOn(r, survivors, victim)
		j.finish(r, victim)
		return
	}
	resume := someHalt(r, j.procs[victim])
	defer resume()
	stopped := now()
	for _, p := range survivors {
		told(r, p, victim, stopped+hangTimeout, "hung", hangToError)
	}
	goOn(r, survivors, victim)
	resume() // it is too late
	j.finish(r, victim)
}
