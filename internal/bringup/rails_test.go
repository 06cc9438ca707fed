package bringup

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/internal/testutil"
)

// told is what a side says about a rail: an address, that its endpoint is connected, or that it is closed, and the last mark.
type told struct {
	address string
	ready   bool
	mark    uint64
}

var closedRail = told{}

// recorder is a job that records what this rank says about rails. Its other rank is the test.
type recorder struct {
	aloof
	rank int
	said chan told

	letters chan string
}

func (j *recorder) Rank() int { return j.rank }
func (j *recorder) Send(ctx context.Context, _ int, key string, val []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if key == KeyRail {
		v, err := ParseRailValue(val[4:])
		if err != nil {
			return err
		}
		j.said <- told{string(v.Address), v.Ready, v.Mark}
	}
	if key == KeyResume {
		j.letters <- string(val[4:])
	}
	return nil
}

// railLink is a link whose endpoints do what the test says.
type railLink struct {
	fabric.Link
	shortages chan error    // the next calls of NewEndpoint fail
	connects  chan struct{} // lets a Connect succeed
	proofs    chan bool     // EndpointOptions.Prove of each endpoint
	reports   chan error    // the next results of Usable
}

func (l *railLink) Usable() error {
	select {
	case err := <-l.reports:
		return err
	default:
		return nil
	}
}

type railEndpoint struct {
	fabric.Endpoint
	l *railLink
}

func (l *railLink) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	l.proofs <- o.Prove
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
	ups   chan struct{}
	busy  bool  // owner's
	down  error // owner's
	mine  fabric.Region
	marks []uint64 // of the other side's closed rails; owner's
}

func (p *railPeer) Down(err error) {
	p.down = err
}
func (p *railPeer) Replan()               {}
func (p *railPeer) Cause(err error) error { return err }
func (p *railPeer) Idle() bool            { return true }
func (p *railPeer) RailUp(int, fabric.Endpoint, fabric.RemoteKey) error {
	p.ups <- struct{}{}
	return nil
}
func (p *railPeer) RailMarks(_ int, mine fabric.Region) { p.mine = mine }
func (p *railPeer) RailDown(int, error)                 {}
func (p *railPeer) RailIdle(int) bool                   { return !p.busy }
func (p *railPeer) RailClosed(_ int, mark uint64) error {
	if mark == lie {
		return errLied
	}
	p.marks = append(p.marks, mark)
	return nil
}

// lie is a mark that the peer refuses with errLied.
const lie = 1 << 40

var errLied = errors.New("a mark that was not sent")

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
	link, err := sim.NewNetwork(sim.Options{}).NewLink()
	require.NoError(t, err)
	r := &railRig{t: t, job: &recorder{rank: rank, said: make(chan told, 100)},
		link: &railLink{Link: link, shortages: make(chan error, 10), connects: make(chan struct{}, 10),
			proofs: make(chan bool, 100), reports: make(chan error, 10)},
		peer: &railPeer{ups: make(chan struct{}, 10)}}
	r.prog, err = progress.New([]fabric.Link{link}, idle{}, cpu.SpinPolicy{}, cpu.NoHome, 1)
	require.NoError(t, err)
	r.prog.Start(false)
	tasks := NewTasks()
	l := &Links{Config: Config{Log: slog.New(slog.DiscardHandler)}, job: r.job, open: []fabric.Link{link, r.link}, to: []int{0, 0},
		rails: []Rail{{Index: 1, Number: 1, Where: "here"}}}
	r.link.Link = link // of the same name
	r.n = NewDialer(l, r.prog, tasks, []uint8{0}, []Peer{r.peer, r.peer}).Connector(1 - rank).Now()
	t.Cleanup(func() {
		tasks.End()
		require.NoError(t, r.prog.Close())
		require.NoError(t, r.peer.mine.Close())
		require.NoError(t, link.Close())
	})
	return r
}

// hear is what the other side says.
func (r *railRig) hear(address string) {
	r.t.Helper()
	r.hearValue(RailValue{Address: []byte(address), Word: fabric.RemoteKey{Addr: 8, Len: 8}})
}

func (r *railRig) hearValue(v RailValue) {
	r.t.Helper()
	v.Number = 1
	require.True(r.t, r.n.c.Told(KeyRail, v.Append(r.n.Numbered())), "the other side broke no rule")
}

// says waits for what this side says next.
func (r *railRig) says(want told) {
	r.t.Helper()
	testutil.Within(r.t, testutil.Limit, "this side says something", func() { require.Equal(r.t, want, <-r.job.said) })
}

// up waits until the rail is connected on both sides.
func (r *railRig) up() {
	r.t.Helper()
	r.says(told{ready: true})
	require.Empty(r.t, r.peer.ups, "the other side is not connected")
	r.hearValue(RailValue{Ready: true})
	testutil.Within(r.t, testutil.Limit, "the rail is connected", func() { <-r.peer.ups })
}

// connect makes the first connection.
func (r *railRig) connect() {
	r.link.connects <- struct{}{}
	r.n.Go(r.n.rails[0].connect)
	r.says(told{address: "mine"})
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
		r.says(told{address: "mine"})
		r.up()
	}
}

// A side that closes its rail after this one has connected ends the attempt; it says that it is connected once, after
// its address.
func TestRailsThatEndBeforeTheyAreReady(t *testing.T) {
	r := newRailRig(t, 1)
	ready := (&RailValue{Number: 1, Ready: true}).Append(r.n.Numbered())
	require.False(t, r.n.c.Told(KeyRail, ready))
	r.connect()
	require.False(t, r.n.c.Told(KeyRail, ready))
	r.hear("")
	r.says(closedRail)
	r.link.connects <- struct{}{}
	r.hear("theirs")
	r.says(told{address: "mine"})
	r.says(told{ready: true})
	r.hear("")
	require.False(t, r.n.c.Told(KeyRail, ready))
	r.says(closedRail)
	require.Empty(t, r.peer.ups)
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
	r.says(told{address: "mine"})
	require.Empty(t, r.link.shortages)
	r.link.connects <- struct{}{}
	r.hear("theirs")
	r.up()
}

// A side whose port is down calls again without a word to the other one, and a rail that was lost is in use only
// when the peer has answered over it.
func TestLostRailsAreProved(t *testing.T) {
	r := newRailRig(t, 0)
	r.connect()
	require.False(t, <-r.link.proofs)
	for range 3 {
		r.link.reports <- errors.New("the port is down")
	}
	r.prog.Do(func() { r.n.RailLost(1, errors.New("the test's")) })
	r.says(closedRail)
	r.hear("")
	r.says(told{address: "mine"})
	require.Empty(t, r.link.reports)
	r.link.connects <- struct{}{}
	r.hear("theirs")
	r.up()
	require.Len(t, r.link.proofs, 4)
	for range 4 {
		require.True(t, <-r.link.proofs)
	}
	require.Empty(t, r.job.said)
}

func TestRetryAfter(t *testing.T) {
	for lost, want := range map[time.Duration]time.Duration{
		0: 50 * time.Millisecond, time.Second: 250 * time.Millisecond, 6 * time.Second: 500 * time.Millisecond,
		32 * time.Second: 500 * time.Millisecond, 64 * time.Second: time.Second, time.Hour: 10 * time.Second,
	} {
		require.Equal(t, want, retryAfter(lost), lost)
	}
}

// A rail that fails at first is called again if the other side has shown that it has it.
func TestRailsThatFailAtFirst(t *testing.T) {
	r := newRailRig(t, 0)
	r.n.Go(r.n.rails[0].connect)
	r.says(told{address: "mine"})
	r.hear("theirs")
	r.hear("")
	r.says(closedRail)
	r.says(told{address: "mine"})
	r.link.connects <- struct{}{}
	r.hear("theirs")
	r.up()

	r = newRailRig(t, 0)
	r.n.Go(r.n.rails[0].connect)
	r.says(told{address: "mine"})
	r.hear("") // it lacks the rail
	r.says(closedRail)
	testutil.Within(t, testutil.Limit, "nothing is tried again", r.n.tasks.Wait)
	require.Empty(t, r.job.said)
}

// The last mark of each side reaches the other one when the rail is closed, and is gone at the next
// attempt.
func TestMarksAreSaidAtTheEndOfARail(t *testing.T) {
	r := newRailRig(t, 1)
	r.connect()
	for i := range uint64(3) {
		binary.LittleEndian.PutUint64(r.n.rails[0].marks.Bytes(), 7+i)
		r.hearValue(RailValue{Mark: 5 + i})
		r.says(told{mark: 7 + i})
		r.link.connects <- struct{}{}
		r.hear("theirs")
		r.says(told{address: "mine"})
		r.up()
		require.Zero(t, binary.LittleEndian.Uint64(r.n.rails[0].marks.Bytes()))
	}
	var marks []uint64
	r.prog.Do(func() { marks = r.peer.marks })
	require.Equal(t, []uint64{5, 6, 7}, marks)
}

// A mark that cannot be ends the connection; a rail on which nothing was placed has none.
func TestHostileMarks(t *testing.T) {
	r := newRailRig(t, 1)
	r.connect()
	r.prog.Do(func() { r.peer.busy = true })
	r.hear("")
	r.says(closedRail)
	r.hear("theirs")
	v := RailValue{Number: 1, Mark: 1}
	require.False(t, r.n.c.Told(KeyRail, v.Append(r.n.Numbered())))
	require.Nil(t, r.peer.down)
	r = newRailRig(t, 1)
	r.connect()
	r.hearValue(RailValue{Mark: lie})
	r.says(closedRail)
	testutil.Eventually(t, testutil.Limit, func() (ended bool) {
		r.prog.Do(func() { ended = errors.Is(r.peer.down, errLied) })
		return ended
	}, "the connection ends")
	require.Empty(t, r.job.said)
}
