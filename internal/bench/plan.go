package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Test is a kind of measurement.
type Test string

// Tests.
const (
	Lat  Test = "lat"
	BW   Test = "bw"
	Rate Test = "rate"
)

// Op is an operation that can be measured.
type Op string

// Operations. Send is a message in the mode that the cost model or Plan.Mode chooses;
// Eager is a message of the bare ring below it; the others are one-sided operations of
// the link itself.
const (
	Put   Op = "put"
	Get   Op = "get"
	Send  Op = "send"
	Eager Op = "eager"
	FAdd  Op = "fadd"
	CAS   Op = "cas"
)

// Ops are all operations, in the order of reports.
var Ops = []Op{Put, Get, Send, Eager, FAdd, CAS}

// Modes are the names that Plan.Mode takes.
var Modes = []string{"auto", "eager", "gather", "scatter"}

// Fabrics are the names that --fabric takes. Verbs is the link called "ibv"
// inside the project.
var Fabrics = []string{"auto", "shm", "tcp", "verbs"}

// ErrPlan is wrapped by all errors about a plan or request.
var ErrPlan = errors.New("cannot measure that")

// Bounds of a plan, checked on both sides: rank 1 receives the plan from the wire.
const (
	maxWindow = 4096
	maxIters  = 1 << 40
	maxTime   = time.Hour
	maxCount  = 1000
	maxTags   = 1 << 20
)

// DefaultIters is the least number of measured operations of a point: enough for a
// median where one operation takes tens of milliseconds (4 MiB over an emulated device).
// Everywhere else Time decides.
const DefaultIters = 20

// DefaultWindow is how many requests bw and rate keep outstanding. 64 cover
// the round trip of every link at 4 KiB; more only help message rate (rate
// uses DefaultRateWindow) and cost cache.
const (
	DefaultWindow     = 64
	DefaultRateWindow = 128
)

// Plan is one series: a test of one operation over sizes.
type Plan struct {
	Test Test  `json:"test"`
	Op   Op    `json:"op"`
	Size []int `json:"sizes"` // bytes

	// Time is how long each size is measured. The warm-up is extra: a fifth of Time, at
	// most 200 ms. Zero means one second.
	Time time.Duration `json:"time"`

	// Iters is the least number of operations of a point, whatever Time says.
	// Zero means DefaultIters.
	Iters int64 `json:"iters"`

	// Window is how many requests bw and rate keep outstanding. Zero means
	// DefaultWindow or DefaultRateWindow.
	Window int `json:"window"`

	// Mode is the mode of Send. Empty means "auto": the model chooses.
	Mode string `json:"mode,omitempty"`

	// Tags is the number of tags that a stream of Send uses in turn. Zero means one.
	Tags int `json:"tags,omitempty"`

	// Batch is how many messages of a stream through the engine are posted at once.
	// Zero means one.
	Batch int `json:"batch,omitempty"`

	// Count repeats the series. Zero means once.
	Count int `json:"count"`

	// Validate fills every message with a pattern of its own and checks every byte at
	// the receiver. The times then include filling and checking.
	Validate bool `json:"validate"`

	// Stall ends a run in which no data arrives for this long. Zero means DefaultStall.
	Stall time.Duration `json:"stall"`
}

// DefaultStall is long compared with pauses of an oversubscribed or emulated machine
// (hundreds of ms) and short enough for a user to wait.
const DefaultStall = 20 * time.Second

// WithDefaults returns a copy with every zero replaced by its default.
func (p Plan) WithDefaults() Plan {
	if p.Op == "" {
		p.Op = Put
	}
	if len(p.Size) == 0 {
		p.Size = DefaultSizes(p.Test, p.Op)
	}
	if p.Time == 0 {
		p.Time = time.Second
	}
	if p.Iters == 0 {
		p.Iters = DefaultIters
	}
	if p.Window == 0 {
		p.Window = DefaultWindow
		if p.Test == Rate {
			p.Window = DefaultRateWindow
		}
	}
	if p.Count == 0 {
		p.Count = 1
	}
	if p.Op == Send {
		if p.Mode == "" {
			p.Mode = Modes[0]
		}
		p.Tags = max(p.Tags, 1)
	}
	if p.Stall == 0 {
		p.Stall = DefaultStall
	}
	return p
}

// DefaultSizes returns the sizes that are measured if none are given.
func DefaultSizes(t Test, op Op) []int {
	switch {
	case op == FAdd || op == CAS || t == Rate:
		return []int{8}
	case op == Eager && t == BW:
		return []int{512, 4 << 10, 64 << 10}
	case op == Eager:
		return []int{8, 64, 512, 4 << 10, 64 << 10}
	case t == BW:
		return []int{4 << 10, 64 << 10, 1 << 20, 4 << 20}
	}
	return []int{8, 64, 512, 4 << 10, 64 << 10, 1 << 20}
}

// Check reports why the plan, with its defaults filled in, cannot be measured.
func (p Plan) Check() error {
	if !slices.Contains([]Test{Lat, BW, Rate}, p.Test) {
		return fmt.Errorf("%w: test %q, want lat, bw or rate", ErrPlan, p.Test)
	}
	atomic := p.Op == FAdd || p.Op == CAS
	switch {
	case !slices.Contains(Ops, p.Op):
		return fmt.Errorf("%w: operation %q, want put, get, send, eager, fadd or cas", ErrPlan, p.Op)
	case p.Op == Send && !slices.Contains(Modes, p.Mode):
		return fmt.Errorf("%w: mode %q, want %s", ErrPlan, p.Mode, strings.Join(Modes, ", "))
	case p.Op != Send && (p.Mode != "" || p.Tags > 1):
		return fmt.Errorf("%w: %s has neither modes nor tags, send has", ErrPlan, p.Op)
	case p.Tags < 0 || p.Tags > maxTags:
		return fmt.Errorf("%w: tags %d is out of range 1 to %d", ErrPlan, p.Tags, maxTags)
	case p.Test == BW && atomic:
		return fmt.Errorf("%w: %s has no bandwidth, ask for its lat or rate", ErrPlan, p.Op)
	case len(p.Size) == 0 || len(p.Size) > maxSizes:
		return fmt.Errorf("%w: %d sizes", ErrPlan, len(p.Size))
	}
	for i, n := range p.Size {
		switch {
		case n < 1 || n > MaxSize:
			return fmt.Errorf("%w: size %d is out of range 1 to %s", ErrPlan, n, FormatSize(MaxSize))
		case p.Op == Eager && n > MaxEager:
			return fmt.Errorf("%w: messages of the bare eager ring are at most %s, not %s; send takes any", ErrPlan, FormatSize(MaxEager), FormatSize(n))
		case atomic && n != 8:
			return fmt.Errorf("%w: %s works on 8 bytes, not on %s", ErrPlan, p.Op, FormatSize(n))
		case slices.Contains(p.Size[:i], n):
			return fmt.Errorf("%w: size %s occurs twice", ErrPlan, FormatSize(n))
		}
	}
	switch {
	case p.Time < time.Millisecond || p.Time > maxTime:
		return fmt.Errorf("%w: time %v is out of range 1ms to %v", ErrPlan, p.Time, maxTime)
	case p.Iters < 1 || p.Iters > maxIters:
		return fmt.Errorf("%w: iters %d is out of range 1 to %d", ErrPlan, p.Iters, int64(maxIters))
	case p.Window < 1 || p.Window > maxWindow:
		return fmt.Errorf("%w: window %d is out of range 1 to %d", ErrPlan, p.Window, maxWindow)
	case p.Batch < 0 || p.Batch > p.Window:
		return fmt.Errorf("%w: batches of %d, with a window of %d", ErrPlan, p.Batch, p.Window)
	case p.Count < 1 || p.Count > maxCount:
		return fmt.Errorf("%w: count %d is out of range 1 to %d", ErrPlan, p.Count, maxCount)
	case p.Stall < 10*time.Millisecond || p.Stall > maxTime:
		return fmt.Errorf("%w: stall time %v is out of range 10ms to %v", ErrPlan, p.Stall, maxTime)
	}
	return nil
}

// points returns the number of results of the plan.
func (p Plan) points() int { return p.Count * len(p.Size) }

// String returns the plan as a heading: "lat put 8,64,4K".
func (p Plan) String() string {
	s := make([]string, len(p.Size))
	for i, n := range p.Size {
		s[i] = FormatSize(n)
	}
	if p.Mode != "" {
		return fmt.Sprintf("%s %s %s %s", p.Test, p.Op, p.Mode, strings.Join(s, ","))
	}
	return fmt.Sprintf("%s %s %s", p.Test, p.Op, strings.Join(s, ","))
}
