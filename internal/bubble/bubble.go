// Package bubble lets what runs outside of testing/synctest's bubbles be used inside
// one. The goroutines of a bubble have a clock of their own, which stands still while
// one of them waits for something outside, and a channel or timer that one of them
// makes must not be touched from outside. So who may be called there waits by looking
// (Nap), measures by Now, and makes no channel that others are to use.
//
// It imports nothing of the project. Where the system has no gettimeofday, Inside is
// always false.
package bubble

import "time"

// far is more than clocks of one machine differ by, and less than what lies between
// now and 2000-01-01, when the clocks of bubbles start.
const far = 24 * time.Hour

// Inside reports whether the calling goroutine is in a bubble: its clock says that
// it is another day. It takes two readings of clocks.
func Inside() bool {
	now := Now()
	return now != 0 && time.Duration(now-time.Now().UnixNano()).Abs() > far
}
