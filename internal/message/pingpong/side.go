package pingpong

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/message"
)

// Errors.
var (
	// ErrStalled is a peer from which nothing comes.
	ErrStalled = errors.New("no data from the other side")
	// ErrSpan is a batch that does not fit into the memory.
	ErrSpan = errors.New("batch exceeds the memory")
	// ErrWrong is data that is not what was sent.
	ErrWrong = errors.New("wrong data arrived")
)

// Options configures a Side. The zero value is usable.
type Options struct {
	// First sends first and takes the time; one of the two sides sets it.
	First bool
	// Span is the memory for one batch in bytes, see Need. Twice that is
	// registered. Zero means 1 MiB.
	Span int
	// MaxBytes bounds what Calibrate moves, both ways together, in bytes; the first side's
	// counts. Zero: no bound.
	MaxBytes int64
	// Stall ends a wait in which nothing comes. Zero means 20 s.
	Stall time.Duration
	// Channel configures the message channel.
	Channel message.Options
	// Wait is called after the n-th fruitless look in a row, n from 1. Nil spins,
	// pauses and yields as cpu.Spinner does.
	Wait func(n int)
	// Other gets completions of other endpoints of the link than this one, whose
	// EndpointOptions.ID is EP. Nil: there are no others.
	Other func(*fabric.Completion)
	EP    uint32

	clock func() int64 // ns, for tests; nil: cycles
}

// Side is one end.
type Side struct {
	link fabric.Link
	ep   fabric.Endpoint
	ch   *message.Channel
	reg  fabric.Region
	opt  Options

	sizes      []int
	outs       []message.Out
	ins        [2][]message.In
	at         []int // of each message in either half of the memory
	got, done  counter
	want, sent int // totals that got and done shall reach

	times  [maxTrips]int64 // of Calibrate
	word   message.Out     // control message, see tell
	answer message.In
	told   counter

	group []*Side // which share the endpoint, this one among them; nil: it alone
	each  bool    // see SetEach

	spin   cpu.Spinner
	misses int
	since  int64 // ticks of the first long look of this wait
	limit  int64 // ticks
	cs     [32]fabric.Completion
	down   error
}

// counter counts completions.
type counter struct {
	n   int
	err error
}

// Complete implements message.Completer.
func (k *counter) Complete(_ uint32, _ int, err error) {
	k.n++
	if err != nil && k.err == nil {
		k.err = err
	}
}

// Open makes a side over a connected endpoint, whose completions nobody else
// takes. Setup path.
func Open(link fabric.Link, ep fabric.Endpoint, o Options) (*Side, error) {
	if o.Span == 0 {
		o.Span = 1 << 20
	}
	o.Span = (o.Span + 4095) &^ 4095
	if o.Stall == 0 {
		o.Stall = 20 * time.Second
	}
	s := &Side{link: link, ep: ep, opt: o, limit: int64(float64(o.Stall) / cpu.NsPerTick())}
	var err error
	if s.reg, err = link.Alloc(2*o.Span+2*wordSize, fabric.AccessAll); err != nil {
		return nil, fmt.Errorf("memory to play with: %w", err)
	}
	// First use is paid here, and every byte depends on its place.
	mem := s.reg.Bytes()
	x := uint64(88172645463325252)
	for i := range mem[:o.Span] {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		mem[i] = byte(x >> 32)
	}
	clear(mem[o.Span:])
	if o.Channel.Adverts == 0 {
		o.Channel.Adverts = -1 // receives are always there first here, and the model is about reads
	}
	if s.ch, err = message.Open(link, ep, o.Channel); err != nil {
		return nil, errors.Join(err, s.reg.Close())
	}
	return s, nil
}

// Channel is the channel that is played on.
func (s *Side) Channel() *message.Channel { return s.ch }

// Group makes sides that share an endpoint progress together: while one plays,
// the others answer what the peer still wants of them. Both ends form the same
// groups; each channel has WR tags of its own (message.Options.IDTag).
func Group(sides ...*Side) {
	for _, s := range sides {
		s.group = sides
	}
}

// SetEach makes this side hand every message to the link by itself, instead of
// the batch as a whole: one post a message, and no plan over several.
func (s *Side) SetEach(on bool) { s.each = on }

// Setup is what the peer's Connect needs.
func (s *Side) Setup() []byte { return s.ch.Setup() }

// Connect takes the peer's set-up.
func (s *Side) Connect(setup []byte) error { return s.ch.Connect(setup) }

// Close closes the endpoint, which the channel asks for, then the rest. The link
// stays the caller's.
func (s *Side) Close() error {
	err := s.ep.Close()
	for range 64 { // what the closing flushed
		n := s.link.Poll(s.cs[:])
		if n == 0 {
			break
		}
		for i := range s.cs[:n] {
			s.foreign(&s.cs[i])
		}
	}
	return errors.Join(err, s.ch.Close(), s.reg.Close())
}

// Exchange runs f, which waits for the peer by other means, and lets the link
// progress meanwhile: the peer's last message may need this side's polls.
func (s *Side) Exchange(ctx context.Context, f func(context.Context) ([]byte, error)) ([]byte, error) {
	return exchange(ctx, f, func() {
		if s.down == nil {
			s.down = s.progress() // whoever plays next will see
		}
	})
}

func exchange(ctx context.Context, f func(context.Context) ([]byte, error), poll func()) ([]byte, error) {
	type answer struct {
		b   []byte
		err error
	}
	c := make(chan answer, 1)
	go func() {
		b, err := f(ctx)
		c <- answer{b, err}
	}()
	t := time.NewTicker(100 * time.Microsecond)
	defer t.Stop()
	for {
		poll()
		select {
		case a := <-c:
			return a.b, a.err
		case <-t.C:
		}
	}
}
