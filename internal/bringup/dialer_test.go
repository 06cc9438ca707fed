package bringup

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
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
func (idle) Refuse()                           {}
func (idle) Step() bool                        { return false }
func (idle) Watches() bool                     { return false }
func (idle) Rest(bool) time.Duration           { return 0 }
func (idle) Complete(int, []fabric.Completion) {}

// seen counts what links report.
type seen struct {
	idle
	events atomic.Int64
}

func (s *seen) Complete(_ int, cs []fabric.Completion) { s.events.Add(int64(len(cs))) }

// remade is a peer whose connection is being replaced. Owner's.
type remade struct {
	Peer
	seen
	told    int64 // events of links before the call of Down
	busy    bool  // operations of the old connection are in flight, until Idle is called
	forgot  bool  // the old connection was forgotten
	early   bool  // it was forgotten while busy
	renewed chan struct{}
}

func (p *remade) Down(error) { p.told = p.events.Load() }
func (p *remade) Idle() bool {
	defer func() { p.busy = false }()
	return !p.busy
}
func (p *remade) Forget()                  { p.forgot, p.early = true, p.busy }
func (p *remade) Renew(*Connection)        { close(p.renewed) }
func (p *remade) Heartbeat() (h Heartbeat) { return h }
func (p *remade) Cause(err error) error    { return err }

// deserted is a job whose other ranks have ended.
type deserted struct{ aloof }

func (deserted) Send(context.Context, int, string, []byte) error {
	return &wireup.PeerGoneError{Op: "send", Ranks: []int{1}}
}

// remaking returns the connector of a peer in a job that is silent.
func remaking(t *testing.T) (*Connector, *remade) {
	link, err := sim.NewNetwork(sim.Options{}).NewLink()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, link.Close()) })
	p := &remade{renewed: make(chan struct{})}
	prog, err := progress.New([]fabric.Link{link}, &p.seen, cpu.SpinPolicy{}, cpu.NoHome, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, prog.Close()) })
	tasks := NewTasks()
	t.Cleanup(tasks.End)
	l := &Links{Config: Config{Log: slog.New(slog.DiscardHandler)}, job: aloof{}, open: []fabric.Link{link}, to: []int{0, 0}}
	return NewDialer(l, prog, tasks, []uint8{0}, []Peer{p, p}).Connector(1), p
}

// Connecting that begins when the job has reported the end of the rank already fails at once: no other report comes.
func TestConnectWithARankThatHasEnded(t *testing.T) {
	c, _ := remaking(t)
	c.d.links.job, c.d.links.PeerTimeout = deserted{}, testutil.Limit
	_, err := c.Endpoint(testutil.Context(t, testutil.Limit))
	require.ErrorIs(t, err, wireup.ErrPeerGone)
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

// What the link reports before the connection is replaced counts: it may be the reason.
func TestTheLinkIsHeardBeforeAConnectionIsReplaced(t *testing.T) {
	c, p := remaking(t)
	link := c.d.links.open[0]
	a, err := link.NewEndpoint(fabric.EndpointOptions{})
	require.NoError(t, err)
	b, err := link.NewEndpoint(fabric.EndpointOptions{})
	require.NoError(t, err)
	require.NoError(t, a.Connect(t.Context(), b.Address()))
	require.NoError(t, b.Connect(t.Context(), a.Address()))
	require.NoError(t, b.Close())
	c.d.mu.Lock()
	c.renewLocked()
	c.d.mu.Unlock()
	<-p.renewed
	require.EqualValues(t, 1, p.told)
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
