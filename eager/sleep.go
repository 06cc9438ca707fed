package eager

import "time"

// Sleep sets or clears the sleep bit at the peer, see the package comment.
// done is false if the word could not be posted yet: poll and call again.
// Where a plain write wakes this side (Caps.WakesOnWrite) there is nothing to
// do and done is true.
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

// Backoff returns the time-outs of a reader that sleeps although a write that
// does not wake it may be under way: short at first, doubling. The zero value
// is ready.
type Backoff struct{ next time.Duration }

const (
	// firstNap is longer than a write is under way on an idle local network
	// (some 10 µs), so that most naps are the last; and short enough that a
	// program in which the race happens at every message still moves.
	firstNap = 50 * time.Microsecond

	// longestNap bounds what a message can lose that was under way for long.
	// Ten wake-ups a second cost nothing; fewer would add noticeable delay
	// where a network retransmits for a second.
	longestNap = 100 * time.Millisecond
)

// Next returns how long to sleep now.
func (b *Backoff) Next() time.Duration {
	d := max(b.next, firstNap)
	b.next = min(2*d, longestNap)
	return d
}

// Reset starts over: something arrived.
func (b *Backoff) Reset() { b.next = 0 }
