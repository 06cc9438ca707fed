package rma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/wireup"
)

// seldom is the number of barriers that use the job's server, which needs no connections:
// it suffices for programs that synchronise only at their start and end. The next barrier
// exchanges keys, and later ones run from rank to rank.
const seldom = 3

// A word of a barrier that cannot complete is broken, with the rank at fault in the low
// bits: that rank is gone, or alive but cut off from another rank.
const (
	broken = 1 << 63
	cutOff = 1 << 62
)

// barrier is the state of one rank in the barriers of its job. In round k of ⌈log2 n⌉ a
// rank signals the rank 2^k above it, and waits for the signal of the rank 2^k below: after
// the last round it has heard from all ranks (Hensgen, Finkel, Manber: "Two algorithms for
// barrier synchronization", 1988). The words count barriers, so they are never cleared: a
// rank that is ahead writes a larger number.
type barrier struct {
	eng     *Engine
	turn    chan struct{}    // held by the goroutine whose turn it is
	count   uint64           // barriers that have ended, of those through the server
	x       *wireup.Exchange // the barrier under way through the server
	mem     *Region          // of the words, until the census has decided whether they are used
	words   *Window          // word k: of round k. Nil: barriers go through the server
	seq     uint64           // of the barrier under way, or of the last one
	under   bool             // a barrier is under way; it continues after a call whose context ended
	round   int              // of the barrier under way
	signals []Request        // of the barrier under way, by round: not known to be complete
	err     error            // why there are no more barriers
	why     uint64           // the same as the value of words

	insist bool // for tests: from rank to rank, even on oversubscribed hosts
}

// meet performs one barrier.
func (b *barrier) meet(ctx context.Context) error {
	e := b.eng
	switch {
	case b.err != nil && (b.words == nil || b.cutOff()):
		return b.err
	case b.err != nil:
		return b.again(ctx)
	case b.count == seldom:
		return b.census(ctx)
	case b.words == nil:
		_, err := b.viaServer(ctx, nil)
		return err
	}
	if !b.under {
		b.under, b.round = true, 0
		b.seq++
	}
	n, me := e.Size(), e.Rank()
	for ; 1<<b.round < n; b.round++ {
		k := b.round
		up, down := (me+1<<k)%n, (me-1<<k%n+n)%n
		b.signal(k, up)
		v, err := e.Peer(down).WaitSignal(ctx, b.words.Slice(8*k, 8), GE, b.seq)
		if v >= broken {
			err = b.brokenBy(v)
		}
		if err != nil {
			return b.breaks(err)
		}
	}
	b.under = false
	// All ranks have entered. The signals to higher ranks must be placed before this rank
	// leaves; a rank that no longer waits for its signal has it.
	for _, r := range b.signals {
		if err := r.Wait(ctx); err != nil && ctx.Err() != nil {
			r.Then(func(error) {})
		}
	}
	b.signals = b.signals[:0]
	return nil
}

// signal signals the rank up in round k. A call that continues the barrier does so again,
// as the connection may have been lost meanwhile, unless the signal is still on its way.
func (b *barrier) signal(k, up int) {
	if k < len(b.signals) {
		if !b.signals[k].Done() {
			return
		}
		b.signals[k].Then(func(error) {})
		b.signals = b.signals[:k]
	}
	b.signals = append(b.signals, tell(b.eng.Peer(up), b.words.At(up, 8*k), b.seq))
}

// viaServer performs one barrier through the job's server, and exchanges mine with all
// ranks. If ctx ends, the next call continues it.
func (b *barrier) viaServer(ctx context.Context, mine []byte) (all [][]byte, err error) {
	e := b.eng
	if b.x == nil {
		if b.x, err = e.job.Exchange("barrier", "rma/barrier", mine); err != nil {
			return nil, e.jobError("barrier", err)
		}
	}
	all, err = attending(ctx, e, "barrier", b.x, b.x.Wait)
	err = e.jobError("barrier", err)
	if b.x.Over() {
		b.x, b.err = nil, err
	}
	if err == nil {
		b.count++
	}
	return all, err
}

// census is a barrier that determines for all ranks whether a host has more ranks than
// processors. In that case each round from rank to rank costs a turn of the scheduler: 4
// ranks on 2 processors need 200 µs, against 60 µs through the server, which wakes each
// rank only once; 2 ranks need 1 µs, against 45 µs through the server (BenchmarkBarrier).
// A rank that is bound to some processors counts by the ranks that share these, unless its
// GOMAXPROCS is less: then a quota, or its user, restricts it further.
// If no host is oversubscribed and all ranks have memory for the words, barriers run from
// rank to rank from now on.
func (b *barrier) census(ctx context.Context) error {
	e := b.eng
	var mine []byte
	if b.x == nil {
		var err error
		if b.mem, err = e.Alloc(8 * bits.UintSize); err != nil {
			mine = make([]byte, KeySize) // no key: all go through the server
		} else {
			k := b.mem.Key()
			mine = k.Append(mine)
		}
		mine = fmt.Appendf(mine, "%d %s", runtime.GOMAXPROCS(0), links.HostID())
	}
	all, err := b.viaServer(ctx, mine)
	if err != nil && b.err == nil {
		return err // the next call continues
	}
	words := &Window{eng: e, mem: b.mem, owned: true, keys: make([]Key, len(all))}
	use := err == nil
	ranks := map[string]int{}
	for r := 0; r < len(all) && use; r++ {
		if words.keys[r], err = keyOf(r, all[r][:min(KeySize, len(all[r]))]); err != nil {
			use, err = false, nil
			break
		}
		cpus, host, _ := strings.Cut(string(all[r][KeySize:]), " ")
		ranks[host]++
		n, bad := strconv.Atoi(cpus)
		use = b.insist || bad == nil && (ranks[host] <= n || b.bound(r, n))
	}
	if use {
		b.words = words
	} else if b.mem != nil {
		_ = b.mem.Close()
	}
	b.mem = nil
	return err
}

// bound reports whether a rank is bound to at most n processors that it shares with no other.
func (b *barrier) bound(rank, n int) bool {
	load, cpus := b.eng.bringup.Load(rank) // looks at all ranks
	return cpus > 0 && cpus <= n && load <= cpu.OneEach
}

// breaks sends the rank at fault, if err names one, to the other ranks: each may be
// waiting for the signal of a rank that waits as well.
func (b *barrier) breaks(err error) error {
	var pe *PeerError
	if !errors.As(err, &pe) {
		return err // concerns this rank only, and is not permanent
	}
	b.err = &PeerError{Rank: pe.Rank, Op: "barrier", Err: pe.Err}
	b.why = broken | uint64(pe.Rank)
	if !errors.Is(err, ErrPeerGone) {
		b.why |= cutOff
	}
	b.warn()
	return b.err
}

// warn has the barrier of ranks that wait for this one break.
func (b *barrier) warn() {
	e := b.eng
	n, me := e.Size(), e.Rank()
	for k := 0; 1<<k < n; k++ {
		up := (me + 1<<k) % n
		tell(e.Peer(up), b.words.At(up, 8*k), b.why).Then(func(error) {})
	}
}

// cutOff reports whether this rank has lost its connection with another.
func (b *barrier) cutOff() (is bool) {
	b.eng.prog.Do(func() { is = slices.ContainsFunc(b.eng.peers, func(p *Peer) bool { return p.down != nil && !p.own }) })
	return is
}

// again continues, on a rank that is not or no longer cut off, after a barrier from rank to
// rank that broke. It uses the server, and so do later barriers, because the values of the
// other ranks' words are unknown. Each rank brings the number of its barrier; a rank that
// is one barrier ahead has seen that all entered the one before. It may not know that the
// barrier broke, because this one could not tell it then.
func (b *barrier) again(ctx context.Context) error {
	e := b.eng
	var err error
	if b.x == nil {
		b.warn()
		if b.x, err = e.job.Exchange("barrier", "rma/barrier again", binary.LittleEndian.AppendUint64(nil, b.seq)); err != nil {
			return e.jobError("barrier", err)
		}
	}
	all, err := attending(ctx, e, "barrier", b.x, b.x.Wait)
	if err = e.jobError("barrier", err); !b.x.Over() {
		return err
	}
	b.x, b.words, b.err, b.under = nil, nil, err, false
	for _, r := range b.signals {
		r.Then(func(error) {})
	}
	b.signals = nil
	if err != nil {
		return err
	}
	first, last := b.seq, b.seq
	for r, v := range all {
		if len(v) != 8 {
			b.err = &PeerError{Rank: r, Op: "barrier", Err: ErrPeerMisbehaves}
			return b.err
		}
		n := binary.LittleEndian.Uint64(v)
		first, last = min(first, n), max(last, n)
	}
	if b.seq == first {
		return nil
	}
	_, err = b.viaServer(ctx, nil)
	return err
}

// brokenBy returns the error that a broken word stands for.
func (b *barrier) brokenBy(word uint64) error {
	rank, err := int(word&^(broken|cutOff)), ErrPeerGone
	if word&cutOff != 0 {
		err = fmt.Errorf("%w: another rank lost its connection with this rank", ErrFlushed)
	}
	if uint(rank) >= uint(b.eng.Size()) {
		return &PeerError{Rank: AnyRank, Op: "barrier", Err: ErrPeerMisbehaves}
	}
	return &PeerError{Rank: rank, Op: "barrier", Err: err}
}
