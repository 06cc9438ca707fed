package sim

import (
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// Options describes a network. The zero value is one without delay or faults.
type Options struct {
	// Seed of everything that is drawn at random.
	Seed uint64

	// Caps of its links; zero means CapsLike("sim").
	Caps fabric.Caps

	// StepTime is how much time passes in a step. Zero means real time.
	StepTime time.Duration

	// MaxDelay and MaxCompletionDelay bound, in steps, how long a request waits
	// before it starts, and its completion after it was carried out.
	MaxDelay, MaxCompletionDelay int

	// QueueFull is the chance that a Post takes only some of its list, perhaps
	// nothing. Must be below 1.
	QueueFull float64

	// Pieces is in how many pieces at most (limit 15) a write becomes visible,
	// one a step, in random order. Aligned 8-byte words stay whole, and the last
	// one of the write comes last if Caps.LastByteLast is set. Up to 1: at once.
	Pieces int

	// Overtake is the chance that a read lets writes behind it pass.
	Overtake float64

	// ErrorRate is the chance that a request fails with StatusRemoteOp.
	ErrorRate float64

	// TargetFails takes the target's endpoint down as well when it refuses a
	// request, as queue pairs do.
	TargetFails bool

	// ConnectWaits makes Connect wait until the peer connects too. Otherwise it
	// returns at once and requests wait instead, for PeerTimeout at most.
	ConnectWaits bool
}

const maxPieces = 15

// CapsLike returns caps such as the named link has: "sim", "ibv" (no wake-up by
// plain writes), "shm", "tcp" (the target's Poll does the work). It panics for
// another name.
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
