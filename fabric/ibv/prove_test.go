package ibv

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/verbs"
)

// proving is an endpoint that is being connected with a proof.
type proving struct {
	l    *Link
	ep   *endpoint
	done chan error
}

func provingPair(t *testing.T, o fabric.EndpointOptions) (ps [2]*proving) {
	o.Prove = true
	a, b := open2(t)
	for i, l := range []fabric.Link{a, b} {
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		ep, err := l.NewEndpoint(o)
		require.NoError(t, err)
		ps[i] = &proving{l.(*Link), ep.(*endpoint), make(chan error, 1)}
	}
	return ps
}

func (p *proving) connect(t *testing.T, with *proving) {
	ctx, address := testutil.Context(t, testutil.Limit), with.ep.Address()
	go func() { p.done <- p.ep.Connect(ctx, address) }()
}

// ends polls until the connection is made or has failed, at most for that time.
func ends(t *testing.T, ps [2]*proving, p *proving, limit time.Duration) (err error) {
	t.Helper()
	testutil.Eventually(t, limit, func() bool {
		for _, x := range ps {
			require.Zero(t, x.l.Poll(make([]fabric.Completion, 4)))
		}
		select {
		case err = <-p.done:
			return true
		default:
			return false
		}
	}, "the attempt to connect ends")
	return err
}

// The side that is ready first has sent its proof in vain, and does not wait until its device repeats it, after minutes.
func TestProofOfTheSideThatIsFirst(t *testing.T) {
	ps := provingPair(t, fabric.EndpointOptions{PeerTimeout: time.Hour})
	ps[0].connect(t, ps[1])
	testutil.Eventually(t, testutil.Limit, func() bool {
		st, err := ps[0].ep.qp.State()
		require.NoError(t, err)
		return st == verbs.StateRTS
	}, "the first side is ready")
	time.Sleep(50 * time.Millisecond) // sleep: until its packet has been dropped, of which nobody is told
	require.Empty(t, ps[0].done)
	ps[1].connect(t, ps[0])
	for _, p := range ps {
		require.NoError(t, ends(t, ps, p, 10*time.Second)) // deadline: before the device repeats the packet
	}
}

// Without an answer the attempt fails, after the device has given up, or with its context.
func TestNoProof(t *testing.T) {
	ps := provingPair(t, fabric.EndpointOptions{PeerTimeout: 300 * time.Millisecond})
	ps[0].connect(t, ps[1])
	require.ErrorIs(t, ends(t, ps, ps[0], testutil.Limit), errNoProof)
	ps = provingPair(t, fabric.EndpointOptions{PeerTimeout: time.Hour})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, ps[0].ep.Connect(ctx, ps[1].ep.Address()), context.Canceled)
}
