// Package poller posts requests on one endpoint and waits for them, for programs that
// measure a link by themselves (sampling, internal/bench). An application's requests go
// through the progress engine instead.
//
// It imports fabric, internal/cpu and internal/event. A wait spins, then yields. It ends by
// the awaited event, a failure of the link, its context or its limit.
package poller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/event"
)

// Poller drives one endpoint. It belongs to the owner of the link; one goroutine at a
// time. The zero value is usable once Link, EP, Ctx, Now and Expired are set.
type Poller struct {
	Link fabric.Link
	EP   fabric.Endpoint
	ID   uint32 // EndpointOptions.ID of EP

	// Other is called with the completions of other endpoints of the link. Nil drops them.
	Other func(*fabric.Completion)

	// Claim returns true for completions of requests posted on EP by others, and processes
	// them. It is called with successful completions. Nil: there are none.
	Claim func(*fabric.Completion) bool

	// Sent counts the signalled requests that were posted, Acked those that have
	// completed.
	Sent, Acked uint64

	// Yields counts the times that waits gave the processor away.
	Yields int

	// IDs holds the identifiers of the requests that the last Poll reported.
	IDs [batch]uint64

	// Broken is the first failure; every Poll returns it from then on.
	Broken error

	// Ctx ends waits; they fail with its cause.
	Ctx context.Context

	// Now is a clock, in ns.
	Now func() int64

	// Limit bounds a wait, from the time when it is first found to be long. Expired is the
	// error of a wait that took longer.
	Limit   time.Duration
	Expired func(took time.Duration) error

	// NapAfter is the time for which a wait yields before it sleeps on the link's descriptor,
	// for NapTime at a time. Zero: it does not sleep. Not every link wakes on a plain write.
	NapAfter, NapTime time.Duration

	// PollEach makes every Miss poll: the link needs this side's polls.
	PollEach bool

	// Pause, if not nil, is called instead of spinning, to advance simulated time.
	Pause func()

	Spin cpu.Spinner

	misses int
	long   bool  // the wait has been found to be long, at since
	since  int64 // ns
	cs     [batch]fabric.Completion
}

// batch is the largest number of completions per Poll.
const batch = 32

// Post posts all of wrs, of which signalled ask for a completion.
// Hot path.
func (p *Poller) Post(wrs []fabric.WR, signalled int) error {
	p.Sent += uint64(signalled)
	n, err := p.EP.Post(wrs)
	if err == nil && n == len(wrs) {
		return nil
	}
	return p.postRest(wrs[n:], err)
}

// postRest continues Post when the queue was full.
func (p *Poller) postRest(wrs []fabric.WR, err error) error {
	for p.Begin(); ; {
		if err != nil {
			return p.Because(err)
		}
		if len(wrs) == 0 {
			return nil
		}
		if _, err = p.Poll(); err == nil {
			err = p.Rest()
		}
		if err == nil {
			var n int
			n, err = p.EP.Post(wrs)
			wrs = wrs[n:]
		}
	}
}

// Poll takes completions and stores the identifiers of the n requests among them in IDs.
// Hot path.
func (p *Poller) Poll() (n int, err error) {
	if p.Broken != nil {
		return 0, p.Broken
	}
	k := p.Link.Poll(p.cs[:])
	for i := range p.cs[:k] {
		c := &p.cs[i]
		switch {
		case c.EP != p.ID:
			if p.Other != nil {
				p.Other(c)
			}
		case c.Status != fabric.StatusOK || c.Op == fabric.OpDown:
			if p.Broken == nil { // the first gives the reason
				p.Broken = p.reason(c)
			}
		case c.Op == fabric.OpNotify || p.Claim != nil && p.Claim(c):
		default:
			p.IDs[n] = c.ID
			n++
		}
	}
	p.Acked += uint64(n)
	return n, p.Broken
}

// reason converts a failed completion to an error.
func (p *Poller) reason(c *fabric.Completion) error {
	if c.Op == fabric.OpDown {
		if err := p.EP.Err(); err != nil {
			return err
		}
		return &fabric.OpError{Op: c.Op, Status: fabric.StatusPeerGone, Endpoint: c.EP, Vendor: c.Vendor}
	}
	return c.Err()
}

// Because returns the reason why the endpoint is down if there is one, else err.
func (p *Poller) Because(err error) error {
	if why := p.EP.Err(); why != nil && errors.Is(err, fabric.ErrDown) {
		return fmt.Errorf("%w: %w", fabric.ErrDown, why)
	}
	return err
}

// Drain waits until every signalled request has completed.
func (p *Poller) Drain() error {
	for p.Begin(); p.Acked != p.Sent; {
		n, err := p.Poll()
		if err == nil && n == 0 {
			err = p.Rest()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Begin starts a wait.
func (p *Poller) Begin() {
	p.Spin.Reset()
	p.misses, p.long = 0, false
}

// missPolls is the number of misses per poll, if peers seldom need this side's polls.
const missPolls = 16

// Miss is called after a fruitless read of memory that the peer writes: it lets the link
// make progress and waits a moment. Completions found are only counted.
// Hot path.
func (p *Poller) Miss() error {
	p.misses++
	if p.PollEach || p.misses%missPolls == 0 {
		if _, err := p.Poll(); err != nil {
			return err
		}
	}
	return p.Rest()
}

// Rest waits a moment after a fruitless poll; it returns an error when the wait is over.
// Hot path.
func (p *Poller) Rest() error {
	if p.Pause != nil {
		p.Pause()
		return p.Late()
	}
	y := p.Spin.Wait()
	if y > 0 {
		p.Yields++
	}
	if y&63 == 1 {
		return p.Late()
	}
	return nil
}

// Late is the slow part of Rest: it checks for cancellation and the limit, and naps.
func (p *Poller) Late() error {
	if p.Ctx.Err() != nil {
		return context.Cause(p.Ctx)
	}
	now := p.Now()
	if !p.long {
		p.long, p.since = true, now
	}
	took := time.Duration(now - p.since)
	switch {
	case took > p.Limit:
		return p.Expired(took)
	case p.NapAfter > 0 && took > p.NapAfter:
		return p.Sleep(p.NapTime)
	}
	return nil
}

// Sleep waits for an event of the link, at most d.
func (p *Poller) Sleep(d time.Duration) error {
	ok, err := p.Link.Arm()
	if err != nil {
		return err
	}
	if ok {
		_, err = event.Wait(p.Link.FD(), d)
	}
	p.Link.Disarm()
	return err
}
