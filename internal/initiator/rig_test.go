package initiator

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/mr"
)

// side is one of two ranks, with a queue to the other.
type side struct {
	Standalone
	region   *mr.Registration // 1 MiB, for the other side to reach
	other    *side
	slots    chan []byte // that this side has published
	short    chan error  // why attempts to fetch slots fail
	over     context.Context
	end      context.CancelFunc
	tasks    sync.WaitGroup
	connects int
	probed   int
}

func (s *side) Connect()                              { s.connects++ }
func (s *side) Probed()                               { s.probed++ }
func (s *side) FetchSlots(done func([]byte, error))   { s.background(func() { s.fetch(done) }) }
func (s *side) PublishSlots(f func() ([]byte, error)) { s.background(func() { s.publish(f) }) }

// holds reports whether messages wait for the operations of the queue.
func (s *side) holds() bool {
	_, free := (*Order)(&s.Queue).Last()
	return !free
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
	case err := <-s.short:
		done(nil, err)
		return
	default:
	}
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
	a.EP, b.EP = linktest.Join(t, la, lb, fabric.EndpointOptions{})
	for _, s := range []*side{a, b} {
		s.Prog.Do(func() { s.Queue.Up(s.EP) })
	}
	t.Cleanup(func() {
		for _, s := range []*side{a, b} {
			s.close(t)
		}
	})
	return a, b
}

func newSide(t *testing.T, l fabric.Link) *side {
	s := newSideIdle(t, l)
	s.Prog.Start(false)
	return s
}

// newSideIdle is newSide without a progress goroutine.
func newSideIdle(t *testing.T, l fabric.Link) *side {
	s := &side{slots: make(chan []byte, 1), short: make(chan error, 1)}
	s.over, s.end = context.WithCancel(context.Background())
	require.NoError(t, s.Open(l, s))
	var err error
	s.region, err = s.Memory.Alloc(1<<20, fabric.AccessAll, 0)
	require.NoError(t, err)
	return s
}

func (s *side) close(t *testing.T) {
	s.end()
	s.tasks.Wait()
	require.NoError(t, s.Close())
}

// at is a place in the other side's region.
func (s *side) at(off uint64) (addr uint64, rkey uint32) {
	k := s.other.region.Key()
	return k.Addr + off, k.RKeys[0]
}

// op begins an operation at a place in the other side's region.
func (s *side) op(k Kind, off uint64) *Op {
	o := New(&s.Queue, k)
	o.Remote(s.at(off))
	o.Operands(0, 0)
	return o
}

// do posts o and waits for it.
func (s *side) do(t *testing.T, o *Op) (uint64, error) {
	t.Helper()
	gen := o.Gen()
	s.Queue.Post(o)
	require.NoError(t, s.Prog.Wait(testutil.Context(t, testutil.Limit), &o.Waiter))
	v, err := o.Value, o.Err
	require.True(t, o.Claim(gen))
	o.Release()
	return v, err
}
