//go:build darwin || freebsd

package tcp

import (
	"cmp"
	"time"

	"golang.org/x/sys/unix"
)

// check accepts only values that keep the system's default.
func (c Congestion) check() (Congestion, error) {
	for i := range c {
		c[i] = cmp.Or(c[i], KernelCongestion)
		if err := setCongestion(-1, c[i]); err != nil {
			return c, err
		}
	}
	return c, nil
}

func setCongestion(_ int, name string) error {
	if name == KernelCongestion {
		return nil
	}
	return &CongestionError{Name: name, Err: unix.ENOPROTOOPT}
}

func congestionOf(int) string { return "" }

// roundTrip is not known: every path between hosts counts as near.
func roundTrip(int) time.Duration { return 0 }

func lowWater(int, int) error { return nil }

// silence is not used: the system itself gives up a connection without acknowledgements,
// and only such a one.
type silence struct{}

const checksSilence = false

func (*silence) over(int, time.Time, time.Duration) bool { return false }

func boundSilence(fd int, peerTimeout time.Duration) error { return userTimeout(fd, peerTimeout) }
