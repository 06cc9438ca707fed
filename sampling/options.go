package sampling

import (
	"cmp"
	"errors"
	"fmt"
	"github.com/seed33544411/rma/internal/enum"
	"math/bits"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/logp"
)

// Mode determines the origin of parameters.
type Mode uint8

// Modes. If the two sides differ, Off has precedence, then Force.
const (
	Cached Mode = iota // the saved profile if both sides hold the same valid one, else measure
	Force              // always measure
	Off                // neither: Defaults
	numModes
)

var modeNames = [numModes]string{"cached", "force", "off"}

// String returns the name of the mode.
func (m Mode) String() string { return enum.Name("mode", modeNames[:], m) }

// ParseMode is the inverse of String.
func ParseMode(s string) (Mode, error) {
	if m, ok := enum.Parse[Mode](modeNames[:], s); ok {
		return m, nil
	}
	return 0, fmt.Errorf("%w: mode %q, want cached, force or off", ErrOptions, s)
}

// Defaults of Options, and bounds.
const (
	// DefaultBudget is enough for three or more samples of every point on a software device
	// (10 µs per operation, 600 MB/s), and little compared with the start of a job.
	DefaultBudget = 50 * time.Millisecond
	// MaxBudget bounds how long a peer may make this side wait.
	MaxBudget = 10 * time.Second

	// DefaultMaxSize is a size at which the curves of all links measured so far are
	// straight lines, as logp continues them. Twice as much would double the time of the
	// whole sampling.
	DefaultMaxSize = 1 << 20
	minMaxSize     = 4 << 10
	maxMaxSize     = 64 << 20

	// Tolerance is how far a measured point may lie from the straight line between its
	// neighbours before points are added, and the relative standard error of a point with
	// confidence ½, as fractions of the measured time.
	Tolerance = 0.05

	// DefaultStepTimeout is long compared with a time slice of every other process on a
	// busy machine, and short compared with a user's patience.
	DefaultStepTimeout = 5 * time.Second
)

// Options configures a Session. The zero value is usable, except that exactly one of the
// two sides must set First.
type Options struct {
	// First is set on one side only, by convention the lower rank: it measures first, and
	// decides whether a saved profile is plausible.
	First bool

	// EP is the EndpointOptions.ID of the endpoint.
	EP uint32

	// Other receives completions of other endpoints of the link. Nil drops them: the link
	// is not used for anything else meanwhile.
	Other func(*fabric.Completion)

	Mode Mode

	// Budget bounds the total time of both sides' measurements, on this side's clock; it is
	// exceeded by at most one operation. Zero means DefaultBudget; the smaller budget of
	// the sides is used. Waiting for a slow peer is not included, see StepTimeout.
	Budget time.Duration

	// MaxBytes bounds the number of bytes that both sides' measurements move; each side
	// keeps to half of its own bound, and exceeds it by at most one operation. Zero: no bound.
	MaxBytes int64

	// Background lets this side sleep while it waits for the peer, if the link wakes it: for
	// measurements beside a program that computes. It costs the precision of waking up,
	// some 50 µs, in waits of more than 200 µs.
	Background bool

	// MaxSize is the largest measured size, in bytes, a power of two from 4 KiB to 64 MiB.
	// Zero means DefaultMaxSize; the smaller size of the sides is used. The session takes
	// twice that memory while it measures, and 68 KiB before.
	MaxSize int

	// StepTimeout ends every wait for the peer, beyond the time that the peer
	// may spend on its measurement. Zero means DefaultStepTimeout.
	StepTimeout time.Duration

	// Store holds saved profiles; nil means that none are read or written.
	Store *Store
	// Later leaves saving to the caller, which may add to the result: see Session.Save.
	Later bool
	// Key identifies the profile; Link and Version are set if empty.
	Key Key

	// Locked: the goroutine of Run is locked to its thread, and no other goroutine of the
	// process is needed meanwhile. Waits then do not call runtime.Gosched, which costs such
	// a goroutine two switches of threads.
	Locked bool

	// For tests: time in ns, and a replacement for spinning and napping.
	clock func() int64
	pause func()
}

// withDefaults returns the effective options.
func (o Options) withDefaults(l fabric.Link) (Options, error) {
	o.Budget = cmp.Or(o.Budget, DefaultBudget)
	o.MaxSize = cmp.Or(o.MaxSize, DefaultMaxSize)
	o.StepTimeout = cmp.Or(o.StepTimeout, DefaultStepTimeout)
	if o.Key.Link == "" {
		o.Key.Link = l.Name()
	}
	o.Key.Version = cmp.Or(o.Key.Version, Version)
	switch {
	case o.Mode >= numModes:
		return o, fmt.Errorf("%w: %v", ErrOptions, o.Mode)
	case o.Budget < time.Millisecond || o.Budget > MaxBudget:
		return o, fmt.Errorf("%w: budget %v, want 1ms to %v", ErrOptions, o.Budget, MaxBudget)
	case o.MaxBytes < 0:
		return o, fmt.Errorf("%w: at most %d bytes", ErrOptions, o.MaxBytes)
	case !goodSize(o.MaxSize):
		return o, fmt.Errorf("%w: largest size %d, want a power of two from %d to %d", ErrOptions, o.MaxSize, minMaxSize, maxMaxSize)
	case o.StepTimeout < time.Millisecond:
		return o, fmt.Errorf("%w: step time-out %v, want 1ms or more", ErrOptions, o.StepTimeout)
	}
	if err := o.Key.validate(); err != nil {
		return o, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return o, nil
}

func goodSize(n int) bool {
	return n >= minMaxSize && n <= maxMaxSize && bits.OnesCount(uint(n)) == 1
}

// ticks is the default clock: the cycle counter, because reading the clock is a system call
// on some kernels. The first use in a process calibrates it, which takes about 10 ms and
// does not count against a budget.
func ticks() func() int64 {
	ns, t0 := cpu.NsPerTick(), cpu.Ticks()
	return func() int64 { return int64(float64(cpu.Ticks()-t0) * ns) }
}

// Sentinels for errors.Is. Failures of the link keep the link's own errors
// (fabric.ErrPeerGone and so on).
var (
	// ErrOptions means that an Options value is invalid.
	ErrOptions = errors.New("invalid sampling options")

	// ErrSetup means that a set-up blob is malformed or exceeds this side's limits.
	ErrSetup = errors.New("bad sampling set-up")

	// ErrProtocol means that the peer sent something that no correct peer sends.
	ErrProtocol = errors.New("sampling peer violated the protocol")

	// ErrTimeout means that a step did not end in time: the peer hangs, or died without the
	// link noticing.
	ErrTimeout = errors.New("sampling step timed out")

	// ErrPeerFailed is wrapped by the errors that the peer reports as its own.
	ErrPeerFailed = errors.New("sampling failed at the peer")

	// ErrState means that a call is out of order: Run before Connect, Connect twice.
	ErrState = errors.New("sampling session is not in that state")

	// ErrUnsure is the reason for not saving a measurement that had too few results within
	// its budget, because the processors were busy.
	ErrUnsure = errors.New("too little was measured to be kept")

	// ErrNoProfile means that a profile does not exist.
	ErrNoProfile = errors.New("no saved profile")

	// ErrStale means that a profile is not valid any longer: age, version, link.
	ErrStale = errors.New("saved profile is stale")

	// ErrProfile means that the content of a profile is invalid.
	ErrProfile = errors.New("saved profile is corrupt")
)

// Defaults returns parameters for a link that was not measured: round figures for the kind
// of link, for mode off. Their confidence is 0. They are equal on every host, so that peers
// decide alike.
func Defaults(link string) logp.Params {
	d := struct{ g, ls, lh, post, perByte, copyByte, register float64 }{register: 20_000}
	switch link {
	case "shm":
		d.g, d.ls, d.lh, d.post, d.perByte, d.copyByte = 20, 150, 50, 60, 0.1, 0.1
		d.register = 2000 // process_vm_readv
	case "ibv":
		// A 100 Gbit/s adapter: 0.2 µs between operations (on every card in the source), 1
		// µs one way.
		d.g, d.ls, d.lh, d.post, d.perByte, d.copyByte = 150, 900, 900, 50, 0.1, 0.1
	default: // sockets
		d.g, d.ls, d.lh, d.post, d.perByte, d.copyByte = 500, 12000, 12000, 2000, 0.4, 0.1
	}
	line := func(fixed, slope float64) logp.Curve {
		const far = 1 << 20
		c, err := logp.NewCurve([]logp.Point{{Size: 0, NS: fixed}, {Size: far, NS: fixed + slope*far}})
		if err != nil {
			panic(err) // constants of this file
		}
		return c
	}
	return logp.Params{
		Os: line(0, d.perByte), Or: line(50, 0), C: line(5, d.copyByte), R: line(d.register, 0.05),
		G: d.g, Ls: d.ls, Lh: d.lh, CPU: logp.Posting{A: d.post, B: 20},
	}
}
