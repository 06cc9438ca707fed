//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// Hard limits: on a machine with more processes than processors a job takes longer, a job
// that hangs never ends.
const (
	startLimit = 2 * time.Minute
	endLimit   = time.Minute
	tellLimit  = 10 * time.Second
)

// death kills a rank at a random moment. The operations of its peers with it fail, all
// others continue, and the data received from it is a prefix of what it sent.
func death(ctx context.Context, r *round) {
	s := jobSpec{Ranks: pick(r, 2, 3, 4, 4), Fabric: pick(r, "shm", "tcp"), Root: pick(r, "unix", "tcp")}
	s.Work = work{Ops: some(r, 1+r.IntN(4), pairNames()), Seed: r.Uint64(), Max: 1 << (12 + r.IntN(9))}
	victim := r.IntN(s.Ranks)
	early := r.IntN(6) == 0 // while they connect
	if early {              // no rank detects the death of one that has not joined
		s.Env = []string{"RMA_TIMEOUT=15s"}
	}
	j, err := startJob(s)
	if r.failed(err) {
		return
	}
	defer j.kill()
	if !early {
		if r.failed(j.ready(startLimit)) {
			return
		}
	}
	if !wait(ctx, r.about(100*time.Millisecond)) {
		return
	}
	killed := now()
	_ = j.procs[victim].cmd.Process.Kill()
	survivors := slices.Delete(slices.Clone(j.procs), victim, victim+1)
	if early { // they need not communicate, but must end
		for _, p := range survivors {
			if err := p.await(startLimit, 1, "knows that there is no job, or begins", decided); err != nil {
				r.fault("rank %d killed at the start: %v", victim, err)
				return
			}
		}
		for _, p := range survivors {
			if f := p.find(func(e event) bool { return e.Ev == "fail" && e.Op == "open" }); len(f) > 0 {
				if f[0].Kind == "untyped" {
					r.fault("rank %d: open: %s", p.rank, f[0].Text)
				}
				return // and no other rank has a complete job
			}
		}
	}
	for _, p := range survivors {
		told(r, p, victim, killed, "gone", deathToError)
	}
	goOn(r, survivors, victim)
	j.finish(r, victim)
}

// pairNames returns the operations between two ranks.
func pairNames() []string {
	return slices.DeleteFunc(allOps(), func(op string) bool { return op == "barrier" })
}

// told checks that all operations of p with the victim, and no others, end in errors of
// that kind and in time.
func told(r *round, p *proc, victim int, since time.Duration, want string, f figure) {
	lines := 0
	for _, op := range p.work().Ops {
		if lines++; op == "recv" || op == "batch" {
			lines++ // receives from the victim end as well
		}
	}
	fails := func(e event) bool { return e.Ev == "fail" && e.Peer == victim }
	if r.failed(p.await(f.hard+tellLimit, lines, fmt.Sprintf("operations with rank %d end", victim), fails)) {
		return
	}
	for _, e := range blamed(r, p, victim, want) {
		r.measure(f, max(0, e.At-since))
	}
}

// blamed checks that of p only operations with the victim have failed, in errors of that
// kind, and returns these.
func blamed(r *round, p *proc, victim int, want string) (with []event) {
	for _, e := range p.find(is("fail")) {
		alone := len(p.job.procs) == 2 && e.Kind == "no sender"
		switch {
		case e.Peer != victim && !alone:
			r.fault("rank %d: %s with rank %d, not the one that is %s, failed: %s", p.rank, e.Op, e.Peer, want, e.Text)
		case e.Kind != want && !alone:
			r.fault("rank %d: %s with rank %d, which is %s: error is %q: %s", p.rank, e.Op, e.Peer, want, e.Kind, e.Text)
		case e.Peer == victim:
			with = append(with, e)
		}
	}
	return with
}

// goOn checks that the operations of survivors with each other continue.
func goOn(r *round, survivors []*proc, victim int) {
	before := map[*proc]int{}
	for _, p := range survivors {
		before[p] = len(p.find(is("on")))
		_, _ = fmt.Fprintf(p.in, "mark %d\n", victim)
	}
	for _, p := range survivors {
		n := before[p]
		for _, op := range p.work().Ops {
			if op == "barrier" { // of all ranks, not of a pair
				n++
				continue
			}
			n += len(survivors) - 1
		}
		r.failed(p.await(startLimit, n, "operations go on with those that live", is("on")))
	}
}

// unharmed checks that the operations of all ranks go on and that none has failed, and ends the
// job. when says what happened.
func unharmed(r *round, j *job, when string) {
	goOn(r, j.procs, -2)
	noneFailed(r, j, when)
	j.finish(r)
}

// noneFailed reports whether no operation has failed. Otherwise it records faults.
func noneFailed(r *round, j *job, when string) bool {
	all := true
	for _, p := range j.procs {
		for _, e := range p.find(is("fail")) {
			all = false
			r.fault("rank %d: %s with rank %d failed %s: %s", p.rank, e.Op, e.Peer, when, e.Text)
		}
	}
	return all
}

func (p *proc) work() work { return p.job.spec.Work }

// wait reports whether d passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *proc) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }
