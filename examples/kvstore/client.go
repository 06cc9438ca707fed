package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma"
)

// tearLimit is how long a reader retries a slot that is not whole. Writing one takes less
// than a microsecond, but the writer may lose its processor in that time, for milliseconds.
const tearLimit = 10 * time.Second

// client reads and writes the store. One goroutine uses it. After an error that is not one
// of the store, an answer may be in flight, and the client must not be used again.
type client struct {
	layout
	eng    *rma.Engine
	win    *rma.Window
	id     int // among those of this rank
	mem    *rma.Region
	msg    []byte
	answer [answerSize]byte
	limit  time.Duration
	torn   atomic.Uint64 // reads that were repeated
}

func newClient(eng *rma.Engine, win *rma.Window, l layout, id int) (*client, error) {
	mem, err := eng.Alloc(bucketSize)
	if err != nil {
		return nil, err
	}
	return &client{layout: l, eng: eng, win: win, id: id, mem: mem, limit: tearLimit}, nil
}

// get returns the value of a key, in memory that is valid until the next get, and its
// version. The owner of the key takes no part.
func (c *client) get(ctx context.Context, key []byte) (value []byte, version uint64, err error) {
	rank, home := c.home(key)
	peer := c.eng.Peer(rank)
	var tries attempts
	for probe := 0; probe < c.probes(); {
		if err := peer.Get(c.mem.Slice(0, bucketSize), c.remote(c.win, rank, home, probe)).Wait(ctx); err != nil {
			return nil, 0, err
		}
		e, is := search(c.mem.Bytes(), key)
		switch is {
		case found:
			return e.value, e.version, nil
		case absent:
			return nil, 0, errNotFound
		case elsewhere:
			probe++
		case unclear:
			c.torn.Add(1)
			if err := tries.more(ctx, c.limit); err != nil {
				return nil, 0, err
			}
		}
	}
	return nil, 0, errNotFound
}

// put stores a value and returns its version. Gets that begin after it see that
// version or a later one.
func (c *client) put(ctx context.Context, key, value []byte) (version uint64, err error) {
	return c.ask(ctx, opPut, key, value)
}

// remove deletes a key.
func (c *client) remove(ctx context.Context, key []byte) error {
	_, err := c.ask(ctx, opRemove, key, nil)
	return err
}

// ask requests a write from the owner.
func (c *client) ask(ctx context.Context, op byte, key, value []byte) (uint64, error) {
	if len(key) == 0 || len(key)+len(value) > maxRoom {
		return 0, errTooLong
	}
	rank, _ := c.home(key)
	peer := c.eng.Peer(rank)
	c.msg = appendRequest(c.msg[:0], op, key, value)
	answer := peer.RecvTag(answerTag|uint32(c.id), c.answer[:])
	if err := peer.SendTag(requestTag|uint32(c.id), c.msg).Wait(ctx); err != nil {
		answer.Cancel()
		return 0, err
	}
	n, err := answer.Wait(ctx)
	if err != nil {
		return 0, err
	}
	return parseAnswer(c.answer[:n])
}

// attempts bounds the time for which reads of one key are repeated.
type attempts struct {
	tries int
	since time.Time
}

// more waits for a moment before the next try, or returns why there is none.
func (p *attempts) more(ctx context.Context, limit time.Duration) error {
	p.tries++
	if p.tries == 1 {
		p.since = time.Now()
	} else if time.Since(p.since) > limit {
		return errTorn
	}
	if p.tries > 100 {
		time.Sleep(50 * time.Microsecond) // sleep: the writer may be waiting for this processor
	}
	return context.Cause(ctx)
}
