package rma

import (
	"errors"
	"time"

	"github.com/seed33544411/rma/internal/progress"
)

// closers is a list of functions that release opened resources.
type closers []func() error

// add makes close call end before the functions added earlier.
func (c *closers) add(end func() error) { *c = append(*c, end) }

// close calls each function added once, the last first.
func (c *closers) close() error {
	var errs []error
	for n := len(*c) - 1; n >= 0; n-- {
		end := (*c)[n]
		*c = (*c)[:n]
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

const (
	// closeTime bounds how long Close waits for links to return requests, unless PeerTimeout
	// is longer: until then a link repeats what was lost.
	closeTime = 5 * time.Second

	// longestRound is the most of a limit that one round uses up. A longer round is one in which
	// this process was stopped or starved, so that it could not see what arrived.
	longestRound = 20 * time.Millisecond
)

// await polls the links until done, which is called as their owner, returns true, or limit
// has passed. It returns the last result of done.
func await(prog *progress.Engine, limit time.Duration, done func() bool) (ok bool) {
	left := limit
	for last := time.Now(); ; {
		prog.Do(func() { ok = done() })
		now := time.Now()
		left -= min(now.Sub(last), longestRound)
		last = now
		switch {
		case ok || left < 0:
			return ok
		case !prog.Progress():
			time.Sleep(20 * time.Microsecond)
		}
	}
}
