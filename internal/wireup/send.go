package wireup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// delivery is a value of another rank that was received before NotifyReceived.
type delivery struct {
	from int
	key  string
	val  []byte
}

// Send calls, on rank, the function that it passed to NotifyReceived, with key and val, of at
// most MaxSend bytes. Values from one rank to another arrive in the order of the calls. Send
// returns when the other's connection has taken it: while that rank does not read, few are
// in flight, and further calls wait. A rank that is gone, or has not joined yet, does not
// receive it: *PeerGoneError.
func (j *Job) Send(ctx context.Context, rank int, key string, val []byte) error {
	if rank < 0 || rank >= j.cfg.Size {
		return fmt.Errorf("wireup: send %q: %w: %d of %d", key, ErrRank, rank, j.cfg.Size)
	}
	if err := checkSizes("send", key, val, MaxSend); err != nil {
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
			return fmt.Errorf("wireup: send %q: %w", key, ctx.Err())
		}
		return &TimeoutError{Op: "send", Key: key, After: time.Since(start), Missing: []int{rank}, Detail: fmt.Sprintf("rank %d has not read earlier sends", rank)}
	case <-j.done:
		return fmt.Errorf("wireup: send %q: %w", key, j.Err())
	}
	_, err := j.call(ctx, "send", key, message{typ: msgSend, rank: uint32(rank), key: key, val: val})
	return err
}

// places holds an element for every send to the rank without an answer; the server accepts
// no more than maxSends.
func (j *Job) places(rank int) chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.sends[rank] == nil {
		j.sends[rank] = make(chan struct{}, maxSends)
	}
	return j.sends[rank]
}

// NotifyReceived sets the function that takes what other ranks send. f must not block nor call
// the Job; it owns val. What came earlier is kept, up to a bound of two values per rank. There
// is one function per Job.
func (j *Job) NotifyReceived(f func(from int, key string, val []byte)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.onReceived = f
	for _, t := range j.early {
		f(t.from, t.key, t.val)
	}
	j.early = nil
}

func (j *Job) noteReceived(m message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case m.rank >= uint32(j.cfg.Size):
	case j.onReceived != nil:
		j.onReceived(int(m.rank), m.key, m.val)
	case len(j.early) < 2*j.cfg.Size:
		j.early = append(j.early, delivery{int(m.rank), m.key, m.val})
	}
}
