package pingpong

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/offheap"
)

// Errors.
var (
	// ErrStalled says that the peer sends nothing.
	ErrStalled = errors.New("no data from the other side")
	// ErrSpan says that a batch does not fit the memory.
	ErrSpan = errors.New("batch exceeds the memory")
	// ErrWrong says that received data is wrong.
	ErrWrong = errors.New("wrong data arrived")
)

// Options configures a Side. The zero value is usable.
type Options struct {
	// First: this side sends first and measures the time. One of the two sides sets it.
	First bool
	// Span is the memory for one batch in bytes, see Need. Twice that is
	// registered. Zero means 1 MiB.
	Span int
	// MaxBytes bounds the bytes that Calibrate moves, both directions together. The first
	// side's value applies. Zero: no bound.
	MaxBytes int64
	// Stall bounds a wait in which nothing arrives. Zero means 20 s.
	Stall time.Duration
	// Unregistered: messages are sent as from memory that the application has not registered.
	Unregistered bool
	// Channel configures the message channel.
	Channel message.Options
	// Wait is called after the n-th poll without result in a row, n from 1. Nil: spin,
	// pause and yield as cpu.Spinner does.
	Wait func(n int)
	// Other gets completions of other endpoints of the link than this one, whose
	// EndpointOptions.ID is EP. Nil: there are no others.
	Other func(*fabric.Completion)
	EP    uint32

	clock func() int64 // ns, for tests; nil: cycles
}

// Side is one of the two sides of a channel that play.
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
	want, sent int // values of got and done to wait for

	times     [maxTrips]int64 // of Calibrate
	word      message.Out     // control message, see tell
	answer    message.In
	wordsSent counter

	group []*Side // sides that share the endpoint, this one included; nil: only this one
	each  bool    // see SetEach

	wait wait
	cs   [32]fabric.Completion
	down error
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

// populated is how many bytes of memory Open provides before it looks at its context again: the
// pages of large batches may take seconds.
const populated = 1 << 20

// Open creates a side over a connected endpoint, whose completions it alone takes. Setup
// path.
func Open(ctx context.Context, link fabric.Link, ep fabric.Endpoint, o Options) (*Side, error) {
	o.Span = cmp.Or(o.Span, 1<<20)
	o.Span = (o.Span + 4095) &^ 4095
	o.Stall = cmp.Or(o.Stall, 20*time.Second)
	s := &Side{link: link, ep: ep, opt: o, wait: newWait(&o)}
	var err error
	if s.reg, err = link.Alloc(2*o.Span+2*wordSize, fabric.AccessAll); err != nil {
		return nil, fmt.Errorf("memory for the batches: %w", err)
	}
	mem := s.reg.Bytes()
	// Touch all pages before the measurement; every word depends on its offset.
	x := uint64(88172645463325252)
	for at := 0; at < len(mem); at += populated {
		if ctx.Err() != nil {
			return nil, errors.Join(context.Cause(ctx), s.reg.Close())
		}
		offheap.Populate(mem[at:min(at+populated, len(mem))])
		for i := at; i < min(at+populated, o.Span); i += 8 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			binary.NativeEndian.PutUint64(mem[i:], x)
		}
	}
	clear(mem[o.Span:])
	if o.Channel.Adverts == 0 {
		o.Channel.Adverts = -1 // receives are always posted first here, and the model describes reads
	}
	if s.ch, err = message.Open(link, ep, o.Channel); err != nil {
		return nil, errors.Join(err, s.reg.Close())
	}
	return s, nil
}

// Channel returns the channel of the side.
func (s *Side) Channel() *message.Channel { return s.ch }

// Group makes sides that share an endpoint progress together: while one plays, the others
// still answer their peers. Both ends form the same groups; each channel has WR tags of its
// own (message.Options.IDTag).
func Group(sides ...*Side) {
	for _, s := range sides {
		s.group = sides
	}
}

// SetEach makes this side post every message to the link by itself, instead of the batch as
// a whole: one post for each message, and no plan for several.
func (s *Side) SetEach(on bool) { s.each = on }

// Setup returns the argument of the peer's Connect.
func (s *Side) Setup() []byte { return s.ch.Setup() }

// Connect connects with the peer, whose Setup it needs.
func (s *Side) Connect(setup []byte) error { return s.ch.Connect(setup) }

// Close closes the endpoint, as the channel requires, then the channel and the memory. The
// caller keeps the link.
func (s *Side) Close() error {
	err := s.ep.Close()
	for range 64 { // take the flushed completions
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
			s.down = s.progress() // the next call of Play gets the error
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
