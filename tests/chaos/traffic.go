//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
)

// Tags of the streams of messages.
const (
	tagRecv = 1 + iota
	tagAny
	tagHandler
	tagBatch
	tagKey
)

// Words of a slot, behind two areas of work.Max bytes.
const (
	wordAdd = 64 * iota
	wordSwap
	wordAcc
	wordSignal
)

// pairwise holds the operations of a rank with each other rank. A step is one operation and
// its check; i counts steps from 0.
var pairwise = map[string]func(l *line, i uint64) error{
	"put":    (*line).put,
	"get":    (*line).get,
	"add":    (*line).add,
	"swap":   (*line).swap,
	"acc":    (*line).accumulate,
	"signal": (*line).signal,
	"recv":   func(l *line, i uint64) error { return l.send(tagRecv, i) },
	"any":    func(l *line, i uint64) error { return l.send(tagAny, i) },
	"handle": func(l *line, i uint64) error { return l.send(tagHandler, i) },
	"batch":  (*line).batch,
}

// allOps returns the names of all operations.
func allOps() []string {
	names := append(sorted(pairwise), "barrier")
	slices.Sort(names)
	return names
}

// line is one kind of operation with one peer.
type line struct {
	*rank
	*rand.Rand
	op   string
	p    *rma.Peer
	done atomic.Int64
	seen int64 // marks answered
	lies bool  // one of the two is a mutant: received data is not checked
}

// held and bad are those of rank if both sides are honest.
func (l *line) held(p promise) {
	if !l.lies {
		l.rank.held(p)
	}
}

func (l *line) bad(p promise, format string, args ...any) {
	if !l.lies {
		l.rank.bad(p, format, args...)
	}
}

// traffic starts all lines.
func (k *rank) traffic() {
	for _, op := range k.Ops {
		switch op {
		case "barrier":
			k.line(op, -1, func(*line, uint64) error { return k.eng.Barrier(k.ctx) })
			continue
		case "any":
			k.receiver(op, -1, func(buf []byte) (rma.Envelope, error) {
				return k.waitFrom(k.eng.RecvTag(tagAny, buf))
			})
		case "handle":
			k.handle()
		}
		for peer := range k.eng.Size() {
			if peer == k.eng.Rank() {
				continue
			}
			step := pairwise[op]
			switch op {
			case "close": // breaks the connection that the others use
				step = (*line).close
			case "probe": // only measures latency
				step = (*line).probe
			case "rails": // looks at the rails
				step = (*line).rails
			}
			k.line(op, peer, step)
			switch p := k.eng.Peer(peer); op {
			case "recv", "batch":
				tag := map[string]uint32{"recv": tagRecv, "batch": tagBatch}[op]
				k.receiver(op, peer, func(buf []byte) (rma.Envelope, error) {
					return k.waitFrom(p.RecvTag(tag, buf))
				})
			}
		}
	}
}

// line repeats step until the end or an error, which it reports.
func (k *rank) line(op string, peer int, step func(l *line, i uint64) error) {
	l := &line{rank: k, Rand: rand.New(rand.NewPCG(k.Seed, uint64(k.eng.Rank())<<32|uint64(peer+1))), op: op}
	if peer >= 0 {
		l.p = k.eng.Peer(peer)
		l.lies = k.lies(peer)
	}
	k.tasks.Go(func() {
		for i := uint64(0); k.ctx.Err() == nil; i++ {
			if err := step(l, i); err != nil {
				if l.lies {
					k.again(op, l.p, err)
					continue
				}
				k.failed(op, peer, err)
				break
			}
			l.done.Add(1)
			if m := k.mark.Load(); m>>16 > l.seen {
				l.seen = m >> 16
				if peer != int(m&0xffff) {
					k.say(event{Ev: "on", Op: op, Peer: peer, At: now()})
				}
			}
		}
		k.say(event{Ev: "count", Op: op, N: int(l.done.Load())})
	})
}

func (k *rank) failed(op string, peer int, err error) {
	if k.ctx.Err() == nil {
		k.say(event{Ev: "fail", Op: op, Peer: peer, Kind: kind(err), Text: err.Error(), At: now()})
	}
}

// area is the offset of one of the two areas for the line in the peer's memory, or of the
// peer's line in this rank's.
func (l *line) area(i uint64) (off int) { return l.eng.Rank()*l.slot() + int(i%2)*l.Max }

func (l *line) word(w int) rma.Remote {
	return l.at(l.eng.Rank()*l.slot() + 2*l.Max + w)
}

func (l *line) at(off int) rma.Remote { return l.keys[l.p.Rank()].At(off) }

// scratch returns n bytes of the line's own quarter of the peer's slot of source memory.
func (l *line) scratch(n int) (rma.Buffer, []byte) {
	part := map[string]int{"put": 0, "get": 1, "acc": 2, "signal": 3}[l.op]
	off := l.p.Rank()*l.slot() + part*(l.slot()/4)&^63
	return l.src.Slice(off, n), l.src.Bytes()[off : off+n]
}

// size returns a random size, small or large.
func (l *line) size() int { return min(1+l.IntN(1<<(4+l.IntN(18))), l.Max/4) }

// pattern returns the seed of the data that rank from writes for the i-th time.
func pattern(from int, i uint64) uint64 { return uint64(from)<<48 | i }

// put writes to the peer and reads back.
func (l *line) put(i uint64) error {
	n := l.size()
	b, mem := l.scratch(n)
	testutil.Fill(mem, pattern(l.eng.Rank(), i), 0)
	if err := l.p.Put(l.at(l.area(0)), b).Wait(l.ctx); err != nil {
		return err
	}
	clear(mem)
	if err := l.p.Get(b, l.at(l.area(0))).Wait(l.ctx); err != nil {
		return err
	}
	l.held(intact)
	if err := testutil.Verify(mem, pattern(l.eng.Rank(), i), 0); err != nil {
		l.bad(intact, "put %d to rank %d, read back: %v", i, l.p.Rank(), err)
	}
	return nil
}

// fillOwn fills the memory that others get: the slot of this rank, which no rank writes to.
func (k *rank) fillOwn() {
	me := k.eng.Rank()
	testutil.Fill(k.mem.Bytes()[me*k.slot():me*k.slot()+k.Max], pattern(me, 0), 0)
}

func (l *line) get(uint64) error {
	b, mem := l.scratch(l.size())
	clear(mem)
	if err := l.p.Get(b, l.at(l.p.Rank()*l.slot())).Wait(l.ctx); err != nil {
		return err
	}
	l.held(intact)
	if err := testutil.Verify(mem, pattern(l.p.Rank(), 0), 0); err != nil {
		l.bad(intact, "get from rank %d: %v", l.p.Rank(), err)
	}
	return nil
}

func (l *line) add(i uint64) error { return l.atomic(i, l.p.FetchAdd(l.word(wordAdd), 1)) }
func (l *line) swap(i uint64) error {
	return l.atomic(i, l.p.Swap(l.word(wordSwap), i+1))
}

// atomic checks that the i-th operation returned the value left by the one before.
func (l *line) atomic(i uint64, a rma.AtomicRequest) error {
	old, err := a.Wait(l.ctx)
	if err == nil {
		l.held(intact)
	}
	if err == nil && old != i {
		l.bad(intact, "%s %d at rank %d found %d", l.op, i, l.p.Rank(), old)
	}
	return err
}

func (l *line) accumulate(i uint64) error {
	if err := rma.Accumulate(l.p, l.word(wordAcc), rma.Sum, []uint64{1}).Wait(l.ctx); err != nil {
		return err
	}
	if i%16 != 0 {
		return nil
	}
	b, mem := l.scratch(8)
	if err := l.p.Get(b, l.word(wordAcc)).Wait(l.ctx); err != nil {
		return err
	}
	l.held(intact)
	if v := binary.NativeEndian.Uint64(mem); v != i+1 {
		l.bad(intact, "%d accumulates at rank %d made %d", i+1, l.p.Rank(), v)
	}
	return nil
}

// signal is a round of two ranks that write to each other: neither is more than one ahead.
func (l *line) signal(i uint64) error {
	n := min(l.size(), l.Max/4)
	b, mem := l.scratch(n + 8)
	binary.NativeEndian.PutUint64(mem, uint64(n))
	testutil.Fill(mem[8:], pattern(l.eng.Rank(), i), 1)
	area := l.area(1) + int(i%2)*l.Max/2
	if err := l.p.PutSignal(l.at(area), b, l.word(wordSignal), rma.SignalSet, i+1).Wait(l.ctx); err != nil {
		return err
	}
	mine := l.p.Rank()*l.slot() + 2*l.Max
	if _, err := l.p.WaitSignal(l.ctx, l.mem.Slice(mine+wordSignal, 8), rma.GE, i+1); err != nil {
		return err
	}
	l.held(intact)
	got := l.mem.Bytes()[l.p.Rank()*l.slot()+l.Max+int(i%2)*l.Max/2:]
	n = int(binary.NativeEndian.Uint64(got))
	if n < 0 || n > l.Max/4 {
		l.bad(intact, "signal %d of rank %d came before its data: length %d", i, l.p.Rank(), n)
		return nil
	}
	if err := testutil.Verify(got[8:8+n], pattern(l.p.Rank(), i), 1); err != nil {
		l.bad(intact, "signal %d of rank %d came before its data: %v", i, l.p.Rank(), err)
	}
	return nil
}

// header is the size of a message's header: its number.
const header = 8

func (l *line) message(tag uint32, i uint64) []byte {
	m := make([]byte, header+l.size())
	binary.LittleEndian.PutUint64(m, i)
	testutil.Fill(m[header:], pattern(l.eng.Rank(), i), uint64(tag))
	return m
}

func (l *line) send(tag uint32, i uint64) error {
	return l.p.SendTag(tag, l.message(tag, i)).Wait(l.ctx)
}

// batch sends 16 messages at once; its steps count batches.
func (l *line) batch(i uint64) error {
	b := l.p.Batch()
	for k := range uint64(16) {
		b.Add(tagBatch, l.message(tagBatch, 16*i+k))
	}
	return b.Send().Wait(l.ctx)
}

// streams checks that each rank's messages arrive in order, each once, unchanged.
type streams struct {
	mu   sync.Mutex
	next map[int]uint64 // by sender
}

func (s *streams) check(from int, tag uint32, m []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(m) < header {
		return fmt.Errorf("message of %d bytes from rank %d", len(m), from)
	}
	i := binary.LittleEndian.Uint64(m)
	if want := s.next[from]; i != want {
		s.next[from] = i
		return fmt.Errorf("message %d of rank %d with tag %d came instead of %d", i, from, tag, want)
	}
	s.next[from]++
	return testutil.Verify(m[header:], pattern(from, i), uint64(tag))
}

// waitFrom waits for a receive, and withdraws it at the end. A mutant need not answer the
// withdrawal: the engine then owns the buffer until it is closed.
func (k *rank) waitFrom(r rma.RecvRequest) (rma.Envelope, error) {
	m, err := r.WaitFrom(k.ctx)
	if err != nil && k.ctx.Err() != nil {
		r.Cancel()
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if k.Mutant > 0 {
			ctx, cancel = context.WithTimeout(ctx, tellLimit)
		}
		defer cancel()
		if _, err := r.Wait(ctx); errors.Is(err, context.DeadlineExceeded) {
			k.say(event{Ev: "count", Op: "receives that a mutant kept", N: 1})
		}
	}
	return m, err
}

// receiver receives messages until the end or an error.
func (k *rank) receiver(op string, peer int, take func([]byte) (rma.Envelope, error)) {
	s := &streams{next: map[int]uint64{}}
	k.tasks.Go(func() {
		buf := k.guard.fence(header + k.Max)
		for n := 0; ; n++ {
			m, err := take(buf)
			if err == nil {
				if k.lies(m.From) {
					continue
				}
				k.held(inOrder)
				err = s.check(m.From, m.Tag, buf[:m.Len])
				if err != nil {
					k.bad(inOrder, "%s: %v", op, err)
				}
				continue
			}
			if peer >= 0 && k.lies(peer) && k.ctx.Err() == nil {
				k.again("take "+op, k.eng.Peer(peer), err)
				continue
			}
			if short := (*rma.ShortBufferError)(nil); k.Mutant > 0 && errors.As(err, &short) {
				// A mutant's message that is too long stays until a receive takes it, before
				// those of honest ranks.
				k.say(event{Ev: "count", Op: "beside a mutant: " + kind(err), N: 1})
				buf = k.guard.fence(short.Need)
				continue
			}
			if !errors.Is(err, context.Canceled) {
				k.failed("take "+op, peer, err)
			}
			k.say(event{Ev: "count", Op: "take " + op, N: n})
			return
		}
	})
}

// handle checks messages in a handler with workers.
func (k *rank) handle() {
	s := &streams{next: map[int]uint64{}}
	h, err := k.eng.HandleWith(rma.HandlerOptions{Tag: tagHandler, Workers: 2}, func(m rma.Envelope, parts [][]byte) {
		if k.lies(m.From) {
			return
		}
		k.held(inOrder)
		if err := s.check(m.From, m.Tag, slices.Concat(parts...)); err != nil {
			k.bad(inOrder, "handler: %v", err)
		}
	})
	if err != nil {
		k.failed("take handle", -1, err)
		return
	}
	k.tasks.Go(func() {
		<-k.ctx.Done()
		h.Close()
	})
}
