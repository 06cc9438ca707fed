package poller

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
)

var errLate = errors.New("late")

// open makes a poller on one end of a connection with the given depth, and a read of 8
// bytes of the peer. Its clock advances by a millisecond at each reading.
func open(t *testing.T, depth int) (p *Poller, peer *sim.Link, read fabric.WR) {
	a, b := linktest.Sim(sim.Options{})(t)
	ea, eb := linktest.Join(t, a, b, fabric.EndpointOptions{ID: 5, Depth: depth})
	mine, err := a.Alloc(64, fabric.AccessAll)
	require.NoError(t, err)
	theirs, err := b.Alloc(64, fabric.AccessAll)
	require.NoError(t, err)
	now := int64(0)
	p = &Poller{
		Link: a, EP: ea, ID: 5, Ctx: context.Background(), Limit: time.Hour, PollEach: true,
		Now:     func() int64 { now += int64(time.Millisecond); return now },
		Expired: func(time.Duration) error { return errLate },
		Pause:   func() { b.Poll(nil) },
	}
	t.Cleanup(func() {
		require.NoError(t, errors.Join(ea.Close(), eb.Close(), mine.Close(), theirs.Close()))
	})
	return p, b.(*sim.Link), fabric.WR{
		Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: []fabric.SGE{fabric.NewSGE(mine.Bytes()[:8], mine.LKey())},
		RemoteAddr: theirs.Key().Addr, RKey: theirs.Key().RKey,
	}
}

// A list longer than the queue is posted whole, and Drain waits for every request.
func TestPostAndDrain(t *testing.T) {
	p, _, read := open(t, 2)
	list := make([]fabric.WR, 9)
	for i := range list {
		list[i] = read
		list[i].ID = uint64(i)
	}
	require.NoError(t, p.Post(list, len(list)))
	require.NoError(t, p.Drain())
	require.EqualValues(t, len(list), p.Acked)
	require.Equal(t, p.Sent, p.Acked)
	require.EqualValues(t, 8, p.IDs[0], "the last to complete")
}

// Completions of requests posted by others are passed to Claim, and those of other
// endpoints to Other.
func TestOthersCompletions(t *testing.T) {
	p, _, read := open(t, 4)
	read.ID = 77
	claimed, other := 0, 0
	p.Claim = func(c *fabric.Completion) bool { claimed++; return c.ID == 77 }
	_, err := p.EP.Post([]fabric.WR{read})
	require.NoError(t, err)
	testutil.Eventually(t, testutil.Limit, func() bool {
		_, err := p.Poll()
		require.NoError(t, err)
		return claimed == 1
	}, "a completion")
	require.Zero(t, p.Acked)

	p.ID, p.Other = 6, func(c *fabric.Completion) { require.EqualValues(t, 5, c.EP); other++ }
	_, err = p.EP.Post([]fabric.WR{read})
	require.NoError(t, err)
	testutil.Eventually(t, testutil.Limit, func() bool {
		_, err := p.Poll()
		require.NoError(t, err)
		return other == 1
	}, "another endpoint's completion")
	require.Zero(t, p.Acked)
}

func TestWaitsEnd(t *testing.T) {
	p, peer, read := open(t, 4)
	peer.Freeze()
	defer peer.Thaw()
	require.NoError(t, p.Post([]fabric.WR{read}, 1))
	p.Limit = 10 * time.Millisecond
	require.ErrorIs(t, p.Drain(), errLate)

	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	p.Ctx = ctx
	cancel(why)
	require.ErrorIs(t, p.Drain(), why)
	p.Begin()
	require.ErrorIs(t, p.Miss(), why)

	p.Ctx, p.Pause, p.Limit = context.Background(), nil, 5*time.Millisecond // spins in real time
	require.ErrorIs(t, p.Drain(), errLate)
}

// The first failure is returned from then on.
func TestFailureStays(t *testing.T) {
	p, _, read := open(t, 4)
	read.RKey++
	require.NoError(t, p.Post([]fabric.WR{read}, 1))
	err := p.Drain()
	require.ErrorIs(t, err, fabric.StatusRemoteAccess.Err())
	_, again := p.Poll()
	require.Equal(t, err, again)
	require.ErrorIs(t, p.Post([]fabric.WR{read}, 1), fabric.ErrDown)
}
