package bringup

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/internal/testutil"
)

// told is what a side says about a rail: an address, or that its endpoint is closed.
type told struct{ address string }

var closedRail = told{}

// recorder is a job that records what this rank says about rails. Its other rank is the test.
type recorder struct {
	aloof
	rank int
	said chan told
}

func (j *recorder) Rank() int { return j.rank }
func (j *recorder) Send(ctx context.Context, _ int, key string, val []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if key == KeyRail {
		j.said <- told{string(val[5:])}
	}
	return nil
}

// railLink is a link whose endpoints do what the test says.
type railLink struct {
	fabric.Link
	shortages chan error    // the next calls of NewEndpoint fail
	connects  chan struct{} // lets a Connect succeed
}

type railEndpoint struct {
	fabric.Endpoint
	l *railLink
}

func (l *railLink) NewEndpoint(fabric.EndpointOptions) (fabric.Endpoint, error) {
	select {
	case err := <-l.shortages:
		return nil, err
	default:
		return &railEndpoint{l: l}, nil
	}
}

func (e *railEndpoint) Address() []byte { return []byte("mine") }
func (e *railEndpoint) Close() error    { return nil }
func (e *railEndpoint) Connect(ctx context.Context, _ []byte) error {
	select {
	case <-e.l.connects:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// railPeer is a peer whose rail is idle when the test says so.
type railPeer struct {
	Peer
	ups  chan struct{}
	busy bool // owner's
}

func (p *railPeer) Down(error) {}
func (p *railPeer) Idle() bool { return true }
func (p *railPeer) RailUp(int, fabric.Endpoint) error {
	p.ups <- struct{}{}
	return nil
}
func (p *railPeer) RailDown(int, error) {}
func (p *railPeer) RailClosed(int)      {}
func (p *railPeer) RailIdle(int) bool   { return !p.busy }

// railRig is one side of a rail; the test is the other one.
type railRig struct {
	t    *testing.T
	prog *progress.Engine
	job  *recorder
	link *railLink
	peer *railPeer
	n    *Connection
}

// newRailRig returns the side of the rank, 0 or 1.
func newRailRig(t *testing.T, rank int) *railRig {
	real, err := sim.NewNetwork(sim.Options{}).NewLink()
	require.NoError(t, err)
	r := &railRig{t: t, job: &recorder{rank: rank, said: make(chan told, 100)},
		link: &railLink{Link: real, shortages: make(chan error, 10), connects: make(chan struct{}, 10)},
		peer: &railPeer{ups: make(chan struct{}, 10)}}
	r.prog, err = progress.New([]fabric.Link{real}, idle{}, cpu.SpinPolicy{})
	require.NoError(t, err)
	r.prog.Start()
	tasks := NewTasks()
	l := &Links{Config: Config{Log: slog.New(slog.DiscardHandler)}, job: r.job, open: []fabric.Link{real, r.link}, to: []int{0, 0},
		rails: []Rail{{Index: 1, Number: 1, Where: "here"}}}
	r.link.Link = real // of the same name
	r.n = NewDialer(l, r.prog, tasks, []uint8{0}, []Peer{r.peer, r.peer}).Connector(1 - rank).Now()
	t.Cleanup(func() {
		tasks.End()
		require.NoError(t, r.prog.Close())
		require.NoError(t, real.Close())
	})
	return r
}

// hear is what the other side says.
func (r *railRig) hear(address string) {
	r.t.Helper()
	val := append(append(r.n.Numbered(), 1), address...)
	require.True(r.t, r.n.c.Told(KeyRail, val), "the other side broke no rule")
}

// says waits for what this side says next.
func (r *railRig) says(want told) {
	r.t.Helper()
	testutil.Within(r.t, testutil.Limit, "this side says something", func() { require.Equal(r.t, want, <-r.job.said) })
}

// up waits until the rail is connected.
func (r *railRig) up() {
	r.t.Helper()
	testutil.Within(r.t, testutil.Limit, "the rail is connected", func() { <-r.peer.ups })
}

// connect makes the first connection.
func (r *railRig) connect() {
	r.link.connects <- struct{}{}
	r.n.Go(r.n.rails[0].connect)
	r.says(told{"mine"})
	r.hear("theirs")
	r.up()
}

// An attempt that the caller has given up before this side began with it ends here as well,
// although its endpoint would be connected for ever.
func TestRailsThatTheCallerGivesUpEnd(t *testing.T) {
	r := newRailRig(t, 1)
	r.connect()
	for range 20 {
		r.prog.Do(func() { r.peer.busy = true })
		r.hear("")
		r.says(closedRail)
		r.hear("theirs")
		r.hear("")
		r.prog.Do(func() { r.peer.busy = false })
		r.says(closedRail)
		r.link.connects <- struct{}{}
		r.hear("theirs")
		r.says(told{"mine"})
		r.up()
	}
}

// A side that calls and fails before it has said anything calls again without a word about
// that: to the other side, which has not begun, it would break the rules.
func TestRailsThatFailUnsaidAreCalledAgain(t *testing.T) {
	r := newRailRig(t, 0)
	r.connect()
	r.link.shortages <- fabric.ErrResources
	r.prog.Do(func() { r.n.RailLost(1, errors.New("the test's")) })
	r.says(closedRail)
	r.hear("")
	r.says(told{"mine"})
	require.Empty(t, r.link.shortages)
	r.link.connects <- struct{}{}
	r.hear("theirs")
	r.up()
}

// A rail that fails at first is called again if the other side has shown that it has it.
func TestRailsThatFailAtFirst(t *testing.T) {
	r := newRailRig(t, 0)
	r.n.Go(r.n.rails[0].connect)
	r.says(told{"mine"})
	r.hear("theirs")
	r.hear("")
	r.says(closedRail)
	r.says(told{"mine"})
	r.link.connects <- struct{}{}
	r.hear("theirs")
	r.up()

	r = newRailRig(t, 0)
	r.n.Go(r.n.rails[0].connect)
	r.says(told{"mine"})
	r.hear("") // it lacks the rail
	r.says(closedRail)
	testutil.Within(t, testutil.Limit, "nothing is tried again", r.n.tasks.Wait)
	require.Empty(t, r.job.said)
}
