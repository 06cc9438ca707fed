package wireup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// told is a tell that was received before NotifyTold.
type told struct {
	from int
	key  string
	val  []byte
}

// Tell calls, on rank, the function that it passed to NotifyTold, with key and val, of at
// most MaxTell bytes. Tells from one rank to another arrive in the order of the calls. Tell
// returns when the other's connection has taken it: while that rank does not read, few are
// in flight, and further calls wait. A rank that is gone, or has not joined yet, does not
// receive it: *PeerGoneError.
func (j *Job) Tell(ctx context.Context, rank int, key string, val []byte) error {
	if rank < 0 || rank >= j.cfg.Size {
		return fmt.Errorf("wireup: tell %q: %w: %d of %d", key, ErrRank, rank, j.cfg.Size)
	}
	if err := checkSizes("tell", key, val, MaxTell); err != nil {
		return err
	}
	ctx, cancel := j.bound(ctx)
	defer cancel()
	start, places := time.Now(), j.places(rank)
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	case <-ctx.Done():
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("wireup: tell %q: %w", key, ctx.Err())
		}
		return &TimeoutError{Op: "tell", Key: key, After: time.Since(start), Missing: []int{rank}, Detail: fmt.Sprintf("rank %d has not read what it was told before", rank)}
	case <-j.done:
		return fmt.Errorf("wireup: tell %q: %w", key, j.Err())
	}
	_, err := j.call(ctx, "tell", key, message{typ: msgTell, rank: uint32(rank), key: key, val: val})
	return err
}

// places holds an element for every tell to the rank without an answer; the server accepts
// no more than maxTells.
func (j *Job) places(rank int) chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.tells[rank] == nil {
		j.tells[rank] = make(chan struct{}, maxTells)
	}
	return j.tells[rank]
}

// NotifyTold sets the function for tells from other ranks. f must not block nor call the
// Job; it owns val. Earlier tells are kept, up to a bound of two per rank. There is one
// function per Job.
func (j *Job) NotifyTold(f func(from int, key string, val []byte)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.onTold = f
	for _, t := range j.early {
		f(t.from, t.key, t.val)
	}
	j.early = nil
}

func (j *Job) noteTold(m message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case m.rank >= uint32(j.cfg.Size):
	case j.onTold != nil:
		j.onTold(int(m.rank), m.key, m.val)
	case len(j.early) < 2*j.cfg.Size:
		j.early = append(j.early, told{int(m.rank), m.key, m.val})
	}
}
