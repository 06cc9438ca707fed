package rmanet

import (
	"fmt"
	"time"
)

// Config configures the connections of an engine; zero fields mean the defaults.
type Config struct {
	// Window is how many bytes of a connection may be on their way to, or
	// waiting for, its reader. What a connection holds on this side is at most
	// twice that: memory comes in powers of two.
	// Zero means 1 MiB: less makes writers wait for credit between two frames
	// on their way through a fast link; more only lets a slow reader hoard.
	// At least 4 KiB, at most 1 GiB.
	Window int

	// Frame is the longest message that a write is cut into. Zero means 256
	// KiB: large enough that its fetching costs more than announcing it, small
	// enough that four fit the window and overlap.
	Frame int

	// Streams is how many connections a peer may have open with this side that
	// it opened; as many more wait until one ends. Zero means 65536.
	Streams int

	// Backlog is how many connections of one listener are set up before Accept
	// takes them. Those beyond wait, and their dialers with them. Zero means 4096.
	Backlog int

	// Memory is how many bytes this side holds of one peer's that are not read, and
	// of its own that the peer's engine has not taken, each. Beyond, what the peer
	// sends stays there, on all its connections, until some of it is read; and
	// writers wait. Zero means 512 MiB.
	Memory int64

	// Linger bounds how long closing the engine waits for what was written.
	// Zero means 5 seconds, negative not at all.
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
	if c.Window == 0 {
		c.Window = defaultWindow
	}
	if c.Frame == 0 {
		c.Frame = defaultFrame
	}
	if c.Streams == 0 {
		c.Streams = defaultStreams
	}
	if c.Backlog == 0 {
		c.Backlog = defaultBacklog
	}
	if c.Memory == 0 {
		c.Memory = defaultMemory
	}
	if c.Linger == 0 {
		c.Linger = defaultLinger
	}
	c.Frame = min(c.Frame, c.Window)
	if c.Memory < max(minMemory, 4*int64(c.Frame)) || c.Window < minWindow || c.Window > maxWindow || c.Frame < 1 || c.Streams < 1 || c.Backlog < 1 {
		return c, fmt.Errorf("rmanet: bad configuration %+v", c)
	}
	return c, nil
}
