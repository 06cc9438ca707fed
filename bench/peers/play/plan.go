package play

import (
	"errors"
	"fmt"
	"slices"
)

// Plan is the measurement that both sides run.
type Plan struct {
	Net   string `json:"net"`             // kind of connection
	Test  string `json:"test"`            // lat, bw or rate
	Size  int    `json:"size"`            // bytes of a message
	Iters int    `json:"iters"`           // messages of a stream, or round trips
	Batch int    `json:"batch"`           // messages that go on their way together
	Unary bool   `json:"unary,omitempty"` // calls instead of a stream, of a library that has both
}

// ErrPlan says that a plan cannot be run.
var ErrPlan = errors.New("cannot measure that")

// Bounds of a plan; the server takes it from a socket.
const (
	MaxSize  = 64 << 20
	maxIters = 100_000_000
	maxBatch = 4096
)

// Tests are the names that Plan.Test takes.
var Tests = []string{"lat", "bw", "rate"}

// Check returns an error if t cannot run the plan.
func (p *Plan) Check(t Transport) error {
	switch {
	case !slices.Contains(t.Nets(), p.Net):
		return fmt.Errorf("%w: %s over %q, want one of %v", ErrPlan, t.Name(), p.Net, t.Nets())
	case !slices.Contains(Tests, p.Test):
		return fmt.Errorf("%w: test %q, want one of %v", ErrPlan, p.Test, Tests)
	case p.Size < 1 || p.Size > MaxSize:
		return fmt.Errorf("%w: size %d, want 1 to %d", ErrPlan, p.Size, MaxSize)
	case p.Iters < 1 || p.Iters > maxIters:
		return fmt.Errorf("%w: %d iterations, want 1 to %d", ErrPlan, p.Iters, maxIters)
	case p.Batch < 1 || p.Batch > maxBatch:
		return fmt.Errorf("%w: batches of %d, want 1 to %d", ErrPlan, p.Batch, maxBatch)
	}
	return nil
}

// WarmUp returns the number of iterations before the timed ones.
func (p *Plan) WarmUp() int { return max(p.Iters/5, 10) }

// Latency reports whether the plan measures round trips.
func (p *Plan) Latency() bool { return p.Test == Tests[0] }
