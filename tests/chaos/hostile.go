//go:build linux

package main

import (
	"context"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/wireup"
)

// mutants makes a rank that speaks all protocols change its writes to the others: see
// mutant. The operations of the honest ranks with each other are not affected; those with
// the mutant succeed, fail with a type, or wait; no write reaches memory without
// permission.
func mutants(ctx context.Context, r *round) {
	s := jobSpec{Ranks: pick(r, 3, 4), Fabric: pick(r, "shm", "tcp"), Root: "unix", Env: []string{"RMA_SAMPLING=off", "RMA_HANG_TIMEOUT=10s"}}
	if s.Fabric == "tcp" {
		s.Env = append(s.Env, "RMA_TCP_CRYPT="+pick(r, "off", "off", "auth"))
	}
	if r.IntN(2) == 0 {
		s.Env = append(s.Env, "RMA_MODE="+pick(r, "eager", "gather", "scatter"))
	}
	s.Work = work{Ops: some(r, 3+r.IntN(6), pairNames()), Seed: r.Uint64(), Max: 1 << (8 + r.IntN(11)), Mutant: pick(r, 4, 16, 64, 256, 1024)}
	j := begin(r, s)
	if j == nil {
		return
	}
	defer j.kill()
	liar := s.Ranks - 1
	honest := j.procs[:liar]
	for range 5 {
		wait(ctx, time.Second)
		modest(r, honest, "beside a mutant")
	}
	goOn(r, honest, liar)
	honestFails(r, honest, liar)
	j.finish(r, liar)
	_, _ = io.WriteString(j.procs[liar].in, "end\n")
	select {
	case <-j.procs[liar].ended:
		if j.procs[liar].err != nil { // it is affected by its own changes
			r.count("mutants that died of it", 1)
		}
	case <-time.After(tellLimit):
	}
	r.hear(j.procs[liar], "")
}

// hostile makes a rank of the job, which knows the token, lie when the others connect: it
// mutates its offers, keys and addresses, and sends the others more than they accept. The
// honest ranks lose the connection to it, and nothing else.
func hostile(ctx context.Context, r *round) {
	s := jobSpec{Ranks: pick(r, 3, 4), Fabric: "tcp", Root: "tcp", Env: []string{"RMA_TIMEOUT=10s", "RMA_SAMPLING=off"}}
	s.Work = work{Ops: some(r, 1+r.IntN(3), pairNames()), Seed: r.Uint64(), Max: 1 << (12 + r.IntN(6))}
	liar := s.Ranks - 1
	s.Absent = []int{liar}
	j, err := startJob(s)
	if r.failed(err) {
		return
	}
	defer j.kill()
	key, err := someKey(ctx)
	if r.failed(err) {
		return
	}
	l := &liarRank{rng: rand.New(rand.NewPCG(s.Work.Seed, 9)), size: s.Ranks, key: key}
	lctx, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	done := make(chan struct{})
	defer func() { stop(); <-done }()
	go func() {
		defer close(done)
		l.run(lctx, wireup.Config{Rank: liar, Size: s.Ranks, Root: j.addr, Token: j.token})
	}()
	begun := 0
	for _, p := range j.procs {
		if err := p.await(startLimit, 1, "begins, or knows why not", decided); err != nil {
			r.fault("beside a rank that lies: %v", err)
			return
		}
		begun += len(p.find(is("ready")))
	}
	if r.IntN(2) == 0 && begun == len(j.procs) { // one that does not listen for a while
		j.procs[0].signal(syscall.SIGSTOP)
		l.only.Store(true)
		wait(ctx, time.Second)
		j.procs[0].signal(syscall.SIGCONT)
	}
	<-done
	r.count("what the liar told", int(l.told.Load()))
	modest(r, j.procs, "beside a rank that lies")
	if begun < len(j.procs) { // a job in which one rank has no link does not start
		r.count("jobs that did not start", 1)
		for _, p := range j.procs {
			r.hear(p, "beside a rank that lies: ")
		}
		return
	}
	goOn(r, j.procs, liar)
	honestFails(r, j.procs, liar)
	j.finish(r)
}

// honestFails records the failed operations of honest ranks with each other.
func honestFails(r *round, honest []*proc, liar int) {
	for _, p := range honest {
		for _, e := range p.find(is("fail")) {
			if e.Peer != liar { // -1: with any
				r.fault("rank %d: %s with rank %d failed beside a rank that lies: %s", p.rank, e.Op, e.Peer, e.Text)
			}
		}
	}
}

// liarRank is a member of the job without an engine.
type liarRank struct {
	rng  *rand.Rand
	size int
	key  []byte // of existing memory outside the job
	told atomic.Int64
	only atomic.Bool // tell rank 0 alone
}

// someKey returns a well-formed key.
func someKey(ctx context.Context) ([]byte, error) {
	eng, err := rma.Open(ctx, &rma.Config{Job: &rma.Job{Size: 1}, Fabric: "tcp", Sampling: "off"})
	if err != nil {
		return nil, err
	}
	defer eng.Close()
	mem, err := eng.Alloc(1 << 20)
	if err != nil {
		return nil, err
	}
	k := mem.Key()
	return k.MarshalBinary()
}

func (l *liarRank) run(ctx context.Context, c wireup.Config) {
	job, err := wireup.Join(ctx, c)
	if err != nil {
		return
	}
	defer job.Close()
	heard := make(chan []byte, 64)
	job.NotifyReceived(func(_ int, _ string, val []byte) {
		select {
		case heard <- append([]byte(nil), val...):
		default:
		}
	})
	// Like Open, and AllGatherKeys after it, but with mutated data.
	offer := links.NewOffer(nil).Append(nil)
	both := links.NewOffer([]string{"tcp"}).Append(nil)
	for _, step := range []struct {
		op, name string
		val      []byte
	}{{"allgather", "rma/offer", offer}, {"allgather", "rma/offer", both}, {"allgather", "rma/open", nil}, {"keys", "rma/keys", l.key}} {
		val := step.val
		if l.rng.IntN(8) == 0 {
			val = l.mutate(val)
		}
		x, err := job.Exchange(step.op, step.name, val)
		if err == nil {
			_, err = x.Finish(ctx)
		}
		if err != nil {
			return
		}
	}
	for ctx.Err() == nil {
		var val []byte
		select {
		case val = <-heard:
			val = l.mutate(val)
		default:
			val = l.junk(1 + l.rng.IntN(wireup.MaxSend))
		}
		key := []string{"ep", "ep", "ep/no", "talk", "ep/reset", string(l.junk(8))}[l.rng.IntN(6)]
		to := l.rng.IntN(l.size)
		if l.only.Load() {
			to = 0
		}
		if job.Send(ctx, to, key, val) != nil {
			return
		}
		l.told.Add(1)
	}
}

func (l *liarRank) junk(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(l.rng.Uint32())
	}
	return b
}

// mutate changes, cuts or lengthens b.
func (l *liarRank) mutate(b []byte) []byte {
	b = append([]byte(nil), b...)
	for range 1 + l.rng.IntN(4) {
		switch l.rng.IntN(4) {
		case 0:
			b = append(b, l.junk(1+l.rng.IntN(16))...)
		case 1:
			b = b[:l.rng.IntN(len(b)+1)]
		default:
			if len(b) > 0 {
				b[l.rng.IntN(len(b))] ^= 1 << l.rng.IntN(8)
			}
		}
	}
	return b[:min(len(b), wireup.MaxSend)]
}
