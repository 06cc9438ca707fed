//go:build darwin || freebsd

package tcp

import (
	"context"
	"time"
)

// silence is of no use: the system itself gives up a connection that nobody
// acknowledges, and only that.
type silence struct{}

func (*silence) over(int, time.Time, time.Duration) bool { return false }

func boundSilence(fd int, peerTimeout time.Duration) error { return userTimeout(fd, peerTimeout) }

func (l *link) watchSilence(context.Context) { l.wg.Done() }
