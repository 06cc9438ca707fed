package rma

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/sampling"
)

const (
	farRank = 2
	farPost = 20 * time.Microsecond // time to post a request to it
)

// farDevice is a simulated network on which rank 2 is far away from the others.
const farDevice = "simfar"

func init() {
	devices.Store(farDevice, func() (fabric.Link, error) { l, err := shared.NewLink(); return farLink{l}, err })
}

// farLink is a link of farDevice.
type farLink struct{ fabric.Link }

func (l farLink) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	ep, err := l.Link.NewEndpoint(o)
	return &farEndpoint{ep, bringup.Rank(o.ID) == farRank}, err
}

type farEndpoint struct {
	fabric.Endpoint
	far bool
}

func (e *farEndpoint) Near() fabric.Vicinity {
	if e.far {
		return fabric.Vicinity{Class: "far", Private: "process_vm"}
	}
	return fabric.Vicinity{Class: "l2", Private: "process_vm"}
}

func (e *farEndpoint) Post(wrs []fabric.WR) (int, error) {
	n, err := e.Endpoint.Post(wrs)
	for start := time.Now(); e.far && time.Since(start) < time.Duration(n)*farPost; {
	}
	return n, err
}

// Peers of two classes in one job have parameters of their own: measured in the background
// after the first contact, within the bounds, used by open connections and channels, saved
// by class, and loaded by the next start. Until then those of the nearest class serve.
func TestPathsByClass(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx := testutil.Context(t, testutil.Limit)
	// On a slow or busy machine the budget may end before all is measured.
	for budget := sampling.DefaultBudget; !measurePath(t, dir, budget); budget = min(2*budget, sampling.MaxBudget) {
		require.NoError(t, ctx.Err())
		dir = t.TempDir()
	}
	es := openFar(t, func(c *Config) { c.Profiles = dir })
	defer func() {
		if t.Failed() {
			saved, err := filepath.Glob(filepath.Join(dir, "*"))
			t.Logf("paths %+v and %+v, measured for %v; saved: %v, %v", es[0].bringup.Path(farRank), es[farRank].bringup.Path(0), es[0].Stats().PathsTime, saved, err)
		}
	}()
	meet(t, es[0], es[farRank])
	testutil.Eventually(t, testutil.Limit, func() bool { return far(es[0], farRank) && far(es[farRank], 0) }, "figures of the far class")
	require.Equal(t, "profile", es[0].bringup.Path(farRank).Source)
	for _, e := range es {
		require.Zero(t, e.Stats().PathsTime, "what is saved is not measured again")
	}
}

// openFar opens a job of three ranks, on farDevice.
func openFar(t *testing.T, change func(*Config)) []*Engine {
	t.Helper()
	return openWith(t, 3, "", func(c *Config) { c.Device, c.Sampling = farDevice, ""; change(c) })
}

// far reports whether e uses figures of the far class for that rank.
func far(e *Engine, rank int) bool { return e.bringup.Path(rank).Of == sampling.Sockets }

// measurePath connects ranks 0 and 2 of a job, and reports whether they have measured the
// path within the budget.
func measurePath(t *testing.T, dir string, budget time.Duration) bool {
	t.Helper()
	const bytes = 1 << 20
	es := openFar(t, func(c *Config) { c.Profiles, c.PathBytes, c.SamplingBudget = dir, bytes, budget })
	near, before := es[0].bringup.Path(1), es[0].bringup.Path(farRank)
	require.Equal(t, sampling.SharedL2, near.Of)
	require.Equal(t, bringup.Path{Link: "sim", Of: near.Of, Source: near.Source, Params: near.Params}, before, "before there is a connection")
	meet(t, es[0], es[1])
	meet(t, es[0], es[farRank])
	failed := func(e *Engine) bool { s := e.Stats(); return s.PathsTime > 0 && s.PathsMeasured == 0 }
	gone := false
	testutil.Eventually(t, testutil.Limit, func() bool {
		gone = failed(es[0]) || failed(es[farRank])
		return gone || far(es[0], farRank) && far(es[farRank], 0)
	}, "figures of the far class")
	if gone || es[0].bringup.Path(farRank).Params.CPU == near.Params.CPU { // without budget for that
		for _, e := range es {
			require.NoError(t, e.Close())
		}
		return false
	}
	require.Equal(t, near.Params, es[0].bringup.Path(1).Params, "the other class keeps its own")
	p := es[0].bringup.Path(farRank)
	require.Equal(t, sampling.Sockets, p.Class)
	require.Equal(t, "measurement", p.Source)
	cpu := p.Params.CPU
	require.GreaterOrEqual(t, cpu.A+cpu.B, float64(farPost)/2, "posting takes that")

	b := es[0].Peer(farRank).Batch()
	b.Add(1, []byte("first"))
	b.Add(2, []byte("second"))
	text, err := b.Explain()
	require.NoError(t, err)
	require.Contains(t, text, "path: sim, class host-far; parameters: measurement\n")
	require.Equal(t, "sim, class host-far; parameters: measurement", es[0].Peer(farRank).Stats().Path)
	testutil.Eventually(t, testutil.Limit, func() (used bool) {
		es[0].prog.Do(func() { used = es[0].Peer(farRank).msg.Channel().Params().CPU == cpu })
		return used
	}, "the open channel follows")

	done := es[0].Stats()
	require.Equal(t, 1, done.PathsMeasured)
	require.Positive(t, done.PathsTime)
	// One operation more in each of two turns, and the messages of the two sides.
	require.LessOrEqual(t, done.PathsBytes, uint64(bytes+2<<20))
	for _, e := range es {
		require.NoError(t, e.Close())
	}
	return true
}

// meet sends a message from a to b.
func meet(t *testing.T, a, b *Engine) {
	t.Helper()
	ctx := testutil.Context(t, testutil.Limit)
	req := a.Peer(b.Rank()).Send([]byte("hello"))
	_, err := b.Peer(a.Rank()).Recv(make([]byte, 8)).Wait(ctx)
	require.NoError(t, err)
	require.NoError(t, req.Wait(ctx))
}

// If one side does not measure, the nearest class's parameters remain in use, and nothing
// fails.
func TestPathIsNotMeasured(t *testing.T) {
	t.Parallel()
	for _, unwilling := range []int{0, farRank} {
		dir := t.TempDir()
		es := openFar(t, func(c *Config) {
			if c.Profiles = dir; c.Job.Rank == unwilling {
				c.PathBudget = -1
			}
		})
		meet(t, es[0], es[farRank])
		testutil.Eventually(t, testutil.Limit, func() bool {
			return es[0].bringup.Path(farRank).Class == sampling.Sockets && (unwilling == 0 || es[0].Stats().PathsTime > 0)
		}, "the end of the survey")
		meet(t, es[farRank], es[0])
		p := es[0].bringup.Path(farRank)
		require.Equal(t, es[0].bringup.Path(1).Params, p.Params)
		require.Equal(t, "sim, class host-far; parameters of class host-l2: "+p.Source, p.String())
		require.Zero(t, es[0].Stats().PathsMeasured)
	}
}
