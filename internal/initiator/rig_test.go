package initiator

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/pending"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/mr"
)

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

// side is one of two ranks, with a queue to the other. It is what the links carry, and
// the queue's host.
type side struct {
	Engine
	inbox    pending.Inbox
	receipts pending.Receipts
	prog     *progress.Engine
	mem      *mr.Domain
	pins     *message.Pins
	q        Queue
	ep       fabric.Endpoint
	region   *mr.Registration // 1 MiB, for the other side to reach
	other    *side
	slots    chan []byte // that this side has published
	over     context.Context
	end      context.CancelFunc
	tasks    sync.WaitGroup
	connects int
	probed   int
	held     bool
}

func (s *side) Pending() bool { return s.inbox.Pending() }

func (s *side) Step() bool {
	did := s.inbox.TakeOver()
	return s.Engine.Step() || did
}

func (s *side) Rest(on bool) time.Duration { return min(max(s.Engine.Rest(), 0), time.Millisecond) }

func (s *side) Complete(_ int, cs []fabric.Completion) {
	for i := range cs {
		c := &cs[i]
		switch {
		case c.Op == fabric.OpDown:
			s.Down(fmt.Errorf("lost: %w", c.Err()))
		case IsNotification(c):
			s.q.Notified(c)
		case !s.Engine.Complete(c):
			s.q.CompleteControl(c)
		}
	}
}

func (s *side) Connect()                              { s.connects++ }
func (s *side) Reported(err error)                    { s.Down(err) }
func (s *side) Error(op string, err error) error      { return fmt.Errorf("%s: %w", op, err) }
func (s *side) Hold(on bool)                          { s.held = on }
func (s *side) Probed()                               { s.probed++ }
func (s *side) FetchSlots(done func([]byte, error))   { s.background(func() { s.fetch(done) }) }
func (s *side) PublishSlots(f func() ([]byte, error)) { s.background(func() { s.publish(f) }) }

// Reason ends the connection of a flushed request, before the link reports its end.
func (s *side) Reason(c *fabric.Completion) error {
	if c.Status == fabric.StatusFlushed {
		s.Down(fmt.Errorf("lost: %w", c.Err()))
	}
	return c.Err()
}

func (s *side) Sever(err error) {
	_ = s.ep.Close()
	s.Down(err)
}

func (s *side) Down(err error) {
	if s.q.down == nil {
		s.q.Down(err)
	}
}

func (s *side) background(f func()) {
	s.tasks.Add(1)
	go func() {
		defer s.tasks.Done()
		f()
	}()
}

func (s *side) fetch(done func([]byte, error)) {
	select {
	case val := <-s.other.slots:
		done(val, nil)
	case <-s.over.Done():
		done(nil, s.over.Err())
	}
}

func (s *side) publish(f func() ([]byte, error)) {
	val, err := f()
	if err == nil {
		s.slots <- val
	}
}

// pair is two connected ranks over a network.
func pair(t *testing.T, o sim.Options) (a, b *side) {
	t.Helper()
	la, lb := linktest.Sim(o)(t)
	a, b = newSide(t, la), newSide(t, lb)
	a.other, b.other = b, a
	a.ep, b.ep = linktest.Join(t, la, lb, fabric.EndpointOptions{})
	for _, s := range []*side{a, b} {
		s.prog.Do(func() { s.q.Up(s.ep) })
	}
	t.Cleanup(func() {
		for _, s := range []*side{a, b} {
			s.close(t)
		}
	})
	return a, b
}

func newSide(t *testing.T, l fabric.Link) *side {
	s := &side{slots: make(chan []byte, 1)}
	s.over, s.end = context.WithCancel(context.Background())
	s.Init(Options{Inbox: &s.inbox, Receipts: &s.receipts, Protocol: s, Contention: time.Second})
	var err error
	s.pins, err = message.NewPins(l, 1<<20)
	require.NoError(t, err)
	require.NoError(t, s.AddLink(l, s.pins))
	s.AddQueue(&s.q, 0, false, s)
	s.mem, err = mr.NewDomain(mr.Rail{Link: l})
	require.NoError(t, err)
	s.region, err = s.mem.Alloc(1<<20, fabric.AccessAll, 0)
	require.NoError(t, err)
	s.prog, err = progress.New([]fabric.Link{l}, s, cpu.Default())
	require.NoError(t, err)
	s.Start(s.prog, s.mem)
	s.prog.Start()
	return s
}

func (s *side) close(t *testing.T) {
	s.end()
	s.tasks.Wait()
	s.prog.Do(func() {
		s.End(context.Canceled)
		s.Down(context.Canceled)
		_ = s.ep.Close()
	})
	testutil.Eventually(t, patience, func() (idle bool) {
		s.prog.Progress()
		s.prog.Do(func() { idle = s.q.InFlight() == 0 })
		return idle
	}, "requests to come back")
	require.NoError(t, s.prog.Close())
	require.NoError(t, s.Close())
	require.NoError(t, s.pins.Close())
	require.NoError(t, s.mem.Close())
}

// at is a place in the other side's region.
func (s *side) at(off uint64) (addr uint64, rkey uint32) {
	k := s.other.region.Key()
	return k.Addr + off, k.RKeys[0]
}

// op begins an operation at a place in the other side's region.
func (s *side) op(k Kind, off uint64) *Op {
	o := New(&s.q, k)
	o.Remote(s.at(off))
	return o
}

// do posts o and waits for it.
func (s *side) do(t *testing.T, o *Op) (uint64, error) {
	t.Helper()
	gen := o.Gen()
	s.q.Post(o)
	require.NoError(t, s.prog.Wait(testutil.Context(t, patience), &o.Waiter))
	v, err := o.Value, o.Err
	require.True(t, o.Claim(gen))
	o.Release()
	return v, err
}
