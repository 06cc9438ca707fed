package fallback

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/fds"
)

// Link is one link made of two. It implements fabric.Link and fabric.Fork.
type Link struct {
	fabric.Link             // the first
	second      fabric.Link // nil: there is none on this side
	namer       fabric.Namer
	serving     fabric.Serving // of second; nil: it cannot tell
	carried     fabric.Carried // the first, if its endpoints can continue by second's; else nil
	caps        fabric.Caps
	fd          int
	used        atomic.Bool // second may have connected endpoints

	mu   sync.Mutex
	over map[fabric.Endpoint]bool // endpoints of second: atomics exclude those over the first

	// The owner's.
	both  bool // second was armed
	after bool // poll the second link first, for once
}

// New returns a link over first and second, which it closes. second implements fabric.Namer; it may be nil:
// then endpoints use the first link, but may be connected with those of a side that has a second one.
func New(first, second fabric.Link) (*Link, error) {
	l := &Link{Link: first, caps: first.Caps(), fd: first.FD(), over: map[fabric.Endpoint]bool{}}
	if second == nil {
		return l, nil
	}
	namer, is := second.(fabric.Namer)
	if !is {
		return nil, fmt.Errorf("fall back to %s: its regions have keys of their own: %w", second.Name(), fabric.ErrNotSupported)
	}
	c := second.Caps()
	l.caps.MaxInline, l.caps.MaxMessage = min(l.caps.MaxInline, c.MaxInline), min(l.caps.MaxMessage, c.MaxMessage)
	l.caps.LastByteLast, l.caps.WakesOnWrite = l.caps.LastByteLast && c.LastByteLast, l.caps.WakesOnWrite && c.WakesOnWrite
	l.caps.MapsAlloc, l.caps.Immediate = false, l.caps.Immediate && c.Immediate
	fd, err := fds.Join(first.FD(), second.FD())
	if err != nil {
		return nil, fmt.Errorf("fall back to %s: %w", second.Name(), err)
	}
	l.second, l.namer, l.fd = second, namer, fd
	l.serving, _ = second.(fabric.Serving)
	if l.carried, _ = first.(fabric.Carried); l.carried != nil {
		l.carried.CarryOn(func(o fabric.EndpointOptions) (fabric.Endpoint, error) {
			l.used.Store(true)
			return second.NewEndpoint(o)
		})
	}
	return l, nil
}

// Caps implements fabric.Link: what both links can do. TargetProgress is the first one's, see Over.
func (l *Link) Caps() fabric.Caps { return l.caps }

// FD implements fabric.Link.
func (l *Link) FD() int { return l.fd }

// Usable implements fabric.Fallible: it is that of the first link.
func (l *Link) Usable() error {
	if f, is := l.Link.(fabric.Fallible); is {
		return f.Usable()
	}
	return nil
}

// Poll implements fabric.Link.
// Hot path.
func (l *Link) Poll(cs []fabric.Completion) int {
	if !l.used.Load() {
		return l.Link.Poll(cs)
	}
	n := 0
	if l.after {
		n = l.pollSecond(cs)
	}
	if n < len(cs) {
		n += l.Link.Poll(cs[n:])
	}
	if !l.after && n < len(cs) {
		n += l.pollSecond(cs[n:])
	}
	l.after = !l.after
	return n
}

// pollSecond polls the second link. Completions of endpoints that carry the first's are the first's.
func (l *Link) pollSecond(cs []fabric.Completion) int {
	n := l.second.Poll(cs)
	if l.carried == nil {
		return n
	}
	kept := 0
	for i := range cs[:n] {
		if l.carried.Completed(&cs[i]) {
			cs[kept] = cs[i]
			kept++
		}
	}
	return kept
}

// Served implements fabric.Serving.
func (l *Link) Served() uint32 {
	if l.serving == nil || !l.used.Load() {
		return 0
	}
	return l.serving.Served()
}

// Arm implements fabric.Link.
func (l *Link) Arm() (bool, error) {
	ok, err := l.Link.Arm()
	if l.both = ok && err == nil && l.used.Load(); !l.both {
		return ok, err
	}
	if ok, err = l.second.Arm(); !ok || err != nil {
		l.both = false
		l.Link.Disarm()
	}
	return ok, err
}

// Disarm implements fabric.Link.
func (l *Link) Disarm() {
	l.Link.Disarm()
	if l.both {
		l.both = false
		l.second.Disarm()
	}
}

// Over implements fabric.Fork.
func (l *Link) Over(ep fabric.Endpoint) (fabric.Link, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if atomics, is := l.over[ep]; is {
		return l.second, atomics
	}
	if l.carried != nil {
		if is, atomics := l.carried.Carries(ep); is {
			return l.second, atomics
		}
	}
	return l.Link, true
}

// note says that ep uses the second link. It forgets those that are down.
func (l *Link) note(ep fabric.Endpoint, atomics bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for x := range l.over {
		if x.Err() != nil {
			delete(l.over, x)
		}
	}
	l.over[ep] = atomics
}

// Close implements fabric.Link.
func (l *Link) Close() error {
	if l.second == nil {
		return l.Link.Close()
	}
	l.mu.Lock()
	fd := l.fd
	l.fd = -1
	l.mu.Unlock()
	if fd < 0 {
		return nil
	}
	return errors.Join(l.second.Close(), l.Link.Close(), fds.Close(fd))
}

var (
	_ fabric.Fork    = (*Link)(nil)
	_ fabric.Serving = (*Link)(nil)
)
