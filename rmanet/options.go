package rmanet

import "fmt"

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
	// it opened. Zero means 4096.
	Streams int

	// Backlog is how many connections may wait for Accept of one listener.
	// Zero means 128.
	Backlog int
}

const (
	defaultWindow  = 1 << 20
	defaultFrame   = 256 << 10
	defaultStreams = 4096
	defaultBacklog = 128

	minWindow = 4 << 10
	maxWindow = 1 << 30
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
	if c.Window < minWindow || c.Window > maxWindow || c.Frame < 1 || c.Streams < 1 || c.Backlog < 1 {
		return c, fmt.Errorf("rmanet: bad configuration %+v", c)
	}
	return c, nil
}
