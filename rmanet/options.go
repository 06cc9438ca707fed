package rmanet

import (
	"cmp"
	"fmt"
	"time"
)

// Config configures the connections of an engine; zero fields mean the defaults.
type Config struct {
	// Window bounds the bytes of a connection that are in flight to its reader or wait for
	// it. A connection holds at most twice that memory on this side, because block sizes
	// are powers of two. Zero means 1 MiB: with less, writers wait for credit between two
	// frames on a fast link; more only lets a slow reader occupy more memory. At least 4
	// KiB, at most 1 GiB.
	Window int

	// Frame is the size of the largest message that a write is divided into. Zero means 256
	// KiB: large enough that fetching it costs more than announcing it, small enough that
	// four fit the window and overlap.
	Frame int

	// Streams is the number of connections that a peer may have opened to this side; as
	// many more wait until one ends. Zero means 65536.
	Streams int

	// Backlog is the number of connections of one listener that are set up before Accept
	// takes them. Further ones wait, and so do their dialers. Zero means 4096.
	Backlog int

	// Memory bounds two amounts for each peer separately: received bytes that are not read
	// yet, and written bytes that the peer's engine has not taken. Beyond the first, data
	// stays at the peer, on all its connections, until some is read; beyond the second,
	// writers wait. Zero means 512 MiB.
	Memory int64

	// Linger bounds how long closing the engine waits for written data to be delivered.
	// Zero means 5 seconds; negative: it does not wait.
	Linger time.Duration
}

const (
	defaultWindow  = 1 << 20
	defaultFrame   = 256 << 10
	defaultStreams = 1 << 16
	defaultBacklog = 4096
	defaultMemory  = 512 << 20
	defaultLinger  = 5 * time.Second

	minWindow = 4 << 10
	maxWindow = 1 << 30
	minMemory = 4 << 20
)

func (c Config) effective() (Config, error) {
	c.Window = cmp.Or(c.Window, defaultWindow)
	c.Frame = cmp.Or(c.Frame, defaultFrame)
	c.Streams = cmp.Or(c.Streams, defaultStreams)
	c.Backlog = cmp.Or(c.Backlog, defaultBacklog)
	c.Memory = cmp.Or(c.Memory, defaultMemory)
	c.Linger = cmp.Or(c.Linger, defaultLinger)
	c.Frame = min(c.Frame, c.Window)
	if c.Memory < max(minMemory, 4*int64(c.Frame)) || c.Window < minWindow || c.Window > maxWindow || c.Frame < 1 || c.Streams < 1 || c.Backlog < 1 {
		return c, fmt.Errorf("rmanet: invalid configuration %+v", c)
	}
	return c, nil
}
