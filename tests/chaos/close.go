//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/seed33544411/rma"
)

// Tags of messages of two ranks about a region that is to be closed.
const (
	tagOpened = 1 << 8 // number, key: write there
	tagThrown = 2 << 8 // number: the last write was refused, and the connection has been made again
)

// closing closes regions while peers write to them: after Close has returned nil the memory
// belongs to the owner alone, and the connection that the refusal broke is made again. In
// some rounds a rank is stopped for a moment, possibly in the middle of a copy.
func closing(ctx context.Context, r *round) {
	s := jobSpec{Ranks: pick(r, 2, 2, 3, 4), Fabric: pick(r, "shm", "shm", "tcp"), Root: "unix"}
	s.Work = work{Ops: []string{"close"}, Seed: r.Uint64(), Max: 1 << (12 + r.IntN(9))}
	j := begin(r, s)
	if j == nil {
		return
	}
	defer j.kill()
	for range 1 + r.IntN(8) {
		wait(ctx, r.about(100*time.Millisecond))
		if r.IntN(2) == 0 {
			p := j.procs[r.IntN(len(j.procs))]
			p.signal(syscall.SIGSTOP)
			wait(ctx, r.about(100*time.Millisecond))
			p.signal(syscall.SIGCONT)
		}
	}
	unharmed(r, j, "when regions were closed")
}

// close closes regions on one side of a pair while the other writes to them, in turn.
func (l *line) close(i uint64) error {
	if (i%2 == 0) == (l.eng.Rank() < l.p.Rank()) {
		return l.closeUnderFire(i)
	}
	return l.fire(i)
}

// closeUnderFire gives the peer a region, closes it while it is written to, and then uses
// its memory for something else.
func (l *line) closeUnderFire(i uint64) error {
	mem := make([]byte, 8+l.IntN(8*l.Max))
	reg, err := l.eng.Register(mem)
	if err != nil {
		return err
	}
	opened := reg.Key().Append(binary.LittleEndian.AppendUint64(nil, i))
	if err := l.lasting(func() error { return l.p.SendTag(tagOpened, opened).Wait(l.ctx) }); err != nil {
		return err
	}
	for mem[0] == 0 && l.ctx.Err() == nil {
		runtime.Gosched()
	}
	time.Sleep(time.Duration(l.ExpFloat64() * float64(time.Millisecond))) // sleep: any moment will do
	for err = reg.Close(); errors.Is(err, rma.ErrInUse) && l.ctx.Err() == nil; err = reg.Close() {
		time.Sleep(time.Millisecond) // sleep: until the peer is through with its copy
	}
	if err != nil {
		return err
	}
	canary := byte(0x80 | i)
	for at := range mem {
		mem[at] = canary
	}
	if err := l.hear(tagThrown, i, nil); err != nil {
		return err
	}
	l.held(untouched)
	if n := len(mem) - bytes.Count(mem, []byte{canary}); n > 0 {
		l.bad(untouched, "%d of %d bytes were written by rank %d after Close of their region had returned nil", n, len(mem), l.p.Rank())
	}
	return nil
}

// fire writes to the region that the peer announced until it is closed.
func (l *line) fire(i uint64) error {
	var key rma.Key
	if err := l.hear(tagOpened, i, key.UnmarshalBinary); err != nil {
		return err
	}
	n, mine := l.slot(), l.p.Rank()*l.slot()
	for at := range n {
		l.src.Bytes()[mine+at] = 1
	}
	var err error
	for off := 0; err == nil; off = (off + n) % key.Len() {
		err = l.p.Put(key.At(off), l.src.Slice(mine, min(n, key.Len()-off))).Wait(l.ctx)
	}
	if !errors.Is(err, rma.ErrRemoteAccess) && !errors.Is(err, rma.ErrFlushed) { // the owner may have begun the next connection
		return fmt.Errorf("put to a region that is closed: %w", err)
	}
	return l.lasting(func() error {
		if err := l.p.Reset(l.ctx); err != nil {
			return err
		}
		return l.p.SendTag(tagThrown, binary.LittleEndian.AppendUint64(nil, i)).Wait(l.ctx)
	})
}

// hear receives the peer's message about the i-th region, on this connection or the next.
func (l *line) hear(tag uint32, i uint64, parse func([]byte) error) error {
	buf := make([]byte, 8+rma.KeySize)
	n := 0
	err := l.lasting(func() (err error) {
		req := l.p.RecvTag(tag, buf)
		if n, err = req.Wait(l.ctx); err != nil && l.ctx.Err() != nil {
			req.Cancel()
			_, _ = req.Wait(context.Background())
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case n < 8 || binary.LittleEndian.Uint64(buf) != i:
		return fmt.Errorf("rank %d tells of region %d (%d bytes) instead of %d", l.p.Rank(), binary.LittleEndian.Uint64(buf), n, i)
	case parse != nil:
		return parse(buf[8:n])
	}
	return nil
}

// lasting repeats f on a new connection as long as it fails because the old one is lost.
func (l *line) lasting(f func() error) error {
	for {
		err := f()
		if err == nil || l.ctx.Err() != nil || errors.Is(err, rma.ErrPeerGone) || errors.Is(err, rma.ErrPeerHung) || errors.Is(err, rma.ErrClosed) {
			return err
		}
		if err := l.p.Reset(l.ctx); err != nil {
			return err
		}
	}
}
