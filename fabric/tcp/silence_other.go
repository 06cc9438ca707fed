//go:build darwin || freebsd

package tcp

import (
	"context"
	"time"
)

// hush is of no use: the system itself gives up a connection that nobody
// acknowledges, and only that.
type hush struct{}

func boundSilence(fd int, peerTimeout time.Duration) error { return userTimeout(fd, peerTimeout) }

func (l *link) watchSilence(context.Context) { l.wg.Done() }
