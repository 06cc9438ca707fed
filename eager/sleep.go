package eager

import "time"

// Sleep sets or clears the sleep bit at the peer: see the package comment. done is false
// if the word could not be posted yet: poll and call again. If a plain write wakes this
// side (Caps.WakesOnWrite), Sleep has no effect and done is true.
//
// Hot path.
func (c *Channel) Sleep(on bool) (done bool, err error) {
	if c.err != nil {
		return false, c.err
	}
	if !c.live || c.wakes {
		return true, nil
	}
	c.rx.SetSleep(on)
	return c.Progress(false)
}

// Backoff returns the time-outs of a reader that sleeps while a write that does not wake it
// may be in flight: short at first, doubling. The zero value is ready.
type Backoff struct{ next time.Duration }

const (
	// firstNap is longer than a write is in flight on an idle local network (about 10 µs),
	// so that most naps are the last one, and short enough that a program in which the race
	// occurs at every message still makes progress.
	firstNap = 50 * time.Microsecond

	// longestNap bounds the additional delay of a message that was in flight for long. Ten
	// wake-ups a second cost nothing; fewer would add noticeable delay on a network that
	// retransmits for a second.
	longestNap = 100 * time.Millisecond
)

// Next returns how long to sleep now.
func (b *Backoff) Next() time.Duration {
	d := max(b.next, firstNap)
	b.next = min(2*d, longestNap)
	return d
}

// Reset starts over, after something arrived.
func (b *Backoff) Reset() { b.next = 0 }
