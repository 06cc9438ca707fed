package sim

import (
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// Options describes a network. The zero value is one without delay or faults.
type Options struct {
	// Seed of all random numbers.
	Seed uint64

	// Caps of its links; zero means CapsLike("sim").
	Caps fabric.Caps

	// StepTime is the duration of a step. Zero means real time.
	StepTime time.Duration

	// MaxDelay and MaxCompletionDelay bound, in steps, the time before a request starts and
	// the time from its execution to its completion.
	MaxDelay, MaxCompletionDelay int

	// QueueFull is the probability that a Post accepts only a part of its list, possibly
	// nothing. Must be below 1.
	QueueFull float64

	// Pieces is the largest number of pieces (limit 15) in which a write becomes visible, one
	// a step, in random order. Aligned 8-byte words stay whole, and the last one of the write
	// comes last if Caps.LastByteLast is set. Up to 1: at once.
	Pieces int

	// Overtake is the probability that a read lets writes behind it pass.
	Overtake float64

	// ErrorRate is the probability that a request fails with StatusRemoteOp.
	ErrorRate float64

	// TargetFails takes the target's endpoint down as well when it refuses a request, like
	// queue pairs.
	TargetFails bool

	// ConnectWaits makes Connect wait until the peer connects too. Otherwise Connect returns
	// at once and requests wait for the peer, at most for PeerTimeout.
	ConnectWaits bool
}

const maxPieces = 15

// CapsLike returns capabilities like those of the named link: "sim", "ibv" (no wake-up by
// plain writes), "shm", "tcp" (the target's Poll executes requests). It panics for another
// name.
func CapsLike(name string) fabric.Caps {
	c := fabric.Caps{
		MaxSGE: 16, MaxInline: 256, MaxMessage: 1 << 30, MaxReads: 16,
		LastByteLast: true, WakesOnWrite: true, AtomicCPU: true,
	}
	switch name {
	case "sim":
	case "ibv":
		c.MaxSGE, c.WakesOnWrite, c.AtomicCPU = 30, false, false
	case "shm":
		c.MaxSGE, c.MaxInline, c.MapsAlloc = 64, 4096, true
	case "tcp":
		c.MaxSGE, c.TargetProgress = 64, true
	default:
		panic(fmt.Sprintf("sim: no caps like %q", name))
	}
	return c
}
