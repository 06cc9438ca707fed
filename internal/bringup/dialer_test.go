package bringup

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/progress"
)

// aloof is a job whose other ranks are silent.
type aloof struct{ Job }

func (aloof) Rank() int                                       { return 0 }
func (aloof) Take(string) error                               { return nil }
func (aloof) Done() <-chan struct{}                           { return nil }
func (aloof) Send(context.Context, int, string, []byte) error { return nil }

// idle is a protocol without work.
type idle struct{}

func (idle) Pending() bool                     { return false }
func (idle) Step() bool                        { return false }
func (idle) Rest(bool) time.Duration           { return 0 }
func (idle) Complete(int, []fabric.Completion) {}

// remade is a peer whose connection is being replaced. Owner's.
type remade struct {
	Peer
	busy    bool // operations of the old connection are in flight, until Idle is called
	forgot  bool // the old connection was forgotten
	early   bool // it was forgotten while busy
	renewed chan struct{}
}

func (p *remade) Down(error) {}
func (p *remade) Idle() bool {
	defer func() { p.busy = false }()
	return !p.busy
}
func (p *remade) Forget()                  { p.forgot, p.early = true, p.busy }
func (p *remade) Renew(*Connection)        { close(p.renewed) }
func (p *remade) Heartbeat() (h Heartbeat) { return h }

// remaking returns the connector of a peer in a job that is silent.
func remaking(t *testing.T) (*Connector, *remade) {
	link, err := sim.NewNetwork(sim.Options{}).NewLink()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, link.Close()) })
	prog, err := progress.New([]fabric.Link{link}, idle{}, cpu.SpinPolicy{}, cpu.NoHome)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, prog.Close()) })
	prog.Start(false)
	tasks := NewTasks()
	t.Cleanup(tasks.End)
	p := &remade{renewed: make(chan struct{})}
	l := &Links{Config: Config{Log: slog.New(slog.DiscardHandler)}, job: aloof{}, open: []fabric.Link{link}, to: []int{0, 0}}
	return NewDialer(l, prog, tasks, []uint8{0}, []Peer{p, p}).Connector(1), p
}

// A call of Reset that comes late, for a connection that another call or the peer has replaced
// already, does not replace the new one.
func TestResetOfAReplacedConnection(t *testing.T) {
	c, p := remaking(t)
	lost := c.Now()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Reset(ended, lost), context.Canceled)
	<-p.renewed
	now := c.Now()
	require.NotSame(t, lost, now)
	require.ErrorIs(t, c.Reset(ended, lost), context.Canceled, "the new one is being made")
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	require.Same(t, now, c.Now())
	require.Nil(t, c.remake)
}

// Operations posted by the last goroutine of a connection that is over end before the
// connection is forgotten.
func TestRenewWaitsForTheLastTask(t *testing.T) {
	c, p := remaking(t)
	n := c.Now()
	n.Go(func() {
		<-n.Life().Done()
		for range 1000 {
			runtime.Gosched()
		}
		c.d.prog.Do(func() { p.busy = true })
	})
	c.d.mu.Lock()
	c.renewLocked()
	c.d.mu.Unlock()
	<-p.renewed
	require.True(t, p.forgot)
	require.False(t, p.early)
	require.NotSame(t, n, c.Now())
}
