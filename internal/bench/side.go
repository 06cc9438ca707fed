package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/poller"
)

// Errors that end a run, beside those of the link (fabric.ErrPeerGone and so on).
var (
	ErrStalled  = errors.New("no data from the other rank")
	ErrValidate = errors.New("wrong data arrived")
)

// Conn is one side of a connected pair.
type Conn struct {
	Fabric string // name for results: shm, tcp, verbs, sim
	Link   fabric.Link
	EP     fabric.Endpoint
	ID     uint32 // EndpointOptions.ID of EP
}

// Layout of the region that each side offers. Words with different writers are on
// separate cache lines.
const (
	offStop   = 0         // rank 1: number of the point that is over
	offFlag   = 128       // sequence number, if it cannot be part of the message
	offAtomic = 256       // target of atomics
	offResult = 384       // results of atomics, resultSlots of them
	offOut    = 384 + 512 // source of flag and stop writes
	offTell   = 1024      // source of control messages about messages
	offHear   = 1024 + 128
	offData   = 4096

	resultSlots = 64
)

// signalEvery is how many ping-pong posts share one completion: far below the queue's
// depth, and rare enough not to affect the time.
const signalEvery = 16

// napAfter is how long a wait yields before it sleeps on the link's descriptor. On some
// links a plain write does not wake the sleeper, so a nap costs up to napTime of latency.
// It must not affect measured operations, which take less than 200 ms each even on an
// emulated device.
const (
	napAfter = 200 * time.Millisecond
	napTime  = time.Millisecond
)

// side is one rank's end of the measurement. Only one goroutine at a time may use it.
type side struct {
	poller.Poller
	ctl  Control // called by Exchange, which keeps the link progressing
	caps fabric.Caps
	reg  fabric.Region
	mem  []byte
	peer fabric.RemoteKey
	span int // bytes of each of the two data areas

	ring *ring     // if the bare ring is measured, else nil
	msg  *messages // if messages are measured, else nil
}

// newSide registers memory for two data areas of span bytes and exchanges keys.
func newSide(ctx context.Context, ctl Control, c Conn, span int, stall time.Duration, sp cpu.Spinner) (*side, error) {
	span = (span + 4095) &^ 4095
	s := &side{ctl: ctl, caps: c.Link.Caps(), span: span}
	s.Poller = poller.Poller{
		Link: c.Link, EP: c.EP, ID: c.ID, Ctx: ctx, Spin: sp, Limit: stall, NapAfter: napAfter, NapTime: napTime, Expired: stalled,
		Now: func() int64 { return int64(cpu.Duration(cpu.Ticks())) },
		// With Caps.Immediate most requests are complete when posted: the peer seldom needs
		// this side's polls, and one poll takes as long as several reads of a word.
		PollEach: s.caps.TargetProgress && !s.caps.Immediate,
	}
	reg, err := c.Link.Alloc(offData+2*span, fabric.AccessAll)
	if err == nil {
		s.reg, s.mem = reg, reg.Bytes()
		offheap.Touch(s.mem) // a page's first use would be measured as latency
	}
	if err = agree(ctx, s, err); err != nil {
		return nil, errors.Join(err, s.close())
	}
	theirs, err := s.Exchange(ctx, s.reg.Key().Append(nil))
	if err == nil {
		s.peer, _, err = fabric.ParseRemoteKey(theirs)
	}
	if err == nil && s.peer.Len < uint64(len(s.mem)) {
		err = fmt.Errorf("the other rank offers %d bytes, want %d", s.peer.Len, len(s.mem))
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// stalled is the error of a wait that exceeds the stall time.
func stalled(took time.Duration) error {
	return fmt.Errorf("%w for %v: it hangs, or died without the link noticing", ErrStalled, took.Round(time.Millisecond))
}

// close releases the channels and the memory. The channels close the endpoint.
func (s *side) close() error {
	err := errors.Join(s.ring.close(), s.msg.close())
	if s.reg == nil {
		return err
	}
	return errors.Join(err, s.reg.Close())
}

// claim passes a completion to the channels and reports whether it was theirs.
func (s *side) claim(c *fabric.Completion) bool {
	return s.ring != nil && s.ring.ch.OnCompletion(c) || s.msg != nil && s.msg.ch.OnCompletion(c)
}

// Rank implements Control.
func (s *side) Rank() int { return s.ctl.Rank() }

// exchangePoll is the interval of link polls during an exchange: short compared with an
// exchange, long compared with a poll.
const exchangePoll = 100 * time.Microsecond

// Exchange implements Control over s.ctl and progresses the link meanwhile: the peer
// may wait for something that needs this side's polls, such as the acknowledgement of its
// last write.
func (s *side) Exchange(ctx context.Context, mine []byte) ([]byte, error) {
	type answer struct {
		b   []byte
		err error
	}
	done := make(chan answer, 1)
	go func() {
		b, err := s.ctl.Exchange(ctx, mine)
		done <- answer{b, err}
	}()
	t := time.NewTicker(exchangePoll)
	defer t.Stop()
	for {
		if s.Broken == nil {
			_, err := s.Poll()
			if err == nil && s.msg != nil {
				_, _, err = s.msg.ch.Progress()
			}
			if err != nil {
				s.Broken = err // the next use of the link returns it
			}
		}
		select {
		case a := <-done:
			return a.b, a.err
		case <-t.C:
		}
	}
}

// in is the area that the peer writes; out is the one that this side sends from.
func (s *side) in(size int) []byte  { return s.mem[offData : offData+size] }
func (s *side) out(size int) []byte { return s.mem[offData+s.span : offData+s.span+size] }

// sge describes n bytes at offset off of the region.
func (s *side) sge(off, n int) fabric.SGE {
	return fabric.NewSGE(s.mem[off:off+n], s.reg.LKey())
}

// write returns a request that writes n bytes at offset off of this region to offset to
// of the peer's, inline if the link can.
func (s *side) write(off, n, to int) fabric.WR {
	w := fabric.WR{
		Op: fabric.OpWrite, Local: []fabric.SGE{s.sge(off, n)},
		RemoteAddr: s.peer.Addr + uint64(to), RKey: s.peer.RKey,
	}
	if n <= s.caps.MaxInline {
		w.Flags |= fabric.FlagInline
	}
	return w
}

// stop ends point epoch on rank 1.
func (s *side) stop(epoch uint64) error {
	if err := s.Drain(); err != nil {
		return err
	}
	cellAt(s.mem, offOut).store(epoch)
	w := s.write(offOut, 8, offStop)
	w.Flags |= fabric.FlagSignaled | fabric.FlagNotify
	if err := s.Post([]fabric.WR{w}, 1); err != nil {
		return err
	}
	return s.Drain()
}

// serve is rank 1's part of tests in which it is passive: it polls until rank 0 ends
// point epoch. The stall time does not apply, because the duration of rank 0's measurement
// is not known here; if rank 0 dies, the link reports it or the context ends.
func (s *side) serve(epoch uint64) error {
	over := cellAt(s.mem, offStop)
	for s.Begin(); over.load() != epoch; {
		if _, err := s.Poll(); err != nil {
			return err
		}
		if !s.caps.TargetProgress {
			// The device or the peer does the work: leave the processor to it. The stop
			// carries a notification, which wakes this side.
			if err := s.idle(); err != nil {
				return err
			}
			continue
		}
		// This side executes the requests: respond fast, never sleep. A yield lets the
		// other rank run if both share a processor.
		if y := s.Spin.Wait(); y&1023 == 1023 && s.Ctx.Err() != nil {
			return context.Cause(s.Ctx)
		}
	}
	return nil
}

// idleTime bounds one sleep of serve, so that cancellation is noticed.
const idleTime = 50 * time.Millisecond

// idle sleeps until an event.
func (s *side) idle() error {
	if s.Ctx.Err() != nil {
		return context.Cause(s.Ctx)
	}
	return s.Sleep(idleTime)
}
