package initiator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/pending"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/mr"
)

// Standalone is an Engine with one Queue over one link, for benchmarks and tests. It is the
// queue's Host and the link's protocol, except for FetchSlots and PublishSlots: the type
// that embeds it has these.
type Standalone struct {
	Engine
	Queue  Queue
	Prog   *progress.Engine
	Memory *mr.Domain
	EP     fabric.Endpoint // set it before Queue.Up

	inbox    pending.Inbox
	receipts pending.Receipts
	pins     *message.Pins
}

// Open prepares s, a zero value that h embeds. Prog.Start, then Queue.Up begin the work.
// Close releases what Open has taken, also after its failure.
func (s *Standalone) Open(l fabric.Link, h interface {
	Host
	progress.Protocol
}) (err error) {
	s.Init(Options{Inbox: &s.inbox, Receipts: &s.receipts, Protocol: h, Contention: time.Second})
	if s.pins, err = message.NewPins(l, 0); err != nil {
		return err
	}
	if s.Memory, err = mr.NewDomain(mr.Rail{Link: l}); err != nil {
		return err
	}
	if err = s.AddLink(l, s.pins); err != nil {
		return err
	}
	s.AddQueue(&s.Queue, 0, false, h)
	if s.Prog, err = progress.New([]fabric.Link{l}, h, cpu.Default(), cpu.NoHome, 1); err == nil {
		s.Start(s.Prog, s.Memory)
	}
	return err
}

// flushLimit is how long Close waits for the requests that the link flushes.
const flushLimit = time.Minute

// Close ends all operations, closes the endpoint, and releases everything but the link.
func (s *Standalone) Close() (err error) {
	if s.Prog != nil {
		s.Prog.Do(func() {
			s.End(context.Canceled)
			s.Down(context.Canceled)
			if s.EP != nil {
				err = s.EP.Close()
			}
		})
		since := time.Now()
		for idle := false; !idle; {
			s.Prog.Do(func() { idle = s.Queue.InFlight() == 0 })
			s.Prog.Progress()
			if time.Since(since) > flushLimit {
				return errors.Join(err, fmt.Errorf("requests in flight %v after the endpoint was closed", flushLimit))
			}
		}
		err = errors.Join(err, s.Prog.Close(), s.Engine.Close())
	}
	if s.Memory != nil {
		err = errors.Join(err, s.Memory.Close())
	}
	if s.pins != nil {
		err = errors.Join(err, s.pins.Close())
	}
	return err
}

// Pending implements progress.Protocol.
func (s *Standalone) Pending() bool { return s.inbox.Pending() }

// Step implements progress.Protocol.
func (s *Standalone) Step() bool {
	did := s.inbox.TakeOver()
	return s.Engine.Step() || did
}

// Refuse implements progress.Protocol.
func (s *Standalone) Refuse() { s.inbox.TakeOver() }

// Rest implements progress.Protocol.
func (s *Standalone) Rest(bool) time.Duration { return s.Engine.Rest() }

// Watches implements progress.Protocol.
func (s *Standalone) Watches() bool { return s.Engine.Watches() }

// Complete implements progress.Protocol.
func (s *Standalone) Complete(_ int, cs []fabric.Completion) {
	for i := range cs {
		c := &cs[i]
		switch {
		case c.Op == fabric.OpDown:
			s.lost(c)
		case IsNotification(c):
			s.Queue.Notified(c)
		case c.Op == fabric.OpNotify || c.ID>>48 != 0: // of a message channel
		case !s.Engine.Complete(c):
			s.Queue.CompleteControl(c)
		}
	}
}

func (s *Standalone) lost(c *fabric.Completion) { s.Down(fmt.Errorf("lost: %w", c.Err())) }

// Connect implements Host: the connection is there from the start.
func (s *Standalone) Connect() {}

// Reported implements Host.
func (s *Standalone) Reported(err error) { s.Down(err) }

// Reason implements Host: a flushed request ends the connection, before the link reports it.
func (s *Standalone) Reason(c *fabric.Completion) error {
	if c.Status == fabric.StatusFlushed {
		s.lost(c)
	}
	return c.Err()
}

// Down implements Host.
func (s *Standalone) Down(err error) {
	if s.Queue.down == nil {
		s.Queue.Down(err)
	}
}

// Sever implements Host.
func (s *Standalone) Sever(err error) {
	_ = s.EP.Close() // closed again at the end
	s.Down(err)
}

// Refused implements Host.
func (s *Standalone) Refused(error) {}

// Error implements Host.
func (s *Standalone) Error(op string, err error) error { return fmt.Errorf("%s: %w", op, err) }

// RailLost implements Host: there are no rails.
func (s *Standalone) RailLost(int, error) {}

// Probed implements Host.
func (s *Standalone) Probed() {}
